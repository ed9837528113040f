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

/* Values of the command line: those of many verbs, and a struct for each subject. Strings belong to
 * argv. */
struct options {
	const struct verb *verb;
	char **files;
	size_t n_files;
	char **walked; /* subset of files that was found in folders (walk.h), freed */
	size_t n_walked;
	const char *output; /* -o; "-" with -c */
	const char *plot;
	const char *keep_states; /* compact: "last", "labels", or a number of checkpoints */
	const char *have;        /* session send: file that lists what a receiver has */
	const char *digest;      /* profiles install: 32 hex digits */
	unsigned dtype;          /* kvarc_dtype of caches that train and eval make of token ids */
	int verbosity;
	bool dtype_given;
	bool force, keep, remove, json, recursive;
	bool to_stdout;    /* -c */
	bool nothing_left; /* no files remained after folders were walked */
	bool slot_files;   /* files are in a folder that another program writes to: no links */
	char *hidden[2];   /* URLs of store and server, where argv does not show them any more */
	/* Threads, memory and kernels: of every handle of the library. */
	struct work_options {
		uint64_t memlimit;
		uint32_t isa_mask;
		unsigned threads;
		bool threads_given;
	} work;
	/* The level, and the profiles and the model that it predicts elements with. */
	struct coding_options {
		struct option_list profiles;
		const char *model;
		int level;
		unsigned arithmetic, loop; /* kvarc_arithmetic, kvarc_loop */
		unsigned blind;            /* for kvarc_predictor_open_blind; 0: with the token */
		bool level_given, embed_profile;
	} coding;
	/* How files of engines are read. */
	struct import_options {
		const char *rope, *axes;
		const char *raw, *layout; /* description of pages of engines */
		char *kv_rule;            /* lines of --kv-rule and --kv-rules; NULL: none */
		bool opaque, members;
		bool as_cache; /* never kept whole */
	} import;
	/* How archives are read. */
	struct reading_options {
		uint64_t checkpoint;     /* 0: the last state */
		unsigned salvage_tokens; /* 0 or 1: keep whole leading tokens, 2: zero lost ones */
		bool salvage, allow_lossy;
	} reading;
	/* How archives are written, and what they record beside caches. */
	struct archive_options {
		uint32_t parity_pieces, parity_rows; /* 0: none */
		struct option_list identity;         /* "key=value" */
		const char *attach;                  /* folder beside the cache */
		const char *label;  /* label of a checkpoint, or of a version of a session */
		unsigned token_ids; /* 0, or 1 + kvarc_token_ids */
		bool verify, streamable;
	} archive;
	/* Tiers of lossy archives, and limits of what they may lose. */
	struct lossy_options {
		struct option_list tiers; /* near:ERROR of --max-error among them */
		char *near_tier;
		const char *scores; /* "h2o", "surprisal", or a file */
		double max_kl;      /* 0: not given */
	} lossy;
	/* Keys and passphrases of archives, and whether what is written is encrypted. */
	struct key_options {
		struct option_list files, passphrase_files;
		bool encrypt, decrypt;
	} keys;
	/* The part of an archive that unpack and cut take, and the format that they write. */
	struct extract_options {
		uint64_t layer0, n_layers, token0, n_tokens, track;
		unsigned to;            /* 0; 1: safetensors, 2: llama */
		uint64_t state_version; /* of a llama.cpp slot; 0: as it was */
		bool range_given;
	} extract;
	/* A store of sessions. */
	struct store_options {
		const char *url, *name_space;
		const char *index; /* path of the index */
		bool accept_weak;
	} store;
	/* A llama.cpp server and its folder of slots. */
	struct server_options {
		const char *url, *slot_folder;
		uint64_t slot;
		bool exact, no_canary;
	} server;
	/* Limits of store gc. */
	struct gc_options {
		uint64_t budget, keep_versions, grace; /* grace in seconds */
		bool grace_given, dry_run, no_repack;
	} gc;
	/* How watch ends, and learns of changes. */
	struct watch_options {
		bool once, poll;
	} watch;
	/* The number and the lengths of the sequences of eval. */
	struct eval_options {
		uint64_t sequences, prefix, continuation;
	} eval;
	/* Kinds of models that train fits, and what it fits them to. */
	struct train_options {
		struct option_list measure;
		uint64_t held_out, write, seed, group;
		int32_t first_token; /* -1: not given */
		bool head_block, whole_layer, no_table, no_stages, klt;
	} train;
	/* Repetitions and links of bench. */
	struct bench_options {
		const char *link; /* bits per second, or a folder */
		uint64_t prefill; /* tokens per second; 0: not given */
		unsigned repeat;
	} bench;
	/* A GPU, by its number. */
	struct device_options {
		uint64_t number;
		bool given;
	} device;
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
