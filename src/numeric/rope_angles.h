/* SPDX-License-Identifier: BSD-3-Clause */
/* rope_angles.h - cosines and sines of rotary embeddings at positions (spec linear 2) */
#ifndef KVI_ROPE_ANGLES_H
#define KVI_ROPE_ANGLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/* Tokens of a feature row: n_tokens rounded up to whole steps of 32. */
static inline size_t kvi_padded_tokens(size_t n_tokens)
{
	return (n_tokens + 31) & ~(size_t)31;
}

/* RoPE of one pair of channels at one position (spec linear 2). */
struct kvi_pair_rotation {
	int32_t cosine, sine; /* cosine and sine in 1/16384 */
	uint32_t angle;       /* angle in 1/4096 turns, rounded */
};
/* The rotation of a pair with frequency freq, as in kvarc_rope. */
struct kvi_pair_rotation kvi_pair_rotation(uint64_t freq, int32_t position);
/* The class of a pair_rotation's angle (spec grid 2). */
static inline uint8_t kvi_angle_class(uint32_t angle)
{
	return angle >> 5 & 63;
}

/*
 * Cosines and sines of the pairs of a rope at the positions of a segment, the
 * same for all layers. By pair and token: (cos, sin) in 1/16384, angle class.
 */
struct kvi_rotations {
	size_t pairs, n_tokens, tokens_capacity;
	uint64_t *freq;
	int32_t *positions;
	int16_t *turn;
	uint8_t *angle_class;
};
/*
 * Cosines and sines of angles rounded to 1/4096 of a turn (spec grid 2), by token and pair: cosines
 * in the low halves and sines in the high halves, in 1/16384; angle classes. by_pair: the classes
 * by pair and token, from KVI_TURNED tokens on, else NULL: `stride` tokens a pair, so that behind
 * each one KVI_TURNED - 1 others can be read.
 */
struct kvi_token_turns {
	size_t pairs, n_tokens;
	uint64_t *freq;
	int32_t *positions;
	uint32_t *turn;
	uint16_t *angle_class, *by_pair;
	size_t stride;
};
/* Fewer tokens are rotated one by one. */
enum { KVI_TURNED = 32 };
/* Bytes of memory, 8-aligned, for kvi_token_turns_make. */
size_t kvi_token_turns_bytes(size_t pairs, size_t n_tokens);
/* Fills *turns for n_tokens positions under a RoPE; buffer: kvi_token_turns_bytes, which turns
 * points into. */
void kvi_token_turns_make(struct kvi_token_turns *turns, void *buffer, const kvarc_rope *rope,
                          const int32_t *positions, size_t n_tokens);
/* Whether turns is already what kvi_token_turns_make would make. */
bool kvi_token_turns_equal(const struct kvi_token_turns *turns, const kvarc_rope *rope,
                           const int32_t *positions, size_t n_tokens);

/* Bytes of memory, 64-aligned, for kvi_rotations_make. */
size_t kvi_rotations_bytes(size_t pairs, size_t n_tokens);
/* Fills *rotations for n_tokens positions under a RoPE; buffer: kvi_rotations_bytes, which
 * rotations points into. */
void kvi_rotations_make(struct kvi_rotations *rotations, void *buffer, const kvarc_rope *rope,
                        const int32_t *positions, size_t n_tokens);
/* Whether rotations is already what kvi_rotations_make would make. */
bool kvi_rotations_equal(const struct kvi_rotations *rotations, const kvarc_rope *rope,
                         const int32_t *positions, size_t n_tokens);

#endif
