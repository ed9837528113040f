/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_map.h - where the elements of a file go in a shorter one */
#ifndef KVI_LLAMA_MAP_H
#define KVI_LLAMA_MAP_H

#include "format/restore.h"
#include "kvarc.h"
#include "unpack_elements.h"
#include "util/alloc.h"
#include "util/intervals.h"

/* Bytes [from, from + bytes) of the file are bytes from `to` on of the shorter one. */
struct kvi_llama_moved {
	uint64_t from, to, bytes;
};

/* All of them. A byte may go to more than one place, or to none. */
struct kvi_llama_map {
	const struct kvi_alloc *alloc;
	const struct kvi_restore *plan; /* of the file */
	const uint64_t *starts;         /* of its pieces in it, and its size */
	struct kvi_llama_moved *list;
	size_t n, cap;
	struct kvi_interval *intervals; /* of the list, by kvi_llama_map_sort */
	const kvarc_sink *sink;         /* of the shorter file */
};

/* The piece of the plan that holds byte `at` of the file. */
size_t kvi_llama_map_piece(const struct kvi_llama_map *m, uint64_t at);
/* Adds an entry. False: no memory. */
bool kvi_llama_map_add(struct kvi_llama_map *m, uint64_t from, uint64_t to, uint64_t bytes);
/* Makes the map searchable; nothing is added any more. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_llama_map_sort(struct kvi_llama_map *m);
/* The tokens of each track whose elements are moved: spans has one entry a track, zeroed. */
void kvi_llama_map_spans(const struct kvi_llama_map *m, struct kvi_token_span *spans);
/* A sink for bytes of the file, which writes them where they are moved to. */
kvarc_sink kvi_llama_map_sink(struct kvi_llama_map *m);
/* Frees the list. */
void kvi_llama_map_free(struct kvi_llama_map *m);

#endif
