/* SPDX-License-Identifier: BSD-3-Clause */
/* params_store.h - parsed PARAMS: the last one of each tensor and first head */
#ifndef KVI_PARAMS_STORE_H
#define KVI_PARAMS_STORE_H

#include <pthread.h>

#include "codecs/codec.h"
#include "format/params_header.h"

/* One parsed PARAMS frame; freed when it was replaced and nobody uses it. */
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
bool kvi_params_store_init(struct kvi_params_store *s, const struct kvi_alloc *alloc);
/* Frees the store, whose parameters nobody uses any more. */
void kvi_params_store_free(struct kvi_params_store *s);
/*
 * Takes params over, in every case, and replaces what was there of the same
 * tensor and first head. use: NULL, or gets a use that the caller releases.
 * Returns OK, MEM, MEMLIMIT.
 */
kvarc_ret kvi_params_store_add(struct kvi_params_store *s, struct kvi_params *params,
                               const struct kvi_params_header *h, uint64_t sequence,
                               struct kvi_params_use **use);
/* NULL: this one is not here. Give it back with _release, which is NULL-safe. */
struct kvi_params_use *kvi_params_store_find(struct kvi_params_store *s, uint32_t tensor,
                                             uint16_t head, uint64_t sequence);
/* Ends a use of parameters, which may free them. Any thread. */
void kvi_params_store_release(struct kvi_params_store *s, struct kvi_params_use *use);

#endif
