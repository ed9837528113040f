/* SPDX-License-Identifier: BSD-3-Clause */
/* check_layers.c - kernels of codec layers against scalar C and against spec layers 2 and 3 */
#include "config.h"

#include "check_layers.h"
#include "guarded.h"
#include "rans_cases.h"

enum { N = KVI_LAYERS_N, PARTS = N + 1, PLANES = KVI_LAYERS_PLANES, SLACK = KVI_LAYERS_SLACK };

/* ----- cases ---------------------------------------------------- */

enum element_type { VALUES, BF16, F16, TYPES };

struct layers_case {
	enum element_type type;
	size_t n, channels;
	struct guarded values, elements; /* values: SLACK more */
	struct guarded top, top_less2;
};

/* What kernels make of a case. */
struct layer_parts {
	struct guarded plane[PLANES], values; /* values: SLACK more */
	size_t bytes;                         /* of values */
	size_t n[PARTS];                      /* codes of each layer; bytes */
};

static unsigned plane_bits(enum element_type type, unsigned plane)
{
	static const unsigned bits[TYPES][PLANES] = { { 0 }, { 8 }, { 8, 2, 1 } };
	return bits[type][plane];
}

static size_t random_n(void)
{
	switch (rng_below(8)) {
	case 0:
		return rng_below(10);
	case 1:
		return rng_below(300);
	case 2:
		return 256 * rng_below(10);
	case 3:
		return 256 * (1 + rng_below(10)) + rng_below(132) - 66;
	case 4:
		return rng_below(70) ? rng_below(6000) : 65000 + rng_below(5000);
	default:
		return rng_below(3000);
	}
}

/* Values of one of many kinds. */
static uint8_t random_value(unsigned kind, unsigned last)
{
	const double far = rng_gauss();
	switch (kind) {
	case 0:
		return (uint8_t)(rng() & last);
	case 1: /* as those of real caches */
		return (uint8_t)((unsigned)(2 + 1.3 * fabs(far) + (rng_below(300) ? 0 : 9)) & last);
	case 2:
		return 0;
	case 3:
		return (uint8_t)(12 + rng_below(last - 11));
	case 4:
		return (uint8_t)last;
	case 5:
		return (uint8_t)(2 + rng_below(3));
	case 6:
		return (uint8_t)rng_below(16);
	case 7: /* runs of values that stand in the same layer */
		return (uint8_t)((rng_state >> 40) % 5 ? 3 : 5 + rng_below(6));
	default:
		return (uint8_t)(kind & last);
	}
}

static struct layers_case case_new(void)
{
	struct layers_case c = { .type = rng_below(TYPES), .n = random_n() };
	const unsigned last = c.type == F16 ? 31 : 255, kind = rng_below(12);
	const unsigned rests = rng_below(4) ? 0xffff : 0;
	c.channels = rng_below(6) ? 1 + rng_below(600) : 1 + rng_below(5000);
	if (rng_below(8) == 0)
		c.channels = 1 + rng_below(4);
	c.values = guarded_new(c.n + SLACK);
	c.elements = guarded_new(2 * c.n);
	c.top = guarded_new(c.channels + SLACK);
	c.top_less2 = guarded_new(c.channels + SLACK);
	for (size_t i = 0; i < c.channels + SLACK; i++) {
		c.top.p[i] = i < c.channels ? (uint8_t)(rng() & last) : c.top.p[i - c.channels];
		c.top_less2.p[i] = (uint8_t)(c.top.p[i] - 2);
	}
	for (size_t i = 0; i < c.n; i++) {
		c.values.p[i] = random_value(rng_below(1000) ? kind : 0, last);
		const unsigned exponent = (c.top.p[i % c.channels] - c.values.p[i]) & last;
		const unsigned rest = rng() & rests;
		const uint16_t x = c.type == F16 ? (uint16_t)(exponent << 10 | (rest & 0x83ff))
		                                 : (uint16_t)(exponent << 7 | (rest & 0x807f));
		memcpy(c.elements.p + 2 * i, &x, 2);
	}
	return c;
}

static void case_free(struct layers_case *c)
{
	guarded_free(&c->values);
	guarded_free(&c->elements);
	guarded_free(&c->top);
	guarded_free(&c->top_less2);
}

static void parts_free(struct layer_parts *p)
{
	for (unsigned i = 0; i < PLANES; i++)
		guarded_free(&p->plane[i]);
	guarded_free(&p->values);
}

/* The offset of a part of values; PARTS: their end. */
static size_t part_offset(const size_t n[PARTS], unsigned part)
{
	size_t at = 0;
	for (unsigned i = 0; i < part; i++)
		at += i < N ? kvi_layers_plane(n[i], 2) : n[N];
	return at;
}

/* Encodes a case; most: the bytes of its values, 0 when they are not known. */
static struct layer_parts encode(const struct kvi_layer_kernels *k, const struct layers_case *c,
                                 size_t most)
{
	struct layer_parts p = { .bytes = 0 };
	struct guarded work = guarded_new(kvi_layers_work(c->n));
	uint8_t *plane[PLANES];
	for (unsigned i = 0; i < PLANES; i++) {
		p.plane[i] = guarded_new(kvi_layers_plane(c->n, plane_bits(c->type, i)));
		plane[i] = p.plane[i].p;
	}
	p.values = guarded_new((most ? most : 2 * c->n + 8) + SLACK);
	struct kvi_layers_out out = { .to = p.values.p, .work = work.p };
	const struct kvi_layers_tops tops = { c->top.p, c->channels };
	const uint16_t *elements = (const uint16_t *)(const void *)c->elements.p;
	const uint8_t *end = c->type == VALUES ? k->put(c->values.p, c->n, &out)
	                     : c->type == BF16 ? k->put_bf16(elements, c->n, &tops, plane, &out)
	                                       : k->put_f16(elements, c->n, &tops, plane, &out);
	p.bytes = (size_t)(end - p.values.p);
	p.n[0] = c->n;
	for (unsigned i = 0; i < N; i++)
		p.n[i + 1] = out.count[i];
	guarded_free(&work);
	return p;
}

static int same_parts(const struct layers_case *c, const struct layer_parts *a,
                      const struct layer_parts *b)
{
	int same = a->bytes == b->bytes && !memcmp(a->n, b->n, sizeof a->n) &&
	           !memcmp(a->values.p, b->values.p, a->bytes);
	for (unsigned i = 0; same && i < PLANES; i++)
		same = !memcmp(a->plane[i].p, b->plane[i].p,
		               kvi_layers_plane(c->n, plane_bits(c->type, i)));
	return same;
}

/* ----- the specification ----------------------------------------- */

/* Code i of a plane of n (spec layers 2). */
static unsigned code_at(const uint8_t *plane, size_t n, size_t i, unsigned bits)
{
	const size_t first = i / 256 * 256, j = n - first < 256 ? n - first : 256;
	const size_t bytes = (j * bits + 7) / 8;
	const uint8_t *block = plane + first * bits / 8;
	return block[(i - first) % bytes] >> bits * ((i - first) / bytes) & ((1u << bits) - 1);
}

/* Whether the parts are those of the case by spec layers 1 to 3. */
static int as_specified(const struct layers_case *c, const struct layer_parts *p)
{
	static const uint8_t value[N][3] = { { 2, 3, 4 }, { 5, 1, 6 }, { 7, 8, 9 }, { 0, 10, 11 } };
	size_t next[PARTS] = { 0 };
	for (size_t i = 0; i < c->n; i++) {
		unsigned layer = 0, code = 3, u;
		for (; layer < N && code == 3 && next[layer] < p->n[layer]; layer++)
			code = code_at(p->values.p + part_offset(p->n, layer), p->n[layer],
			               next[layer]++, 2);
		if (code < 3)
			u = value[layer - 1][code];
		else if (layer == N && next[N] < p->n[N])
			u = p->values.p[part_offset(p->n, N) + next[N]++];
		else
			return 0;
		if (u != c->values.p[i])
			return 0;
		if (c->type == VALUES)
			continue;
		uint16_t x;
		memcpy(&x, c->elements.p + 2 * i, 2);
		const unsigned y = (x << 1 | x >> 15) & 0xffff;
		if (p->plane[0].p[i] != (y & 255) ||
		    (c->type == F16 && (code_at(p->plane[1].p, c->n, i, 2) != (y >> 8 & 3) ||
		                        code_at(p->plane[2].p, c->n, i, 1) != (y >> 10 & 1))))
			return 0;
	}
	return !memcmp(next, p->n, sizeof next) && p->bytes == part_offset(p->n, PARTS);
}

/* ----- decoding --------------------------------------------------- */

/* Parts that are read, each in a buffer of its own. */
struct layer_reading {
	struct guarded part[PARTS], plane[PLANES], made;
	struct kvi_layers_in in;
	struct kvi_layers_rest rest;
};

/* Sets what no code uses of a layer of n codes to 0. */
static void clear_padding(uint8_t *plane, size_t n)
{
	const size_t left = n % 256, bytes = (left + 3) / 4;
	for (size_t i = left; i < 4 * bytes; i++)
		plane[n / 256 * 64 + i % bytes] &= (uint8_t) ~(3 << 2 * (i / bytes));
}

/* n: that of the parts, or of a damaged case: what is missing is 0. */
static struct layer_reading reading_new(const struct layers_case *c, const struct layer_parts *p,
                                        const size_t n[PARTS])
{
	struct layer_reading r = { .made = guarded_new(c->type == VALUES ? c->n + SLACK
		                                                         : 2 * c->n) };
	for (unsigned i = 0; i < PARTS; i++) {
		const size_t have = part_offset(p->n, i + 1) - part_offset(p->n, i);
		const size_t bytes = i < N ? kvi_layers_plane(n[i], 2) : n[N];
		r.part[i] = guarded_new(bytes);
		memset(r.part[i].p, 0, bytes);
		memcpy(r.part[i].p, p->values.p + part_offset(p->n, i),
		       have < bytes ? have : bytes);
		r.in.n[i] = n[i];
		if (i < N) {
			clear_padding(r.part[i].p, n[i]);
			r.in.layer[i] = r.part[i].p;
		}
	}
	r.in.bytes = r.part[N].p;
	for (unsigned i = 0; i < PLANES; i++) {
		r.plane[i] = guarded_copy(p->plane[i].p,
		                          kvi_layers_plane(c->n, plane_bits(c->type, i)));
		r.rest.plane[i] = r.plane[i].p;
	}
	return r;
}

static void reading_free(struct layer_reading *r)
{
	for (unsigned i = 0; i < PARTS; i++)
		guarded_free(&r->part[i]);
	for (unsigned i = 0; i < PLANES; i++)
		guarded_free(&r->plane[i]);
	guarded_free(&r->made);
}

static bool decode(const struct kvi_layer_kernels *k, const struct layers_case *c,
                   struct layer_reading *r)
{
	struct guarded work = guarded_new(kvi_layers_work(c->n));
	const struct kvi_layers_tops tops = { c->top_less2.p, c->channels };
	uint16_t *elements = (uint16_t *)(void *)r->made.p;
	r->in.work = work.p;
	const bool ok = c->type == VALUES ? k->get(&r->in, r->made.p)
	                : c->type == BF16 ? k->get_bf16(&r->in, &r->rest, &tops, elements)
	                                  : k->get_f16(&r->in, &r->rest, &tops, elements);
	guarded_free(&work);
	return ok;
}

/* Whether what was decoded is the case. */
static int as_encoded(const struct layers_case *c, const struct layer_reading *r)
{
	if (c->type != VALUES)
		return !memcmp(r->made.p, c->elements.p, 2 * c->n);
	for (size_t i = 0; i < c->n; i++)
		if (r->made.p[i] != (uint8_t)(c->values.p[i] - 2))
			return 0;
	return 1;
}

/* Other counts, or other codes. */
static void damage(struct layer_parts *p, size_t n[PARTS])
{
	const unsigned part = rng_below(PARTS), kind = rng_below(4);
	memcpy(n, p->n, PARTS * sizeof *n);
	if (kind && part > 0) {
		const size_t most = n[part - 1], least = part < N ? n[part + 1] : 0;
		const size_t near = n[part] + rng_below(3) - 1;
		n[part] = kind == 1 ? least + rng_below((uint32_t)(most - least + 1)) : near;
		if (n[part] > most || n[part] < least)
			n[part] = p->n[part];
	} else {
		const unsigned layer = rng_below(N), times = rng_below(4) ? 1 : 200;
		for (unsigned i = 0; n[layer] && i < times; i++) {
			const size_t bytes = kvi_layers_plane(n[layer], 2);
			p->values.p[part_offset(n, layer) + rng_below((uint32_t)bytes)] ^=
				(uint8_t)(1 << rng_below(8));
		}
	}
}

/* The same answer for damaged parts, and the same elements when it is true. */
static int same_of_damaged(const struct kvi_layer_kernels *ref,
                           const struct kvi_layer_kernels *fast, const struct layers_case *c,
                           struct layer_parts *p)
{
	size_t n[PARTS];
	damage(p, n);
	struct layer_reading a = reading_new(c, p, n), b = reading_new(c, p, n);
	const bool ok = decode(ref, c, &a);
	const int same = decode(fast, c, &b) == ok &&
	                 (!ok || !memcmp(a.made.p, b.made.p, c->type == VALUES ? c->n : 2 * c->n));
	reading_free(&a);
	reading_free(&b);
	return same;
}

static const char *check_case(const struct kvi_layer_kernels *ref,
                              const struct kvi_layer_kernels *fast, const struct layers_case *c)
{
	static const char *const names[TYPES][4] = {
		{ "layers put, by the specification", "layers put", "layers get",
		  "layers get of damaged parts" },
		{ "layers put_bf16, by the specification", "layers put_bf16", "layers get_bf16",
		  "layers get_bf16 of damaged parts" },
		{ "layers put_f16, by the specification", "layers put_f16", "layers get_f16",
		  "layers get_f16 of damaged parts" },
	};
	struct layer_parts a = encode(ref, c, 0), b = encode(fast, c, a.bytes);
	const char *wrong = !as_specified(c, &a)     ? names[c->type][0]
	                    : !same_parts(c, &a, &b) ? names[c->type][1]
	                                             : NULL;
	if (!wrong) {
		struct layer_reading r = reading_new(c, &a, a.n);
		if (!decode(fast, c, &r) || !as_encoded(c, &r))
			wrong = names[c->type][2];
		reading_free(&r);
	}
	for (int i = 0; !wrong && i < 3; i++)
		if (!same_of_damaged(ref, fast, c, &b))
			wrong = names[c->type][3];
	parts_free(&a);
	parts_free(&b);
	return wrong;
}

/* Bits of a value, halved (spec layers 5). */
static unsigned half_bits(unsigned value)
{
	switch (value) {
	case 2:
	case 3:
	case 4:
		return 1;
	case 5:
	case 1:
	case 6:
		return 2;
	case 7:
	case 8:
	case 9:
		return 3;
	case 0:
	case 10:
	case 11:
		return 4;
	default:
		return 8;
	}
}

/* Whether top_costs are those of the specification. */
static int right_top_costs(const struct kvi_layer_kernels *fast)
{
	enum { AT_ONCE = KVI_TOPS_AT_ONCE };
	uint16_t cost[2][KVI_TOPS_TRIED][AT_ONCE];
	uint8_t first[AT_ONCE];
	const size_t rows = rng_below(KVI_TOPS_ROWS + 1), row = AT_ONCE + rng_below(100);
	struct guarded exponents = guarded_new(rows ? (rows - 1) * row + AT_ONCE : 0);
	const uint8_t mask = rng_below(2) ? 31 : 255, base = (uint8_t)rng();
	const unsigned kind = rng_below(3); /* all values, those that are likely, the most bits */
	for (size_t i = 0; rows && i < (rows - 1) * row + AT_ONCE; i++)
		exponents.p[i] = kind ? (uint8_t)(base - kind * rng_below(12)) & mask
		                      : (uint8_t)rng() & mask;
	for (size_t i = 0; i < AT_ONCE; i++)
		first[i] = (uint8_t)(kind == 2 ? base + 20u : rng());
	memset(cost[0], 0, sizeof cost[0]);
	for (unsigned k = 0; k < KVI_TOPS_TRIED; k++)
		for (size_t i = 0; i < rows * AT_ONCE; i++) {
			const size_t c = i % AT_ONCE;
			const uint8_t exponent = exponents.p[i / AT_ONCE * row + c];
			cost[0][k][c] = (uint16_t)(cost[0][k][c] +
			                           half_bits((first[c] + k - exponent) & mask));
		}
	fast->top_costs(exponents.p, rows, row, first, mask, cost[1]);
	guarded_free(&exponents);
	return !memcmp(cost[0], cost[1], sizeof cost[0]);
}

const char *check_layers(const struct kvi_layer_kernels *ref, const struct kvi_layer_kernels *fast)
{
	struct layers_case c = case_new();
	const char *wrong = check_case(ref, fast, &c);
	case_free(&c);
	if (guarded_written_in_front() && !wrong)
		wrong = "layers, in front of a buffer,";
	return wrong ? wrong : right_top_costs(fast) ? NULL : "layers top_costs";
}
