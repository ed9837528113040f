/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_params.h - parameters of chunks: PARAMS frames, the last of each tensor and head */
#ifndef KVI_READER_PARAMS_H
#define KVI_READER_PARAMS_H

#include <pthread.h>
#include "codecs/codec.h"
#include "format/packed.h"
#include "format/params_header.h"
#include "reader_index.h"

/* A parsed PARAMS frame; freed when it was replaced and nobody uses it. */
struct kvi_params_use {
	struct kvi_params *params;
	struct kvi_params_header header;
	uint64_t sequence;
	unsigned users; /* the store itself counts as one */
};

/* The parameters that chunks need now, shared by the jobs that decode them. */
struct kvi_params_store {
	const struct kvi_alloc *alloc;
	pthread_mutex_t lock;
	struct kvi_params_use **slots; /* by tensor and head, open addressing */
	size_t n_slots, n_used;
};

/* False: the system gives no lock. */
bool kvi_params_store_init(struct kvi_params_store *store, const struct kvi_alloc *alloc);
/* Frees the store, whose parameters nobody uses any more. */
void kvi_params_store_free(struct kvi_params_store *store);
/* NULL: this one is not here. Give it back with _release, which is NULL-safe. */
struct kvi_params_use *kvi_params_store_find(struct kvi_params_store *store, uint32_t tensor,
                                             uint16_t head, uint64_t sequence);
/* Ends a use of parameters, which may free them. Any thread. */
void kvi_params_store_release(struct kvi_params_store *store, struct kvi_params_use *use);
/* Parameters of a chunk: from the store, else from the file. NULL in *use when
 * it has none. That they are of the chunk's codec is tested by its job. */
kvarc_ret kvi_reader_params(kvarc_reader *r, struct kvi_packer *packer,
                            const struct kvi_chunk_ref *chunk, struct kvi_params_use **use,
                            kvarc_error *error);
/* Parses a PARAMS content into the store, under a sequence number that may be
 * that of the frame it copies. */
kvarc_ret kvi_reader_add_params(kvarc_reader *r, const struct kvi_frame *frame, uint64_t sequence,
                                const uint8_t *content, size_t bytes, struct kvi_params_use **use,
                                kvarc_error *error);
/* Reads the content of the PARAMS frame of a chunk, without parsing it. */
kvarc_ret kvi_reader_params_content(kvarc_reader *r, const struct kvi_chunk_ref *chunk,
                                    struct kvi_out *content);

#endif
