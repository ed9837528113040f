/* SPDX-License-Identifier: BSD-3-Clause */
/* option_table.c - every verb and option: --help, completions and manual follow it */
#include "commands.h"
#include "option_ids.h"
#include "options.h"

const struct verb options_verbs[] = {
	{ "pack", VERB_PACK, "FILE...",
	  "pack caches into archives (FILE.kva)",
	  "  kvarc pack slot.bin                  writes slot.bin.kva\n"
	  "  kvarc pack -0 cache.safetensors      faster, a little larger\n"
	  "  kvarc pack --profile smollm2.kvp slot.bin   much smaller\n"
	  "  cat slot.bin | kvarc pack - | ssh host 'kvarc unpack - > slot.bin'\n",
	  cmd_pack },
	{ "unpack", VERB_UNPACK, "ARCHIVE...",
	  "give the packed files back, bit for bit",
	  "  kvarc unpack slot.bin.kva            writes slot.bin\n"
	  "  kvarc unpack -o copy.bin slot.bin.kva\n"
	  "  kvarc unpack --salvage damaged.kva   saves what is intact\n"
	  "  kvarc unpack --to safetensors a.kva  writes the tensors instead\n",
	  cmd_unpack },
	{ "test", VERB_TEST, "ARCHIVE...",
	  "decode everything and check every check",
	  "  kvarc test *.kva                     silent when all is well\n",
	  cmd_test },
	{ "list", VERB_LIST, "ARCHIVE...",
	  "show layers and what each of them costs",
	  "  kvarc list slot.bin.kva\n",
	  cmd_list },
	{ "info", VERB_INFO, "ARCHIVE...",
	  "show identity, sizes, state and checks",
	  "  kvarc info --json slot.bin.kva\n"
	  "  kvarc info --plot bits.svg slot.bin.kva\n"
	  "  kvarc info --identity engine=llama.cpp slot.bin.kva\n",
	  cmd_info },
	{ "cut", VERB_CUT, "ARCHIVE",
	  "copy some layers and tokens into a new archive",
	  "  kvarc cut --tokens 0-511 -o prefix.kva session.kva\n",
	  cmd_cut },
	{ "train", VERB_TRAIN, "[FILE...]",
	  "fit a profile to caches of a model, for levels 2 to 7",
	  "  kvarc train -o model.kvp caches/*.safetensors\n"
	  "  kvarc train -o wide.kvp --head-block *.kva\n"
	  "  kvarc train -o model-6.kvp --level 6 --model MODEL caches/*.safetensors\n"
	  "  kvarc train -o model-6.kvp --level 6 --model MODEL --generate 12000\n",
	  cmd_train },
	{ "bench", VERB_BENCH, "FILE...",
	  "measure speed and size in memory",
	  "  kvarc bench slot.bin\n"
	  "  kvarc bench --json -1 -T 1 --isa scalar slot.bin\n",
	  cmd_bench },
	{ "help", VERB_HELP, "[VERB]", "explain a verb", "", cmd_help },
	{ NULL, 0, NULL, NULL, NULL, NULL }
};

#define WRITES (VERB_PACK | VERB_UNPACK | VERB_CUT)
#define CODES (WRITES | VERB_TEST | VERB_BENCH | VERB_TRAIN)
#define ISAS "scalar avx2 avx512 neon"

const struct option_row options_rows[] = {
	{ OPT_OUTPUT, 'o', "output", "FILE", ARG_FILE, NULL, WRITES | VERB_TRAIN,
	  "write to FILE, or into the folder FILE" },
	{ OPT_STDOUT, 'c', "stdout", NULL, ARG_NONE, NULL, WRITES,
	  "write to standard output" },
	{ OPT_LEVEL, 0, "level", "N", ARG_CHOICE, "0 1 2 3 4 5 6 7",
	  VERB_PACK | VERB_CUT | VERB_BENCH | VERB_TRAIN,
	  "-0 fast, -1 small (default), -2 -3 with a profile, -4..-7 a model" },
	{ OPT_PROFILE, 0, "profile", "KVP", ARG_FILE, NULL, VERB_ALL,
	  "use this profile of the model; may be repeated" },
	{ OPT_EMBED, 0, "embed-profile", NULL, ARG_NONE, NULL,
	  VERB_PACK | VERB_CUT,
	  "put the profile into the archive" },
	{ OPT_ROPE, 0, "rope", "SPEC", ARG_VALUE, NULL, VERB_PACK | VERB_TRAIN,
	  "auto, none, or THETA[,half|interleaved][,DIMS]" },
	{ OPT_MODEL, 0, "model", "MODEL", ARG_FILE, NULL, CODES,
	  "a GGUF, or a folder with config.json and safetensors" },
	{ OPT_KV_RULE, 0, "kv-rule", "RULE", ARG_VALUE, NULL,
	  VERB_PACK | VERB_BENCH | VERB_TRAIN,
	  "names of tensors, \"layers.{layer}.{key|value}\"" },
	{ OPT_AXES, 0, "axes", "AXES", ARG_VALUE, NULL,
	  VERB_PACK | VERB_BENCH | VERB_TRAIN,
	  "axes of those tensors: head, token, channel; \"htc\"" },
	{ OPT_OPAQUE, 0, "opaque", NULL, ARG_NONE, NULL, VERB_PACK,
	  "do not look inside, keep plain bytes" },
	{ OPT_VERIFY, 0, "verify", NULL, ARG_NONE, NULL, VERB_PACK | VERB_CUT,
	  "decode every chunk again and compare" },
	{ OPT_STREAMABLE, 0, "streamable", NULL, ARG_NONE, NULL,
	  VERB_PACK | VERB_CUT,
	  "let readers need no seeking" },
	{ OPT_SALVAGE, 0, "salvage", NULL, ARG_NONE, NULL, VERB_UNPACK,
	  "save what is intact in a damaged archive" },
	{ OPT_TO, 0, "to", "FORMAT", ARG_CHOICE, "safetensors", VERB_UNPACK,
	  "write the tensors as FORMAT: safetensors" },
	{ OPT_LAYERS, 0, "layers", "A-B", ARG_VALUE, NULL, VERB_UNPACK | VERB_CUT,
	  "only these layers, from 0, both included" },
	{ OPT_TOKENS, 0, "tokens", "A-B", ARG_VALUE, NULL, VERB_UNPACK | VERB_CUT,
	  "only these tokens, from 0, both included" },
	{ OPT_TRACK, 0, "track", "N", ARG_VALUE, NULL, VERB_UNPACK | VERB_CUT,
	  "of this track (token axis), 0 by default" },
	{ OPT_PLOT, 0, "plot", "SVG", ARG_FILE, NULL, VERB_INFO,
	  "draw bits per element by layer and stage" },
	{ OPT_IDENTITY, 0, "identity", "KEY=VALUE", ARG_VALUE, NULL,
	  VERB_INFO | VERB_TRAIN,
	  "demand (info) or record (train) this identity" },
	{ OPT_HELD_OUT, 0, "held-out", "PERCENT", ARG_VALUE, NULL, VERB_TRAIN,
	  "only measure the last tokens of each input (10)" },
	{ OPT_MEASURE, 0, "measure", "FILE", ARG_FILE, NULL, VERB_TRAIN,
	  "only measure all of FILE; may be repeated" },
	{ OPT_WRITE, 0, "generate", "N", ARG_VALUE, NULL, VERB_TRAIN,
	  "let the model write N tokens and fit to them" },
	{ OPT_SEED, 0, "seed", "N", ARG_VALUE, NULL, VERB_TRAIN,
	  "of what --generate writes (0)" },
	{ OPT_FIRST_TOKEN, 0, "first-token", "ID", ARG_VALUE, NULL, VERB_TRAIN,
	  "what its sequences begin with (as the model says)" },
	{ OPT_DTYPE, 0, "dtype", "DTYPE", ARG_CHOICE, "f32 f16 bf16", VERB_TRAIN,
	  "of caches that are made from token ids (bf16)" },
	{ OPT_HEAD_BLOCK, 0, "head-block", NULL, ARG_NONE, NULL, VERB_TRAIN,
	  "predict within heads: smaller, faster, less gain" },
	{ OPT_WHOLE_LAYER, 0, "whole-layer", NULL, ARG_NONE, NULL, VERB_TRAIN,
	  "predict from the whole layer, however wide" },
	{ OPT_NO_TABLE, 0, "no-table", NULL, ARG_NONE, NULL, VERB_TRAIN,
	  "no table of token ids for the lowest layer" },
	{ OPT_REPEAT, 0, "repeat", "N", ARG_VALUE, NULL, VERB_BENCH,
	  "take the fastest of N runs (5)" },
	{ OPT_THREADS, 'T', "threads", "N", ARG_VALUE, NULL, CODES,
	  "threads, 0 for all cores (default: up to 4)" },
	{ OPT_MEMORY, 'M', "memory", "SIZE", ARG_VALUE, NULL, VERB_ALL,
	  "memory limit, with K, M or G (256M)" },
	{ OPT_ISA, 0, "isa", "SET", ARG_CHOICE, ISAS, CODES,
	  "use only these kernels: scalar, avx2, avx512, neon" },
	{ OPT_FORCE, 'f', "force", NULL, ARG_NONE, NULL,
	  WRITES | VERB_INFO | VERB_TRAIN,
	  "overwrite existing files" },
	{ OPT_KEEP, 'k', "keep", NULL, ARG_NONE, NULL, VERB_PACK | VERB_UNPACK,
	  "keep the sources (the default)" },
	{ OPT_RM, 0, "rm", NULL, ARG_NONE, NULL, VERB_PACK,
	  "remove the source after success (implies --verify)" },
	{ OPT_JSON, 0, "json", NULL, ARG_NONE, NULL, VERB_ALL,
	  "print JSON, one object a line" },
	{ OPT_QUIET, 'q', "quiet", NULL, ARG_NONE, NULL, VERB_ALL,
	  "show errors only" },
	{ OPT_VERBOSE, 'v', "verbose", NULL, ARG_NONE, NULL, VERB_ALL,
	  "show more" },
	{ OPT_HELP, 'h', "help", NULL, ARG_NONE, NULL, VERB_ALL | VERB_HELP,
	  "show this help" },
	{ 0, 0, NULL, NULL, ARG_NONE, NULL, 0, NULL }
};
