/* SPDX-License-Identifier: BSD-3-Clause */
/* test_klt_below.c - transforms of the residual of a prediction from other tensors, in archives */
#include <math.h>

#include "codecs/codec.h"
#include "layers_util.h"
#include "numeric/formats.h"
#include "profile/profile_io.h"
#include "profile/profile_handle.h"

enum {
	LAYERS = 2,
	TENSORS = 2 * LAYERS,
	TOKENS = 200,
	HEADS = 2,
	CHANNELS = 9,
	N = TOKENS * HEADS * CHANNELS
};

struct below {
	struct cache c, back;
	kvarc_profile *profile;
	struct memfile f;
	kvarc_writer_options wo;
	kvarc_reader_options ro;
	kvarc_lossy tier;
};

/* Keys and values of a layer are those below but for a few numbers; values have their keys, too. */
static void sources(struct kvi_model *m)
{
	if (m->layer)
		m->lower[m->n_lower++] = (struct kvi_source){ 1, m->kind, 1, NULL };
	if (m->kind)
		m->lower[m->n_lower++] = (struct kvi_source){ 0, KVARC_KEY, 0, NULL };
}

/* Coefficients are the elements. */
static void fill_model(struct kvi_model *m)
{
	for (size_t c = 0; c < m->C; c++) {
		size_t slot = c % CHANNELS;
		m->step[c] = -9;
		m->k[c] = m->layer && m->n_lower ? -9 : 0;
		m->mean[c] = (int32_t)slot;
		m->qm[c] = 116;
		m->m[c * m->m_stride + slot] = 4096;
		if (!m->n_lower)
			continue;
		m->qa[c] = 10;
		if (m->layer)
			m->a[c * m->a_stride + slot] = 1024;
		else
			m->a[c * m->a_stride + slot] = 1; /* next to nothing */
	}
}

static kvarc_profile *profile_of(const struct cache *c, bool below)
{
	const kvarc_common common = KVARC_COMMON_INIT;
	kvarc_profile *h;
	assert_int_equal(kvi_profile_handle_new(&h, &common), KVARC_OK);
	assert_int_equal(kvi_profile_new(&h->profile, &h->alloc), KVARC_OK);
	struct kvi_profile *p = h->profile;
	const kvarc_rope *rope = &c->ropes[0];
	p->n_ropes = 1;
	p->ropes = kvi_calloc(&h->alloc, 1, sizeof *p->ropes);
	p->ropes->rotary = rope->rotary;
	p->ropes->freq = kvi_array(&h->alloc, rope->rotary / 2, 8);
	memcpy(p->ropes->freq, rope->freq, rope->rotary / 2 * sizeof *rope->freq);
	p->models = kvi_calloc(&h->alloc, TENSORS, sizeof *p->models);
	for (uint32_t i = 0; i < TENSORS; i++) {
		struct kvi_model *m = &p->models[p->n_models++];
		*m = (struct kvi_model){ .level = KVI_LEVEL_BASIS,
			                 .layer = i / 2,
			                 .kind = (uint8_t)(i % 2),
			                 .heads = HEADS,
			                 .head_channels = CHANNELS,
			                 .rope = !(i % 2),
			                 .flags = KVI_MODEL_BASIS };
		if (below)
			sources(m);
	}
	for (uint32_t i = 0; i < TENSORS; i++)
		assert_int_equal(kvi_model_reserve(p, &p->models[i]), KVARC_OK);
	for (uint32_t i = 0; i < TENSORS; i++)
		fill_model(&p->models[i]);
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	assert_int_equal(kvi_profile_handle_finish(h), KVARC_OK);
	return h;
}

static void open_below(struct below *b, unsigned dtype, bool below)
{
	const struct layers_shape shape = { LAYERS, HEADS,          CHANNELS, TOKENS,
		                            1,      (uint8_t)dtype, true,     UINT32_MAX };
	memset(b, 0, sizeof *b);
	b->f.fail_at = -1;
	cache_make_layers(&b->c, &shape, dtype);
	cache_make_empty(&b->back, &b->c);
	b->profile = profile_of(&b->c, below);
	assert_int_equal(kvarc_lossy_parse(&b->tier, "klt:4", NULL), KVARC_OK);
	b->wo = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	b->wo.segment_tokens = 128;
	b->wo.lossy = &b->tier;
	b->wo.profile = b->profile;
	b->ro = (kvarc_reader_options)KVARC_READER_OPTIONS_INIT;
	b->ro.flags = KVARC_READ_ALLOW_LOSSY;
	b->ro.profiles = (const kvarc_profile *const *)&b->profile;
	b->ro.n_profiles = 1;
}

static void close_below(struct below *b)
{
	cache_free(&b->c);
	cache_free(&b->back);
	kvarc_profile_close(&b->profile);
	memfile_free(&b->f);
}

static unsigned transforms(struct below *b)
{
	kvarc_source source = memfile_source(&b->f);
	kvarc_chunk_info chunk;
	kvarc_reader *r;
	unsigned n = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &b->ro), KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++)
		n += chunk.codec == KVI_CODEC_KLT;
	kvarc_reader_close(&r);
	return n;
}

/* Root of the mean square, of a tensor's errors. */
static double error_of(const struct below *b, size_t tensor)
{
	static float was[N], is[N];
	double sum = 0;
	kvi_floats_exact(b->c.tensors[tensor].dtype, b->c.data[tensor], N, was);
	kvi_floats_exact(b->c.tensors[tensor].dtype, b->back.data[tensor], N, is);
	for (size_t i = 0; i < N; i++)
		sum += ((double)was[i] - is[i]) * ((double)was[i] - is[i]);
	return sqrt(sum / N);
}

/* The upper layer alone, of tokens that begin within a segment: what is below is decoded for it. */
static void read_part(struct below *b, unsigned isa)
{
	const kvarc_range range = { .layer0 = 1, .n_layers = 1, .t0 = 50, .n = 100 };
	const size_t row = cache_bytes(&b->c, 0) / TOKENS;
	kvarc_source source = memfile_source(&b->f);
	kvarc_view views[TENSORS] = { 0 };
	kvarc_reader *r;
	uint8_t *part[TENSORS] = { NULL };
	cache_views_at(&b->back, 50, views);
	for (size_t i = 0; i < TENSORS; i++) {
		part[i] = malloc(cache_bytes(&b->c, i));
		memset(part[i], 0xa5, cache_bytes(&b->c, i));
		views[i].data = part[i];
	}
	b->ro.common.isa_mask = isa;
	assert_int_equal(kvarc_reader_open(&r, &source, &b->ro), KVARC_OK);
	assert_int_equal(kvarc_reader_read(r, &range, views), KVARC_OK);
	kvarc_reader_close(&r);
	b->ro.common.isa_mask = 0;
	for (size_t i = 0; i < TENSORS; i++) {
		if (b->c.tensors[i].layer)
			assert_memory_equal(part[i], b->back.data[i] + 50 * row, 100 * row);
		else
			assert_int_equal(part[i][0], 0xa5);
		free(part[i]);
	}
}

/* Reader and writer have the same elements. */
static void test_round_trip(void **state)
{
	static const uint8_t dtypes[] = { KVARC_F32, KVARC_BF16, KVARC_F16 };
	static int16_t rates[TOKENS];
	(void)state;
	for (size_t t = 0; t < TOKENS; t++)
		rates[t] = t % 5 ? 0 : 24;
	for (unsigned k = 0; k < 6; k++) {
		struct below b;
		open_below(&b, dtypes[k % 3], true);
		if (k > 2) {
			b.tier.token_rate = rates;
			b.tier.n_token_rates = TOKENS;
		}
		b.wo.common.threads = b.ro.common.threads = 1 + k % 2;
		b.wo.flags |= KVARC_WRITE_VERIFY;
		b.wo.common.isa_mask = k % 2 ? KVARC_ISA_SCALAR : 0;
		assert_int_equal(cache_write(&b.c, &b.f, &b.wo), KVARC_OK);
		assert_int_equal(transforms(&b), 2 * TENSORS);
		assert_int_equal(cache_read_range(&b.back, &b.f, &b.ro), KVARC_OK);
		for (size_t i = 0; i < TENSORS; i++)
			assert_true(error_of(&b, i) < 0.08);
		read_part(&b, 0);
		read_part(&b, KVARC_ISA_SCALAR);
		assert_int_equal(cache_verify(&b.f, &b.ro), KVARC_OK);
		struct cache again;
		cache_make_empty(&again, &b.c);
		b.ro.common.isa_mask = KVARC_ISA_SCALAR;
		b.f.pipe = true;
		assert_int_equal(cache_read_seq(&again, &b.f, &b.ro, NULL), KVARC_OK);
		assert_true(cache_equal(&again, &b.back));
		cache_free(&again);
		close_below(&b);
	}
}

/* The upper layer is nearly free, at the same error. */
static void test_smaller(void **state)
{
	size_t bytes[2];
	double error[2];
	(void)state;
	for (int below = 0; below < 2; below++) {
		struct below b;
		open_below(&b, KVARC_BF16, below);
		assert_int_equal(cache_write(&b.c, &b.f, &b.wo), KVARC_OK);
		assert_int_equal(cache_read_range(&b.back, &b.f, &b.ro), KVARC_OK);
		bytes[below] = b.f.n;
		error[below] = error_of(&b, TENSORS - 1);
		close_below(&b);
	}
	assert_true(bytes[1] < bytes[0] / 20 * 17);
	assert_true(error[1] < error[0] * 1.1);
}

/* No tensor of the file has its sources; or the profile is not there. */
static void test_refused(void **state)
{
	struct below b;
	(void)state;
	open_below(&b, KVARC_BF16, true);
	assert_int_equal(cache_write(&b.c, &b.f, &b.wo), KVARC_OK);
	b.ro.n_profiles = 0;
	assert_int_equal(cache_read_range(&b.back, &b.f, &b.ro), KVARC_PREDICTOR);
	memfile_free(&b.f);
	b.f = (struct memfile){ .fail_at = -1 };
	for (size_t i = 0; i < TENSORS; i++)
		if (!b.c.tensors[i].layer)
			b.c.tensors[i].layer = 5;
	assert_int_equal(cache_write(&b.c, &b.f, &b.wo), KVARC_PREDICTOR);
	close_below(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_smaller),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
