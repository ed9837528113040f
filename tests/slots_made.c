/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_made.c - llama.cpp slots of any tokens in memory, for tests of stores */
#include "slots_made.h"

#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/hash.h"

enum { HEAD = 12, CELL = 12, F16 = 1 };

static uint8_t *put32(uint8_t *p, uint32_t v)
{
	kvi_store32(p, v);
	return p + 4;
}

/* Numbers as a cache has them: about 1, with a few bits that can be predicted. */
static void put_row(uint8_t *p, uint64_t seed)
{
	for (int i = 0; i < SLOT_ROW; i += 2) {
		uint64_t r = kvi_splitmix64(&seed);
		kvi_store16(p + i, (uint16_t)(0x3800 | (r & 0x87ff)));
	}
}

static uint8_t *put_matrix(uint8_t *p, uint32_t n, const uint64_t *seeds, uint64_t which)
{
	p = put32(p, F16);
	kvi_store64(p, SLOT_ROW);
	p += 8;
	for (uint32_t t = 0; t < n; t++, p += SLOT_ROW)
		put_row(p, seeds[t] + which * 0x9e3779b97f4a7c15);
	return p;
}

void slot_make(struct slot_made *s, const int32_t *ids, uint32_t n, uint32_t changed, uint64_t salt)
{
	uint64_t *seeds = calloc(n + 1, sizeof *seeds), state = 1;
	s->n = HEAD + 4 * (size_t)n + 8 + CELL * (size_t)n + 8 +
	       2 * SLOT_LAYERS * (12 + (size_t)SLOT_ROW * n);
	s->p = malloc(s->n);
	if (!s->p || !seeds)
		abort();
	uint8_t *p = put32(put32(put32(s->p, 0x67677371), 2), n);
	for (uint32_t t = 0; t < n; t++) {
		p = put32(p, (uint32_t)ids[t]);
		state = state * 6364136223846793005 + (uint64_t)ids[t] + 1;
		if (t == changed)
			state ^= salt;
		seeds[t] = state;
	}
	p = put32(put32(p, 1), n);
	for (uint32_t t = 0; t < n; t++)
		p = put32(put32(put32(p, t), 1), 0);
	p = put32(put32(p, 0), SLOT_LAYERS);
	for (uint64_t i = 0; i < 2 * SLOT_LAYERS; i++)
		p = put_matrix(p, n, seeds, i);
	free(seeds);
}

void slot_free(struct slot_made *s)
{
	free(s->p);
	s->p = NULL;
}

static int64_t read_slot(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct slot_made *s = opaque;
	size_t left = offset < s->n ? s->n - (size_t)offset : 0;
	bytes = bytes < left ? bytes : left;
	memcpy(buf, s->p + offset, bytes);
	return (int64_t)bytes;
}

kvarc_source slot_source(struct slot_made *s)
{
	return (kvarc_source){ .read = read_slot, .opaque = s, .size = s->n };
}
