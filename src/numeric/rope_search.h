/* SPDX-License-Identifier: BSD-3-Clause */
/* rope_search.h - find or describe the rotary embedding of stored keys */
#ifndef KVI_ROPE_SEARCH_H
#define KVI_ROPE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* Largest number of pairs that a kvi_rope can hold. */
enum { KVI_ROPE_PAIRS_MAX = 512 };

/* A rope with its own storage. */
struct kvi_rope {
	uint8_t pairing;
	uint32_t rotary;
	uint64_t freq[KVI_ROPE_PAIRS_MAX];
};

/* theta > 1, rotary even and at most 2 * KVI_ROPE_PAIRS_MAX: freq[i] = theta^(-2i/rotary) / (2 pi)
 * turns. False when out of range. */
bool kvi_rope_make(struct kvi_rope *rope, double theta, uint32_t rotary, uint8_t pairing);

/* A sample of one key tensor: n tokens x heads x channels, packed, token-major. */
struct kvi_rope_sample {
	uint8_t dtype;
	uint32_t n, heads, channels;
	const int32_t *positions;
	const uint8_t *raw;
};

/*
 * Tries the usual bases, both pairings, full and partial rotation on samples of some
 * layers and keeps the best if rotating the mean explains clearly more than a
 * fixed mean does. hint_theta 0: none. Floating point; advice only. False also
 * without memory.
 */
bool kvi_rope_search(struct kvi_rope *best, const struct kvi_alloc *alloc,
                     const struct kvi_rope_sample *samples, size_t n_samples, double hint_theta);

/*
 * The pairing of a rope whose frequencies are known: its own, unless the other one explains
 * clearly more of the samples. False, and nothing is changed, when they say nothing, or without
 * memory.
 */
bool kvi_rope_choose_pairing(struct kvi_rope *rope, const struct kvi_alloc *alloc,
                             const struct kvi_rope_sample *samples, size_t n_samples);

#endif
