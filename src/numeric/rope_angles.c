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

/* Cosine and sine of one pair at one position (spec linear 2). */
static void turn_one(uint64_t freq, int32_t position, int16_t *turn, uint8_t *angle_class)
{
	uint64_t full = (uint64_t)(int64_t)position * freq;
	uint32_t i = kvi_rotate_angle(freq, position);
	int32_t d = (int32_t)((int64_t)(full - ((uint64_t)i << 52)) >> 36);
	int32_t c0 = kvi_cos4096[i], s0 = kvi_cos4096[(i + 3072) & 4095];
	turn[0] = (int16_t)(c0 - ((((s0 * d) >> 15) * 1608 + (1 << 20)) >> 21));
	turn[1] = (int16_t)(s0 + ((((c0 * d) >> 15) * 1608 + (1 << 20)) >> 21));
	*angle_class = i >> 5 & 63;
}

void kvi_rotations_make(struct kvi_rotations *t, void *memory, const kvarc_rope *rope,
                        const int32_t *positions, size_t n_tokens)
{
	t->pairs = rope->rotary / 2;
	t->n_tokens = n_tokens;
	t->tokens_capacity = kvi_padded_tokens(n_tokens);
	t->freq = memory;
	t->turn = (int16_t *)(void *)(t->freq + t->pairs);
	t->positions = (int32_t *)(void *)(t->turn + 2 * t->pairs * t->tokens_capacity);
	t->angle_class = (uint8_t *)(t->positions + n_tokens);
	memcpy(t->freq, rope->freq, t->pairs * sizeof *t->freq);
	memcpy(t->positions, positions, n_tokens * sizeof *positions);
	int16_t *turn = t->turn;
	uint8_t *class = t->angle_class;
	for (size_t p = 0; p < t->pairs; p++)
		for (size_t i = 0; i < t->tokens_capacity; i++, turn += 2)
			turn_one(rope->freq[p], i < n_tokens ? positions[i] : 0, turn, class ++);
}

bool kvi_rotations_equal(const struct kvi_rotations *t, const kvarc_rope *rope,
                         const int32_t *positions, size_t n_tokens)
{
	return t->pairs == rope->rotary / 2 && t->n_tokens == n_tokens &&
	       !memcmp(t->freq, rope->freq, t->pairs * sizeof *t->freq) &&
	       !memcmp(t->positions, positions, n_tokens * sizeof *positions);
}
