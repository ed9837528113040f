/* SPDX-License-Identifier: BSD-3-Clause */
/* synth.c - made-up caches and files in memory, for tests of the whole library */
#include "synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void synth_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
	exit(1);
}

/* ------------------------------------------------------------- files */

static int file_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct synth_file *f = opaque;
	size_t end = (size_t)offset + bytes;
	if (end > f->cap) {
		f->cap = end + end / 2 + 4096;
		f->p = realloc(f->p, f->cap);
		REQUIRE(f->p);
	}
	if (offset > f->n)
		memset(f->p + f->n, 0, (size_t)offset - f->n);
	if (bytes)
		memcpy(f->p + offset, buf, bytes);
	if (end > f->n)
		f->n = end;
	return 0;
}

kvarc_sink synth_sink(struct synth_file *f)
{
	return (kvarc_sink){ .write = file_write, .opaque = f };
}

static int64_t file_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct synth_file *f = opaque;
	if (offset >= f->n)
		return 0;
	if (bytes > f->n - (size_t)offset)
		bytes = f->n - (size_t)offset;
	memcpy(buf, f->p + offset, bytes);
	return (int64_t)bytes;
}

kvarc_source synth_source(struct synth_file *f)
{
	return (kvarc_source){ .read = file_read, .opaque = f, .size = f->n };
}

/* ------------------------------------------------------------ numbers */

/* splitmix64: any seed gives a good sequence. */
static uint64_t next(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* About normal, sigma 1: the sum of twelve uniform numbers. */
static float normal(uint64_t *s)
{
	int64_t sum = 0;
	for (int i = 0; i < 3; i++) {
		uint64_t r = next(s);
		for (int k = 0; k < 4; k++)
			sum += (int64_t)(r >> k * 16 & 0xffff) - 32768;
	}
	return (float)sum / 65536;
}

/* x as an element: the top bits of a float, its exponent moved. */
static uint32_t element(uint8_t dtype, float x)
{
	uint32_t b;
	memcpy(&b, &x, 4);
	switch (dtype) {
	case KVARC_F32:
		return b;
	case KVARC_BF16:
		return b >> 16;
	default:
		break;
	}
	int e = (int)(b >> 23 & 255) - 127;
	uint32_t sign = b >> 31, m = b & 0x7fffff;
	switch (dtype) {
	case KVARC_F16:
		return sign << 15 | (e < -14 ? 0 : (uint32_t)(e + 15) << 10 | m >> 13);
	case KVARC_E4M3:
		return sign << 7 | (e < -6 ? 0 : (uint32_t)(e + 7) << 3 | m >> 20);
	case KVARC_E5M2:
		return sign << 7 | (e < -14 ? 0 : (uint32_t)(e + 15) << 2 | m >> 21);
	default:
		return (uint32_t)(int32_t)(x * 20) & 255;
	}
}

/* mean of one head, turned to position p (half-split pairs). */
static void rotate(const struct synth_cache *c, uint32_t p, const float *mean, float *out)
{
	uint32_t half = c->rope.rotary / 2;
	for (uint32_t i = 0; i < half; i++) {
		double turn = (double)(p * c->freq[i]) / 18446744073709551616.0;
		float co = (float)cos(turn * 6.283185307179586);
		float si = (float)sin(turn * 6.283185307179586);
		out[i] = mean[i] * co - mean[i + half] * si;
		out[i + half] = mean[i + half] * co + mean[i] * si;
	}
	for (uint32_t i = 2 * half; i < c->shape.channels; i++)
		out[i] = mean[i];
}

static void fill(struct synth_cache *c, uint8_t *raw, bool rotated, uint64_t *seed)
{
	const struct synth_shape *h = &c->shape;
	size_t elem = kvarc_dtype_bytes(h->dtype);
	size_t width = (size_t)h->heads * h->channels;
	float mean[1024], scale[1024], now[1024];
	REQUIRE(width <= 1024);
	for (size_t i = 0; i < width; i++) {
		mean[i] = normal(seed) * 2;
		scale[i] = (float)(1 + next(seed) % 16) / 16;
	}
	bool sparse = h->kind == SYNTH_SPARSE;
	memcpy(now, mean, sizeof now);
	for (uint32_t t = 0; t < h->tokens; t++) {
		for (uint32_t k = 0; k < h->heads && rotated; k++)
			rotate(c, t, mean + k * h->channels, now + k * h->channels);
		for (size_t i = 0; i < width; i++) {
			float x = now[i] + scale[i] * normal(seed);
			if (sparse && (i % 5 == 1 || t % 7 == 3))
				x = i % 5 == 1 ? 0.5f : 0;
			if (h->kind == SYNTH_CONSTANT)
				x = 1.5f;
			uint32_t v = element(h->dtype, x);
			if (h->kind == SYNTH_BITS)
				v = (uint32_t)next(seed);
			for (size_t k = 0; k < elem; k++)
				*raw++ = (uint8_t)(v >> 8 * k);
		}
	}
}

void synth_make(struct synth_cache *c, const struct synth_shape *shape, uint64_t seed)
{
	memset(c, 0, sizeof *c);
	c->shape = *shape;
	c->row = (size_t)shape->heads * shape->channels * kvarc_dtype_bytes(shape->dtype);
	for (int i = 0; i < 64; i++) /* halves from pair to pair */
		c->freq[i] = 2935890503282001226u >> i;
	c->rope = (kvarc_rope){ .pairing = KVARC_ROPE_HALF,
		                .rotary = shape->channels / 2 * 2,
		                .freq = c->freq };
	c->geometry = (kvarc_geometry){ .n_ropes = shape->rope,
		                        .ropes = &c->rope,
		                        .n_tracks = 1,
		                        .tracks = &c->track,
		                        .n_tensors = shape->layers * 2,
		                        .tensors = c->tensors };
	REQUIRE(shape->layers <= 8 && shape->channels <= 128);
	for (uint32_t i = 0; i < shape->layers * 2; i++) {
		c->tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                        .kind = i & 1 ? KVARC_VALUE : KVARC_KEY,
			                        .dtype = shape->dtype,
			                        .heads = shape->heads,
			                        .channels = shape->channels,
			                        .rope = shape->rope && !(i & 1) };
		c->raw[i] = malloc(shape->tokens * c->row + 1);
		REQUIRE(c->raw[i]);
		fill(c, c->raw[i], c->tensors[i].rope > 0, &seed);
	}
	c->ids = malloc((shape->tokens + 1) * sizeof *c->ids);
	REQUIRE(c->ids);
	for (uint32_t t = 0; t < shape->tokens; t++)
		c->ids[t] = (int32_t)(next(&seed) % 50000);
}

void synth_free(struct synth_cache *c)
{
	for (size_t i = 0; i < c->geometry.n_tensors; i++)
		free(c->raw[i]);
	free(c->ids);
	memset(c, 0, sizeof *c);
}

void synth_views(const struct synth_cache *c, uint8_t *const *base, uint64_t t0, kvarc_view *views)
{
	size_t elem = kvarc_dtype_bytes(c->shape.dtype);
	for (size_t i = 0; i < c->geometry.n_tensors; i++)
		views[i] = (kvarc_view){ .data = base[i] + t0 * c->row,
			                 .token_stride = c->row,
			                 .block_elems = c->shape.heads * c->shape.channels,
			                 .elem_stride = (uint32_t)elem };
}
