/* SPDX-License-Identifier: BSD-3-Clause */
/* test_train_fit.c - profiles fitted to made-up caches whose gain is known */
#include <math.h>
#include <stdio.h>

#include "kvarc/tools.h"
#include "profile/profile_io.h"
#include "numeric/rope_search.h"
#include "stream_util.h"

enum { LAYERS = 3, TOKENS = 3000, VOCABULARY = 40 };
/* Each slot is this part of the one before, each layer this part of the one below. */
static const double along = 0.9, upwards = 0.95;

struct fit_shape {
	uint32_t heads, channels;
	size_t tokens;
	bool ids;    /* the lowest layer is a function of the token's id */
	bool loud;   /* one token in ten is far from the others in the lowest layer */
	bool loose;  /* all is independent */
	double a, b; /* means of the pairs of keys, besides the usual ones */
};
static const struct fit_shape usual = { .heads = 2, .channels = 8, .tokens = TOKENS };

static double normal(uint64_t *seed)
{
	double sum = 0;
	for (int i = 0; i < 12; i++)
		sum += (double)(rand_next(seed) >> 11) * 0x1p-53;
	return sum - 6;
}

static void put(uint8_t *to, double v)
{
	float f = (float)v;
	uint32_t b;
	memcpy(&b, &f, sizeof b);
	b += 0x7fff + (b >> 16 & 1);
	to[0] = (uint8_t)(b >> 16);
	to[1] = (uint8_t)(b >> 24);
}

/* One token of one layer: all slots of the key, then all of the value. */
static void next_layer(double *x, size_t n, uint64_t *seed, bool first, const struct fit_shape *s)
{
	double last = 0, a = s->loose ? 0 : along, u = s->loose ? 0 : upwards;
	for (size_t i = 0; i < n; i++) {
		double v = i ? a * last + sqrt(1 - a * a) * normal(seed) : normal(seed);
		last = v;
		x[i] = first ? v : u * x[i] + sqrt(1 - u * u) * v;
	}
}

static void put_token(struct cache *c, const struct fit_shape *s, size_t layer, size_t token,
                      const double *x)
{
	const kvarc_rope *rope = &c->ropes[0];
	size_t width = s->heads * s->channels;
	uint8_t *key = c->data[2 * layer] + 2 * token * width;
	uint8_t *value = c->data[2 * layer + 1] + 2 * token * width;
	for (size_t h = 0; h < s->heads; h++)
		for (size_t i = 0; i < s->channels / 2; i++) {
			double turn = (double)(rope->freq[i] * (uint64_t)c->positions[0][token]);
			double angle = turn * 0x1p-64 * 6.283185307179586;
			double a = x[h * s->channels + 2 * i] + 3 + s->a;
			double b = x[h * s->channels + 2 * i + 1] - 2 + s->b;
			size_t at = h * s->channels + i;
			put(key + 2 * at, a * cos(angle) - b * sin(angle));
			put(key + 2 * (at + s->channels / 2), b * cos(angle) + a * sin(angle));
		}
	for (size_t i = 0; i < width; i++)
		put(value + 2 * i, 0.01 * x[width + i]);
}

static void make(struct cache *c, const struct fit_shape *s, uint64_t seed)
{
	static struct kvi_rope rope;
	double x[2 * 64];
	size_t n = 2 * s->heads * s->channels;
	memset(c, 0, sizeof *c);
	assert_true(kvi_rope_make(&rope, 10000, s->channels, KVARC_ROPE_HALF));
	c->ropes[0] =
		(kvarc_rope){ .pairing = rope.pairing, .rotary = rope.rotary, .freq = rope.freq };
	c->g.n_ropes = c->g.n_tracks = 1;
	c->g.n_tensors = 2 * LAYERS;
	c->n[0] = s->tokens;
	for (uint32_t i = 0; i < 2 * LAYERS; i++)
		c->tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                        .kind = i & 1,
			                        .dtype = KVARC_BF16,
			                        .heads = s->heads,
			                        .channels = s->channels,
			                        .rope = !(i & 1) };
	cache_link(c);
	for (size_t t = 0; t < s->tokens; t++) {
		uint64_t of_id = rand_next(&seed) % VOCABULARY;
		c->positions[0][t] = (int32_t)t;
		c->ids[0][t] = (int32_t)of_id;
		of_id = of_id * 0x9e3779b97f4a7c15u + 1;
		for (size_t layer = 0; layer < LAYERS; layer++) {
			next_layer(x, n, s->ids && !layer ? &of_id : &seed, !layer, s);
			for (size_t i = 0; s->loud && !layer && t % 10 == 0 && i < n; i++)
				x[i] += 10;
			put_token(c, s, layer, t, x);
		}
	}
}

static kvarc_ret open_trainer(kvarc_trainer **t, kvarc_error *e, const kvarc_trainer_options *o)
{
	kvarc_trainer_options to = KVARC_TRAINER_OPTIONS_INIT;
	if (o)
		to = *o;
	to.common.error = e;
	return kvarc_trainer_open(t, &to);
}

static kvarc_ret add(kvarc_trainer *t, struct cache *c, bool ids)
{
	return kvarc_trainer_add(t, &c->g, 0, c->n[0], ids ? c->ids[0] : NULL, c->positions[0],
	                         cache_fetch, c);
}

static void expect(double found, double wanted, double near, const char *what)
{
	if (!(found > wanted - near && found < wanted + near))
		fail_msg("%s: %.3f, not %.3f", what, found, wanted);
}

/* Mean bits of a level over the tensors of a kind of some layers. */
static double bits_of(const kvarc_trainer *t, int level, unsigned kind, uint32_t first,
                      uint32_t last)
{
	kvarc_trained x;
	double sum = 0, n = 0;
	for (size_t i = 0; !kvarc_trainer_report(t, i, &x); i++)
		if (x.kind == kind && x.layer >= first && x.layer <= last) {
			sum += x.bits[level];
			n++;
		}
	return sum / n;
}

static void test_gain(void **state)
{
	(void)state;
	struct cache c;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	make(&c, &usual, 1);
	assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
	assert_int_equal(add(t, &c, false), KVARC_OK);
	assert_int_equal(kvarc_trainer_tokens(t), TOKENS);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_null(kvarc_trainer_note(t, 0));
	/* values: all but the first see their neighbour (the key's last slot
	 * is a neighbour, too) */
	double gain = -0.5 * log2(1 - along * along);
	expect(bits_of(t, 1, KVARC_VALUE, 0, 2) - bits_of(t, 2, KVARC_VALUE, 0, 2), gain, 0.05,
	       "value, level 2");
	/* of keys the second slot of a pair sees the one before the pair; the
	 * first pair sees none */
	double second = -0.5 * log2(1 - along * along * along * along);
	expect(bits_of(t, 1, KVARC_KEY, 0, 2) - bits_of(t, 2, KVARC_KEY, 0, 2),
	       (gain + second) * 7 / 16, 0.05, "key, level 2");
	/* upper layers: the residual of the layer below has the same correlation */
	double up = -0.5 * log2(1 - upwards * upwards);
	expect(bits_of(t, 1, KVARC_VALUE, 1, 2) - bits_of(t, 3, KVARC_VALUE, 1, 2), gain + up, 0.06,
	       "value, level 3");
	expect(bits_of(t, 2, KVARC_VALUE, 0, 0) - bits_of(t, 3, KVARC_VALUE, 0, 0), 0, 0.001,
	       "lowest layer");
	kvarc_trained x;
	assert_int_equal(kvarc_trainer_report(t, 0, &x), KVARC_OK);
	assert_true(x.measured);
	assert_int_equal(x.elements, TOKENS / 10 * 16);
	assert_int_equal(kvarc_trainer_report(t, 2 * LAYERS, &x), KVARC_END);
	kvarc_trainer_close(&t);
	cache_free(&c);
}

static double fitted_bits(const struct fit_shape *s, int level, unsigned kind, uint32_t first,
                          uint32_t last)
{
	struct cache c;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	make(&c, s, 1);
	assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
	assert_int_equal(add(t, &c, false), KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	double bits = bits_of(t, level, kind, first, last);
	kvarc_trainer_close(&t);
	cache_free(&c);
	return bits;
}

/* Tokens that are far from the others weigh little where they are looked at from above, so that
 * the lower layer's mean is not that of its model: predictions must not be off by it. */
static void test_means(void **state)
{
	(void)state;
	struct fit_shape loud = usual;
	loud.loud = true;
	/* less, because steps of large values are coarser */
	expect(fitted_bits(&loud, 3, KVARC_VALUE, 1, 1),
	       fitted_bits(&usual, 3, KVARC_VALUE, 1, 1) - 0.4, 0.15, "above tokens of two kinds");
}

/* Both means of a pair are large: turned, a channel is larger than each of them. */
static void test_large_means(void **state)
{
	(void)state;
	struct fit_shape both = usual, one = usual;
	both.a = both.b = 190;
	one.a = sqrt(193 * 193 + 188 * 188) - 3;
	one.b = 2;
	expect(fitted_bits(&both, 1, KVARC_KEY, 0, 2), fitted_bits(&one, 1, KVARC_KEY, 0, 2), 0.1,
	       "large means");
}

/* Bytes of an archive of the cache, which comes back without any other file. */
static size_t archive_bytes(struct cache *c, const kvarc_profile *p, int level)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	struct memfile f = { .fail_at = -1 };
	struct cache back;
	kvarc_state state;
	wo.level = KVARC_LEVEL(level);
	wo.profile = p;
	if (p)
		wo.flags |= KVARC_WRITE_EMBED_PROFILE;
	assert_int_equal(cache_write(c, &f, &wo), KVARC_OK);
	cache_make_empty(&back, c);
	assert_int_equal(cache_read_seq(&back, &f, &ro, &state), KVARC_OK);
	assert_true(cache_equal(c, &back));
	size_t n = f.n;
	cache_free(&back);
	memfile_free(&f);
	return n;
}

/* A profile for the file itself is there if it is smaller than what it saves. */
static void test_in_file(void **state)
{
	(void)state;
	static const struct {
		size_t tokens;
		bool loose;
		int level; /* 0: it does not pay */
	} of[] = { { TOKENS, false, 3 }, { 150, false, 2 }, { 20, false, 0 }, { TOKENS, true, 0 } };
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct fit_shape s = usual;
		struct cache c;
		kvarc_trainer *t;
		kvarc_error e = { 0 };
		kvarc_profile *p;
		kvarc_profile_info info;
		kvarc_trainer_options o = { .flags = KVARC_TRAIN_IN_FILE, .levels = 1u << 3 };
		s.loose = of[i].loose;
		s.tokens = of[i].tokens;
		make(&c, &s, 7);
		assert_int_equal(open_trainer(&t, &e, &o), KVARC_OK);
		assert_int_equal(add(t, &c, true), KVARC_OK);
		assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
		assert_int_equal(kvarc_trainer_profile(t, &p), of[i].level ? KVARC_OK : KVARC_END);
		if (of[i].level) {
			assert_int_equal(kvarc_profile_get_info(p, &info), KVARC_OK);
			assert_int_equal(info.levels, 1u << of[i].level);
			assert_true(archive_bytes(&c, p, of[i].level) < archive_bytes(&c, NULL, 1));
		}
		kvarc_profile_close(&p);
		kvarc_trainer_close(&t);
		cache_free(&c);
	}
}

/* Of long caches some blocks are looked at, the same with any threads. */
static void test_in_file_long(void **state)
{
	(void)state;
	struct fit_shape s = usual;
	struct cache c;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	kvarc_profile *p;
	kvarc_trained x;
	kvarc_trainer_options o = { .flags = KVARC_TRAIN_IN_FILE };
	s.tokens = 40000;
	s.heads = 1;
	s.channels = 4;
	make(&c, &s, 8);
	assert_int_equal(open_trainer(&t, &e, &o), KVARC_OK);
	assert_int_equal(add(t, &c, false), KVARC_OK);
	assert_in_range(kvarc_trainer_tokens(t), 8192, 16384);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_int_equal(kvarc_trainer_report(t, 0, &x), KVARC_OK);
	assert_false(x.measured);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
	kvarc_profile_close(&p);
	kvarc_trainer_close(&t);
	cache_free(&c);
}

static void test_token_table(void **state)
{
	(void)state;
	static const struct fit_shape s = {
		.heads = 2, .channels = 8, .tokens = TOKENS, .ids = true
	};
	struct cache c;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	make(&c, &s, 2);
	for (int ids = 0; ids < 2; ids++) {
		assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
		assert_int_equal(add(t, &c, ids), KVARC_OK);
		assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
		double gain = bits_of(t, 2, KVARC_VALUE, 0, 0) - bits_of(t, 3, KVARC_VALUE, 0, 0);
		/* without ids there is none; with them five bits of a deviate
		 * are in the table's eight */
		expect(gain, ids ? 4 : 0, ids ? 1 : 0.001, "table");
		kvarc_profile *p;
		kvarc_model_info m;
		assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
		for (size_t i = 0; !kvarc_profile_model(p, i, &m); i++)
			assert_int_equal(m.table_rows,
			                 ids && m.level == 3 && m.layer == 0 ? VOCABULARY : 0);
		kvarc_profile_close(&p);
		kvarc_trainer_close(&t);
	}
	cache_free(&c);
}

static void write_profile(kvarc_trainer *t, struct memfile *f)
{
	kvarc_profile *p;
	kvarc_sink sink = memfile_sink(f);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
	assert_int_equal(kvarc_profile_write(p, &sink), KVARC_OK);
	kvarc_profile_close(&p);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_PROG);
}

/* The same profile with any threads and kernels. */
static void test_same(void **state)
{
	(void)state;
	static const uint32_t isa[] = { KVARC_ISA_ALL, KVARC_ISA_SCALAR, KVARC_ISA_AVX2,
		                        KVARC_ISA_ALL };
	struct memfile first = { .fail_at = -1 };
	struct cache c;
	make(&c, &(struct fit_shape){ .heads = 2, .channels = 6, .tokens = 700 }, 3);
	for (unsigned i = 0; i < 4; i++) {
		kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
		struct memfile f = { .fail_at = -1 };
		kvarc_trainer *t;
		kvarc_error e = { 0 };
		o.common.threads = i + 1;
		o.common.isa_mask = isa[i];
		assert_int_equal(open_trainer(&t, &e, &o), KVARC_OK);
		assert_int_equal(kvarc_trainer_identity(t, "weights", "x"), KVARC_OK);
		assert_int_equal(add(t, &c, true), KVARC_OK);
		assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
		write_profile(t, &f);
		kvarc_trainer_close(&t);
		if (!i) {
			first = f;
			continue;
		}
		assert_int_equal(f.n, first.n);
		assert_memory_equal(f.p, first.p, f.n);
		memfile_free(&f);
	}
	memfile_free(&first);
	cache_free(&c);
}

/* Infinities, NaNs, dead and constant channels, a far outlier: left out, or no matter. */
static void test_bad_data(void **state)
{
	(void)state;
	struct cache c;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	size_t row = 2 * 16;
	make(&c, &usual, 4);
	for (size_t v = 0; v < TOKENS; v++) {
		put(c.data[1] + v * row + 2 * 3, 0);
		put(c.data[1] + v * row + 2 * 5, 1.5);
		put(c.data[2] + v * row + 2 * 1, 0);
	}
	memcpy(c.data[0] + 7 * row, "\x80\x7f", 2);     /* infinity */
	memcpy(c.data[3] + 8 * row + 4, "\xc1\xff", 2); /* NaN */
	for (size_t i = 0; i < 16; i++)
		put(c.data[4] + 9 * row + 2 * i, 1e30);
	assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
	assert_int_equal(add(t, &c, false), KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_non_null(kvarc_trainer_note(t, 0));
	assert_non_null(strstr(kvarc_trainer_note(t, 0), "2 tokens have"));
	expect(bits_of(t, 1, KVARC_VALUE, 1, 2) - bits_of(t, 2, KVARC_VALUE, 1, 2),
	       -0.5 * log2(1 - along * along), 0.06, "value");
	kvarc_trainer_close(&t);
	cache_free(&c);
}

static void test_few(void **state)
{
	(void)state;
	for (size_t n = 1; n <= 40; n += 13) {
		struct cache c;
		kvarc_trainer *t;
		kvarc_error e = { 0 };
		make(&c, &(struct fit_shape){ .heads = 2, .channels = 8, .tokens = n, .ids = true },
		     n);
		assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
		assert_int_equal(add(t, &c, true), KVARC_OK);
		assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
		assert_non_null(strstr(kvarc_trainer_note(t, 0), "few"));
		kvarc_trainer_close(&t);
		cache_free(&c);
	}
}

static void test_refused(void **state)
{
	(void)state;
	struct cache c, other;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	make(&c, &(struct fit_shape){ .heads = 2, .channels = 8, .tokens = 50 }, 5);
	assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
	assert_int_equal(add(t, &c, false), KVARC_OK);
	/* other channels, other rotary embedding, fewer layers */
	make(&other, &(struct fit_shape){ .heads = 2, .channels = 6, .tokens = 50 }, 5);
	assert_int_equal(add(t, &other, false), KVARC_GEOMETRY);
	cache_free(&other);
	make(&other, &(struct fit_shape){ .heads = 2, .channels = 8, .tokens = 50 }, 5);
	other.tensors[0].rope = 0;
	assert_int_equal(add(t, &other, false), KVARC_GEOMETRY);
	other.tensors[0].rope = 1;
	size_t all = other.g.n_tensors;
	other.g.n_tensors = 4;
	assert_int_equal(add(t, &other, false), KVARC_GEOMETRY);
	for (size_t i = 0; i < 4; i++)
		other.tensors[i].dtype = KVARC_I8;
	assert_int_equal(add(t, &other, false), KVARC_GEOMETRY);
	assert_int_equal(kvarc_trainer_add(t, &c.g, 1, 5, NULL, NULL, cache_fetch, &c),
	                 KVARC_GEOMETRY);
	assert_int_equal(kvarc_trainer_add(t, &c.g, 0, 0, NULL, NULL, cache_fetch, &c),
	                 KVARC_GEOMETRY);
	/* the trainer can be used on */
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_PROG);
	assert_int_equal(add(t, &c, false), KVARC_PROG);
	kvarc_trainer_close(&t);
	assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_GEOMETRY);
	kvarc_trainer_close(&t);
	kvarc_trainer_options o = { .levels = 2 };
	assert_int_equal(open_trainer(&t, &e, &o), KVARC_PROG);
	o = (kvarc_trainer_options){ .held_out = 51 };
	assert_int_equal(open_trainer(&t, &e, &o), KVARC_PROG);
	o = (kvarc_trainer_options){ .flags = KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER };
	assert_int_equal(open_trainer(&t, &e, &o), KVARC_PROG);
	other.g.n_tensors = all;
	cache_free(&other);
	cache_free(&c);
}

static int failing_fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                         uint32_t n, void *dst)
{
	(void)opaque;
	(void)head;
	(void)heads;
	(void)t0;
	(void)n;
	(void)dst;
	return tensor == 3;
}

static int stop(void *opaque, uint64_t done, uint64_t total)
{
	(void)opaque;
	return done > total / 2;
}

static void test_failures(void **state)
{
	(void)state;
	struct cache c;
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	make(&c, &(struct fit_shape){ .heads = 1, .channels = 4, .tokens = 60, .ids = true }, 6);
	assert_int_equal(open_trainer(&t, &e, NULL), KVARC_OK);
	assert_int_equal(kvarc_trainer_add(t, &c.g, 0, 60, NULL, NULL, failing_fetch, &c),
	                 KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_IO);
	kvarc_trainer_close(&t);
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	o.common.progress = stop;
	assert_int_equal(open_trainer(&t, &e, &o), KVARC_OK);
	assert_int_equal(add(t, &c, false), KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_IO);
	kvarc_trainer_close(&t);
	/* a failed allocation at any point is an error, and nothing leaks */
	bool failed = true;
	for (long at = 0; failed; at += 1 + at / 8) {
		struct counting count = { .fail_at = at };
		kvarc_allocator allocator = counting_allocator(&count);
		o = (kvarc_trainer_options)KVARC_TRAINER_OPTIONS_INIT;
		o.common.allocator = &allocator;
		kvarc_ret ret = open_trainer(&t, &e, &o);
		if (!ret)
			ret = add(t, &c, true);
		if (!ret)
			ret = kvarc_trainer_run(t);
		kvarc_profile *p = NULL;
		if (!ret)
			ret = kvarc_trainer_profile(t, &p);
		failed = ret != KVARC_OK;
		if (failed)
			assert_int_equal(ret, KVARC_MEM);
		kvarc_profile_close(&p);
		kvarc_trainer_close(&t);
		assert_int_equal(count.held, 0);
	}
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gain),         cmocka_unit_test(test_means),
		cmocka_unit_test(test_large_means),  cmocka_unit_test(test_in_file),
		cmocka_unit_test(test_in_file_long), cmocka_unit_test(test_token_table),
		cmocka_unit_test(test_same),         cmocka_unit_test(test_bad_data),
		cmocka_unit_test(test_few),          cmocka_unit_test(test_refused),
		cmocka_unit_test(test_failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
