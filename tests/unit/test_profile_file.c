/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profile_file.c - .kvp files and the public calls */
#include "stream_util.h"

#include "profile_util.h"

static struct kvi_alloc alloc;

static void begin(void)
{
	kvi_alloc_init(&alloc, NULL, 0);
}

static void end(void)
{
	assert_int_equal(alloc.used, 0);
}

/* ------------------------------------------------------------------- files */

static void reseal(uint8_t *file)
{
	kvi_store64(file + 56, kvi_h64(file, 56));
}

static void test_header(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
		kvarc_ret ret;
	} fields[] = {
		{ 8, 2, KVARC_OPTIONS },  { 10, 7, KVARC_OK },   { 12, 1, KVARC_OPTIONS },
		{ 15, 1, KVARC_OPTIONS }, { 16, 0, KVARC_DATA }, { 20, 5, KVARC_DATA },
		{ 24, 0, KVARC_DATA },    { 31, 1, KVARC_DATA }, { 32, 1, KVARC_DATA },
		{ 47, 1, KVARC_DATA },    { 48, 1, KVARC_DATA }, { 55, 1, KVARC_DATA },
		{ 64, 2, KVARC_OPTIONS }, /* method */
	};
	struct kvi_profile *p, *q;
	struct kvi_out out;
	(void)state;
	begin();
	p = profile_make(&alloc, 1);
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
	for (unsigned bit = 0; bit < 64 * 8; bit++) {
		out.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(kvi_profile_read_file(&q, &alloc, out.p, out.n),
		                 bit < 64 ? KVARC_FORMAT : KVARC_DATA);
		out.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
		uint8_t was = out.p[fields[i].at];
		out.p[fields[i].at] = fields[i].value;
		reseal(out.p);
		kvarc_ret ret = kvi_profile_read_file(&q, &alloc, out.p, out.n);
		if (ret != fields[i].ret)
			fail_msg("byte %u: %d", fields[i].at, ret);
		kvi_profile_free(q);
		out.p[fields[i].at] = was;
	}
	reseal(out.p);
	/* one byte more */
	kvi_put8(&out, 0);
	assert_int_equal(kvi_profile_read_file(&q, &alloc, out.p, out.n), KVARC_DATA);
	kvi_out_free(&out);
	kvi_profile_free(p);
	end();
}

/* A compressed frame that is larger than what is in it. */
static void test_frame(void **state)
{
	static const uint8_t content[] = { 0, 0, 1, 2, 0, 0, 1, 1, 0, 0,
		                           0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	enum { N = sizeof content };
	/* magic, one segment, size; one raw block, the last */
	static const uint8_t frame[] = { 1, 0x28, 0xb5, 0x2f, 0xfd, 0x20, N, N << 3 | 1, 0, 0 };
	struct kvi_profile *p;
	struct kvi_out out;
	(void)state;
	begin();
	assert_int_equal(kvi_profile_parse(&p, &alloc, content, N), KVARC_OK);
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
	kvi_profile_free(p);
	assert_int_equal(out.n, 64 + 1 + N);
	assert_int_equal(out.p[64], 0);
	out.n = 64;
	kvi_put_bytes(&out, frame, sizeof frame);
	kvi_put_bytes(&out, content, N);
	kvi_store64(out.p + 24, out.n - 64);
	reseal(out.p);
	assert_int_equal(kvi_profile_read_file(&p, &alloc, out.p, out.n), KVARC_DATA);
	/* no byte at all */
	kvi_store64(out.p + 24, 0);
	reseal(out.p);
	assert_int_equal(kvi_profile_read_file(&p, &alloc, out.p, 64), KVARC_DATA);
	kvi_out_free(&out);
	end();
}

/* A large compressed size is refused by the limit, not tried. */
static void test_limit(void **state)
{
	struct kvi_profile *p, *q;
	struct kvi_out out;
	struct kvi_alloc small;
	(void)state;
	begin();
	p = profile_make(&alloc, 7);
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
	for (uint64_t limit = 1000; limit < 4 << 20; limit += limit / 8) {
		kvi_alloc_init(&small, NULL, limit);
		kvarc_ret ret = kvi_profile_read_file(&q, &small, out.p, out.n);
		assert_true(ret == KVARC_MEMLIMIT || ret == KVARC_OK);
		assert_true(limit > 100000 || ret == KVARC_MEMLIMIT);
		assert_true(limit < 3 << 20 || ret == KVARC_OK);
		kvi_profile_free(q);
		assert_int_equal(small.used, 0);
	}
	kvi_out_free(&out);
	kvi_profile_free(p);
	end();
}

/* -------------------------------------------------------------- public calls */

static void file_of(struct memfile *f, uint64_t seed)
{
	struct kvi_profile *p = profile_make(&alloc, seed);
	struct kvi_out out;
	*f = (struct memfile){ .fail_at = -1 };
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
	kvarc_sink sink = memfile_sink(f);
	assert_int_equal(sink.write(sink.opaque, out.p, out.n, 0), 0);
	kvi_out_free(&out);
	kvi_profile_free(p);
}

static kvarc_ret open_file(kvarc_profile **p, struct memfile *f)
{
	kvarc_source source = memfile_source(f);
	f->calls = 0;
	f->next = 0;
	return kvarc_profile_open(p, &source, NULL);
}

static void test_open(void **state)
{
	struct memfile f, copy = { .fail_at = -1 };
	kvarc_profile *p;
	(void)state;
	begin();
	for (int how = 0; how < 4; how++) {
		file_of(&f, 13);
		f.pipe = how & 1;
		f.short_max = how & 2 ? 7 : 0;
		assert_int_equal(open_file(&p, &f), KVARC_OK);
		kvarc_sink sink = memfile_sink(&copy);
		copy.n = 0;
		assert_int_equal(kvarc_profile_write(p, &sink), KVARC_OK);
		assert_int_equal(copy.n, f.n);
		assert_memory_equal(copy.p, f.p, f.n);
		kvarc_profile_close(&p);
		assert_null(p);
		f.n--; /* cut */
		assert_int_equal(open_file(&p, &f), KVARC_DATA);
		assert_null(p);
		f.n += 2; /* something follows */
		f.p = realloc(f.p, f.n);
		f.p[f.n - 1] = 0;
		assert_int_equal(open_file(&p, &f), KVARC_DATA);
		for (f.fail_at = 0; f.fail_at < 3; f.fail_at++)
			assert_int_equal(open_file(&p, &f), KVARC_IO);
		f.fail_at = -1;
		f.n = 5;
		assert_int_equal(open_file(&p, &f), KVARC_FORMAT);
		f.n = 0;
		assert_int_equal(open_file(&p, &f), KVARC_FORMAT);
		memfile_free(&f);
	}
	memfile_free(&copy);
	end();
}

static void test_open_errors(void **state)
{
	struct memfile f;
	kvarc_error error = { 0 };
	kvarc_common common = { .error = &error };
	kvarc_profile *p = NULL;
	(void)state;
	begin();
	file_of(&f, 7);
	kvarc_source source = memfile_source(&f);
	struct counting c = { .fail_at = -1 };
	kvarc_allocator counted = counting_allocator(&c);
	common.allocator = &counted;
	kvarc_ret ret = KVARC_MEM;
	for (long at = 0; ret == KVARC_MEM; at++) {
		c.calls = 0;
		c.fail_at = at;
		ret = kvarc_profile_open(&p, &source, &common);
		assert_true(ret == KVARC_MEM || (ret == KVARC_OK && at > 20));
		if (ret == KVARC_MEM) {
			assert_int_equal(error.code, KVARC_MEM);
			assert_null(p);
			assert_int_equal(c.held, 0);
		}
	}
	c.fail_at = c.calls; /* writing needs memory, too */
	struct memfile to = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&to);
	assert_int_equal(kvarc_profile_write(p, &sink), KVARC_MEM);
	c.fail_at = -1;
	to.fail_at = 0;
	assert_int_equal(kvarc_profile_write(p, &sink), KVARC_IO);
	kvarc_profile_close(&p);
	assert_int_equal(c.held, 0);
	common.memlimit = 100000;
	assert_int_equal(kvarc_profile_open(&p, &source, &common), KVARC_MEMLIMIT);
	assert_int_equal(error.code, KVARC_MEMLIMIT);
	assert_int_equal(kvarc_profile_open(&p, NULL, &common), KVARC_PROG);
	assert_int_equal(kvarc_profile_open(NULL, &source, &common), KVARC_PROG);
	memfile_free(&to);
	memfile_free(&f);
	end();
}

static void test_questions(void **state)
{
	kvarc_profile_info info;
	kvarc_model_info model;
	kvarc_rope rope;
	const char *key, *value;
	struct memfile f;
	kvarc_profile *p;
	(void)state;
	begin();
	file_of(&f, 5); /* 2 heads of 8 channels, 2 turn */
	assert_int_equal(open_file(&p, &f), KVARC_OK);
	assert_int_equal(kvarc_profile_get_info(p, &info), KVARC_OK);
	assert_int_equal(info.file_bytes, f.n);
	assert_memory_equal(info.digest, f.p + 32, 16);
	assert_int_equal(info.levels, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 7);
	assert_true(info.n_models == 24 && info.n_pairs == 2 && info.n_ropes == 1);
	uint64_t coefficients = 0;
	for (size_t i = 0; i < info.n_models; i++) {
		assert_int_equal(kvarc_profile_model(p, i, &model), KVARC_OK);
		coefficients += model.coefficients;
		assert_int_equal(model.level, i < 18 ? 2 + i / 6 : 7);
		/* keys of layer 1, values of the others */
		bool corrects = i >= 12 && i % 2 == (i / 2 % 3 != 1);
		assert_int_equal(!model.corrects, !corrects);
		assert_int_equal(model.layer, i / 2 % 3);
		assert_int_equal(model.kind, i % 2);
		assert_int_equal(model.heads, i % 2 ? 4 : 2);
		assert_int_equal(model.channels, 8);
		assert_int_equal(model.rotary, i % 2 ? 0 : 2);
	}
	assert_int_equal(info.coefficients, coefficients);
	assert_int_equal(kvarc_profile_model(p, 24, &model), KVARC_END);
	assert_int_equal(kvarc_profile_identity_at(p, 1, &key, &value), KVARC_OK);
	assert_string_equal(key, "model");
	assert_string_equal(value, "M");
	assert_int_equal(kvarc_profile_identity_at(p, 2, &key, &value), KVARC_END);
	assert_int_equal(kvarc_profile_rope(p, 0, &rope), KVARC_OK);
	assert_int_equal(rope.rotary, 2);
	assert_int_equal(kvarc_profile_rope(p, 1, &rope), KVARC_END);
	assert_int_equal(kvarc_profile_get_info(NULL, &info), KVARC_PROG);
	assert_int_equal(kvarc_profile_model(p, 0, NULL), KVARC_PROG);
	assert_int_equal(kvarc_profile_write(p, NULL), KVARC_PROG);
	kvarc_profile_close(&p);
	kvarc_profile_close(&p);
	kvarc_profile_close(NULL);
	memfile_free(&f);
	end();
}

static void test_fits(void **state)
{
	const kvarc_tensor good = {
		.layer = 2, .kind = KVARC_KEY, .dtype = KVARC_BF16, .heads = 2, .channels = 8
	};
	const uint64_t freq[4] = { 0 };
	kvarc_rope rope = { .pairing = KVARC_ROPE_INTERLEAVED, .rotary = 2, .freq = freq };
	struct memfile f;
	kvarc_profile *p;
	kvarc_tensor t;
	(void)state;
	begin();
	file_of(&f, 5);
	assert_int_equal(open_file(&p, &f), KVARC_OK);
#define FITS(yes, rope, change)                                            \
	do {                                                               \
		t = good;                                                  \
		change;                                                    \
		assert_int_equal(kvarc_profile_fits(p, 3, &t, rope), yes); \
	} while (0)
	FITS(1, &rope, (void)0);
	FITS(1, &rope, t.total_heads = 2);
	FITS(0, &rope, t.total_heads = 4);
	FITS(0, &rope, t.first_head = 2);
	FITS(1, &rope, t.dtype = KVARC_E5M2);
	FITS(0, &rope, t.dtype = KVARC_I8);
	FITS(0, &rope, t.role = KVARC_PAYLOAD);
	FITS(0, &rope, t.heads = 4);
	FITS(0, &rope, t.channels = 4);
	FITS(0, &rope, t.layer = 3);
	FITS(0, &rope, t.kind = KVARC_MLA_LATENT);
	FITS(0, NULL, (void)0);
	FITS(1, NULL, (t.kind = KVARC_VALUE, t.heads = 4));
	FITS(0, &rope, (t.kind = KVARC_VALUE, t.heads = 4));
	rope.rotary = 8;
	FITS(0, &rope, (void)0);
	rope.rotary = 2;
	assert_int_equal(kvarc_profile_fits(p, 1, &good, &rope), 0);
	assert_int_equal(kvarc_profile_fits(p, 258, &good, &rope), 0);
	assert_int_equal(kvarc_profile_fits(NULL, 2, &good, &rope), 0);
	kvarc_profile_close(&p);
	memfile_free(&f);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),      cmocka_unit_test(test_frame),
		cmocka_unit_test(test_limit),       cmocka_unit_test(test_open),
		cmocka_unit_test(test_open_errors), cmocka_unit_test(test_questions),
		cmocka_unit_test(test_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
