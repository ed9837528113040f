/* SPDX-License-Identifier: BSD-3-Clause */
/* test_lossy.c - lossy tiers through writer and reader: who gets what, exact tokens, generations,
 * error and size, failures */
#include "stream_util.h"

#include <math.h>

#include "codecs/codec.h"
#include "format/chunk_header.h"
#include "format/frame.h"

enum { TOKENS = 512, HEADS = 2, CHANNELS = 64, WIDTH = HEADS * CHANNELS, BYTES_ROW = 7 };
enum { KEYS, VALUES, OTHER };

static double gauss(uint64_t *seed)
{
	double sum = 0;
	for (int i = 0; i < 12; i++)
		sum += (double)(rand_next(seed) >> 11) / 9007199254740992.0;
	return sum - 6;
}

static void put_float(const struct cache *c, size_t tensor, size_t i, double v)
{
	float f = (float)v;
	uint8_t *to = c->data[tensor];
	uint32_t b;
	memcpy(&b, &f, 4);
	if (c->tensors[tensor].dtype == KVARC_BF16)
		memcpy(to + 2 * i, &(uint16_t){ (uint16_t)(b >> 16) }, 2);
	else
		memcpy(to + 4 * i, &f, 4);
}

static double get_float(const struct cache *c, size_t tensor, size_t i)
{
	uint32_t b = 0;
	float f;
	if (c->tensors[tensor].dtype == KVARC_BF16)
		memcpy((uint8_t *)&b + 2, c->data[tensor] + 2 * i, 2);
	else
		memcpy(&b, c->data[tensor] + 4 * i, 4);
	memcpy(&f, &b, 4);
	return (double)f;
}

/* Keys with a rope and values, normal with a mean that all tokens share; in layer 1 a tensor of
 * bytes, which no tier takes. */
static void make(struct cache *c, unsigned dtype)
{
	static uint64_t freq[16];
	uint64_t seed = 5;
	memset(c, 0, sizeof *c);
	for (size_t i = 0; i < 16; i++)
		freq[i] = 0x28be60db9391054au >> 2 * i;
	c->ropes[0] = (kvarc_rope){ .pairing = KVARC_ROPE_HALF, .rotary = 32, .freq = freq };
	c->tracks[0] = (kvarc_track){ .kind = KVARC_TRACK_SELF, .label = "main" };
	c->tensors[KEYS] = (kvarc_tensor){ .kind = KVARC_KEY,
		                           .dtype = (uint8_t)dtype,
		                           .heads = HEADS,
		                           .channels = CHANNELS,
		                           .rope = 1,
		                           .flags = KVARC_TENSOR_POST_ROPE };
	c->tensors[VALUES] = c->tensors[KEYS];
	c->tensors[VALUES].kind = KVARC_VALUE;
	c->tensors[VALUES].rope = 0;
	c->tensors[VALUES].flags = 0;
	c->tensors[OTHER] = (kvarc_tensor){
		.layer = 1, .kind = KVARC_KEY, .dtype = KVARC_U8, .heads = 1, .channels = BYTES_ROW
	};
	c->g.n_ropes = c->g.n_tracks = 1;
	c->g.n_tensors = 3;
	c->n[0] = TOKENS;
	cache_link(c);
	for (size_t i = 0; i < TOKENS; i++)
		c->positions[0][i] = c->ids[0][i] = (int32_t)i;
	for (size_t t = KEYS; t <= VALUES; t++)
		for (size_t i = 0; i < TOKENS * WIDTH; i++)
			put_float(c, t, i, gauss(&seed) + (double)(i % WIDTH % 5) - 2);
	for (size_t i = 0; i < TOKENS * BYTES_ROW; i++)
		c->data[OTHER][i] = (uint8_t)rand_next(&seed);
}

static kvarc_lossy tier(const char *text)
{
	kvarc_lossy l;
	kvarc_error e;
	assert_int_equal(kvarc_lossy_parse(&l, text, &e), KVARC_OK);
	return l;
}

static struct memfile written(const struct cache *c, const kvarc_lossy *l, unsigned threads)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.flags = KVARC_WRITE_FILE_ID | KVARC_WRITE_VERIFY;
	o.common.threads = threads;
	o.lossy = l;
	assert_int_equal(cache_write(c, &f, &o), KVARC_OK);
	return f;
}

static kvarc_reader_options welcome(uint32_t isa)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	o.flags = KVARC_READ_ALLOW_LOSSY;
	o.common.isa_mask = isa;
	return o;
}

static double mse(const struct cache *a, const struct cache *b, size_t tensor, size_t first)
{
	double sum = 0;
	for (size_t i = first * WIDTH; i < TOKENS * WIDTH; i++)
		sum += pow(get_float(a, tensor, i) - get_float(b, tensor, i), 2);
	return sum / (double)((TOKENS - first) * WIDTH);
}

/* The same file whatever the threads, the same elements by whatever way and set. */
static void test_ways(void **state)
{
	static const uint32_t isas[] = { KVARC_ISA_SCALAR, KVARC_ISA_ALL };
	static const unsigned dtypes[] = { KVARC_BF16, KVARC_F32 };
	(void)state;
	for (size_t d = 0; d < 2; d++) {
		struct cache c, first, back;
		kvarc_lossy l = tier(d ? "had:3.5,keys=+0.5" : "had:4,identity,no-unrope");
		make(&c, dtypes[d]);
		struct memfile f = written(&c, &l, 1), other = written(&c, &l, 4);
		assert_int_equal(f.n, other.n);
		assert_memory_equal(f.p, other.p, f.n);
		cache_make_empty(&first, &c);
		for (size_t i = 0; i < 6; i++) {
			kvarc_reader_options ro = welcome(isas[i % 2]);
			ro.common.threads = i < 2 ? 1 : 3;
			cache_make_empty(&back, &c);
			f.pipe = i >= 4;
			if (i < 2)
				assert_int_equal(cache_read_range(&back, &f, &ro), KVARC_OK);
			else
				assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
			if (!i)
				for (size_t t = 0; t < 3; t++)
					memcpy(first.data[t], back.data[t], cache_bytes(&c, t));
			for (size_t t = 0; t < 3; t++)
				assert_memory_equal(first.data[t], back.data[t],
				                    cache_bytes(&c, t));
			cache_free(&back);
		}
		/* The keys, which are turned, are as good as the values. */
		assert_memory_equal(first.data[OTHER], c.data[OTHER], cache_bytes(&c, OTHER));
		assert_true(mse(&c, &first, VALUES, 4) < 0.02);
		assert_true(mse(&c, &first, KEYS, 4) < 0.02);
		assert_true(mse(&c, &first, KEYS, 4) > 0);
		cache_free(&first);
		cache_free(&c);
		memfile_free(&f);
		memfile_free(&other);
	}
}

static kvarc_ret read_range(struct memfile *f, struct cache *to, unsigned flags, kvarc_range range)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	o.flags = flags;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	kvarc_ret ret = kvarc_reader_read(r, &range, to->views);
	kvarc_reader_close(&r);
	return ret;
}

static void test_refused(void **state)
{
	struct cache c, back;
	kvarc_lossy l = tier("had:4");
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_error e;
	(void)state;
	make(&c, KVARC_BF16);
	struct memfile f = written(&c, &l, 2);
	cache_make_empty(&back, &c);
	o.common.error = &e;
	for (int pipe = 0; pipe < 2; pipe++) {
		f.pipe = pipe;
		assert_int_equal(cache_read_seq(&back, &f, &o, NULL), KVARC_LOSSY);
		assert_non_null(strstr(e.text, "lossy"));
		assert_int_equal(e.code, KVARC_LOSSY);
	}
	f.pipe = false;
	o.flags = KVARC_READ_SALVAGE;
	assert_int_equal(cache_read_range(&back, &f, &o), KVARC_LOSSY);
	/* Nothing was given, and what is not lossy may be had; checks need no permission. */
	for (size_t i = 0; i < cache_bytes(&c, VALUES); i++)
		assert_int_equal(back.data[VALUES][i], 0xa5);
	kvarc_range rest = { .layer0 = 1, .n_layers = 1, .t0 = 10, .n = 300 },
		    all = KVARC_RANGE_ALL(0);
	assert_int_equal(read_range(&f, &back, 0, rest), KVARC_OK);
	assert_memory_equal(back.data[OTHER], c.data[OTHER] + 10 * BYTES_ROW, 300 * BYTES_ROW);
	assert_int_equal(read_range(&f, &back, 0, all), KVARC_LOSSY);
	assert_int_equal(read_range(&f, &back, KVARC_READ_ALLOW_LOSSY, all), KVARC_OK);
	o.flags = 0;
	assert_int_equal(cache_verify(&f, &o), KVARC_OK);
	cache_free(&back);
	cache_free(&c);
	memfile_free(&f);
}

/* Where the payload of a chunk is, behind its header. */
static size_t payload_of(struct memfile *f, uint64_t i, kvarc_chunk_info *info)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader_options o = welcome(0);
	kvarc_reader *r;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	kvarc_ret ret = kvarc_reader_chunk(r, i, info);
	kvarc_reader_close(&r);
	return ret ? 0 : (size_t)info->offset + KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES;
}

static void test_generations(void **state)
{
	static const uint32_t before[] = { 0, 1, 7, 253, 254, 255, 256, 1000000 };
	static const unsigned now[] = { 1, 2, 8, 254, 255, 255, 255, 255 };
	struct cache c;
	(void)state;
	make(&c, KVARC_BF16);
	for (size_t k = 0; k < 8; k++) {
		kvarc_lossy l = tier("had:4");
		kvarc_chunk_info info;
		size_t at, n = 0;
		l.generation = before[k];
		struct memfile f = written(&c, &l, 1);
		for (uint64_t i = 0; (at = payload_of(&f, i, &info)); i++)
			if (info.codec == KVI_CODEC_HAD) {
				assert_int_equal(f.p[at], now[k]);
				assert_int_equal(info.generation, now[k]);
				assert_int_equal(kvi_lossy_generation(f.p + at, 1), now[k]);
				n++;
			}
		assert_int_equal(n, 4); /* two tensors of two segments */
		memfile_free(&f);
	}
	assert_int_equal(kvi_lossy_generation(NULL, 0), 0);
	cache_free(&c);
}

/* A cache that has been through a tier goes through it again: not much happens. */
static void test_again(void **state)
{
	struct cache c, once, twice;
	kvarc_lossy l = tier("had:4,exact=0");
	kvarc_reader_options ro = welcome(0);
	(void)state;
	make(&c, KVARC_F32);
	cache_make_empty(&once, &c);
	cache_make_empty(&twice, &c);
	struct memfile f = written(&c, &l, 1);
	assert_int_equal(cache_read_seq(&once, &f, &ro, NULL), KVARC_OK);
	memfile_free(&f);
	l.generation = 1;
	f = written(&once, &l, 1);
	assert_int_equal(cache_read_seq(&twice, &f, &ro, NULL), KVARC_OK);
	assert_true(mse(&c, &twice, VALUES, 0) < 2.1 * mse(&c, &once, VALUES, 0));
	memfile_free(&f);
	cache_free(&c);
	cache_free(&once);
	cache_free(&twice);
}

static bool same_token(const struct cache *a, const struct cache *b, size_t tensor, size_t token)
{
	size_t row = cache_bytes(a, tensor) / TOKENS;
	return !memcmp(a->data[tensor] + token * row, b->data[tensor] + token * row, row);
}

static void test_exact_tokens(void **state)
{
	static const double odd[] = { INFINITY, -INFINITY, NAN, 1e37 };
	static const unsigned dtypes[] = { KVARC_BF16, KVARC_F32 };
	static const char *const texts[] = { "had:3,exact=0", "had:3", "had:2,exact=300" };
	static const size_t n_exact[] = { 0, 4, 300 };
	/* 1e37 does not fit the step, it stays as well, nor does it count where steps are made. */
	static const size_t n_odd[] = { 4, 4, 4 };
	(void)state;
	for (size_t k = 0; k < 6; k++) {
		struct cache c, back;
		kvarc_lossy l = tier(texts[k / 2]);
		kvarc_reader_options ro = welcome(0);
		make(&c, dtypes[k % 2]);
		for (size_t i = 0; i < n_odd[k / 2]; i++)
			put_float(&c, VALUES, (301 + 9 * i) * WIDTH + 31 * i, odd[i]);
		struct memfile f = written(&c, &l, 1);
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
		for (size_t t = 0; t < TOKENS; t++) {
			bool first = t < n_exact[k / 2];
			bool wild = t >= 301 && (t - 301) % 9 == 0 && (t - 301) / 9 < n_odd[k / 2];
			assert_int_equal(same_token(&c, &back, KEYS, t), first);
			assert_int_equal(same_token(&c, &back, VALUES, t), first || wild);
		}
		cache_free(&back);
		cache_free(&c);
		memfile_free(&f);
	}
}

/* The last tokens of all, also where segments end elsewhere, and those much longer than others. */
static void test_tail_outliers(void **state)
{
	enum { LONG = 200, TAIL = 5 };
	static const char *const texts[] = { "had:3,exact=0,tail=5,outliers=6",
		                             "near:0.1,exact=0,tail=5,outliers=15.5",
		                             "had:3,exact=0,outliers=17",
		                             "near:0.1,exact=0,tail=0" };
	(void)state;
	for (size_t k = 0; k < 4; k++) {
		struct cache c, back;
		kvarc_lossy l = tier(texts[k]);
		kvarc_reader_options ro = welcome(0);
		make(&c, KVARC_F32);
		for (size_t i = 0; i < WIDTH; i++)
			put_float(&c, VALUES, LONG * WIDTH + i,
			          10 * get_float(&c, VALUES, LONG * WIDTH + i));
		struct memfile f = written(&c, &l, 1);
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
		for (size_t t = 0; t < TOKENS; t++) {
			bool last = k < 2 && t >= TOKENS - TAIL;
			assert_int_equal(same_token(&c, &back, KEYS, t), last);
			assert_int_equal(same_token(&c, &back, VALUES, t),
			                 last || (k < 2 && t == LONG));
		}
		cache_free(&back);
		cache_free(&c);
		memfile_free(&f);
	}
	kvarc_lossy l;
	assert_int_equal(kvarc_lossy_parse(&l, "had:4,outliers=0", NULL), KVARC_OPTIONS);
	assert_int_equal(kvarc_lossy_parse(&l, "had:4,tail=-1", NULL), KVARC_OPTIONS);
}

/* What the quantiser of a rate makes of a normal number, by adding up. */
static double expected_error(double rate)
{
	const double step = exp2((33 - 16 * rate) / 16), fine = 1e-4;
	const double offset = step <= 0.5 ? 0.5 : step <= 1 ? 0.45 : 0.41;
	double sum[3] = { 0 }, weight[3] = { 0 }, error = 0, near[3];
	for (int pass = 0; pass < 2; pass++)
		for (double x = fine / 2; x < 9; x += fine) {
			double p = 2 * fine * exp(-x * x / 2) / sqrt(2 * 3.14159265358979);
			double q = floor(x / step + offset);
			int i = q > 1 ? 2 : q > 0;
			sum[i] += p * (q - x / step);
			weight[i] += p;
			if (pass)
				error += p * pow(x - (q != 0 ? q - near[i] : 0) * step, 2);
			else
				near[i] = 0;
			if (!pass && x + fine >= 9)
				for (int k = 1; k < 3; k++)
					near[k] = round(32 * sum[k] / weight[k]) / 32;
		}
	return error;
}

static double bits_each(struct memfile *f)
{
	kvarc_chunk_info info;
	double bytes = 0, n = 0;
	for (uint64_t i = 0; payload_of(f, i, &info); i++)
		if (info.codec == KVI_CODEC_HAD) {
			bytes += info.payload_bytes;
			n += info.raw_bytes / 4;
		}
	return 8 * bytes / n;
}

static void test_error_and_size(void **state)
{
	static const char *const texts[] = { "had:1.5", "had:2", "had:3", "had:4", "had:6" };
	static const double rates[] = { 1.5, 2, 3, 4, 6 };
	struct cache c, back;
	(void)state;
	make(&c, KVARC_F32);
	for (size_t k = 0; k < 5; k++) {
		kvarc_lossy l = tier(texts[k]);
		kvarc_reader_options ro = welcome(0);
		l.exact_tokens = 0;
		struct memfile f = written(&c, &l, 1);
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
		double error = mse(&c, &back, VALUES, 0), want = expected_error(rates[k]);
		double bits = bits_each(&f);
		print_message("had:%g: error %.6f of %.6f, %.3f bits\n", rates[k], error, want,
		              bits);
		assert_true(error > 0.97 * want && error < 1.03 * want);
		assert_true(bits > 0.97 * rates[k] && bits < 1.03 * rates[k] + 0.05);
		cache_free(&back);
		memfile_free(&f);
	}
	cache_free(&c);
}

/* A token as long as all others together stays, and they are coded as if it were not there; where
 * many are long none does. */
static void test_far(void **state)
{
	static const size_t every[] = { 256, 4 };
	(void)state;
	for (size_t k = 0; k < 2; k++) {
		struct cache c, back;
		kvarc_lossy l = tier("had:3,exact=0");
		kvarc_reader_options ro = welcome(0);
		size_t stay = 0, n = 0;
		double sum = 0;
		make(&c, KVARC_F32);
		for (size_t i = 100 * WIDTH; i < TOKENS * WIDTH; i++)
			if (i / WIDTH % every[k] == 100 % every[k])
				put_float(&c, VALUES, i, 1e4 * get_float(&c, VALUES, i));
		struct memfile f = written(&c, &l, 1);
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
		for (size_t t = 0; t < TOKENS; t++) {
			stay += same_token(&c, &back, VALUES, t);
			for (size_t i = t * WIDTH; t % 256 != 100 && i < (t + 1) * WIDTH; i++, n++)
				sum += pow(get_float(&c, VALUES, i) - get_float(&back, VALUES, i),
				           2);
		}
		assert_int_equal(stay, k ? 0 : 2);
		if (!k)
			assert_true(sum / (double)n < 1.03 * expected_error(3));
		cache_free(&back);
		cache_free(&c);
		memfile_free(&f);
	}
}

static void test_parse(void **state)
{
	static const char *const bad[] = { "",
		                           ":",
		                           "had",
		                           "had:",
		                           "had,4",
		                           "had:0.9",
		                           "had:6.6",
		                           "had:-4",
		                           "had:+4",
		                           "had:4,",
		                           "had:4,,",
		                           "had:4,exact",
		                           "had:4,exact=",
		                           "had:4,exact=-1",
		                           "had:4,exact=1x",
		                           "had:4,exact=9999999",
		                           "had:4,exact=1048577",
		                           "had:4,keys=",
		                           "had:4,keys=+",
		                           "had:4,keys=4.1",
		                           "had:4,keys=-4.1",
		                           "had:4,keys=+0.5x",
		                           "had:4,identity=1",
		                           "had:4,Identity",
		                           "had:4x",
		                           "had:99999999999999999999",
		                           "had:4 ",
		                           " had:4",
		                           "HAD:4",
		                           "hadx:4",
		                           "klt:0.2",
		                           "klt:7",
		                           "none:4",
		                           "had:nan",
		                           "had:4e0",
		                           "had:0x4" };
	kvarc_lossy l = tier("had:4");
	kvarc_error e;
	(void)state;
	assert_int_equal(l.tier, KVARC_TIER_HAD);
	assert_int_equal(l.rate, 64);
	assert_int_equal(l.key_rate, 0);
	assert_int_equal(l.exact_tokens, 4);
	assert_int_equal(l.generation, 0);
	assert_int_equal(l.flags, 0);
	l = tier("had:3.53,no-unrope,keys=+0.5,identity,exact=1048576");
	assert_int_equal(l.rate, 56); /* 56.48 */
	assert_int_equal(l.key_rate, 8);
	assert_int_equal(l.exact_tokens, 1048576);
	assert_int_equal(l.flags, KVARC_LOSSY_NO_UNROPE | KVARC_LOSSY_IDENTITY);
	l = tier("klt:0.25,keys=-4");
	assert_int_equal(l.tier, KVARC_TIER_KLT);
	assert_int_equal(l.rate, 4);
	assert_int_equal(l.key_rate, -64);
	assert_int_equal(tier("had:6.5").rate, 104);
	assert_int_equal(tier("had:2,keys=4,exact=0").key_rate, 64);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		memset(&e, 0, sizeof e);
		if (kvarc_lossy_parse(&l, bad[i], &e) != KVARC_OPTIONS)
			fail_msg("\"%s\" was understood", bad[i]);
		assert_int_equal(e.code, KVARC_OPTIONS);
		assert_true(e.text[0]);
		assert_int_equal(kvarc_lossy_parse(&l, bad[i], NULL), KVARC_OPTIONS);
	}
	assert_int_equal(kvarc_lossy_parse(NULL, "had:4", &e), KVARC_PROG);
	assert_int_equal(kvarc_lossy_parse(&l, NULL, &e), KVARC_PROG);
}

/* The same numbers, passed by a program. */
static void test_options(void **state)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	(void)state;
	for (int i = 0; i < 8; i++) {
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		kvarc_lossy l = tier("had:4");
		o.lossy = &l;
		switch (i) {
		case 0:
			l.rate = 15;
			break;
		case 1:
			l.rate = 105;
			break;
		case 2:
			l.key_rate = 65;
			break;
		case 3:
			l.key_rate = -65;
			break;
		case 4:
			l.flags = 4;
			break;
		case 5:
			l.tier = 9;
			break;
		case 6:
			o.level = 2;
			break;
		default:
			l.tier = KVARC_TIER_KLT; /* without a profile */
		}
		assert_int_not_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
		assert_null(w);
	}
	memfile_free(&f);
}

/* Memory that fails at any call, in writer and reader. */
static void test_no_memory(void **state)
{
	struct cache c, back;
	kvarc_lossy l = tier("had:4");
	bool done = false;
	(void)state;
	make(&c, KVARC_BF16);
	c.n[0] = 100;
	cache_make_empty(&back, &c);
	struct memfile f = written(&c, &l, 1);
	for (long k = 0; !done; k++) {
		struct memfile g = { .fail_at = -1 };
		struct counting count = { .fail_at = k };
		kvarc_allocator a = counting_allocator(&count);
		kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
		kvarc_reader_options ro = welcome(0);
		wo.common.allocator = ro.common.allocator = &a;
		wo.common.threads = ro.common.threads = 1;
		wo.lossy = &l;
		kvarc_ret wrote = cache_write(&c, &g, &wo);
		memfile_free(&g);
		assert_int_equal(count.held, 0);
		count.calls = 0;
		kvarc_ret read = cache_read_seq(&back, &f, &ro, NULL);
		assert_int_equal(count.held, 0);
		assert_true(wrote == KVARC_OK || wrote == KVARC_MEM);
		assert_true(read == KVARC_OK || read == KVARC_MEM);
		done = wrote == KVARC_OK && read == KVARC_OK;
	}
	memfile_free(&f);
	cache_free(&back);
	cache_free(&c);
}

/* What a tier makes of values, relative to what it makes of keys; 0: they are as they were. */
static double values_error(const struct cache *c, const kvarc_lossy *l)
{
	struct cache back;
	kvarc_reader_options ro = welcome(0);
	struct memfile f = written(c, l, 1);
	cache_make_empty(&back, c);
	assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
	double of_keys = mse(c, &back, KEYS, 4);
	double of_values = mse(c, &back, VALUES, 4);
	assert_true(of_keys > 0);
	cache_free(&back);
	memfile_free(&f);
	return of_values / of_keys;
}

/* Layers have rates of their own, and some have none: a bit is a quarter of the error. */
static void test_layers(void **state)
{
	int16_t rates[] = { 0, 0 };
	kvarc_lossy l = tier("had:4");
	struct cache c;
	(void)state;
	make(&c, KVARC_F32);
	c.tensors[VALUES].layer = 1;
	l.layer_rate = rates;
	l.n_layers = 2;
	double same = values_error(&c, &l);
	assert_true(same > 0);
	rates[1] = 16;
	double more = values_error(&c, &l) / same;
	assert_true(more > 0.9 / 4 && more < 1.1 / 4);
	rates[1] = 1000; /* as much as the tier has: 2.5 bits more */
	double most = values_error(&c, &l) / same;
	assert_true(most > 0.9 / 32 && most < 1.1 / 32);
	rates[1] = KVARC_LOSSY_NOTHING;
	assert_true(values_error(&c, &l) == 0);
	l.n_layers = 1;
	assert_true(values_error(&c, &l) == same);
	l = tier("tsc:4");
	l.layer_rate = rates;
	assert_false(kvi_lossy_valid(&l));
	cache_free(&c);
}

/* Scales of quantised blocks are floats, but not those of a cache. */
static void test_scales(void **state)
{
	kvarc_lossy l = tier("had:4");
	struct cache c;
	(void)state;
	make(&c, KVARC_F32);
	c.tensors[VALUES].role = KVARC_SCALE;
	assert_true(values_error(&c, &l) == 0);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ways),           cmocka_unit_test(test_refused),
		cmocka_unit_test(test_generations),    cmocka_unit_test(test_again),
		cmocka_unit_test(test_exact_tokens),   cmocka_unit_test(test_tail_outliers),
		cmocka_unit_test(test_error_and_size), cmocka_unit_test(test_far),
		cmocka_unit_test(test_layers),         cmocka_unit_test(test_scales),
		cmocka_unit_test(test_parse),          cmocka_unit_test(test_options),
		cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
