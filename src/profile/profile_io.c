/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_io.c - profiles as bytes: layout, sizes, checks, files */
#include "profile_io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "linear_model.h"
#include "format/frame.h"
#include "format/geometry_check.h"
#include "format/packed.h"
#include "numeric/formats.h"
#include "util/ckd.h"

/* ==== How a model's coefficients lie in memory (spec profile 3) ==== */

/* Channels that a source gives to a slot, and the entries that they take. */
static size_t source_channels(const struct kvi_model *from, unsigned scope)
{
	return scope ? from->head_channels : (size_t)from->heads * from->head_channels;
}

static size_t source_capacity(const struct kvi_model *from, unsigned scope)
{
	return (scope ? 1 : (size_t)from->heads) * kvi_head_stride(from);
}

static unsigned self_scope(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_SELF_HEAD ? 1 : 0;
}

static size_t block_capacity(const struct kvi_source *s, unsigned n)
{
	size_t sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += source_capacity(s[i].model, s[i].scope);
	return sum;
}

static uint64_t block_channels(const struct kvi_source *s, unsigned n)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += source_channels(s[i].model, s[i].scope);
	return sum;
}

/* Entries a row in memory; sources are resolved. */
static size_t model_stride_a(const struct kvi_model *m)
{
	return block_capacity(m->lower, m->n_lower);
}

static size_t model_stride_b(const struct kvi_model *m)
{
	size_t self = m->flags & KVI_MODEL_SELF ? source_capacity(m, self_scope(m)) : 0;
	return block_capacity(m->same, m->n_same) + self;
}

/* The state has no heads: a row of D sees all of them. */
static size_t model_stride_d(const struct kvi_model *m)
{
	size_t sum = source_capacity(m, 0);
	for (unsigned i = 0; i < m->n_same; i++)
		sum += source_capacity(m->same[i].model, 0);
	return m->flags & KVI_MODEL_CORRECTS ? sum : 0;
}

static size_t model_stride_m(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_BASIS ? kvi_head_stride(m) : 0;
}

/* Slots of its own head that come before slot c: a pair is one step. */
static size_t earlier_in_head(const struct kvi_model *m, size_t c)
{
	size_t s = c % m->head_channels;
	return s < m->rotary ? s & ~(size_t)1 : s;
}

static uint64_t earlier_slots(const struct kvi_model *m)
{
	uint64_t n = m->head_channels, h = m->heads;
	uint64_t in_heads = h * (n * (n - 1) / 2 - m->rotary / 2);
	if (!(m->flags & KVI_MODEL_SELF))
		return 0;
	return self_scope(m) ? in_heads : in_heads + n * n * (h * (h - 1) / 2);
}

/* The number of coefficients in all rows of a matrix; sources are resolved. */
static uint64_t model_entries_a(const struct kvi_model *m)
{
	return m->C * block_channels(m->lower, m->n_lower);
}

static uint64_t model_entries_b(const struct kvi_model *m)
{
	return m->C * block_channels(m->same, m->n_same) + earlier_slots(m);
}

static uint64_t model_entries_d(const struct kvi_model *m)
{
	uint64_t sum = m->C;
	for (unsigned i = 0; i < m->n_same; i++)
		sum += m->same[i].model->C;
	return m->flags & KVI_MODEL_CORRECTS ? m->width * sum : 0;
}

static uint64_t model_entries_m(const struct kvi_model *m)
{
	return m->flags & KVI_MODEL_BASIS ? m->C * (uint64_t)m->head_channels : 0;
}

/* n channels of whole heads, from the first one on. */
static void run_heads(int16_t *p, const struct kvi_model *from, size_t n, kvi_run *run, void *ctx)
{
	size_t each = from->head_channels, stride = kvi_head_stride(from);
	if (each == stride)
		each = n; /* no gaps */
	for (; n > each; n -= each, p += stride)
		run(ctx, p, each);
	if (n)
		run(ctx, p, n);
}

static int16_t *run_sources(int16_t *p, const struct kvi_source *s, unsigned n, kvi_run *run,
                            void *ctx)
{
	for (unsigned i = 0; i < n; i++) {
		run_heads(p, s[i].model, source_channels(s[i].model, s[i].scope), run, ctx);
		p += source_capacity(s[i].model, s[i].scope);
	}
	return p;
}

void kvi_model_row_a(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx)
{
	run_sources(m->a + c * m->a_stride, m->lower, m->n_lower, run, ctx);
}

void kvi_model_row_b(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx)
{
	int16_t *p = run_sources(m->b + c * m->b_stride, m->same, m->n_same, run, ctx);
	size_t n = earlier_in_head(m, c);
	if (!(m->flags & KVI_MODEL_SELF))
		return;
	if (!self_scope(m))
		n += c - c % m->head_channels;
	run_heads(p, m, n, run, ctx);
}

void kvi_model_row_d(const struct kvi_model *m, size_t i, kvi_run *run, void *ctx)
{
	int16_t *p = m->d + i * m->d_stride;
	for (unsigned k = 0; k < m->n_same; k++) {
		const struct kvi_model *from = m->same[k].model;
		run_heads(p, from, from->C, run, ctx);
		p += source_capacity(from, 0);
	}
	run_heads(p, m, m->C, run, ctx);
}

static void model_row_m(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx)
{
	run(ctx, m->m + c * m->m_stride, m->head_channels);
}

void kvi_model_free(const struct kvi_profile *p, struct kvi_model *m)
{
	kvi_free(p->alloc, m->step);
	kvi_free(p->alloc, m->k);
	kvi_free(p->alloc, m->mean);
	kvi_free(p->alloc, m->qa);
	kvi_free(p->alloc, m->qb);
	kvi_free(p->alloc, m->a);
	kvi_free(p->alloc, m->b);
	kvi_free(p->alloc, m->ids);
	kvi_free(p->alloc, m->table);
	kvi_free(p->alloc, m->e);
	kvi_free(p->alloc, m->d);
	kvi_free(p->alloc, m->qm);
	kvi_free(p->alloc, m->m);
	m->step = m->k = m->a = m->b = m->d = m->m = NULL;
	m->mean = m->ids = NULL;
	m->qa = m->qb = m->e = m->qm = NULL;
	m->table = NULL;
	m->a_stride = m->b_stride = m->d_stride = m->m_stride = 0;
}

/* A trainer's models need not be in order yet. */
static bool find_sources(const struct kvi_profile *p, const struct kvi_model *m,
                         struct kvi_source *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		s[i].model = NULL;
		for (size_t k = 0; k < p->n_models && !s[i].model; k++) {
			const struct kvi_model *x = &p->models[k];
			if (x->level == m->level && x->kind == s[i].kind &&
			    x->layer + s[i].delta == m->layer)
				s[i].model = x;
		}
		if (!s[i].model)
			return false;
	}
	return true;
}

static bool make_room(const struct kvi_alloc *alloc, struct kvi_model *m)
{
	size_t n = m->C;
	m->step = kvi_calloc(alloc, n, sizeof *m->step);
	m->k = kvi_calloc(alloc, n, sizeof *m->k);
	m->mean = kvi_calloc(alloc, n, sizeof *m->mean);
	if (!m->step || !m->k || !m->mean)
		return false;
	if (m->a_stride) {
		m->qa = kvi_calloc(alloc, n, sizeof *m->qa);
		m->a = kvi_calloc(alloc, n, m->a_stride * sizeof *m->a);
		if (!m->qa || !m->a)
			return false;
	}
	if (m->b_stride) {
		m->qb = kvi_calloc(alloc, n, sizeof *m->qb);
		m->b = kvi_calloc(alloc, n, m->b_stride * sizeof *m->b);
		if (!m->qb || !m->b)
			return false;
	}
	if (m->d_stride) {
		m->e = kvi_calloc(alloc, m->width, sizeof *m->e);
		m->d = kvi_calloc(alloc, m->width, m->d_stride * sizeof *m->d);
		if (!m->e || !m->d)
			return false;
	}
	if (m->m_stride) {
		m->qm = kvi_calloc(alloc, n, sizeof *m->qm);
		m->m = kvi_calloc(alloc, n, m->m_stride * sizeof *m->m);
		if (!m->qm || !m->m)
			return false;
	}
	if (!(m->flags & KVI_MODEL_TABLE) || m->n_ids == 0)
		return true;
	m->ids = kvi_calloc(alloc, m->n_ids, sizeof *m->ids);
	m->table = kvi_calloc(alloc, m->n_ids, n);
	return m->ids && m->table;
}

/* kvi_model_reserve for a model that is resolved. */
static kvarc_ret model_make_arrays(const struct kvi_profile *p, struct kvi_model *m)
{
	kvi_model_free(p, m);
	m->a_stride = model_stride_a(m);
	m->b_stride = model_stride_b(m);
	m->d_stride = model_stride_d(m);
	m->m_stride = model_stride_m(m);
	if (make_room(p->alloc, m))
		return KVARC_OK;
	kvi_model_free(p, m);
	return kvi_alloc_error(p->alloc);
}

kvarc_ret kvi_model_reserve(const struct kvi_profile *p, struct kvi_model *m)
{
	if (m->n_lower > KVI_LOWER_MAX || m->n_same > KVI_SAME_MAX || m->rope > p->n_ropes ||
	    m->heads == 0 || m->head_channels == 0 || !find_sources(p, m, m->lower, m->n_lower) ||
	    !find_sources(p, m, m->same, m->n_same))
		return KVARC_DATA;
	m->C = (size_t)m->heads * m->head_channels;
	m->rotary = m->rope ? p->ropes[m->rope - 1].rotary : 0;
	return model_make_arrays(p, m);
}

/* ==== What a model must keep (spec profile 3) ==== */

enum {
	FLAGS_KNOWN = KVI_MODEL_SELF | KVI_MODEL_SELF_HEAD | KVI_MODEL_SCALE | KVI_MODEL_TABLE |
	              KVI_MODEL_CORRECTS | KVI_MODEL_BASIS
};

static bool shape_good(const struct kvi_profile *p, const struct kvi_model *m)
{
	return ((m->level >= KVI_LEVEL_PROFILE && m->level <= KVI_LEVEL_LAST) ||
	        m->level == KVI_LEVEL_BASIS) &&
	       m->layer <= UINT16_MAX && m->heads >= 1 && m->heads <= UINT16_MAX &&
	       m->head_channels >= 1 && m->head_channels <= UINT16_MAX &&
	       (uint64_t)m->heads * m->head_channels <= KVI_MAX_WIDTH && m->rope <= p->n_ropes &&
	       (!m->rope || p->ropes[m->rope - 1].rotary <= m->head_channels);
}

static bool numbers_good(const struct kvi_model *m)
{
	if (m->flags & ~FLAGS_KNOWN)
		return false;
	if (m->level == KVI_LEVEL_BASIS || m->flags & KVI_MODEL_BASIS)
		return m->level == KVI_LEVEL_BASIS && m->flags == KVI_MODEL_BASIS &&
		       m->n_lower <= KVI_LOWER_MAX && !m->n_same;
	if ((m->flags & KVI_MODEL_SELF_HEAD) && !(m->flags & KVI_MODEL_SELF))
		return false;
	if (m->n_lower > (m->level == KVI_LEVEL_LOWER ? KVI_LOWER_MAX : 0) ||
	    m->n_same > KVI_SAME_MAX)
		return false;
	if (m->flags & (m->level < KVI_LEVEL_MODEL ? KVI_MODEL_CORRECTS : KVI_MODEL_TABLE))
		return false;
	if ((m->flags & KVI_MODEL_SCALE) && (m->n0 == 0 || m->beta > KVI_BETA_MAX))
		return false;
	return !(m->flags & KVI_MODEL_TABLE) ||
	       (m->tshift <= KVI_TABLE_SHIFT_MAX && m->unknown <= KVI_UNKNOWN_MAX &&
	        m->n_ids <= KVI_TABLE_ROWS_MAX);
}

static bool resolve(const struct kvi_profile *p, const struct kvi_model *m, struct kvi_source *s)
{
	if (s->scope > 1 || s->delta > m->layer)
		return false;
	s->model = kvi_profile_model(p, m->level, m->layer - s->delta, s->kind);
	return s->model && (s->scope == 0 || m->heads % s->model->heads == 0);
}

/* At level 9 tensors of the same layer are among the lower ones. */
static bool comes_before(const struct kvi_model *m, const struct kvi_source *s)
{
	return s->delta || (m->level == KVI_LEVEL_BASIS && s->kind < m->kind);
}

static bool resolve_all(const struct kvi_profile *p, struct kvi_model *m)
{
	for (unsigned i = 0; i < m->n_lower; i++)
		if (!comes_before(m, &m->lower[i]) || !resolve(p, m, &m->lower[i]))
			return false;
	for (unsigned i = 0; i < m->n_same; i++)
		if (m->same[i].delta != 0 || m->same[i].kind >= m->kind ||
		    !resolve(p, m, &m->same[i]))
			return false;
	m->scale_source = NULL;
	if (!(m->flags & KVI_MODEL_SCALE) || m->beta == 0)
		return true;
	if (m->scale_kind >= m->kind)
		return false;
	m->scale_source = kvi_profile_model(p, m->level, m->layer, m->scale_kind);
	return m->scale_source;
}

/* Whether a model before it corrects the same layer. */
static bool corrected(const struct kvi_profile *p, const struct kvi_model *m)
{
	for (unsigned kind = 0; kind < m->kind; kind++) {
		const struct kvi_model *x = kvi_profile_model(p, m->level, m->layer, kind);
		if (x && x->flags & KVI_MODEL_CORRECTS)
			return true;
	}
	return false;
}

/* Shape, flags and numbers of one model, before its arrays. Sets C, rotary and the models of
 * its sources, which are in p already. Returns OK, DATA, OPTIONS. */
static kvarc_ret model_resolve(const struct kvi_profile *p, struct kvi_model *m)
{
	if (m->kind != KVARC_KEY && m->kind != KVARC_VALUE && m->kind != KVARC_MLA_LATENT)
		return KVARC_OPTIONS;
	if (!shape_good(p, m) || !numbers_good(m) || !resolve_all(p, m) ||
	    (m->flags & KVI_MODEL_CORRECTS && corrected(p, m)))
		return KVARC_DATA;
	m->C = (size_t)m->heads * m->head_channels;
	m->rotary = m->rope ? p->ropes[m->rope - 1].rotary : 0;
	return KVARC_OK;
}

/* In blocks of a constant size, which compilers make vectors of; at most 2^15 * 64 each. */
static void add_absolute(void *ctx, int16_t *p, size_t n)
{
	enum { BLOCK = 64 };
	uint64_t *sum = ctx;
	for (; n >= BLOCK; n -= BLOCK, p += BLOCK) {
		int32_t block = 0;
		for (size_t i = 0; i < BLOCK; i++)
			block += p[i] < 0 ? -p[i] : p[i];
		*sum += (uint32_t)block;
	}
	for (; n; n--, p++)
		*sum += (uint32_t)(*p < 0 ? -*p : *p);
}

typedef void row_walk(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx);

/* Small enough for 32 bits in a kernel, and zero where nothing is stored. */
static bool rows_good(const struct kvi_model *m, size_t n, row_walk *walk, int16_t *rows,
                      size_t stride, const uint8_t *q, int most)
{
	for (size_t c = 0; c < n; c++) {
		uint64_t stored = 0, all = 0;
		walk(m, c, add_absolute, &stored);
		add_absolute(&all, rows + c * stride, stride);
		if (q[c] > most || all > KVI_COEF_SUM_MAX || all != stored)
			return false;
	}
	return true;
}

static bool slot_good(const struct kvi_model *m, size_t c)
{
	size_t s = c % m->head_channels;
	if (s < m->rotary && s % 2 && m->step[c] != m->step[c - 1])
		return false;
	return m->step[c] >= KVI_STEP_MIN && m->step[c] <= KVI_STEP_MAX &&
	       m->k[c] >= -KVI_CLASS_MAX && m->k[c] <= KVI_CLASS_MAX &&
	       m->mean[c] >= -KVI_UNIT_MAX && m->mean[c] <= KVI_UNIT_MAX;
}

static bool width_good(const struct kvi_model *m)
{
	return m->width >= 1 && m->width <= KVI_CORRECTS_WIDTH_MAX;
}

/* Arrays of a resolved model: false when spec profile 3 is not kept. */
static bool model_values_good(const struct kvi_model *m)
{
	for (size_t c = 0; c < m->C; c++)
		if (!slot_good(m, c))
			return false;
	if (m->flags & KVI_MODEL_TABLE)
		for (size_t i = 1; i < m->n_ids; i++)
			if (m->ids[i - 1] >= m->ids[i])
				return false;
	return (!m->a_stride ||
	        rows_good(m, m->C, kvi_model_row_a, m->a, m->a_stride, m->qa, KVI_SHIFT_MAX)) &&
	       (!m->b_stride ||
	        rows_good(m, m->C, kvi_model_row_b, m->b, m->b_stride, m->qb, KVI_SHIFT_MAX)) &&
	       (!m->m_stride ||
	        rows_good(m, m->C, model_row_m, m->m, m->m_stride, m->qm, UINT8_MAX)) &&
	       (!m->d_stride ||
	        (width_good(m) && rows_good(m, m->width, kvi_model_row_d, m->d, m->d_stride, m->e,
	                                    KVI_CORRECTS_SHIFT_MAX)));
}

/* ==== Profiles in memory: make, free, look up, finish (spec profile 2) ==== */

kvarc_ret kvi_profile_new(struct kvi_profile **out, const struct kvi_alloc *alloc)
{
	struct kvi_profile *p = kvi_calloc(alloc, 1, sizeof *p);
	*out = p;
	if (!p)
		return kvi_alloc_error(alloc);
	p->alloc = alloc;
	return KVARC_OK;
}

void kvi_profile_free(struct kvi_profile *p)
{
	if (!p)
		return;
	for (size_t i = 0; p->models && i < p->n_models; i++)
		kvi_model_free(p, &p->models[i]);
	kvi_free(p->alloc, p->models);
	for (size_t i = 0; p->ropes && i < p->n_ropes; i++)
		kvi_free(p->alloc, p->ropes[i].freq);
	kvi_free(p->alloc, p->ropes);
	kvi_identity_free(&p->identity, p->alloc);
	kvi_free(p->alloc, p);
}

void kvi_model_expect_nothing(struct kvi_model *m)
{
	enum {
		NARROW = -2, /* class of a residual of less than a step */
		FOLLOWS = 8  /* n0: how fast the scale does */
	};
	m->flags |= KVI_MODEL_SCALE;
	m->n0 = FOLLOWS;
	for (size_t c = 0; c < m->C; c++) {
		int k = 4 * m->step[c] + NARROW;
		m->k[c] = (int16_t)(k < -400 ? -400 : k > 400 ? 400 : k);
	}
}

int kvi_model_compare(const void *a, const void *b)
{
	const struct kvi_model *x = a, *y = b;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	return (x->kind > y->kind) - (x->kind < y->kind);
}

const struct kvi_model *kvi_profile_model(const struct kvi_profile *p, unsigned level,
                                          uint32_t layer, unsigned kind)
{
	if (level > UINT8_MAX || kind > UINT8_MAX || p->n_models == 0)
		return NULL;
	const struct kvi_model key = { .level = (uint8_t)kvi_models_level(level),
		                       .layer = layer,
		                       .kind = (uint8_t)kind };
	return bsearch(&key, p->models, p->n_models, sizeof key, kvi_model_compare);
}

bool kvi_model_fits(const struct kvi_model *m, const kvarc_tensor *t, const kvarc_rope *rope)
{
	return m->heads == t->heads && m->head_channels == t->channels && t->first_head == 0 &&
	       (t->total_heads == 0 || t->total_heads == t->heads) && t->role == KVARC_WHOLE &&
	       kvi_float_format(t->dtype) && m->rotary == (rope ? rope->rotary : 0);
}

uint64_t kvi_model_coefficients(const struct kvi_model *m)
{
	return model_entries_a(m) + model_entries_b(m) + model_entries_d(m) + model_entries_m(m);
}

/* What the parser has checked by reading it. */
static bool head_good(const struct kvi_profile *p)
{
	if (p->identity.n > KVI_PROFILE_PAIRS || p->n_ropes > KVI_MAX_ROPES || p->n_models < 1 ||
	    p->n_models > KVI_MODELS_MAX)
		return false;
	for (size_t i = 1; i < p->identity.n; i++)
		if (strcmp(p->identity.pairs[i - 1].key, p->identity.pairs[i].key) >= 0)
			return false;
	for (size_t i = 0; i < p->n_ropes; i++) {
		uint32_t rotary = p->ropes[i].rotary;
		if (rotary < 2 || rotary > KVI_MAX_ROTARY || rotary % 2)
			return false;
	}
	return true;
}

kvarc_ret kvi_profile_finish(struct kvi_profile *p)
{
	if (!head_good(p))
		return KVARC_DATA;
	qsort(p->models, p->n_models, sizeof *p->models, kvi_model_compare);
	for (size_t i = 0; i < p->n_models; i++) {
		struct kvi_model *m = &p->models[i];
		if (i && kvi_model_compare(m - 1, m) >= 0)
			return KVARC_DATA;
		kvarc_ret ret = model_resolve(p, m);
		if (ret)
			return ret;
		/* The strides of the arrays have to fit the sources that were resolved just now. */
		if (m->a_stride != model_stride_a(m) || m->b_stride != model_stride_b(m) ||
		    m->d_stride != model_stride_d(m) || m->m_stride != model_stride_m(m) ||
		    !model_values_good(m))
			return KVARC_DATA;
	}
	return KVARC_OK;
}

/* ==== A profile's content to and from memory (spec profile 2, 3) ==== */

/* Fewest bytes that an entry takes: bounds what a count may announce. */
enum { ROPE_BYTES_MIN = 9, MODEL_BYTES_MIN = 17 };
enum { SLOT_BYTES = 2 + 2 + 4 /* step, k, mean */ };

/* ---------------------------------------------------------------- planes */

/* Zigzag: numbers near zero of both signs have high planes of zeros. */
static uint32_t zigzag(int32_t v)
{
	return (uint32_t)v << 1 ^ (v < 0 ? UINT32_MAX : 0);
}

static int32_t unzigzag(uint32_t u)
{
	return (int32_t)(u >> 1 ^ (u & 1 ? UINT32_MAX : 0));
}

/* Place in the lowest plane of n numbers; the next planes follow. */
struct planes {
	uint8_t *at;
	size_t n;
};

static void put_run(void *ctx, int16_t *p, size_t n)
{
	struct planes *to = ctx;
	for (size_t i = 0; i < n; i++) {
		uint32_t u = zigzag(p[i]);
		to->at[i] = (uint8_t)u;
		to->at[i + to->n] = (uint8_t)(u >> 8);
	}
	to->at += n;
}

struct const_planes {
	const uint8_t *at;
	size_t n;
};

static void get_run(void *ctx, int16_t *p, size_t n)
{
	struct const_planes *from = ctx;
	for (size_t i = 0; i < n; i++)
		p[i] = (int16_t)unzigzag(from->at[i] | (uint32_t)from->at[i + from->n] << 8);
	from->at += n;
}

static void put_planes32(struct kvi_out *out, const int32_t *p, size_t n)
{
	uint8_t *to = kvi_out_reserve(out, 4 * n);
	for (size_t i = 0; to && i < n; i++)
		for (unsigned b = 0; b < 4; b++)
			to[b * n + i] = (uint8_t)(zigzag(p[i]) >> 8 * b);
	out->n += to ? 4 * n : 0;
}

static void get_planes32(struct kvi_in *in, int32_t *p, size_t n)
{
	const uint8_t *from = kvi_get_bytes(in, 4 * n);
	for (size_t i = 0; from && i < n; i++)
		p[i] = unzigzag(from[i] | (uint32_t)from[n + i] << 8 |
		                (uint32_t)from[2 * n + i] << 16 | (uint32_t)from[3 * n + i] << 24);
}

static void put_planes16(struct kvi_out *out, int16_t *p, size_t n)
{
	struct planes to = { kvi_out_reserve(out, 2 * n), n };
	if (!to.at)
		return;
	put_run(&to, p, n);
	out->n += 2 * n;
}

static void get_planes16(struct kvi_in *in, int16_t *p, size_t n)
{
	struct const_planes from = { kvi_get_bytes(in, 2 * n), n };
	if (from.at)
		get_run(&from, p, n);
}

/* ---------------------------------------------------------------- writing */

static void put_model_head(struct kvi_out *out, const struct kvi_model *m)
{
	kvi_put8(out, m->level);
	kvi_put_varint(out, m->layer);
	kvi_put8(out, m->kind);
	kvi_put_varint(out, m->heads);
	kvi_put_varint(out, m->head_channels);
	kvi_put_varint(out, m->rope);
	kvi_put8(out, m->flags);
	kvi_put_varint(out, m->n_lower);
	for (unsigned i = 0; i < m->n_lower; i++) {
		kvi_put8(out, m->lower[i].delta);
		kvi_put8(out, m->lower[i].kind);
		kvi_put8(out, m->lower[i].scope);
	}
	kvi_put_varint(out, m->n_same);
	for (unsigned i = 0; i < m->n_same; i++) {
		kvi_put8(out, m->same[i].kind);
		kvi_put8(out, m->same[i].scope);
	}
	if (!(m->flags & KVI_MODEL_SCALE))
		return;
	kvi_put8(out, m->n0);
	kvi_put8(out, m->beta);
	if (m->beta)
		kvi_put8(out, m->scale_kind);
}

static void put_matrix(struct kvi_out *out, const struct kvi_model *m, const uint8_t *q,
                       size_t rows, uint64_t entries, row_walk *walk)
{
	struct planes to = { NULL, (size_t)entries };
	kvi_put_bytes(out, q, rows);
	to.at = kvi_out_reserve(out, 2 * to.n);
	if (!to.at)
		return;
	for (size_t c = 0; c < rows; c++)
		walk(m, c, put_run, &to);
	out->n += 2 * to.n;
}

static void put_model(struct kvi_out *out, const struct kvi_model *m)
{
	put_model_head(out, m);
	put_planes16(out, m->step, m->C);
	put_planes16(out, m->k, m->C);
	put_planes32(out, m->mean, m->C);
	if (m->a_stride)
		put_matrix(out, m, m->qa, m->C, model_entries_a(m), kvi_model_row_a);
	if (m->b_stride)
		put_matrix(out, m, m->qb, m->C, model_entries_b(m), kvi_model_row_b);
	if (m->m_stride)
		put_matrix(out, m, m->qm, m->C, model_entries_m(m), model_row_m);
	if (m->d_stride) {
		kvi_put_varint(out, m->width);
		put_matrix(out, m, m->e, m->width, model_entries_d(m), kvi_model_row_d);
	}
	if (!(m->flags & KVI_MODEL_TABLE))
		return;
	kvi_put8(out, m->tshift);
	kvi_put8(out, m->unknown);
	kvi_put_varint(out, m->n_ids);
	put_planes32(out, m->ids, m->n_ids);
	kvi_put_bytes(out, m->table, m->n_ids * m->C);
}

void kvi_profile_put(const struct kvi_profile *p, struct kvi_out *out)
{
	kvi_identity_put(out, &p->identity);
	kvi_put_varint(out, p->n_ropes);
	for (size_t i = 0; i < p->n_ropes; i++) {
		kvi_put_varint(out, p->ropes[i].rotary);
		for (size_t k = 0; k < p->ropes[i].rotary / 2; k++)
			kvi_put64(out, p->ropes[i].freq[k]);
	}
	kvi_put_varint(out, p->n_models);
	for (size_t i = 0; i < p->n_models; i++)
		put_model(out, &p->models[i]);
}

kvarc_ret kvi_profile_serialise(struct kvi_profile *p, struct kvi_out *out)
{
	size_t start = out->n;
	kvi_profile_put(p, out);
	if (out->failed)
		return kvi_alloc_error(out->alloc);
	p->digest = kvi_h128(out->p + start, out->n - start);
	return KVARC_OK;
}

/* ---------------------------------------------------------------- reading */

static kvarc_ret parse_ropes(struct kvi_profile *p, struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MAX_ROPES);
	if (in->bad || n > kvi_in_remaining(in) / ROPE_BYTES_MIN)
		return KVARC_DATA;
	if (n == 0)
		return KVARC_OK;
	p->ropes = kvi_calloc(p->alloc, n, sizeof *p->ropes);
	if (!p->ropes)
		return kvi_alloc_error(p->alloc);
	p->n_ropes = n;
	for (size_t i = 0; i < n; i++) {
		struct kvi_profile_rope *r = &p->ropes[i];
		r->rotary = (uint32_t)kvi_get_varint(in, KVI_MAX_ROTARY);
		size_t pairs = r->rotary / 2;
		if (in->bad || pairs == 0 || r->rotary % 2 ||
		    pairs > kvi_in_remaining(in) / sizeof *r->freq)
			return KVARC_DATA;
		r->freq = kvi_array(p->alloc, pairs, sizeof *r->freq);
		if (!r->freq)
			return kvi_alloc_error(p->alloc);
		for (size_t k = 0; k < pairs; k++)
			r->freq[k] = kvi_get64(in);
	}
	return KVARC_OK;
}

static void parse_sources(struct kvi_model *m, struct kvi_in *in)
{
	m->n_lower = (unsigned)kvi_get_varint(in, KVI_LOWER_MAX);
	for (unsigned i = 0; i < m->n_lower; i++) {
		m->lower[i].delta = kvi_get8(in);
		m->lower[i].kind = kvi_get8(in);
		m->lower[i].scope = kvi_get8(in);
	}
	m->n_same = (unsigned)kvi_get_varint(in, KVI_SAME_MAX);
	for (unsigned i = 0; i < m->n_same; i++) {
		m->same[i].kind = kvi_get8(in);
		m->same[i].scope = kvi_get8(in);
	}
}

static kvarc_ret parse_model_head(const struct kvi_profile *p, struct kvi_model *m,
                                  struct kvi_in *in)
{
	m->level = kvi_get8(in);
	m->layer = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	m->kind = kvi_get8(in);
	m->heads = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	m->head_channels = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	m->rope = (uint32_t)kvi_get_varint(in, KVI_MAX_ROPES);
	m->flags = kvi_get8(in);
	parse_sources(m, in);
	if (m->flags & KVI_MODEL_SCALE) {
		m->n0 = kvi_get8(in);
		m->beta = kvi_get8(in);
		if (m->beta)
			m->scale_kind = kvi_get8(in);
	}
	return in->bad ? KVARC_DATA : model_resolve(p, m);
}

/* Bytes of the arrays before the table; the model is resolved. */
static uint64_t array_bytes(const struct kvi_model *m)
{
	uint64_t bytes = m->C * (uint64_t)SLOT_BYTES;
	if (m->n_lower)
		bytes += m->C + 2 * model_entries_a(m);
	if (m->n_same || m->flags & KVI_MODEL_SELF)
		bytes += m->C + 2 * model_entries_b(m);
	if (m->flags & KVI_MODEL_BASIS)
		bytes += m->C + 2 * model_entries_m(m);
	return bytes;
}

/* A row of D and its shift are a byte and entries, as many in each row. */
static bool look_at_width(struct kvi_model *m, struct kvi_in *in)
{
	m->width = (uint32_t)kvi_get_varint(in, KVI_CORRECTS_WIDTH_MAX);
	return !in->bad && m->width >= 1 &&
	       m->width + 2 * model_entries_d(m) <= kvi_in_remaining(in);
}

/* The head of a table or of a correction, behind the arrays (no model has both);
 * proves that all arrays are there. */
static bool look_ahead(struct kvi_model *m, struct kvi_in in)
{
	uint64_t bytes = array_bytes(m);
	if (bytes > kvi_in_remaining(&in))
		return false;
	kvi_get_bytes(&in, (size_t)bytes);
	if (m->flags & KVI_MODEL_CORRECTS)
		return look_at_width(m, &in);
	if (!(m->flags & KVI_MODEL_TABLE))
		return true;
	m->tshift = kvi_get8(&in);
	m->unknown = kvi_get8(&in);
	m->n_ids = (uint32_t)kvi_get_varint(&in, KVI_TABLE_ROWS_MAX);
	return !in.bad && m->tshift <= KVI_TABLE_SHIFT_MAX && m->unknown <= KVI_UNKNOWN_MAX &&
	       m->n_ids <= kvi_in_remaining(&in) / (4 + m->C);
}

static void get_matrix(struct kvi_in *in, const struct kvi_model *m, uint8_t *q, size_t rows,
                       uint64_t entries, row_walk *walk)
{
	struct const_planes from = { NULL, (size_t)entries };
	const uint8_t *shifts = kvi_get_bytes(in, rows);
	from.at = kvi_get_bytes(in, 2 * from.n);
	if (!shifts || !from.at)
		return;
	memcpy(q, shifts, rows);
	for (size_t c = 0; c < rows; c++)
		walk(m, c, get_run, &from);
}

static void parse_arrays(struct kvi_model *m, struct kvi_in *in)
{
	get_planes16(in, m->step, m->C);
	get_planes16(in, m->k, m->C);
	get_planes32(in, m->mean, m->C);
	if (m->a_stride)
		get_matrix(in, m, m->qa, m->C, model_entries_a(m), kvi_model_row_a);
	if (m->b_stride)
		get_matrix(in, m, m->qb, m->C, model_entries_b(m), kvi_model_row_b);
	if (m->m_stride)
		get_matrix(in, m, m->qm, m->C, model_entries_m(m), model_row_m);
	/* look_ahead has read what stands in front of the next arrays. */
	if (m->d_stride) {
		kvi_get_varint(in, KVI_CORRECTS_WIDTH_MAX);
		get_matrix(in, m, m->e, m->width, model_entries_d(m), kvi_model_row_d);
	}
	if (!(m->flags & KVI_MODEL_TABLE))
		return;
	kvi_get_bytes(in, 2);
	kvi_get_varint(in, KVI_TABLE_ROWS_MAX);
	get_planes32(in, m->ids, m->n_ids);
	const uint8_t *rows = kvi_get_bytes(in, m->n_ids * m->C);
	if (rows && m->n_ids)
		memcpy(m->table, rows, m->n_ids * m->C);
}

/* Sources come before the models that use them: they are in p already. */
static kvarc_ret parse_models(struct kvi_profile *p, struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MODELS_MAX);
	if (in->bad || n == 0 || n > kvi_in_remaining(in) / MODEL_BYTES_MIN)
		return KVARC_DATA;
	p->models = kvi_calloc(p->alloc, n, sizeof *p->models);
	if (!p->models)
		return kvi_alloc_error(p->alloc);
	for (size_t i = 0; i < n; i++) {
		struct kvi_model *m = &p->models[i];
		kvarc_ret ret = parse_model_head(p, m, in);
		if (ret)
			return ret;
		if ((i && kvi_model_compare(m - 1, m) >= 0) || !look_ahead(m, *in))
			return KVARC_DATA;
		p->n_models = i + 1;
		ret = model_make_arrays(p, m);
		if (ret)
			return ret;
		parse_arrays(m, in);
		if (in->bad || !model_values_good(m))
			return KVARC_DATA;
	}
	return kvi_in_remaining(in) ? KVARC_DATA : KVARC_OK;
}

kvarc_ret kvi_profile_parse(struct kvi_profile **out, const struct kvi_alloc *alloc,
                            const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	kvarc_ret ret = kvi_profile_new(out, alloc);
	if (ret)
		return ret;
	struct kvi_profile *p = *out;
	ret = kvi_identity_get_pairs(&p->identity, alloc, &in, KVI_PROFILE_PAIRS);
	if (ret == KVARC_OK)
		ret = parse_ropes(p, &in);
	if (ret == KVARC_OK)
		ret = parse_models(p, &in);
	if (ret) {
		kvi_profile_free(p);
		*out = NULL;
		return ret;
	}
	p->digest = kvi_h128(content, bytes);
	return KVARC_OK;
}

/* ==== Header and packed content of a .kvp file (spec profile 1) ==== */

static const uint8_t magic[8] = { 0x89, 'K', 'V', 'P', 0x0d, 0x0a, 0x1a, 0x0a };
#define CONTENT_MAX ((uint64_t)1 << 34)
enum { VERSION_MAJOR = 1, VERSION_MINOR = 0, CHECK_AT = 56 };

kvarc_ret kvi_profile_header_parse(struct kvi_profile_header *h, const uint8_t *file, size_t bytes)
{
	if (bytes < sizeof magic || memcmp(file, magic, sizeof magic) != 0)
		return KVARC_FORMAT;
	if (bytes < KVI_PROFILE_HEADER_BYTES)
		return KVARC_DATA;
	const uint64_t check = kvi_load64(file + CHECK_AT);
	if (check != kvi_h64(file, CHECK_AT))
		return kvi_h64_pre_release(file, CHECK_AT, check) ? KVARC_OPTIONS : KVARC_DATA;
	if (kvi_load16(file + 8) != VERSION_MAJOR || kvi_load32(file + 12))
		return KVARC_OPTIONS;
	h->content_bytes = kvi_load64(file + 16);
	h->packed_bytes = kvi_load64(file + 24);
	h->digest = kvi_load_h128(file + 32);
	if (h->content_bytes > CONTENT_MAX || h->packed_bytes == 0 ||
	    h->packed_bytes > h->content_bytes + 1 || kvi_load64(file + 48))
		return KVARC_DATA;
	/* A content that no memory of this machine can hold. */
	return h->content_bytes > SIZE_MAX / 2 ? KVARC_MEMLIMIT : KVARC_OK;
}

kvarc_ret kvi_profile_unpack(struct kvi_profile **out, const struct kvi_alloc *alloc,
                             const struct kvi_profile_header *h, const uint8_t *packed)
{
	struct kvi_packer packer;
	const uint8_t *content;
	uint8_t *owned;
	*out = NULL;
	kvi_packer_init(&packer, alloc);
	kvarc_ret ret = kvi_unpack(&packer, packed, (size_t)h->packed_bytes,
	                           (size_t)h->content_bytes, &content, &owned);
	kvi_packer_free(&packer);
	if (ret)
		return ret;
	if (kvi_h128_equal(kvi_h128(content, (size_t)h->content_bytes), h->digest))
		ret = kvi_profile_parse(out, alloc, content, (size_t)h->content_bytes);
	else
		ret = KVARC_DATA;
	kvi_free(alloc, owned);
	return ret;
}

kvarc_ret kvi_profile_read_file(struct kvi_profile **out, const struct kvi_alloc *alloc,
                                const uint8_t *file, size_t bytes)
{
	struct kvi_profile_header h;
	*out = NULL;
	kvarc_ret ret = kvi_profile_header_parse(&h, file, bytes);
	if (ret)
		return ret;
	if (h.packed_bytes != bytes - KVI_PROFILE_HEADER_BYTES)
		return KVARC_DATA;
	return kvi_profile_unpack(out, alloc, &h, file + KVI_PROFILE_HEADER_BYTES);
}

static void put_header(uint8_t *to, const struct kvi_profile_header *h)
{
	memset(to, 0, KVI_PROFILE_HEADER_BYTES);
	memcpy(to, magic, sizeof magic);
	kvi_store16(to + 8, VERSION_MAJOR);
	kvi_store16(to + 10, VERSION_MINOR);
	kvi_store64(to + 16, h->content_bytes);
	kvi_store64(to + 24, h->packed_bytes);
	kvi_store_h128(to + 32, h->digest);
	kvi_store64(to + CHECK_AT, kvi_h64(to, CHECK_AT));
}

/* Header and packed content at the end of out. */
static kvarc_ret write_content(struct kvi_out *out, const struct kvi_out *content)
{
	static const uint8_t blank[KVI_PROFILE_HEADER_BYTES];
	struct kvi_profile_header h = { .content_bytes = content->n };
	struct kvi_packer packer;
	size_t start = out->n;
	kvi_put_bytes(out, blank, sizeof blank);
	kvi_packer_init(&packer, out->alloc);
	kvarc_ret ret = kvi_pack(&packer, out, content->p, content->n);
	kvi_packer_free(&packer);
	if (ret || out->failed)
		return ret ? ret : kvi_alloc_error(out->alloc);
	h.packed_bytes = out->n - start - sizeof blank;
	h.digest = kvi_h128(content->p, content->n);
	put_header(out->p + start, &h);
	return KVARC_OK;
}

kvarc_ret kvi_profile_write_file(const struct kvi_profile *p, struct kvi_out *out)
{
	struct kvi_out content;
	kvi_out_init(&content, out->alloc);
	kvi_profile_put(p, &content);
	kvarc_ret ret = content.failed ? kvi_alloc_error(out->alloc) : write_content(out, &content);
	kvi_out_free(&content);
	return ret;
}
