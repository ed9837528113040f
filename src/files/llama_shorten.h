/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_shorten.h - a llama.cpp file with only its leading tokens */
#ifndef KVI_LLAMA_SHORTEN_H
#define KVI_LLAMA_SHORTEN_H

#include "format/restore.h"
#include "llama_map.h"
#include "llama_parse.h"

/* Bytes that are copied at once. */
enum { KVI_LLAMA_COPY_BYTES = 1 << 16 };

/* A file that is shortened: what the caller fills, what kvi_llama_choose finds, what
 * kvi_llama_put needs. */
struct kvi_llama_short {
	const struct kvi_alloc *alloc;
	struct kvi_scan *s; /* on the file */
	struct kvi_llama_file f;
	const struct kvi_restore *plan; /* where its elements lie */
	const uint64_t *whole;          /* leading tokens of each track that are there */
	uint64_t limit;                 /* tokens that are wanted, at most */
	bool strict; /* positions from 0 on, also of all tokens: no engine wrote the file */

	uint64_t tokens; /* leading tokens that an engine can restore; 0: none */
	uint64_t base;   /* the same, but for what checkpoints hold */
	bool all;        /* all tokens, with the slot's own memories as they are */
	const struct kvi_llama_checkpoint *state; /* whose state ends them, NULL: the slot's */
	bool window;          /* it is put together from the slot's and those of checkpoints */
	uint64_t window_from; /* its first position */
	/* of the window in the shorter file: its section, NULL: none, and its bytes */
	const struct kvi_llama_section *window_section;
	uint64_t window_bytes;

	const kvarc_sink *sink;    /* gets bytes in order */
	struct kvi_llama_map *map; /* NULL: elements are copied; else they get an entry each */
	uint8_t *buffer;           /* KVI_LLAMA_COPY_BYTES */
	uint64_t at;               /* bytes of the shorter file so far */
};

/* Cells [cell, cell + n) of a section, whose description is bytes [at, end) of the file. */
struct kvi_llama_cells {
	const struct kvi_llama_section *section;
	uint32_t cell, n;
	uint64_t at, end;
};
/* Cells that stay, in the order of the shorter file; all zero: none yet. */
struct kvi_llama_runs {
	struct kvi_llama_cells *list;
	size_t n, cap;
	uint64_t cells;
};
/* Adds a cell at the end. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_llama_runs_add(struct kvi_llama_runs *runs, const struct kvi_alloc *alloc,
                             const struct kvi_llama_cells *one);

/* How many leading cells of a section are whole in all of its matrices. */
uint64_t kvi_llama_whole_cells(const struct kvi_llama_short *x, const struct kvi_llama_section *k);
/* Does a checkpoint hold this memory, so that its state can stand for it? */
bool kvi_llama_in_checkpoints(const struct kvi_llama_short *x, const struct kvi_llama_section *k);
/*
 * The longest prefix of at most x->base tokens whose sliding window is in the slot and its
 * checkpoints together (llama_window.c): sets tokens, window and window_from when it is longer
 * than x->tokens. Returns OK, IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_llama_window_choose(struct kvi_llama_short *x);
/* The cells of that window. Returns OK, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_llama_window_pick(const struct kvi_llama_short *x, struct kvi_llama_runs *runs);

/* Why a file that was parsed cannot be shortened, or NULL; static storage. */
const char *kvi_llama_obstacle(const struct kvi_llama_short *x);
/* Whether all elements are there: of the slot's own memories, and of checkpoints if they count. */
bool kvi_llama_all_whole(const struct kvi_llama_short *x, bool checkpoints);
/*
 * Finds the longest prefix of at most `limit` tokens that an engine can go on from: of the slot's
 * own memories, or of a checkpoint where these need tokens that are lost or a sliding window or a
 * recurrent state that cannot be rewound. Returns OK, IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_llama_choose(struct kvi_llama_short *x);
/* Writes the file with these tokens: list, cells, keys, values and checkpoints agree. Returns
 * OK, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_llama_put(struct kvi_llama_short *x);

#endif
