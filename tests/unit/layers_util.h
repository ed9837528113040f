/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_util.h - caches of several layers and made-up profiles for them */
#ifndef LAYERS_UTIL_H
#define LAYERS_UTIL_H

#include "stream_util.h"

/* What a made-up cache looks like: keys with a rope and values, every layer the
 * same but for a little noise, so that a profile that says so pays. */
struct layers_shape {
	uint32_t layers, heads, channels, tokens, tracks;
	uint8_t dtype;
	bool rope;
	uint32_t latent_layer; /* has an MLA latent as well; UINT32_MAX: none */
};
void cache_make_layers(struct cache *c, const struct layers_shape *s, uint64_t seed);

/*
 * A profile with models of both levels for all tensors of a cache: sources,
 * scopes, scales and tables at random; the first source is copied, the rest
 * have small random coefficients.
 */
kvarc_profile *layers_profile(const struct cache *c, uint64_t seed);

#endif
