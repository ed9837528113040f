/* SPDX-License-Identifier: BSD-3-Clause */
/* test_train.c - profiles that are fitted: geometries, element types, pairings, stages */
#include <math.h>

#include "kvarc/tools.h"
#include "numeric/formats.h"
#include "stream_util.h"

enum { HIDDEN = 12, ROTARY_MAX = 16, TOKENS = 768 };

/* A model's cache: layers of one kind of attention. */
struct train_shape {
	const char *name;
	uint32_t layers, heads, channels, rotary;
	uint8_t dtype;
	bool latent; /* MLA: one latent a layer, no keys and values */
};

static const struct train_shape shapes[] = {
	{ "MHA", 3, 4, 12, 12, KVARC_BF16, false },
	{ "GQA", 3, 2, 16, 16, KVARC_F16, false },
	{ "MQA", 3, 1, 32, 16, KVARC_BF16, false },
	{ "MLA", 3, 1, 40, 0, KVARC_BF16, true },
	{ "MLA with a turned part", 3, 1, 40, 8, KVARC_F16, true },
	{ "no RoPE", 3, 2, 15, 0, KVARC_BF16, false },
	{ "part of a RoPE", 3, 2, 16, 6, KVARC_F16, false },
	{ "f32", 2, 2, 8, 8, KVARC_F32, false },
	{ "e4m3", 3, 2, 16, 16, KVARC_E4M3, false },
	{ "e5m2", 3, 2, 16, 16, KVARC_E5M2, false },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Sum of four even numbers: near enough to a normal one. */
static double normal(uint64_t *seed)
{
	double sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (double)(int32_t)(uint32_t)rand_next(seed) / 2147483648.0;
	return sum * 0.866;
}

/* The element nearest to v. */
static void put(unsigned dtype, double v, uint8_t *to)
{
	const struct kvi_grid_format *f = &kvi_float_format(dtype)->grid;
	uint32_t sign = v < 0, bits;
	int e, m = f->mant_bits;
	float single = (float)v;
	if (dtype == KVARC_F32) {
		memcpy(to, &single, 4);
		return;
	}
	v = fabs(v);
	(void)frexp(v, &e);
	e = e - 1 < f->emin ? f->emin : e - 1;
	/* in units of the last place; a carry goes into the exponent by itself */
	bits = (uint32_t)lrint(ldexp(v, m - e));
	bits += (uint32_t)(e - f->emin) << m;
	bits |= sign << (f->elem_bits - 1);
	to[0] = (uint8_t)bits;
	if (f->elem_bits == 16)
		to[1] = (uint8_t)(bits >> 8);
}

/* Channels of pair i of a head. */
static void pair_at(const kvarc_rope *r, uint32_t i, uint32_t *a, uint32_t *b)
{
	*a = r->pairing == KVARC_ROPE_HALF ? i : 2 * i;
	*b = r->pairing == KVARC_ROPE_HALF ? i + r->rotary / 2 : 2 * i + 1;
}

/* A head's channels before the RoPE, in the order of HF; as the cache has them. */
static void put_head(const struct cache *c, const kvarc_tensor *t, double *x, int32_t position,
                     uint8_t *to)
{
	const kvarc_rope *r = t->rope ? &c->ropes[0] : NULL;
	size_t size = kvarc_dtype_bytes(t->dtype);
	for (uint32_t i = 0; r && i < r->rotary / 2; i++) {
		uint64_t turn = (uint64_t)(int64_t)position * r->freq[i];
		double w = (double)turn * 0x1p-64 * 6.283185307179586;
		double a = x[i], b = x[i + r->rotary / 2];
		uint32_t ia, ib;
		pair_at(r, i, &ia, &ib);
		put(t->dtype, a * cos(w) - b * sin(w), to + ia * size);
		put(t->dtype, b * cos(w) + a * sin(w), to + ib * size);
	}
	for (uint32_t i = r ? r->rotary : 0; i < t->channels; i++)
		put(t->dtype, x[i], to + i * size);
}

/* Everything is a linear function of what a token is about, which changes a little
 * from layer to layer, and some noise. */
static void fill(struct cache *c, uint64_t model, uint64_t seed)
{
	for (uint64_t t = 0; t < c->n[0]; t++) {
		double h[HIDDEN];
		for (size_t k = 0; k < HIDDEN; k++)
			h[k] = normal(&seed);
		for (size_t i = 0; i < c->g.n_tensors; i++) {
			const kvarc_tensor *x = &c->tensors[i];
			uint64_t w = model + i;
			double v[64];
			for (size_t k = 0; i && c->tensors[i - 1].layer < x->layer && k < HIDDEN;
			     k++)
				h[k] = 0.9 * h[k] + 0.3 * normal(&seed);
			for (uint32_t head = 0; head < x->heads; head++) {
				for (uint32_t s = 0; s < x->channels; s++) {
					v[s] = normal(&w) + 0.1 * normal(&seed);
					for (size_t k = 0; k < HIDDEN; k++)
						v[s] += 0.4 * normal(&w) * h[k];
				}
				put_head(c, x, v, c->positions[0][t],
				         c->data[i] + (t * x->heads + head) * x->channels *
				                              kvarc_dtype_bytes(x->dtype));
			}
		}
	}
}

static void make(struct cache *c, const struct train_shape *s, uint8_t pairing, uint64_t seed)
{
	static const uint64_t freq[ROTARY_MAX / 2] = {
		0x28be60db9391054aull, 0x0e7a8f2c4b1d3f50ull, 0x041253f0c1d4c9b0ull,
		0x01739a2c5e6f1b20ull, 0x006817e0a5a3b8d2ull, 0x00251d3e4f5a6b70ull,
		0x000a66d43a1d97b5ull, 0x0003b5c1d2e3f400ull
	};
	memset(c, 0, sizeof *c);
	c->ropes[0] = (kvarc_rope){ .pairing = pairing, .rotary = s->rotary, .freq = freq };
	c->g.n_ropes = s->rotary > 0;
	c->g.n_tracks = 1;
	c->n[0] = TOKENS;
	for (uint32_t layer = 0; layer < s->layers; layer++)
		for (unsigned value = 0; value < (s->latent ? 1 : 2); value++) {
			bool rope = s->rotary && !value;
			c->tensors[c->g.n_tensors++] =
				(kvarc_tensor){ .layer = layer,
				                .dtype = s->dtype,
				                .kind = s->latent ? KVARC_MLA_LATENT
				                        : value   ? KVARC_VALUE
				                                  : KVARC_KEY,
				                .flags = rope ? KVARC_TENSOR_POST_ROPE : 0,
				                .heads = s->heads,
				                .channels = s->channels,
				                .rope = rope };
		}
	cache_link(c);
	for (uint64_t t = 0; t < c->n[0]; t++) {
		c->ids[0][t] = (int32_t)(rand_next(&seed) % 300);
		c->positions[0][t] = (int32_t)t;
	}
	fill(c, 1000, seed);
}

static kvarc_profile *train(const struct cache *c)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	kvarc_trainer *t;
	kvarc_profile *p;
	o.flags = KVARC_TRAIN_NO_TABLE;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
	assert_int_equal(kvarc_trainer_add(t, &c->g, 0, c->n[0], c->ids[0], c->positions[0],
	                                   cache_fetch, (void *)(uintptr_t)c),
	                 KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
	kvarc_trainer_close(&t);
	return p;
}

/* Bits per element of a file that gives the cache back. */
static double packed(const struct cache *c, int level, const kvarc_profile *p, struct memfile *f)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	struct cache back;
	double elements = 0;
	*f = (struct memfile){ .fail_at = -1 };
	wo.level = KVARC_LEVEL(level);
	wo.profile = level > 1 ? p : NULL;
	wo.flags = KVARC_WRITE_FILE_ID;
	ro.profiles = &p;
	ro.n_profiles = 1;
	assert_int_equal(cache_write(c, f, &wo), KVARC_OK);
	cache_make_empty(&back, c);
	assert_int_equal(cache_read_range(&back, f, &ro), KVARC_OK);
	assert_true(cache_equal(c, &back));
	cache_free(&back);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		elements += (double)cache_bytes(c, i) /
		            (double)kvarc_dtype_bytes(c->tensors[i].dtype);
	return 8 * (double)f->n / elements;
}

/* A cache with fewer layers than the first one, or with more, is another model's. */
static void test_other_layers(void **state)
{
	struct cache c;
	(void)state;
	make(&c, &shapes[0], KVARC_ROPE_HALF, 1);
	const size_t n = c.g.n_tensors;
	for (size_t first = 0; first < 2; first++) {
		kvarc_trainer *t;
		assert_int_equal(kvarc_trainer_open(&t, NULL), KVARC_OK);
		c.g.n_tensors = n - first;
		assert_int_equal(kvarc_trainer_add(t, &c.g, 0, c.n[0], c.ids[0], c.positions[0],
		                                   cache_fetch, &c),
		                 KVARC_OK);
		c.g.n_tensors = n - 1 + first;
		assert_int_not_equal(kvarc_trainer_add(t, &c.g, 0, c.n[0], c.ids[0], c.positions[0],
		                                       cache_fetch, &c),
		                     KVARC_OK);
		c.g.n_tensors = n;
		kvarc_trainer_close(&t);
	}
	cache_free(&c);
}

/* Each level is smaller than the one below it, on tokens that were not fitted. */
static void test_geometries(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		struct cache fitted, other;
		struct memfile f;
		double bits[4] = { 0 };
		make(&fitted, &shapes[i], KVARC_ROPE_HALF, 1);
		make(&other, &shapes[i], KVARC_ROPE_HALF, 2);
		kvarc_profile *p = train(&fitted);
		for (int level = 1; level <= 3; level++) {
			bits[level] = packed(&other, level, p, &f);
			memfile_free(&f);
		}
		print_message("%s: %.2f, %.2f, %.2f bits\n", shapes[i].name, bits[1], bits[2],
		              bits[3]);
		assert_true(bits[2] < bits[1] - 0.2 && bits[3] < bits[2]);
		kvarc_profile_close(&p);
		cache_free(&fitted);
		cache_free(&other);
	}
}

/* Halves and interleaved pairs are the same numbers to one profile. */
static void test_pairings(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		struct cache half, interleaved;
		struct memfile f;
		if (!shapes[i].rotary)
			continue;
		make(&half, &shapes[i], KVARC_ROPE_HALF, 3);
		make(&interleaved, &shapes[i], KVARC_ROPE_INTERLEAVED, 3);
		kvarc_profile *p = train(&half), *q = train(&interleaved);
		kvarc_profile_info a, b;
		assert_int_equal(kvarc_profile_get_info(p, &a), KVARC_OK);
		assert_int_equal(kvarc_profile_get_info(q, &b), KVARC_OK);
		assert_memory_equal(a.digest, b.digest, sizeof a.digest);
		for (int level = 1; level <= 3; level++) {
			double x = packed(&half, level, p, &f);
			memfile_free(&f);
			double y = packed(&interleaved, level, p, &f);
			memfile_free(&f);
			assert_true(fabs(x - y) < 0.005 * x);
		}
		kvarc_profile_close(&p);
		kvarc_profile_close(&q);
		cache_free(&half);
		cache_free(&interleaved);
	}
}

struct measured_sums {
	const struct cache *c;
	size_t n;
	unsigned last; /* stage */
	double bits;   /* there, of all tensors */
};

static void add_measured(void *opaque, const kvarc_measured *m)
{
	struct measured_sums *t = opaque;
	const kvarc_tensor *x = &t->c->tensors[m->tensor];
	uint32_t width = x->heads * x->channels;
	double sum = 0;
	for (unsigned k = 1; k < KVARC_STAGES; k++)
		assert_true(k > t->last ? m->bits[k] == 0 : m->bits[k] > 0);
	assert_true(m->bits[1] < m->bits[0]);
	for (uint32_t i = 0; i < width; i++)
		sum += (double)m->channel_bits[i] / width;
	assert_true(fabs(sum - m->bits[t->last]) < 0.001);
	assert_true(m->tokens == 256 && !m->table);
	t->bits += m->bits[t->last] / (double)t->c->g.n_tensors;
	t->n++;
}

/* The stages of an archive; in the end about what its chunks have. */
static void test_stages(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i += 4)
		for (unsigned level = 2; level <= 3; level++) {
			struct cache c;
			struct memfile f;
			kvarc_reader *r;
			kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
			make(&c, &shapes[i], i / 2 % 2, 4);
			kvarc_profile *p = train(&c);
			struct measured_sums t = { &c, 0, level, 0 };
			double bits = packed(&c, (int)level, p, &f);
			kvarc_source source = memfile_source(&f);
			assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
			assert_int_equal(kvarc_reader_measure(r, 0, add_measured, &t),
			                 KVARC_PREDICTOR);
			kvarc_reader_close(&r);
			ro.profiles = (const kvarc_profile *const *)&p;
			ro.n_profiles = 1;
			assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
			assert_int_equal(kvarc_reader_measure(r, 1, add_measured, &t),
			                 KVARC_GEOMETRY);
			assert_int_equal(kvarc_reader_measure(r, 0, add_measured, &t), KVARC_OK);
			assert_int_equal(t.n, c.g.n_tensors);
			assert_true(fabs(t.bits - bits) < 0.1 * bits);
			kvarc_reader_close(&r);
			memfile_free(&f);
			kvarc_profile_close(&p);
			cache_free(&c);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_layers),
		cmocka_unit_test(test_geometries),
		cmocka_unit_test(test_pairings),
		cmocka_unit_test(test_stages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
