/* SPDX-License-Identifier: BSD-3-Clause */
/* test_predicted.c - codec 9: elements as they are predicted, bit for bit, and patches */
#include <math.h>

#include "kvarc/tools.h"
#include "codecs/coder.h"
#include "prediction_util.h"
#include "util/hash.h"

/* ---- predicted elements ---- */

static uint32_t pattern(unsigned dtype, float x)
{
	uint8_t b[4] = { 0 };
	kvi_floats_store(dtype, &x, 1, b);
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static float number(unsigned dtype, uint32_t p)
{
	const uint8_t b[4] = { (uint8_t)p, (uint8_t)(p >> 8) };
	float x;
	kvi_floats_exact(dtype, b, 1, &x);
	return x;
}

/* Each number is itself, the middle of two is the even one, and next to it the nearer one. */
static void test_rounding(void **state)
{
	static const struct {
		unsigned dtype;
		uint32_t largest, sign, beyond;
	} all[] = {
		{ KVARC_F16, 0x7bff, 0x8000, 0x7c00 },
		{ KVARC_BF16, 0x7f7f, 0x8000, 0x7f80 },
		{ KVARC_E4M3, 0x7e, 0x80, 0x7e },
		{ KVARC_E5M2, 0x7b, 0x80, 0x7c },
	};
	(void)state;
	for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
		unsigned d = all[k].dtype;
		uint32_t sign = all[k].sign;
		for (uint32_t i = 0; i < all[k].largest; i++) {
			float a = number(d, i), b = number(d, i + 1);
			float middle = a + (b - a) / 2;
			assert_int_equal(pattern(d, a), i);
			assert_int_equal(pattern(d, -b), sign | (i + 1));
			assert_int_equal(pattern(d, middle), i + (i & 1));
			assert_int_equal(pattern(d, -middle), sign | (i + (i & 1)));
			assert_int_equal(pattern(d, nextafterf(middle, a)), i);
			assert_int_equal(pattern(d, nextafterf(middle, b)), i + 1);
		}
		float last = number(d, all[k].largest);
		float step = last - number(d, all[k].largest - 1);
		float half = last + step / 2;
		assert_int_equal(pattern(d, last), all[k].largest);
		assert_int_equal(pattern(d, nextafterf(half, 0)), all[k].largest);
		/* the middle of an even number and what is beyond it */
		assert_int_equal(pattern(d, half), all[k].beyond);
		assert_int_equal(pattern(d, -INFINITY), sign | all[k].beyond);
		assert_int_equal(pattern(d, 3.4e38f), all[k].beyond);
		assert_int_equal(pattern(d, NAN), 0);
		assert_int_equal(pattern(d, -0.0f), sign);
		assert_int_equal(pattern(d, -1e-45f), sign);
	}
	assert_int_equal(pattern(KVARC_F32, -1e-45f), 0x80000001);
	assert_int_equal(pattern(KVARC_F32, INFINITY), 0x7f800000);
	assert_int_equal(pattern(KVARC_F32, -NAN), 0);
}

/* ---- archives ---- */

/* Chunks of codec 9 without and with a patch. */
static void count(struct world *w, unsigned *exact, unsigned *patched, unsigned *others)
{
	kvarc_source source = memfile_source(&w->f);
	kvarc_chunk_info chunk;
	kvarc_reader *r;
	*exact = *patched = *others = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &w->ro), KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++)
		++*(chunk.codec != KVI_CODEC_PREDICTED                ? others
		    : chunk.payload_bytes == 48 + KVI_PREDICTED_EXACT ? exact
		                                                      : patched);
	kvarc_reader_close(&r);
}

/* In order, by range, as a pipe, and with all that can be verified. */
static void read_all(struct world *w)
{
	world_read(w);
	world_empty(w);
	assert_int_equal(cache_read_range(&w->back, &w->f, &w->ro), KVARC_OK);
	assert_true(cache_equal(&w->c, &w->back));
	assert_int_equal(cache_verify(&w->f, &w->ro), KVARC_OK);
	w->f.pipe = true;
	w->f.next = 0;
	world_read(w);
	w->f.pipe = false;
}

enum { SEGMENTS = 3, CHUNKS = 2 * LAYERS * SEGMENTS };

static void test_exact(void **state)
{
	unsigned exact, patched, others;
	(void)state;
	for (unsigned dtype = KVARC_F32; dtype <= KVARC_E5M2; dtype++)
		for (int level = 4; level <= 8; level += 1 + (dtype & 1)) {
			struct world w;
			world_open_exact(&w, level, dtype);
			w.wo.common.threads = w.ro.common.threads = (unsigned)level % 3 + 1;
			w.wo.flags |= level & 1 ? KVARC_WRITE_VERIFY : 0;
			world_write(&w);
			count(&w, &exact, &patched, &others);
			assert_int_equal(exact, CHUNKS);
			read_all(&w);
			world_close(&w);
		}
}

/* An element of the last layer differs: the others are as predicted all the same. */
static void test_flipped(void **state)
{
	unsigned exact, patched, others;
	(void)state;
	for (int level = 5; level <= 8; level += 3) {
		struct world w;
		world_open_exact(&w, level, KVARC_BF16);
		w.c.data[3][2 * 300 * CHANNELS] ^= 1;
		w.wo.flags |= KVARC_WRITE_VERIFY;
		world_write(&w);
		count(&w, &exact, &patched, &others);
		assert_int_equal(exact, CHUNKS - 1);
		assert_int_equal(patched, level == 8);
		read_all(&w);
		world_close(&w);
	}
}

/* One of the first layer: the model is corrected and sees another element from there on. */
static void test_flipped_early(void **state)
{
	unsigned exact, patched, others;
	size_t bytes[9];
	(void)state;
	for (int level = 7; level <= 8; level++) {
		struct world w;
		world_open_exact(&w, level, KVARC_F16);
		w.c.data[0][2 * 300 * CHANNELS] ^= 1;
		w.wo.common.threads = w.ro.common.threads = 2;
		world_write(&w);
		bytes[level] = w.f.n;
		count(&w, &exact, &patched, &others);
		/* segment 0, keys and values of layer 0 but the one */
		assert_true(exact >= 4 + 3 && exact < CHUNKS - 2);
		assert_true(level == 7 ? patched == 0 : patched > 0);
		read_all(&w);
		world_close(&w);
	}
	assert_true(bytes[8] < bytes[7]);
}

/* What is not finite is not predicted, also where the model says so. */
static void test_not_finite(void **state)
{
	unsigned exact, patched, others;
	struct world w;
	(void)state;
	world_open_exact(&w, 8, KVARC_BF16);
	uint16_t *value = (uint16_t *)(void *)w.c.data[3];
	value[5] = 0x7f80;
	world_write(&w);
	count(&w, &exact, &patched, &others);
	assert_int_equal(exact, CHUNKS - 1);
	assert_int_equal(others, 1);
	read_all(&w);
	world_close(&w);
}

/* A chunk is damaged: what is before it is saved. */
static void test_damage(void **state)
{
	struct world w;
	(void)state;
	world_open_exact(&w, 8, KVARC_BF16);
	world_write(&w);
	w.f.p[world_chunk(&w, 2, 256) + 75] ^= 1;
	assert_int_equal(cache_verify(&w.f, &w.ro), KVARC_DATA);
	w.ro.flags = KVARC_READ_SALVAGE;
	world_empty(&w);
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
	for (size_t k = 0; k < 2; k++)
		assert_memory_equal(w.back.data[k], w.c.data[k], 512 * CHANNELS * 2);
	assert_memory_equal(w.back.data[2], w.c.data[2], 256 * CHANNELS * 2);
	assert_int_equal(w.back.data[2][256 * CHANNELS * 2], 0xa5);
	world_close(&w);
}

/* ---- profiles for one file ---- */

static kvarc_profile *fit(struct world *w, unsigned level)
{
	kvarc_trainer_options o = { .flags = KVARC_TRAIN_IN_FILE,
		                    .mode = KVARC_TRAIN_MODEL,
		                    .model = { .path = model_path("llama"), .level = (int)level } };
	kvarc_trainer *t;
	kvarc_reader *r;
	kvarc_profile *p;
	world_write(w);
	kvarc_source source = memfile_source(&w->f);
	assert_int_equal(kvarc_reader_open(&r, &source, &w->ro), KVARC_OK);
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
	assert_int_equal(kvarc_trainer_add_reader(t, r), KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
	kvarc_trainer_close(&t);
	kvarc_reader_close(&r);
	return p;
}

/* Layers that are as predicted need no coefficients, others have theirs. */
static void test_fitted(void **state)
{
	static const unsigned dtypes[] = { KVARC_F32, KVARC_F16, KVARC_BF16 };
	unsigned exact, patched, others;
	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		bool differs = i >= 3;
		unsigned level = i == 1 ? 4 : 7;
		kvarc_model_info m;
		struct world w;
		world_open_exact(&w, (int)level, dtypes[i % 3]);
		if (differs) /* a value of the last layer and the last segment */
			w.c.data[3][TOKENS * CHANNELS - 1] ^= 1;
		kvarc_profile *p = fit(&w, level);
		for (size_t k = 0; k < 2 * LAYERS; k++) {
			bool fits = differs && k >= 2;
			assert_int_equal(kvarc_profile_model(p, k, &m), KVARC_OK);
			if ((m.coefficients > 0) != fits)
				fail_msg("%u: tensor %zu has %llu coefficients", i, k,
				         (unsigned long long)m.coefficients);
		}
		w.wo.profile = w.list[0] = p;
		world_write(&w);
		count(&w, &exact, &patched, &others);
		assert_int_equal(exact, CHUNKS - differs);
		read_all(&w);
		kvarc_profile_close(&p);
		world_close(&w);
	}
}

/* ---- payloads ---- */

enum { N = 32 };

struct payload {
	struct kvi_coder *c;
	struct kvi_linear_in in;
	struct kvi_decode_request request;
	uint8_t predicted[2 * N], raw[2 * N], bytes[200];
};

static kvarc_ret decode(struct payload *p, size_t bytes)
{
	p->request.payload_bytes = bytes;
	return kvi_chunk_decode(p->c, &p->request, p->raw, NULL);
}

/* Payloads that are not valid, or not for what is predicted here. */
static void test_payloads(void **state)
{
	static struct payload p;
	struct kvi_alloc alloc;
	struct kvi_coder_tables *tables;
	struct kvi_encoded e;
	(void)state;
	kvi_alloc_init(&alloc, NULL, 0);
	assert_int_equal(kvi_coder_tables_open(&tables, &alloc), KVARC_OK);
	assert_int_equal(kvi_coder_open(&p.c, &alloc, tables, 0), KVARC_OK);
	struct kvi_chunk *chunk = &p.request.chunk;
	*chunk = (struct kvi_chunk){
		.dtype = KVARC_F16, .n_tokens = N / 4, .heads = 2, .head_channels = 2
	};
	p.request.codec = KVI_CODEC_PREDICTED;
	p.request.cut.stream_size = KVI_ONE_STREAM;
	p.request.payload = p.bytes;
	p.request.linear.in = &p.in;
	p.in.predicted = p.predicted;
	for (size_t i = 0; i < sizeof p.raw; i++)
		p.predicted[i] = (uint8_t)(i * 37 & 0x3f);
	kvi_store64(p.bytes, kvi_h64(p.predicted, sizeof p.predicted));
	assert_int_equal(decode(&p, 9), KVARC_OK);
	assert_memory_equal(p.raw, p.predicted, sizeof p.raw);
	assert_int_equal(decode(&p, 8), KVARC_DATA);
	assert_int_equal(decode(&p, 10), KVARC_DATA);
	p.bytes[8] = 2;
	assert_int_equal(decode(&p, 9), KVARC_OPTIONS);
	p.bytes[8] = 1;
	assert_int_equal(decode(&p, 9), KVARC_DATA);
	memcpy(p.raw, p.predicted, sizeof p.raw);
	p.raw[11] ^= 4;
	const uint8_t *to = kvi_predicted_patch(p.c, chunk, p.predicted, p.raw, 64,
	                                        &e.payload_bytes);
	assert_non_null(to);
	assert_in_range(e.payload_bytes, 10, 63);
	memcpy(p.bytes, to, e.payload_bytes);
	size_t n = e.payload_bytes;
	assert_int_equal(decode(&p, n), KVARC_OK);
	assert_int_equal(p.raw[11], p.predicted[11] ^ 4);
	assert_int_equal(decode(&p, n - 1), KVARC_DATA);
	assert_int_equal(decode(&p, n + 1), KVARC_DATA);
	chunk->n_tokens--; /* of another size */
	kvi_store64(p.bytes, kvi_h64(p.predicted, kvi_chunk_bytes(chunk)));
	assert_int_equal(decode(&p, n), KVARC_DATA);
	chunk->n_tokens++;
	assert_int_equal(decode(&p, n), KVARC_PREDICTOR);
	p.in.predicted = NULL;
	assert_int_equal(decode(&p, n), KVARC_DATA);
	p.request.linear.in = NULL;
	assert_int_equal(decode(&p, n), KVARC_PREDICTOR);
	kvi_coder_close(p.c);
	kvi_coder_tables_close(tables);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rounding),   cmocka_unit_test(test_exact),
		cmocka_unit_test(test_flipped),    cmocka_unit_test(test_flipped_early),
		cmocka_unit_test(test_not_finite), cmocka_unit_test(test_damage),
		cmocka_unit_test(test_fitted),     cmocka_unit_test(test_payloads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
