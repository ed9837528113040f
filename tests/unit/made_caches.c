/* SPDX-License-Identifier: BSD-3-Clause */
/* made_caches.c - reads tests/data/models/caches.zst (make_caches.py states its layout) */
#include "made_caches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "util/bytes.h"

static struct blob all;

int made_load(void **state)
{
	(void)state;
	struct blob packed = blob_load("../models/caches.zst");
	unsigned long long n = ZSTD_getFrameContentSize(packed.p, packed.n);
	assert_true(n > 0 && n < 1 << 22);
	all.p = malloc((size_t)n);
	assert_non_null(all.p);
	all.n = ZSTD_decompress(all.p, (size_t)n, packed.p, packed.n);
	assert_int_equal(all.n, n);
	blob_free(&packed);
	return 0;
}

int made_free(void **state)
{
	(void)state;
	blob_free(&all);
	return 0;
}

struct blob made_entry(const char *model, const char *file)
{
	char name[64];
	snprintf(name, sizeof name, "%s/%s", model, file);
	for (size_t at = 0; at < all.n;) {
		size_t name_n = kvi_load32(all.p + at);
		size_t n = kvi_load32(all.p + at + 4);
		at += 8;
		if (name_n == strlen(name) && !memcmp(all.p + at, name, name_n))
			return (struct blob){ all.p + at + name_n, n, 0, -1 };
		at += name_n + n;
	}
	fail_msg("no %s", name);
	return (struct blob){ 0 };
}

struct made_cache made_cache(const char *model)
{
	struct blob b = made_entry(model, "cache");
	struct made_cache c = { .tokens = kvi_load32(b.p + 4),
		                .first = kvi_load32(b.p + 8),
		                .row = kvi_load32(b.p + 12) };
	assert_int_equal(kvi_load32(b.p), LAYERS);
	assert_true(c.tokens <= TOKENS_MAX && c.row <= ROW_MAX);
	for (size_t t = 0; t < c.tokens; t++) {
		c.ids[t] = (int32_t)kvi_load32(b.p + 16 + 4 * t);
		c.positions[t] = (int32_t)kvi_load32(b.p + 16 + 4 * (c.tokens + t));
	}
	c.numbers = b.p + 16 + 8 * c.tokens;
	return c;
}

/* A scale, then integers. */
void made_load_row(const uint8_t *numbers, size_t t, size_t n, float *x)
{
	uint32_t u = kvi_load32(numbers);
	float scale;
	memcpy(&scale, &u, sizeof scale);
	const uint8_t *p = numbers + 4 + 2 * n * t;
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(int16_t)(p[2 * i] | p[2 * i + 1] << 8) * scale;
}

const uint8_t *made_numbers(const struct made_cache *c, size_t layer, int value)
{
	size_t bytes = 4 + 2 * c->row * (c->tokens - c->first);
	return c->numbers + (2 * layer + (size_t)value) * bytes;
}

void made_row(const struct made_cache *c, size_t layer, int value, size_t t, float *x)
{
	made_load_row(made_numbers(c, layer, value), t - c->first, c->row, x);
}
