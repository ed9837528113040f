/* SPDX-License-Identifier: BSD-3-Clause */
/* model_world.h - a key and a value of a layer with what a transformer is to expect of them */
#ifndef MODEL_WORLD_H
#define MODEL_WORLD_H

#include "codecs/codec.h"
#include "profile/expect.h"
#include "profile/profile_io.h"

enum { N_TENSORS = 2 };

/* How elements are made. HOLES: near what is expected, but for one that is no number. */
enum model_pattern { NEAR, CONSTANT, FAR, ANY, HOLES, PATTERNS };

/* A key and a value of one layer, what is expected of them, and a profile. */
struct model_world {
	struct kvi_profile *profile;
	kvarc_rope rope;
	uint64_t freq[32];
	unsigned dtype, level;
	enum model_pattern pattern;
	uint32_t n_tokens, heads;
	int32_t positions[256];
	int step, noise; /* of all slots: 2^step, 2^noise */
	uint32_t width;  /* of a hidden state that the value's model corrects; 0: none */
	struct kvi_encode_request request[N_TENSORS];
	struct kvi_linear_in in[N_TENSORS];
	struct kvi_features *features[N_TENSORS];
	int16_t *expected[N_TENSORS];
	uint8_t *raw[N_TENSORS];
};

/* Numbers that look random begin again. */
void model_world_seed(uint64_t seed);
/* The world of a round: both tensors, 1 to 256 tokens. */
void model_world_make(struct model_world *w, unsigned round);
/* Elements, features and what a codec is given of tensor i, whose model is in the profile. */
void model_world_connect(struct model_world *w, size_t i);
void model_world_free(struct model_world *w);

#endif
