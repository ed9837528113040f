/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - parses the command line by the table of options, checks rules, shows help */
#ifndef KVARC_CLI_OPTIONS_H
#define KVARC_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A bit for each verb. */
enum {
	VERB_PACK = 0x1,
	VERB_UNPACK = 0x2,
	VERB_TEST = 0x4,
	VERB_LIST = 0x8,
	VERB_INFO = 0x10,
	VERB_CUT = 0x20,
	VERB_BENCH = 0x40,
	VERB_HELP = 0x80,
	VERB_TRAIN = 0x100,
	VERB_EVAL = 0x200,
	VERB_PROFILES = 0x400,
	VERB_WEIGHTS = 0x800,
	VERB_COMPACT = 0x1000,
	VERB_APPEND = 0x2000,
	VERB_LOG = 0x4000,
	VERB_KEYGEN = 0x8000,  /* not in VERB_ALL: it has few options */
	VERB_REPAIR = 0x10000, /* not in VERB_ALL, likewise */
	VERB_SESSION = 0x20000,
	VERB_STORE = 0x40000,
	VERB_WATCH = 0x80000,
	VERB_ALL = 0xe7f7f,
	/* take folders with -r */
	VERB_WALKS = VERB_UNPACK | VERB_TEST | VERB_LIST | VERB_INFO
};

/* Values of an option that may be repeated, in the order of the command line. */
struct option_list {
	const char **p;
	size_t n;
};

/* Values of the command line. Strings belong to argv. */
struct options {
	const struct verb *verb;
	char **files;
	size_t n_files;
	char **walked; /* subset of files that was found in folders (walk.h), freed */
	size_t n_walked;
	const char *output;                  /* -o; "-" with -c */
	uint32_t parity_pieces, parity_rows; /* 0: none */
	const char *link;                    /* bits per second, or a folder */
	uint64_t prefill;                    /* tokens per second; 0: not given */
	const char *rope, *model, *axes, *plot;
	char *kv_rule;               /* lines of --kv-rule and --kv-rules; NULL: none */
	const char *raw, *layout;    /* description of pages of engines */
	const char *label;           /* label of a checkpoint, or of a version of a session */
	const char *keep_states;     /* "last", "labels", or a number of checkpoints */
	struct option_list identity; /* "key=value" */
	struct option_list profiles, measure;
	struct option_list key_files, passphrase_files;
	struct option_list tiers; /* near:ERROR of --max-error among them */
	char *near_tier;
	uint64_t sequences, prefix, continuation, group;
	double max_kl;      /* 0: not given */
	const char *scores; /* "h2o", "surprisal", or a file */
	uint64_t write, seed;
	int32_t first_token; /* -1: not given */
	unsigned dtype;      /* kvarc_dtype */
	uint64_t memlimit, layer0, n_layers, token0, n_tokens, track;
	uint32_t isa_mask;
	uint64_t held_out;
	uint64_t checkpoint;              /* 0: the last state */
	const char *index;                /* path of the store's index */
	const char *store, *name_space;   /* store and namespace of sessions */
	const char *server, *slot_folder; /* llama.cpp: URL, and folder of slots */
	const char *have;                 /* file that lists what a receiver has */
	const char *attach;               /* folder beside the cache */
	uint64_t slot;
	uint64_t device;                       /* number of a GPU */
	uint64_t budget, keep_versions, grace; /* options of gc; grace in seconds */
	bool grace_given, dry_run, no_repack;
	unsigned threads, repeat;
	int level, verbosity;
	unsigned arithmetic, loop; /* kvarc_arithmetic, kvarc_loop */
	unsigned blind;            /* for kvarc_predictor_open_blind; 0: with the token */
	unsigned token_ids;        /* 0, or 1 + kvarc_token_ids */
	unsigned to;               /* 0; 1: safetensors, 2: llama */
	unsigned salvage_tokens;   /* 0 or 1: keep whole leading tokens, 2: zero lost ones */
	bool allow_lossy, klt;
	bool level_given, threads_given, range_given, dtype_given;
	bool embed_profile;
	bool force, keep, remove, json, opaque, members, verify, streamable, salvage;
	bool encrypt, decrypt;
	bool head_block, whole_layer, no_table, no_stages;
	bool to_stdout; /* -c */
	bool recursive;
	bool device_given;
	bool once, poll; /* options of watch */
	bool accept_weak_store;
	bool nothing_left; /* no files remained after folders were walked */
	bool slot_files;   /* files are in a folder that another program writes to: no links */
	char *hidden[2];   /* store and server, where argv does not show them any more */
};

/* A verb of the command; bit: VERB_*. */
struct verb {
	const char *name;
	unsigned bit;
	const char *operands;
	const char *summary;
	const char *examples;                 /* lines, for --help */
	void (*run)(const struct options *o); /* NULL: options_parse does it, and returns 1 */
};

/*
 * Parses argv[1..]. 0: go on; 1: all done (help, version, completions);
 * -1: wrong, a message was shown.
 */
int options_parse(struct options *options, int argc, char **argv);
/* Frees the lists; strings of argv stay. */
void options_free(struct options *options);
/* kvarc help, with and without a verb. */
void help(const struct options *options);
/* completions.c; false: unknown shell. */
bool completions_print(const char *shell);
/* Prints one line per option: verb, letter, name, argument; for tests of the manual. */
void completions_print_table(void);

#endif
