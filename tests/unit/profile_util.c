/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_util.c - random profiles, for tests */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "profile/profile_io.h"
#include "profile_util.h"

/* Bits of a seed that choose a shape; the others are only numbers. */
struct profile_shape {
	uint32_t heads, channels, rotary;
	bool latent;
};

static struct profile_shape shape_of(uint64_t seed)
{
	static const uint32_t heads[] = { 1, 2, 3, 4 };
	static const uint32_t channels[] = { 5, 8, 1, 6 };
	struct profile_shape s = { heads[seed % 4], channels[seed / 4 % 4], 0, seed % 5 == 4 };
	if (seed % 3 && s.channels > 1)
		s.rotary = seed % 3 == 1 ? s.channels & ~1u : 2;
	return s;
}

struct filler {
	uint64_t *rng;
	int32_t left; /* of the row's absolute sum */
};

static void fill_run(void *ctx, int16_t *p, size_t n)
{
	struct filler *f = ctx;
	for (size_t i = 0; i < n; i++) {
		int most = f->left / 2 > 32767 ? 32767 : f->left / 2;
		p[i] = (int16_t)profile_between(f->rng, -most, most);
		if (f->left >= 32768 && profile_random(f->rng) % 16 == 0)
			p[i] = INT16_MIN;
		f->left -= abs(p[i]);
	}
}

static void fill_rows(const struct kvi_model *m, uint64_t *rng)
{
	for (size_t c = 0; c < m->C; c++) {
		struct filler f = { rng, KVI_COEF_SUM_MAX };
		if (m->a_stride) {
			m->qa[c] = (uint8_t)profile_between(rng, 0, KVI_SHIFT_MAX);
			kvi_model_row_a(m, c, fill_run, &f);
		}
		f.left = KVI_COEF_SUM_MAX;
		if (m->b_stride) {
			m->qb[c] = (uint8_t)profile_between(rng, 0, KVI_SHIFT_MAX);
			kvi_model_row_b(m, c, fill_run, &f);
		}
	}
	for (size_t i = 0; m->d_stride && i < m->width; i++) {
		struct filler f = { rng, KVI_COEF_SUM_MAX };
		m->e[i] = (uint8_t)profile_between(rng, 0, KVI_CORRECTS_SHIFT_MAX);
		kvi_model_row_d(m, i, fill_run, &f);
	}
}

static void fill_model(const struct kvi_model *m, uint64_t *rng)
{
	for (size_t c = 0; c < m->C; c++) {
		m->step[c] = (int16_t)profile_between(rng, KVI_STEP_MIN, KVI_STEP_MAX);
		if (c % m->head_channels < m->rotary && c % m->head_channels % 2)
			m->step[c] = m->step[c - 1];
		m->k[c] = (int16_t)profile_between(rng, -400, 400);
		m->mean[c] = profile_between(rng, -32767, 32767);
	}
	fill_rows(m, rng);
	for (size_t i = 0; i < m->n_ids * m->C; i++)
		m->table[i] = (int8_t)profile_between(rng, -128, 127);
}

static void fill_ids(const struct kvi_model *m, uint64_t *rng)
{
	int32_t id = INT32_MIN;
	for (size_t i = 0; i < m->n_ids; i++) {
		m->ids[i] = id;
		id += profile_between(rng, 1, 1 << 30);
	}
}

static void choose(struct kvi_model *m, const struct profile_shape *s, uint64_t *rng)
{
	bool twice = m->kind == KVARC_VALUE; /* a multiple: scope head works */
	m->heads = twice ? 2 * s->heads : s->heads;
	m->head_channels = s->channels;
	m->rope = m->kind == KVARC_KEY && s->rotary ? 1 : 0;
	m->flags = (uint8_t)profile_between(rng, 0, 15);
	if (!(m->flags & KVI_MODEL_SELF))
		m->flags &= ~KVI_MODEL_SELF_HEAD & 0xff;
	if (m->level > 3) {
		bool corrects = (m->kind == KVARC_KEY) == (m->layer == 1) && m->kind <= KVARC_VALUE;
		m->flags &= ~KVI_MODEL_TABLE & 0xff;
		m->flags |= corrects ? KVI_MODEL_CORRECTS : 0;
		m->width = corrects ? (uint32_t)profile_between(rng, 1, 9) : 0;
	}
	for (unsigned d = 1; m->level == 3 && d <= m->layer; d++)
		m->lower[m->n_lower++] =
			(struct kvi_source){ .delta = (uint8_t)d,
			                     .kind = twice && d == 1 ? KVARC_VALUE : KVARC_KEY,
			                     .scope = (uint8_t)profile_between(rng, 0, 1) };
	if (m->kind > KVARC_KEY)
		m->same[m->n_same++] = (struct kvi_source){
			.kind = KVARC_KEY, .scope = (uint8_t)profile_between(rng, 0, 1)
		};
	if (m->flags & KVI_MODEL_SCALE) {
		m->n0 = (uint8_t)profile_between(rng, 1, 255);
		m->beta = m->kind ? (uint8_t)profile_between(rng, 0, 16) : 0;
		m->scale_kind = KVARC_KEY;
	}
	if (m->flags & KVI_MODEL_TABLE) {
		m->tshift = (uint8_t)profile_between(rng, 0, 8);
		m->unknown = (uint8_t)profile_between(rng, 0, 128);
		m->n_ids = (uint32_t)profile_between(rng, 0, 3);
	}
}

static void make_head(struct kvi_profile *p, const struct profile_shape *s, uint64_t *rng)
{
	assert_int_equal(kvi_identity_set(&p->identity, p->alloc, "model", "M"), KVARC_OK);
	assert_int_equal(kvi_identity_set(&p->identity, p->alloc, "created_by", "test"), KVARC_OK);
	if (s->rotary) {
		p->ropes = kvi_calloc(p->alloc, 1, sizeof *p->ropes);
		p->ropes[0].rotary = s->rotary;
		p->ropes[0].freq = kvi_array(p->alloc, s->rotary / 2, sizeof *p->ropes[0].freq);
		p->n_ropes = 1;
		for (size_t i = 0; i < s->rotary / 2; i++)
			p->ropes[0].freq[i] = profile_random(rng);
	}
}

struct kvi_profile *profile_make(const struct kvi_alloc *alloc, uint64_t seed)
{
	static const uint8_t levels[] = { 7, 4, 3, 2 };
	enum { LAYERS = 3 };
	struct profile_shape s = shape_of(seed);
	uint64_t rng = seed;
	struct kvi_profile *p;
	assert_int_equal(kvi_profile_new(&p, alloc), KVARC_OK);
	make_head(p, &s, &rng);
	p->models = kvi_calloc(alloc, sizeof levels * 3 * LAYERS, sizeof *p->models);
	for (unsigned i = 0; i < sizeof levels; i++)
		for (unsigned layer = 0; layer < LAYERS; layer++)
			for (unsigned kind = 0; kind < 4; kind++) {
				if (kind == 2 || (kind == 3 && !s.latent))
					continue;
				struct kvi_model *m = &p->models[p->n_models++];
				m->level = levels[i];
				m->layer = layer;
				m->kind = (uint8_t)kind;
				choose(m, &s, &rng);
				assert_int_equal(kvi_model_reserve(p, m), KVARC_OK);
				fill_ids(m, &rng);
			}
	/* levels the wrong way round: finish sorts, and only then rows can be walked */
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	for (size_t i = 0; i < p->n_models; i++)
		fill_model(&p->models[i], &rng);
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	return p;
}
