/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_shorten.h - a llama.cpp file with only its leading tokens */
#ifndef KVI_LLAMA_SHORTEN_H
#define KVI_LLAMA_SHORTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "files/llama_parse.h"
#include "files/unpack_elements.h"
#include "format/restore.h"
#include "parse/scan.h"
#include "util/alloc.h"
#include "util/intervals.h"

/* ==== Where the elements of a file go in a shorter one ==== */

/* Bytes [from, from + bytes) of the file are bytes from `to` on of the shorter one. */
struct kvi_llama_moved {
	uint64_t from, to, bytes;
};

/* All moved ranges of a file. A byte may be moved to more than one offset, or to none. */
struct kvi_llama_map {
	const struct kvi_alloc *alloc;
	const struct kvi_restore *plan; /* pieces of the file */
	const uint64_t *starts;         /* offsets of the pieces, and the size of the file */
	struct kvi_llama_moved *list;
	size_t n, cap;
	struct kvi_interval *intervals; /* intervals of the list, by kvi_llama_map_sort */
	const kvarc_sink *sink;         /* sink of the shorter file */
};

/* Makes the map searchable; nothing is added any more. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_llama_map_sort(struct kvi_llama_map *map);
/* The tokens of each track whose elements are moved: spans has one entry a track, zeroed. */
void kvi_llama_map_spans(const struct kvi_llama_map *map, struct kvi_token_span *spans);
/* A sink for bytes of the file, which writes them where they are moved to. */
kvarc_sink kvi_llama_map_sink(struct kvi_llama_map *map);
/* Frees the list. */
void kvi_llama_map_free(struct kvi_llama_map *map);

/* ==== A llama.cpp file with only its leading tokens ==== */

/* Bytes that are copied at once. */
enum { KVI_LLAMA_COPY_BYTES = 1 << 16 };

/* A file that is shortened: what the caller fills, what kvi_llama_choose finds, what
 * kvi_llama_put needs. */
struct kvi_llama_short {
	const struct kvi_alloc *alloc;
	struct kvi_scan *s; /* scan of the file */
	struct kvi_llama_file f;
	const struct kvi_restore *plan; /* pieces of the file: positions of the elements */
	const uint64_t *whole;          /* by track: leading tokens that are whole */
	uint64_t limit;                 /* tokens that are wanted, at most */
	bool strict; /* positions from 0 on, also of all tokens: no engine wrote the file */

	uint64_t tokens; /* leading tokens that an engine can restore; 0: none */
	uint64_t base;   /* leading tokens without those from checkpoints */
	bool all;        /* all tokens, with the slot's own memories as they are */
	const struct kvi_llama_checkpoint *state; /* state at the end; NULL: the slot's */
	bool window;          /* the window is joined from the slot and checkpoints */
	uint64_t window_from; /* first position of the window */
	/* Section of the window in the shorter file, NULL: none, and its bytes. */
	const struct kvi_llama_section *window_section;
	uint64_t window_bytes;

	const kvarc_sink *sink;    /* gets bytes in order */
	struct kvi_llama_map *map; /* NULL: elements are copied; else each gets an entry */
	uint8_t *buffer;           /* KVI_LLAMA_COPY_BYTES */
	uint64_t at;               /* bytes of the shorter file so far */
};

/* Why a file that was parsed cannot be shortened, or NULL; static storage. */
const char *kvi_llama_obstacle(const struct kvi_llama_short *shortened);
/* Whether all elements are there: of the slot's own memories, and of checkpoints if they count. */
bool kvi_llama_all_whole(const struct kvi_llama_short *shortened, bool checkpoints);
/*
 * Finds the longest prefix of at most `limit` tokens that an engine can go on from: of the slot's
 * own memories, or of a checkpoint where these need tokens that are lost or a sliding window or a
 * recurrent state that cannot be rewound. Returns OK, IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_llama_choose(struct kvi_llama_short *shortened);
/* Writes the file with these tokens: list, cells, keys, values and checkpoints agree. Returns
 * OK, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_llama_put(struct kvi_llama_short *shortened);

#endif
