/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c - elements of 16 bits in memory, the stream of a lossy body (spec lossy 4) */
#include "coder.h"

static bool little_endian(void)
{
	const uint16_t one = 1;
	uint8_t first;
	memcpy(&first, &one, 1);
	return first == 1;
}

bool kvi_elements16_lie(const uint8_t *packed)
{
	return little_endian() && (uintptr_t)packed % sizeof(uint16_t) == 0;
}

const uint16_t *kvi_elements16(struct kvi_coder *coder, const uint8_t *packed, size_t n)
{
	if (kvi_elements16_lie(packed))
		return (const uint16_t *)(const void *)packed;
	uint16_t *e = kvi_scratch(coder, KVI_SCRATCH_OTHER, n * sizeof *e);
	for (size_t i = 0; e && i < n; i++)
		e[i] = kvi_load16(packed + 2 * i);
	return e;
}

uint16_t *kvi_elements16_buffer(struct kvi_coder *coder, uint8_t *packed, size_t n)
{
	if (kvi_elements16_lie(packed))
		return (uint16_t *)(void *)packed;
	return kvi_scratch(coder, KVI_SCRATCH_OTHER, n * sizeof(uint16_t));
}

void kvi_elements16_done(const uint16_t *elements, uint8_t *packed, size_t n)
{
	if ((const void *)elements == packed)
		return;
	for (size_t i = 0; i < n; i++)
		kvi_store16(packed + 2 * i, elements[i]);
}

uint8_t *kvi_stream_put(uint8_t *end, size_t n_words, const uint32_t state[KVI_LANES])
{
	uint8_t *at = end - 2 * n_words - KVI_STREAM_HEAD;
	kvi_store32(at, (uint32_t)n_words);
	for (unsigned l = 0; l < KVI_LANES; l++)
		kvi_store32(at + 4 + 4 * l, state[l]);
	return at;
}

bool kvi_stream_get(struct kvi_in *in, struct kvi_stream *stream)
{
	stream->n_words = kvi_get32(in);
	if (!kvi_states_get(in, stream->state) || stream->n_words > kvi_in_remaining(in) / 2)
		return false;
	stream->words = kvi_get_bytes(in, 2 * stream->n_words);
	return stream->words != NULL;
}
