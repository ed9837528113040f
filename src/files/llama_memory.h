/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_memory.h - the memories inside llama.cpp state files: KV caches and recurrent states */
#ifndef KVI_LLAMA_MEMORY_H
#define KVI_LLAMA_MEMORY_H

#include "llama_parse.h"

/* One attempt to read a file by one grammar; what it finds is appended to f. */
struct kvi_llama_attempt {
	struct kvi_llama_file *f;
	const struct kvi_alloc *alloc;
	struct kvi_scan *s;
	const struct kvi_llama_grammar *g;
	uint32_t checkpoint; /* of the memory being read: 0, or 1 + its number */
	bool no_memory;      /* an allocation failed */
	bool cut;            /* a matrix went past the end of the file */
	bool all_read;       /* all memories of the grammar were there */
	uint64_t good_until; /* end of the last matrix that was plausible */
};

/* Each reads one memory at the scan's position; false: it is not there. */
bool kvi_llama_kv_memory(struct kvi_llama_attempt *a, uint32_t blob);
/* States go on to `end`, or to the magic of the context checkpoints. */
bool kvi_llama_recurrent_memory(struct kvi_llama_attempt *a, uint64_t end);

/*
 * What the server appends to the memory of a slot. Context checkpoints whose memory
 * follows the grammar become sections; the bytes of others, and all of an appendix
 * that is not whole or of another version, are only skipped. False: there is none.
 */
bool kvi_llama_appendix(struct kvi_llama_attempt *a);

#endif
