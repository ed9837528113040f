/* SPDX-License-Identifier: BSD-3-Clause */
/* synth.h - made-up caches and files in memory, for tests of the whole library */
#ifndef KV_TEST_SYNTH_H
#define KV_TEST_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/* Says what was expected where, and ends the test with status 1. */
#define REQUIRE(cond)                                          \
	do {                                                   \
		if (!(cond))                                   \
			synth_fail(__FILE__, __LINE__, #cond); \
	} while (0)
_Noreturn void synth_fail(const char *file, int line, const char *what);

/* A file in memory; a sink appends or overwrites, a source reads it. */
struct synth_file {
	uint8_t *p;
	size_t n, cap;
};
kvarc_sink synth_sink(struct synth_file *f);
kvarc_source synth_source(struct synth_file *f);

/* What the elements of a tensor look like. */
enum synth_kind {
	SYNTH_SMOOTH,   /* normal, a mean and a scale per channel; the mean of keys
	                 * turns with the position when there is a rope */
	SYNTH_BITS,     /* random bits: NaN, infinities, subnormals */
	SYNTH_SPARSE,   /* dead channels and zero rows among smooth ones */
	SYNTH_CONSTANT, /* one value */
	SYNTH_KINDS
};

struct synth_shape {
	uint8_t dtype;
	uint32_t layers, heads, channels, tokens;
	bool rope;
	enum synth_kind kind;
};

/* A cache of one track: a key and a value tensor a layer, packed. */
struct synth_cache {
	struct synth_shape shape;
	uint64_t freq[64];
	kvarc_rope rope;
	kvarc_track track;
	kvarc_tensor tensors[16];
	kvarc_geometry geometry;
	size_t row;       /* bytes of a token and tensor */
	uint8_t *raw[16]; /* tokens * row each */
	int32_t *ids;
};
void synth_make(struct synth_cache *c, const struct synth_shape *shape, uint64_t seed);
void synth_free(struct synth_cache *c);
/* Views from token t0 on. base: n_tensors blocks of tokens * row. */
void synth_views(const struct synth_cache *c, uint8_t *const *base, uint64_t t0, kvarc_view *views);

#endif
