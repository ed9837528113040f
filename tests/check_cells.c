/* SPDX-License-Identifier: BSD-3-Clause */
/* check_cells.c - kernels of codec cells against scalar C, in guarded buffers */
#include "config.h"

#include "check_cells.h"
#include "guarded.h"
#include "kernels/layers.h"
#include "numeric/rotate.h"
#include "rans_cases.h"

enum { SLACK = KVI_CELLS_SLACK, CODE_BITS = 4 };

/* ----- cases ---------------------------------------------------- */

struct cells_case {
	const struct kvi_grid_format *format;
	unsigned mantissa;
	size_t n;
	struct guarded elements, mean, grid; /* mean, grid: SLACK entries more */
	struct kvi_cells_contexts contexts;
};

static size_t random_n(void)
{
	switch (rng_below(8)) {
	case 0:
		return 1 + rng_below(70);
	case 1:
		return 256 * (1 + rng_below(8));
	case 2:
		return 256 * (1 + rng_below(8)) + rng_below(132) - 66;
	case 3:
		return rng_below(20) ? 1 + rng_below(6000) : 32000 + rng_below(5000);
	default:
		return 1 + rng_below(700);
	}
}

static size_t random_period(size_t n)
{
	static const size_t usual[] = { 1, 3, 64, 192, 256 };
	const unsigned kind = rng_below(8);
	return kind < 5 ? usual[kind] : kind == 5 ? 1 + rng_below(600) : n;
}

/* Kinds of contexts. */
enum { FINE, MIXED, SMALL, LARGE, ANY, KINDS };

/* A mean in cells, about, and a class of the parameters. */
static void random_parameters(unsigned kind, bool f16, int *mean, int *k)
{
	const int usual = (int)rng_below(361) - 180, far = (int16_t)(rng() >> rng_below(9));
	*mean = 2 * usual;
	*k = (int)rng_below(60) - (f16 ? 22 : 40);
	switch (kind) {
	case MIXED:
		*mean = rng_below(4) ? 2 * usual : far;
		break;
	case SMALL:
		*k = (f16 ? -20 : -450) - (int)rng_below(60);
		*k = *k < -400 ? -400 : *k;
		break;
	case LARGE:
		*mean = far;
		*k = f16 ? 30 + (int)rng_below(40) : 340 + (int)rng_below(60);
		break;
	case ANY:
		*mean = (int16_t)rng();
		*k = (int)rng_below(801) - 400;
		break;
	default:
		break;
	}
}

/* An element of a cell: raw bits are random. */
static uint16_t element_of(const struct cells_case *c, int cell, unsigned grid)
{
	const unsigned m = c->mantissa, negative = cell < 0;
	unsigned j = (unsigned)(negative ? ~cell : cell), n = 0, zeros = 0;
	if (!j)
		zeros = 1 + rng_below(rng_below(2) ? 3 : 15 - m);
	j |= zeros > 0;
	while (j << n < 1u << m)
		n++;
	const unsigned full = j << n | (rng() & ((1u << n) - 1));
	const unsigned magnitude = (grid >> 7 << 7) - ((n + zeros) << m) + full;
	return (uint16_t)(negative << 15 | (magnitude & 0x7fff));
}

static uint16_t random_element(const struct cells_case *c, size_t context, unsigned wide)
{
	static const uint16_t special[] = { 0,      0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7c00,
		                            0xfc00, 0x7e01, 1,      0x8003, 0x7f,   0x3ff };
	const int mean = c->contexts.mean[context];
	const double far = rng_gauss();
	switch (rng_below(wide ? 4 : 60)) {
	case 0:
		return (uint16_t)rng();
	case 1:
		return special[rng_below(sizeof special / sizeof *special)];
	case 2:
		return element_of(c, mean + (int)rng_below(280) - 140, c->contexts.grid[context]);
	case 3: /* about zero */
		return element_of(c, (int)rng_below(4) - 2, c->contexts.grid[context]);
	default:
		return element_of(c, mean + (int)floor(far * (rng_below(9) ? 7 : 25)),
		                  c->contexts.grid[context]);
	}
}

static struct cells_case case_new(void)
{
	const bool f16 = rng_below(2);
	struct cells_case c = { .format = &case_formats[f16 ? CASE_F16 : CASE_BF16],
		                .mantissa = f16 ? 10 : 7,
		                .n = random_n() };
	const size_t period = random_period(c.n);
	const unsigned kind = rng_below(2) ? FINE : rng_below(KINDS), wide = !rng_below(8);
	c.mean = guarded_new(2 * (period + SLACK));
	c.grid = guarded_new(2 * (period + SLACK));
	c.elements = guarded_new(2 * c.n);
	int16_t *to_mean = (int16_t *)(void *)c.mean.p;
	uint16_t *to_grid = (uint16_t *)(void *)c.grid.p;
	c.contexts = (struct kvi_cells_contexts){ to_mean, to_grid, period };
	for (size_t i = 0; i < period + SLACK; i++) {
		int mean, k;
		random_parameters(rng_below(200) ? kind : MIXED, f16, &mean, &k);
		if (i < period) {
			kvi_cells_fixed_context(c.format, mean, k, to_mean + i, to_grid + i);
		} else {
			to_mean[i] = to_mean[i - period];
			to_grid[i] = to_grid[i - period];
		}
	}
	for (size_t i = 0; i < c.n; i++)
		((uint16_t *)(void *)c.elements.p)[i] = random_element(&c, i % period, wide);
	return c;
}

static void case_free(struct cells_case *c)
{
	guarded_free(&c->elements);
	guarded_free(&c->mean);
	guarded_free(&c->grid);
}

/* ----- encoding ---------------------------------------------------- */

/* The parts of a stream, one behind the other. */
enum { CODES, SECOND, ESCAPES, WORDS, PARTS };

/* What kernels make of a case. */
struct cells_made {
	struct guarded stream; /* SLACK more */
	size_t bytes, n[PARTS];
	uint32_t state[KVI_LANES];
};

static size_t part_bytes(const size_t n[PARTS], unsigned part)
{
	return part < ESCAPES ? kvi_layers_plane(n[part], CODE_BITS) : 2 * n[part];
}

static size_t part_offset(const size_t n[PARTS], unsigned part)
{
	size_t at = 0;
	for (unsigned i = 0; i < part; i++) {
		at += part_bytes(n, i);
		at += i == SECOND && at & 1;
	}
	return at;
}

/* Encodes a case; most: the bytes of its stream, 0 when they are not known. */
static struct cells_made encode(const struct kvi_cell_kernels *k, const struct cells_case *c,
                                size_t most)
{
	struct cells_made made = { .n = { c->n } };
	struct guarded work = guarded_new(kvi_cells_out_work(c->n));
	made.stream = guarded_new((most ? most : kvi_cells_space(c->n)) + SLACK);
	struct kvi_cells_out out = { .to = made.stream.p, .work = work.p };
	const uint8_t *end = k->put((const uint16_t *)(const void *)c->elements.p, c->n,
	                            &c->contexts, c->mantissa, &out);
	made.bytes = (size_t)(end - made.stream.p);
	made.n[SECOND] = out.n_second;
	made.n[ESCAPES] = out.n_escapes;
	made.n[WORDS] = out.n_words;
	memcpy(made.state, out.state, sizeof made.state);
	guarded_free(&work);
	return made;
}

static int same_made(const struct cells_made *a, const struct cells_made *b)
{
	return a->bytes == b->bytes && !memcmp(a->n, b->n, sizeof a->n) &&
	       !memcmp(a->state, b->state, sizeof a->state) &&
	       !memcmp(a->stream.p, b->stream.p, a->bytes);
}

/* ----- decoding ---------------------------------------------------- */

/* A stream that is read, each part in a buffer of its own. */
struct cells_reading {
	struct guarded part[PARTS], made, work;
	struct kvi_cells_in in;
};

/* Sets what no code uses of a plane of n codes to 0. */
static void clear_padding(uint8_t *plane, size_t n)
{
	if (n & 1)
		plane[kvi_layers_plane(n, CODE_BITS) - 1] &= 15;
}

/* n: that of the stream, or of a damaged one: what is missing is 0. */
static struct cells_reading reading_new(const struct cells_made *made, const size_t n[PARTS])
{
	const uint8_t *part[PARTS];
	struct cells_reading r = { .made = guarded_new(2 * n[CODES]),
		                   .work = guarded_new(kvi_cells_in_work(n[CODES])) };
	const size_t odd = rng_below(4) == 0; /* escapes and words have any alignment */
	for (unsigned i = 0; i < PARTS; i++) {
		const size_t have = part_bytes(made->n, i), bytes = part_bytes(n, i);
		const size_t behind = i < ESCAPES ? 0 : odd;
		r.part[i] = guarded_new(bytes + behind);
		memset(r.part[i].p, 0, bytes);
		memcpy(r.part[i].p, made->stream.p + part_offset(made->n, i),
		       have < bytes ? have : bytes);
		if (i < ESCAPES)
			clear_padding(r.part[i].p, n[i]);
		part[i] = r.part[i].p;
	}
	r.in = (struct kvi_cells_in){ .n = n[CODES],
		                      .n_second = n[SECOND],
		                      .n_escapes = n[ESCAPES],
		                      .n_words = n[WORDS],
		                      .codes = part[CODES],
		                      .second = part[SECOND],
		                      .escapes = part[ESCAPES],
		                      .words = part[WORDS],
		                      .work = r.work.p };
	memcpy(r.in.state, made->state, sizeof made->state);
	return r;
}

static void reading_free(struct cells_reading *r)
{
	for (unsigned i = 0; i < PARTS; i++)
		guarded_free(&r->part[i]);
	guarded_free(&r->made);
	guarded_free(&r->work);
}

static bool decode(const struct kvi_cell_kernels *k, const struct cells_case *c,
                   struct cells_reading *r)
{
	return k->get(&r->in, &c->contexts, c->mantissa, (uint16_t *)(void *)r->made.p);
}

/* Other counts, states or bits of a part; n: the new counts. */
static void damage(struct cells_made *made, size_t n[PARTS])
{
	const unsigned part = rng_below(PARTS), kind = rng_below(5);
	memcpy(n, made->n, sizeof made->n);
	if (kind == 0) {
		made->state[rng_below(KVI_LANES)] ^= 1u << rng_below(16);
	} else if (kind == 1) {
		const unsigned lane = rng_below(KVI_LANES);
		made->state[lane] = rng() | KVI_RANS_LOW;
	} else if (kind == 2 && part > 0) {
		const size_t most = part == WORDS ? n[part] + 2 : n[part - 1];
		const size_t near = n[part] + rng_below(3) - 1;
		n[part] = rng_below(4) ? near : rng_below((uint32_t)most + 1);
		if (n[part] > most || (part == SECOND && n[part] < n[ESCAPES]))
			n[part] = made->n[part];
	} else {
		const unsigned times = rng_below(4) ? 1 : 200;
		const size_t bytes = part_bytes(n, part);
		for (unsigned i = 0; bytes && i < times; i++)
			made->stream.p[part_offset(n, part) + rng_below((uint32_t)bytes)] ^=
				(uint8_t)(1 << rng_below(8));
	}
}

/* The same answer for damaged parts, and the same elements when it is true. */
static int same_of_damaged(const struct kvi_cell_kernels *ref, const struct kvi_cell_kernels *fast,
                           const struct cells_case *c, struct cells_made *made)
{
	size_t n[PARTS];
	damage(made, n);
	struct cells_reading a = reading_new(made, n), b = reading_new(made, n);
	const bool ok = decode(ref, c, &a);
	const int same = decode(fast, c, &b) == ok &&
	                 (!ok || !memcmp(a.made.p, b.made.p, 2 * c->n));
	reading_free(&a);
	reading_free(&b);
	return same;
}

/* The same answer for a stream of a lane with two elements; the others are escaped. Random bits of
 * such a stream are not far from a valid one, whatever numbers of raw bits its elements seem to
 * have. */
static int same_of_tiny(const struct kvi_cell_kernels *ref, const struct kvi_cell_kernels *fast)
{
	enum { ELEMENTS = KVI_LANES + 1, OTHERS = KVI_LANES - 1, MOST_WORDS = 2 };
	static const uint8_t escapes[2 * OTHERS];
	const bool f16 = rng_below(2);
	int16_t mean[ELEMENTS + SLACK] = { 0 };
	uint16_t grid[ELEMENTS + SLACK] = { 0 }, made[2][ELEMENTS];
	uint8_t codes[(ELEMENTS + 1) / 2], second[(OTHERS + 1) / 2], words[2 * MOST_WORDS] = { 0 };
	uint8_t work[2 * (ELEMENTS + SLACK)] __attribute__((aligned(2)));
	const struct kvi_cells_contexts contexts = { mean, grid, ELEMENTS };
	struct kvi_cells_in in = { ELEMENTS, OTHERS, OTHERS,  rng_below(MOST_WORDS + 1),
		                   codes,    second, escapes, words,
		                   { 0 },    work };
	memset(codes, 0xff, sizeof codes);
	memset(second, 0xff, sizeof second);
	codes[0] = (uint8_t)(0xf0 | rng_below(KVI_CELLS_MORE));
	codes[ELEMENTS - 1 - sizeof codes] = (uint8_t)(rng_below(KVI_CELLS_MORE) << 4 | 15);
	codes[sizeof codes - 1] &= 15;
	second[sizeof second - 1] &= 15;
	for (size_t i = 0; i < ELEMENTS; i += KVI_LANES)
		kvi_cells_fixed_context(&case_formats[f16 ? CASE_F16 : CASE_BF16],
		                        (int)rng_below(31) - 15, (int)rng_below(20) - 10, mean + i,
		                        grid + i);
	for (unsigned i = 0; i < KVI_LANES; i++)
		in.state[i] = KVI_RANS_LOW;
	in.state[0] |= 1u << rng_below(32) | 1u << rng_below(32);
	if (rng_below(2))
		in.state[0] |= 1u << rng_below(32);
	for (unsigned i = 0; i < MOST_WORDS; i++)
		words[2 * i + rng_below(2)] = (uint8_t)(rng_below(4) ? 0 : 1 << rng_below(8));
	const bool ok = ref->get(&in, &contexts, f16 ? 10 : 7, made[0]);
	return fast->get(&in, &contexts, f16 ? 10 : 7, made[1]) == ok &&
	       (!ok || !memcmp(made[0], made[1], sizeof made[0]));
}

static const char *check_case(const struct kvi_cell_kernels *ref,
                              const struct kvi_cell_kernels *fast, const struct cells_case *c)
{
	const bool f16 = c->mantissa == 10;
	struct cells_made a = encode(ref, c, 0), b = encode(fast, c, a.bytes);
	const char *wrong = same_made(&a, &b) ? NULL : f16 ? "cells put, f16" : "cells put, bf16";
	if (!wrong) {
		struct cells_reading r = reading_new(&a, a.n);
		if (!decode(fast, c, &r) || memcmp(r.made.p, c->elements.p, 2 * c->n))
			wrong = f16 ? "cells get, f16" : "cells get, bf16";
		reading_free(&r);
	}
	for (int i = 0; !wrong && i < 3; i++)
		if (!same_of_damaged(ref, fast, c, &b))
			wrong = f16 ? "cells get of damaged parts, f16"
			            : "cells get of damaged parts, bf16";
	guarded_free(&a.stream);
	guarded_free(&b.stream);
	return wrong;
}

/* ----- rotation ------------------------------------------------------ */

static int16_t random_turn(double part)
{
	return (int16_t)(rng_below(40) ? lrint(16384 * part) : (int)rng());
}

/* Classes of a pair of channels, and their means in 1/16 of the larger scale. */
static void random_pair(unsigned kind, bool f16, int mean[2], int k[2])
{
	random_parameters(kind, f16, &mean[0], &k[0]);
	random_parameters(kind, f16, &mean[1], &k[1]);
	if (kind != ANY)
		k[1] = k[0] + (int)rng_below(rng_below(8) ? 7 : 90) - 3;
}

static int right_contexts(const struct kvi_cell_kernels *ref, const struct kvi_cell_kernels *fast)
{
	static const size_t usual[] = { 8, 16, 32, 64, 128 };
	uint16_t scales[KVI_SCALE_PAIRS];
	const bool f16 = rng_below(2);
	const unsigned kind = rng_below(2) ? FINE : rng_below(KINDS);
	const size_t pairs = rng_below(2) ? usual[rng_below(5)] : 1 + rng_below(100);
	const size_t rest = rng_below(3) ? 0 : rng_below(50), n = 1 + rng_below(KVI_CELLS_TOKENS);
	const size_t tokens = rng_below(2) ? KVI_CELLS_TOKENS : n, heads = 1 + rng_below(4);
	const size_t head_channels = 2 * pairs + rest;
	const size_t channels = (heads - 1) * head_channels + 2 * pairs;
	const size_t row = heads * head_channels + (rng_below(4) ? 0 : rng_below(40));
	const size_t all = 2 * ((tokens - 1) * row + channels);
	const bool interleaved = rng_below(2);
	struct guarded turn = guarded_new(4 * tokens * pairs);
	struct guarded angle_class = guarded_new(2 * tokens * pairs);
	struct guarded mean = guarded_new(2 * channels), k = guarded_new(2 * channels);
	struct guarded to_mean[2], to_grid[2];
	for (unsigned i = 0; i + 1 < KVI_SCALE_PAIRS; i++)
		scales[i] = (uint16_t)((uint8_t)kvi_rot_scale[i] | (uint8_t)kvi_rot_scale[i ^ 32]
		                                                           << 8);
	scales[KVI_SCALE_PAIRS - 1] = 0;
	for (size_t i = 0; i < tokens * pairs; i++) {
		const double angle = 6.283185307179586 * rng_unit();
		const uint32_t word = (uint16_t)random_turn(cos(angle)) |
		                      (uint32_t)(uint16_t)random_turn(sin(angle)) << 16;
		memcpy(turn.p + 4 * i, &word, sizeof word);
		((uint16_t *)(void *)angle_class.p)[i] = (uint16_t)rng_below(64);
	}
	for (size_t at = 0; at + 2 * pairs <= channels; at += head_channels)
		for (size_t i = 0; i < pairs; i++) {
			int of_mean[2], of_k[2];
			random_pair(kind, f16, of_mean, of_k);
			for (unsigned j = 0; j < 2; j++) {
				const size_t channel = at +
				                       (interleaved ? 2 * i + j : i + j * pairs);
				((int16_t *)(void *)mean.p)[channel] = (int16_t)of_mean[j];
				((int16_t *)(void *)k.p)[channel] = (int16_t)of_k[j];
			}
		}
	const struct kvi_rotation rotation = {
		.fmt = &case_formats[f16 ? CASE_F16 : CASE_BF16],
		.pairs = pairs,
		.interleaved = interleaved,
		.turn = (const uint32_t *)(const void *)turn.p,
		.angle_class = (const uint16_t *)(const void *)angle_class.p,
		.mean = (const int16_t *)(const void *)mean.p,
		.k = (const int16_t *)(const void *)k.p,
		.scales = scales,
		.heads = heads,
		.head_channels = head_channels,
	};
	for (unsigned i = 0; i < 2; i++) {
		to_mean[i] = guarded_new(all);
		to_grid[i] = guarded_new(all);
		(i ? fast : ref)
			->rotated(&rotation, tokens, row, (int16_t *)(void *)to_mean[i].p,
		                  (uint16_t *)(void *)to_grid[i].p);
	}
	const int same = !memcmp(to_mean[0].p, to_mean[1].p, all) &&
	                 !memcmp(to_grid[0].p, to_grid[1].p, all);
	for (unsigned i = 0; i < 2; i++) {
		guarded_free(&to_mean[i]);
		guarded_free(&to_grid[i]);
	}
	guarded_free(&turn);
	guarded_free(&angle_class);
	guarded_free(&mean);
	guarded_free(&k);
	return same;
}

const char *check_cells(const struct kvi_cell_kernels *ref, const struct kvi_cell_kernels *fast)
{
	struct cells_case c = case_new();
	const char *wrong = check_case(ref, fast, &c);
	case_free(&c);
	for (int i = 0; !wrong && i < 500; i++)
		if (!same_of_tiny(ref, fast))
			wrong = "cells get of a tiny stream";
	if (!wrong && !right_contexts(ref, fast))
		wrong = "cells rotated";
	if (guarded_written_in_front() && !wrong)
		wrong = "cells, in front of a buffer,";
	return wrong;
}
