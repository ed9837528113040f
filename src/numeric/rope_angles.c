/* SPDX-License-Identifier: BSD-3-Clause */
/* rope_angles.c - cosines and sines of rotary embeddings at positions (spec linear 2) */
#include "rope_angles.h"

#include <string.h>

#include "rotate.h"

size_t kvi_rotations_bytes(size_t pairs, size_t n_tokens)
{
	size_t padded = kvi_padded_tokens(n_tokens);
	return pairs * sizeof(uint64_t) + n_tokens * sizeof(int32_t) +
	       pairs * padded * (2 * sizeof(int16_t) + 1);
}

struct kvi_pair_rotation kvi_pair_rotation(uint64_t freq, int32_t position)
{
	uint64_t turn = (uint64_t)(int64_t)position * freq;
	uint32_t i = kvi_rotate_angle(freq, position);
	int32_t d = (int32_t)((int64_t)(turn - ((uint64_t)i << 52)) >> 36);
	int32_t c = kvi_cos4096[i], s = kvi_cos4096[(i + 3072) & 4095];
	return (struct kvi_pair_rotation){
		.cosine = c - ((((s * d) >> 15) * 1608 + (1 << 20)) >> 21),
		.sine = s + ((((c * d) >> 15) * 1608 + (1 << 20)) >> 21),
		.angle = i,
	};
}

void kvi_rotations_make(struct kvi_rotations *rotations, void *memory, const kvarc_rope *rope,
                        const int32_t *positions, size_t n_tokens)
{
	rotations->pairs = rope->rotary / 2;
	rotations->n_tokens = n_tokens;
	rotations->tokens_capacity = kvi_padded_tokens(n_tokens);
	rotations->freq = memory;
	rotations->turn = (int16_t *)(void *)(rotations->freq + rotations->pairs);
	rotations->positions =
		(int32_t *)(void *)(rotations->turn +
	                            2 * rotations->pairs * rotations->tokens_capacity);
	rotations->angle_class = (uint8_t *)(rotations->positions + n_tokens);
	memcpy(rotations->freq, rope->freq, rotations->pairs * sizeof *rotations->freq);
	memcpy(rotations->positions, positions, n_tokens * sizeof *positions);
	int16_t *turn = rotations->turn;
	uint8_t *class = rotations->angle_class;
	for (size_t p = 0; p < rotations->pairs; p++)
		for (size_t i = 0; i < rotations->tokens_capacity; i++) {
			const struct kvi_pair_rotation r =
				kvi_pair_rotation(rope->freq[p], i < n_tokens ? positions[i] : 0);
			*turn++ = (int16_t)r.cosine;
			*turn++ = (int16_t)r.sine;
			*class ++ = kvi_angle_class(r.angle);
		}
}

static bool equal(const uint64_t *freq, const kvarc_rope *rope, const int32_t *at,
                  const int32_t *positions, size_t n_tokens)
{
	return !memcmp(freq, rope->freq, rope->rotary / 2 * sizeof *freq) &&
	       !memcmp(at, positions, n_tokens * sizeof *at);
}

bool kvi_rotations_equal(const struct kvi_rotations *rotations, const kvarc_rope *rope,
                         const int32_t *positions, size_t n_tokens)
{
	return rotations->pairs == rope->rotary / 2 && rotations->n_tokens == n_tokens &&
	       equal(rotations->freq, rope, rotations->positions, positions, n_tokens);
}

/* Tokens that a pair has memory for; 0: its classes are not there. */
static size_t stride_of(size_t n_tokens)
{
	return n_tokens < KVI_TURNED ? 0 : n_tokens + KVI_TURNED;
}

size_t kvi_token_turns_bytes(size_t pairs, size_t n_tokens)
{
	return pairs * sizeof(uint64_t) + n_tokens * sizeof(int32_t) +
	       pairs * n_tokens * (sizeof(uint32_t) + sizeof(uint16_t)) +
	       pairs * stride_of(n_tokens) * sizeof(uint16_t);
}

/* Classes by pair, in memory behind those by token. */
static void order_by_pair(struct kvi_token_turns *turns)
{
	turns->stride = stride_of(turns->n_tokens);
	turns->by_pair = turns->stride ? turns->angle_class + turns->pairs * turns->n_tokens : NULL;
	if (!turns->by_pair)
		return;
	memset(turns->by_pair, 0, turns->pairs * turns->stride * sizeof *turns->by_pair);
	for (size_t i = 0; i < turns->n_tokens; i++)
		for (size_t p = 0; p < turns->pairs; p++)
			turns->by_pair[p * turns->stride + i] =
				turns->angle_class[i * turns->pairs + p];
}

void kvi_token_turns_make(struct kvi_token_turns *turns, void *memory, const kvarc_rope *rope,
                          const int32_t *positions, size_t n_tokens)
{
	turns->pairs = rope->rotary / 2;
	turns->n_tokens = n_tokens;
	turns->freq = memory;
	turns->positions = (int32_t *)(void *)(turns->freq + turns->pairs);
	turns->turn = (uint32_t *)(void *)(turns->positions + n_tokens);
	turns->angle_class = (uint16_t *)(void *)(turns->turn + turns->pairs * n_tokens);
	memcpy(turns->freq, rope->freq, turns->pairs * sizeof *turns->freq);
	memcpy(turns->positions, positions, n_tokens * sizeof *positions);
	for (size_t i = 0, at = 0; i < n_tokens; i++)
		for (size_t p = 0; p < turns->pairs; p++, at++) {
			const uint32_t angle = kvi_rotate_angle(rope->freq[p], positions[i]);
			const uint16_t sine = (uint16_t)kvi_cos4096[(angle + 3072) & 4095];
			turns->turn[at] = (uint16_t)kvi_cos4096[angle] | (uint32_t)sine << 16;
			turns->angle_class[at] = kvi_angle_class(angle);
		}
	order_by_pair(turns);
}

bool kvi_token_turns_equal(const struct kvi_token_turns *turns, const kvarc_rope *rope,
                           const int32_t *positions, size_t n_tokens)
{
	return turns->pairs == rope->rotary / 2 && turns->n_tokens == n_tokens &&
	       equal(turns->freq, rope, turns->positions, positions, n_tokens);
}
