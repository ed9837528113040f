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

static unsigned self_scope(const struct kvi_model *model)
{
	return model->flags & KVI_MODEL_SELF_HEAD ? 1 : 0;
}

static size_t block_capacity(const struct kvi_source *source, unsigned n)
{
	size_t sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += source_capacity(source[i].model, source[i].scope);
	return sum;
}

static uint64_t block_channels(const struct kvi_source *source, unsigned n)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += source_channels(source[i].model, source[i].scope);
	return sum;
}

/* Entries a row in memory; sources are resolved. */
static size_t model_stride_a(const struct kvi_model *model)
{
	return block_capacity(model->lower, model->n_lower);
}

static size_t model_stride_b(const struct kvi_model *model)
{
	size_t self = model->flags & KVI_MODEL_SELF ? source_capacity(model, self_scope(model)) : 0;
	return block_capacity(model->same, model->n_same) + self;
}

/* The state has no heads: a row of D sees all of them. */
static size_t model_stride_d(const struct kvi_model *model)
{
	size_t sum = source_capacity(model, 0);
	for (unsigned i = 0; i < model->n_same; i++)
		sum += source_capacity(model->same[i].model, 0);
	return model->flags & KVI_MODEL_CORRECTS ? sum : 0;
}

static size_t model_stride_m(const struct kvi_model *model)
{
	return model->flags & KVI_MODEL_BASIS ? kvi_head_stride(model) : 0;
}

/* Slots of its own head that come before slot c: a pair is one step. */
static size_t earlier_in_head(const struct kvi_model *model, size_t c)
{
	size_t s = c % model->head_channels;
	return s < model->rotary ? s & ~(size_t)1 : s;
}

static uint64_t earlier_slots(const struct kvi_model *model)
{
	uint64_t n = model->head_channels, h = model->heads;
	uint64_t in_heads = h * (n * (n - 1) / 2 - model->rotary / 2);
	if (!(model->flags & KVI_MODEL_SELF))
		return 0;
	return self_scope(model) ? in_heads : in_heads + n * n * (h * (h - 1) / 2);
}

/* The number of coefficients in all rows of a matrix; sources are resolved. */
static uint64_t model_entries_a(const struct kvi_model *model)
{
	return model->C * block_channels(model->lower, model->n_lower);
}

static uint64_t model_entries_b(const struct kvi_model *model)
{
	return model->C * block_channels(model->same, model->n_same) + earlier_slots(model);
}

static uint64_t model_entries_d(const struct kvi_model *model)
{
	uint64_t sum = model->C;
	for (unsigned i = 0; i < model->n_same; i++)
		sum += model->same[i].model->C;
	return model->flags & KVI_MODEL_CORRECTS ? model->width * sum : 0;
}

static uint64_t model_entries_m(const struct kvi_model *model)
{
	return model->flags & KVI_MODEL_BASIS ? model->C * (uint64_t)model->head_channels : 0;
}

/* n channels of whole heads, from the first one on. */
static void run_heads(int16_t *p, const struct kvi_model *from, size_t n, kvi_run *run, void *ctx)
{
	size_t each = from->head_channels, stride = kvi_head_stride(from);
	if (each == stride)
		each = n; /* heads without gaps */
	for (; n > each; n -= each, p += stride)
		run(ctx, p, each);
	if (n)
		run(ctx, p, n);
}

static int16_t *run_sources(int16_t *p, const struct kvi_source *source, unsigned n, kvi_run *run,
                            void *ctx)
{
	for (unsigned i = 0; i < n; i++) {
		run_heads(p, source[i].model, source_channels(source[i].model, source[i].scope),
		          run, ctx);
		p += source_capacity(source[i].model, source[i].scope);
	}
	return p;
}

void kvi_model_row_a(const struct kvi_model *model, size_t c, kvi_run *run, void *ctx)
{
	run_sources(model->a + c * model->a_stride, model->lower, model->n_lower, run, ctx);
}

void kvi_model_row_b(const struct kvi_model *model, size_t c, kvi_run *run, void *ctx)
{
	int16_t *p = run_sources(model->b + c * model->b_stride, model->same, model->n_same, run,
	                         ctx);
	size_t n = earlier_in_head(model, c);
	if (!(model->flags & KVI_MODEL_SELF))
		return;
	if (!self_scope(model))
		n += c - c % model->head_channels;
	run_heads(p, model, n, run, ctx);
}

void kvi_model_row_d(const struct kvi_model *model, size_t i, kvi_run *run, void *ctx)
{
	int16_t *p = model->d + i * model->d_stride;
	for (unsigned k = 0; k < model->n_same; k++) {
		const struct kvi_model *from = model->same[k].model;
		run_heads(p, from, from->C, run, ctx);
		p += source_capacity(from, 0);
	}
	run_heads(p, model, model->C, run, ctx);
}

static void model_row_m(const struct kvi_model *model, size_t c, kvi_run *run, void *ctx)
{
	run(ctx, model->m + c * model->m_stride, model->head_channels);
}

void kvi_model_free(const struct kvi_profile *profile, struct kvi_model *model)
{
	kvi_free(profile->alloc, model->step);
	kvi_free(profile->alloc, model->k);
	kvi_free(profile->alloc, model->mean);
	kvi_free(profile->alloc, model->qa);
	kvi_free(profile->alloc, model->qb);
	kvi_free(profile->alloc, model->a);
	kvi_free(profile->alloc, model->b);
	kvi_free(profile->alloc, model->ids);
	kvi_free(profile->alloc, model->table);
	kvi_free(profile->alloc, model->e);
	kvi_free(profile->alloc, model->d);
	kvi_free(profile->alloc, model->qm);
	kvi_free(profile->alloc, model->m);
	model->step = model->k = model->a = model->b = model->d = model->m = NULL;
	model->mean = model->ids = NULL;
	model->qa = model->qb = model->e = model->qm = NULL;
	model->table = NULL;
	model->a_stride = model->b_stride = model->d_stride = model->m_stride = 0;
}

/* A trainer's models need not be in order yet. */
static bool find_sources(const struct kvi_profile *profile, const struct kvi_model *model,
                         struct kvi_source *source, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		source[i].model = NULL;
		for (size_t k = 0; k < profile->n_models && !source[i].model; k++) {
			const struct kvi_model *x = &profile->models[k];
			if (x->level == model->level && x->kind == source[i].kind &&
			    x->layer + source[i].delta == model->layer)
				source[i].model = x;
		}
		if (!source[i].model)
			return false;
	}
	return true;
}

static bool make_room(const struct kvi_alloc *alloc, struct kvi_model *model)
{
	size_t n = model->C;
	model->step = kvi_calloc(alloc, n, sizeof *model->step);
	model->k = kvi_calloc(alloc, n, sizeof *model->k);
	model->mean = kvi_calloc(alloc, n, sizeof *model->mean);
	if (!model->step || !model->k || !model->mean)
		return false;
	if (model->a_stride) {
		model->qa = kvi_calloc(alloc, n, sizeof *model->qa);
		model->a = kvi_calloc(alloc, n, model->a_stride * sizeof *model->a);
		if (!model->qa || !model->a)
			return false;
	}
	if (model->b_stride) {
		model->qb = kvi_calloc(alloc, n, sizeof *model->qb);
		model->b = kvi_calloc(alloc, n, model->b_stride * sizeof *model->b);
		if (!model->qb || !model->b)
			return false;
	}
	if (model->d_stride) {
		model->e = kvi_calloc(alloc, model->width, sizeof *model->e);
		model->d = kvi_calloc(alloc, model->width, model->d_stride * sizeof *model->d);
		if (!model->e || !model->d)
			return false;
	}
	if (model->m_stride) {
		model->qm = kvi_calloc(alloc, n, sizeof *model->qm);
		model->m = kvi_calloc(alloc, n, model->m_stride * sizeof *model->m);
		if (!model->qm || !model->m)
			return false;
	}
	if (!(model->flags & KVI_MODEL_TABLE) || model->n_ids == 0)
		return true;
	model->ids = kvi_calloc(alloc, model->n_ids, sizeof *model->ids);
	model->table = kvi_calloc(alloc, model->n_ids, n);
	return model->ids && model->table;
}

/* kvi_model_reserve for a model that is resolved. */
static kvarc_ret model_make_arrays(const struct kvi_profile *profile, struct kvi_model *model)
{
	kvi_model_free(profile, model);
	model->a_stride = model_stride_a(model);
	model->b_stride = model_stride_b(model);
	model->d_stride = model_stride_d(model);
	model->m_stride = model_stride_m(model);
	if (make_room(profile->alloc, model))
		return KVARC_OK;
	kvi_model_free(profile, model);
	return kvi_alloc_error(profile->alloc);
}

kvarc_ret kvi_model_reserve(const struct kvi_profile *profile, struct kvi_model *model)
{
	if (model->n_lower > KVI_LOWER_MAX || model->n_same > KVI_SAME_MAX ||
	    model->rope > profile->n_ropes || model->heads == 0 || model->head_channels == 0 ||
	    !find_sources(profile, model, model->lower, model->n_lower) ||
	    !find_sources(profile, model, model->same, model->n_same))
		return KVARC_DATA;
	model->C = (size_t)model->heads * model->head_channels;
	model->rotary = model->rope ? profile->ropes[model->rope - 1].rotary : 0;
	return model_make_arrays(profile, model);
}

/* ==== What a model must keep (spec profile 3) ==== */

enum {
	FLAGS_KNOWN = KVI_MODEL_SELF | KVI_MODEL_SELF_HEAD | KVI_MODEL_SCALE | KVI_MODEL_TABLE |
	              KVI_MODEL_CORRECTS | KVI_MODEL_BASIS
};

static bool shape_good(const struct kvi_profile *profile, const struct kvi_model *model)
{
	return ((model->level >= KVI_LEVEL_PROFILE && model->level <= KVI_LEVEL_LAST) ||
	        model->level == KVI_LEVEL_BASIS) &&
	       model->layer <= UINT16_MAX && model->heads >= 1 && model->heads <= UINT16_MAX &&
	       model->head_channels >= 1 && model->head_channels <= UINT16_MAX &&
	       (uint64_t)model->heads * model->head_channels <= KVI_MAX_WIDTH &&
	       model->rope <= profile->n_ropes &&
	       (!model->rope || profile->ropes[model->rope - 1].rotary <= model->head_channels);
}

static bool numbers_good(const struct kvi_model *model)
{
	if (model->flags & ~FLAGS_KNOWN)
		return false;
	if (model->level == KVI_LEVEL_BASIS || model->flags & KVI_MODEL_BASIS)
		return model->level == KVI_LEVEL_BASIS && model->flags == KVI_MODEL_BASIS &&
		       model->n_lower <= KVI_LOWER_MAX && !model->n_same;
	if ((model->flags & KVI_MODEL_SELF_HEAD) && !(model->flags & KVI_MODEL_SELF))
		return false;
	if (model->n_lower > (model->level == KVI_LEVEL_LOWER ? KVI_LOWER_MAX : 0) ||
	    model->n_same > KVI_SAME_MAX)
		return false;
	if (model->flags & (model->level < KVI_LEVEL_MODEL ? KVI_MODEL_CORRECTS : KVI_MODEL_TABLE))
		return false;
	if ((model->flags & KVI_MODEL_SCALE) && (model->n0 == 0 || model->beta > KVI_BETA_MAX))
		return false;
	return !(model->flags & KVI_MODEL_TABLE) ||
	       (model->tshift <= KVI_TABLE_SHIFT_MAX && model->unknown <= KVI_UNKNOWN_MAX &&
	        model->n_ids <= KVI_TABLE_ROWS_MAX);
}

static bool resolve(const struct kvi_profile *profile, const struct kvi_model *model,
                    struct kvi_source *source)
{
	if (source->scope > 1 || source->delta > model->layer)
		return false;
	source->model = kvi_profile_model(profile, model->level, model->layer - source->delta,
	                                  source->kind);
	return source->model && (source->scope == 0 || model->heads % source->model->heads == 0);
}

/* Whether a source may be among the lower ones: at level 9 tensors of the same layer may, too. */
static bool comes_before(const struct kvi_model *model, const struct kvi_source *source)
{
	return source->delta || (model->level == KVI_LEVEL_BASIS && source->kind < model->kind);
}

static bool resolve_all(const struct kvi_profile *profile, struct kvi_model *model)
{
	for (unsigned i = 0; i < model->n_lower; i++)
		if (!comes_before(model, &model->lower[i]) ||
		    !resolve(profile, model, &model->lower[i]))
			return false;
	for (unsigned i = 0; i < model->n_same; i++)
		if (model->same[i].delta != 0 || model->same[i].kind >= model->kind ||
		    !resolve(profile, model, &model->same[i]))
			return false;
	model->scale_source = NULL;
	if (!(model->flags & KVI_MODEL_SCALE) || model->beta == 0)
		return true;
	if (model->scale_kind >= model->kind)
		return false;
	model->scale_source = kvi_profile_model(profile, model->level, model->layer,
	                                        model->scale_kind);
	return model->scale_source;
}

/* Whether a model before it corrects the same layer. */
static bool corrected(const struct kvi_profile *profile, const struct kvi_model *model)
{
	for (unsigned kind = 0; kind < model->kind; kind++) {
		const struct kvi_model *x = kvi_profile_model(profile, model->level, model->layer,
		                                              kind);
		if (x && x->flags & KVI_MODEL_CORRECTS)
			return true;
	}
	return false;
}

/* Shape, flags and numbers of one model, before its arrays. Sets C, rotary and the models of
 * its sources, which are in profile already. Returns OK, DATA, OPTIONS. */
static kvarc_ret model_resolve(const struct kvi_profile *profile, struct kvi_model *model)
{
	if (model->kind != KVARC_KEY && model->kind != KVARC_VALUE &&
	    model->kind != KVARC_MLA_LATENT)
		return KVARC_OPTIONS;
	if (!shape_good(profile, model) || !numbers_good(model) || !resolve_all(profile, model) ||
	    (model->flags & KVI_MODEL_CORRECTS && corrected(profile, model)))
		return KVARC_DATA;
	model->C = (size_t)model->heads * model->head_channels;
	model->rotary = model->rope ? profile->ropes[model->rope - 1].rotary : 0;
	return KVARC_OK;
}

/* Adds absolute values in blocks of a constant size, which compilers vectorise; a block's sum is at
 * most 2^15 * 64. */
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
static bool rows_good(const struct kvi_model *model, size_t n, row_walk *walk, int16_t *rows,
                      size_t stride, const uint8_t *q, int most)
{
	for (size_t c = 0; c < n; c++) {
		uint64_t stored = 0, all = 0;
		walk(model, c, add_absolute, &stored);
		add_absolute(&all, rows + c * stride, stride);
		if (q[c] > most || all > KVI_COEF_SUM_MAX || all != stored)
			return false;
	}
	return true;
}

static bool slot_good(const struct kvi_model *model, size_t c)
{
	size_t s = c % model->head_channels;
	if (s < model->rotary && s % 2 && model->step[c] != model->step[c - 1])
		return false;
	return model->step[c] >= KVI_STEP_MIN && model->step[c] <= KVI_STEP_MAX &&
	       model->k[c] >= -KVI_CLASS_MAX && model->k[c] <= KVI_CLASS_MAX &&
	       model->mean[c] >= -KVI_UNIT_MAX && model->mean[c] <= KVI_UNIT_MAX;
}

static bool width_good(const struct kvi_model *model)
{
	return model->width >= 1 && model->width <= KVI_CORRECTS_WIDTH_MAX;
}

/* Whether the arrays of a resolved model obey spec profile 3. */
static bool model_values_good(const struct kvi_model *model)
{
	for (size_t c = 0; c < model->C; c++)
		if (!slot_good(model, c))
			return false;
	if (model->flags & KVI_MODEL_TABLE)
		for (size_t i = 1; i < model->n_ids; i++)
			if (model->ids[i - 1] >= model->ids[i])
				return false;
	return (!model->a_stride || rows_good(model, model->C, kvi_model_row_a, model->a,
	                                      model->a_stride, model->qa, KVI_SHIFT_MAX)) &&
	       (!model->b_stride || rows_good(model, model->C, kvi_model_row_b, model->b,
	                                      model->b_stride, model->qb, KVI_SHIFT_MAX)) &&
	       (!model->m_stride || rows_good(model, model->C, model_row_m, model->m,
	                                      model->m_stride, model->qm, UINT8_MAX)) &&
	       (!model->d_stride || (width_good(model) &&
	                             rows_good(model, model->width, kvi_model_row_d, model->d,
	                                       model->d_stride, model->e, KVI_CORRECTS_SHIFT_MAX)));
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

void kvi_profile_free(struct kvi_profile *profile)
{
	if (!profile)
		return;
	for (size_t i = 0; profile->models && i < profile->n_models; i++)
		kvi_model_free(profile, &profile->models[i]);
	kvi_free(profile->alloc, profile->models);
	for (size_t i = 0; profile->ropes && i < profile->n_ropes; i++)
		kvi_free(profile->alloc, profile->ropes[i].freq);
	kvi_free(profile->alloc, profile->ropes);
	kvi_identity_free(&profile->identity, profile->alloc);
	kvi_free(profile->alloc, profile);
}

void kvi_model_expect_nothing(struct kvi_model *model)
{
	enum {
		NARROW = -2, /* class of a residual of less than a step */
		FOLLOWS = 8  /* n0: how fast the scale does */
	};
	model->flags |= KVI_MODEL_SCALE;
	model->n0 = FOLLOWS;
	for (size_t c = 0; c < model->C; c++) {
		int k = 4 * model->step[c] + NARROW;
		model->k[c] = (int16_t)(k < -400 ? -400 : k > 400 ? 400 : k);
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

const struct kvi_model *kvi_profile_model(const struct kvi_profile *profile, unsigned level,
                                          uint32_t layer, unsigned kind)
{
	if (level > UINT8_MAX || kind > UINT8_MAX || profile->n_models == 0)
		return NULL;
	const struct kvi_model key = { .level = (uint8_t)kvi_models_level(level),
		                       .layer = layer,
		                       .kind = (uint8_t)kind };
	return bsearch(&key, profile->models, profile->n_models, sizeof key, kvi_model_compare);
}

bool kvi_model_fits(const struct kvi_model *model, const kvarc_tensor *tensor,
                    const kvarc_rope *rope)
{
	return model->heads == tensor->heads && model->head_channels == tensor->channels &&
	       tensor->first_head == 0 &&
	       (tensor->total_heads == 0 || tensor->total_heads == tensor->heads) &&
	       tensor->role == KVARC_WHOLE && kvi_float_format(tensor->dtype) &&
	       model->rotary == (rope ? rope->rotary : 0);
}

uint64_t kvi_model_coefficients(const struct kvi_model *model)
{
	return model_entries_a(model) + model_entries_b(model) + model_entries_d(model) +
	       model_entries_m(model);
}

/* Checks what the parser has checked already: counts, order of keys, ropes. For profiles of
 * trainers. */
static bool head_good(const struct kvi_profile *profile)
{
	if (profile->identity.n > KVI_PROFILE_PAIRS || profile->n_ropes > KVI_MAX_ROPES ||
	    profile->n_models < 1 || profile->n_models > KVI_MODELS_MAX)
		return false;
	for (size_t i = 1; i < profile->identity.n; i++)
		if (strcmp(profile->identity.pairs[i - 1].key, profile->identity.pairs[i].key) >= 0)
			return false;
	for (size_t i = 0; i < profile->n_ropes; i++) {
		uint32_t rotary = profile->ropes[i].rotary;
		if (rotary < 2 || rotary > KVI_MAX_ROTARY || rotary % 2)
			return false;
	}
	return true;
}

kvarc_ret kvi_profile_finish(struct kvi_profile *profile)
{
	if (!head_good(profile))
		return KVARC_DATA;
	qsort(profile->models, profile->n_models, sizeof *profile->models, kvi_model_compare);
	for (size_t i = 0; i < profile->n_models; i++) {
		struct kvi_model *m = &profile->models[i];
		if (i && kvi_model_compare(m - 1, m) >= 0)
			return KVARC_DATA;
		kvarc_ret ret = model_resolve(profile, m);
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

static void put_model_head(struct kvi_out *out, const struct kvi_model *model)
{
	kvi_put8(out, model->level);
	kvi_put_varint(out, model->layer);
	kvi_put8(out, model->kind);
	kvi_put_varint(out, model->heads);
	kvi_put_varint(out, model->head_channels);
	kvi_put_varint(out, model->rope);
	kvi_put8(out, model->flags);
	kvi_put_varint(out, model->n_lower);
	for (unsigned i = 0; i < model->n_lower; i++) {
		kvi_put8(out, model->lower[i].delta);
		kvi_put8(out, model->lower[i].kind);
		kvi_put8(out, model->lower[i].scope);
	}
	kvi_put_varint(out, model->n_same);
	for (unsigned i = 0; i < model->n_same; i++) {
		kvi_put8(out, model->same[i].kind);
		kvi_put8(out, model->same[i].scope);
	}
	if (!(model->flags & KVI_MODEL_SCALE))
		return;
	kvi_put8(out, model->n0);
	kvi_put8(out, model->beta);
	if (model->beta)
		kvi_put8(out, model->scale_kind);
}

static void put_matrix(struct kvi_out *out, const struct kvi_model *model, const uint8_t *q,
                       size_t rows, uint64_t entries, row_walk *walk)
{
	struct planes to = { NULL, (size_t)entries };
	kvi_put_bytes(out, q, rows);
	to.at = kvi_out_reserve(out, 2 * to.n);
	if (!to.at)
		return;
	for (size_t c = 0; c < rows; c++)
		walk(model, c, put_run, &to);
	out->n += 2 * to.n;
}

static void put_model(struct kvi_out *out, const struct kvi_model *model)
{
	put_model_head(out, model);
	put_planes16(out, model->step, model->C);
	put_planes16(out, model->k, model->C);
	put_planes32(out, model->mean, model->C);
	if (model->a_stride)
		put_matrix(out, model, model->qa, model->C, model_entries_a(model),
		           kvi_model_row_a);
	if (model->b_stride)
		put_matrix(out, model, model->qb, model->C, model_entries_b(model),
		           kvi_model_row_b);
	if (model->m_stride)
		put_matrix(out, model, model->qm, model->C, model_entries_m(model), model_row_m);
	if (model->d_stride) {
		kvi_put_varint(out, model->width);
		put_matrix(out, model, model->e, model->width, model_entries_d(model),
		           kvi_model_row_d);
	}
	if (!(model->flags & KVI_MODEL_TABLE))
		return;
	kvi_put8(out, model->tshift);
	kvi_put8(out, model->unknown);
	kvi_put_varint(out, model->n_ids);
	put_planes32(out, model->ids, model->n_ids);
	kvi_put_bytes(out, model->table, model->n_ids * model->C);
}

void kvi_profile_put(const struct kvi_profile *profile, struct kvi_out *out)
{
	kvi_identity_put(out, &profile->identity);
	kvi_put_varint(out, profile->n_ropes);
	for (size_t i = 0; i < profile->n_ropes; i++) {
		kvi_put_varint(out, profile->ropes[i].rotary);
		for (size_t k = 0; k < profile->ropes[i].rotary / 2; k++)
			kvi_put64(out, profile->ropes[i].freq[k]);
	}
	kvi_put_varint(out, profile->n_models);
	for (size_t i = 0; i < profile->n_models; i++)
		put_model(out, &profile->models[i]);
}

kvarc_ret kvi_profile_serialise(struct kvi_profile *profile, struct kvi_out *out)
{
	size_t start = out->n;
	kvi_profile_put(profile, out);
	if (out->failed)
		return kvi_alloc_error(out->alloc);
	profile->digest = kvi_h128(out->p + start, out->n - start);
	return KVARC_OK;
}

/* ---------------------------------------------------------------- reading */

static kvarc_ret parse_ropes(struct kvi_profile *profile, struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MAX_ROPES);
	if (in->bad || n > kvi_in_remaining(in) / ROPE_BYTES_MIN)
		return KVARC_DATA;
	if (n == 0)
		return KVARC_OK;
	profile->ropes = kvi_calloc(profile->alloc, n, sizeof *profile->ropes);
	if (!profile->ropes)
		return kvi_alloc_error(profile->alloc);
	profile->n_ropes = n;
	for (size_t i = 0; i < n; i++) {
		struct kvi_profile_rope *r = &profile->ropes[i];
		r->rotary = (uint32_t)kvi_get_varint(in, KVI_MAX_ROTARY);
		size_t pairs = r->rotary / 2;
		if (in->bad || pairs == 0 || r->rotary % 2 ||
		    pairs > kvi_in_remaining(in) / sizeof *r->freq)
			return KVARC_DATA;
		r->freq = kvi_array(profile->alloc, pairs, sizeof *r->freq);
		if (!r->freq)
			return kvi_alloc_error(profile->alloc);
		for (size_t k = 0; k < pairs; k++)
			r->freq[k] = kvi_get64(in);
	}
	return KVARC_OK;
}

static void parse_sources(struct kvi_model *model, struct kvi_in *in)
{
	model->n_lower = (unsigned)kvi_get_varint(in, KVI_LOWER_MAX);
	for (unsigned i = 0; i < model->n_lower; i++) {
		model->lower[i].delta = kvi_get8(in);
		model->lower[i].kind = kvi_get8(in);
		model->lower[i].scope = kvi_get8(in);
	}
	model->n_same = (unsigned)kvi_get_varint(in, KVI_SAME_MAX);
	for (unsigned i = 0; i < model->n_same; i++) {
		model->same[i].kind = kvi_get8(in);
		model->same[i].scope = kvi_get8(in);
	}
}

static kvarc_ret parse_model_head(const struct kvi_profile *profile, struct kvi_model *model,
                                  struct kvi_in *in)
{
	model->level = kvi_get8(in);
	model->layer = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	model->kind = kvi_get8(in);
	model->heads = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	model->head_channels = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	model->rope = (uint32_t)kvi_get_varint(in, KVI_MAX_ROPES);
	model->flags = kvi_get8(in);
	parse_sources(model, in);
	if (model->flags & KVI_MODEL_SCALE) {
		model->n0 = kvi_get8(in);
		model->beta = kvi_get8(in);
		if (model->beta)
			model->scale_kind = kvi_get8(in);
	}
	return in->bad ? KVARC_DATA : model_resolve(profile, model);
}

/* Bytes of the arrays before the table; the model is resolved. */
static uint64_t array_bytes(const struct kvi_model *model)
{
	uint64_t bytes = model->C * (uint64_t)SLOT_BYTES;
	if (model->n_lower)
		bytes += model->C + 2 * model_entries_a(model);
	if (model->n_same || model->flags & KVI_MODEL_SELF)
		bytes += model->C + 2 * model_entries_b(model);
	if (model->flags & KVI_MODEL_BASIS)
		bytes += model->C + 2 * model_entries_m(model);
	return bytes;
}

/* A row of D and its shift are a byte and entries, as many in each row. */
static bool look_at_width(struct kvi_model *model, struct kvi_in *in)
{
	model->width = (uint32_t)kvi_get_varint(in, KVI_CORRECTS_WIDTH_MAX);
	return !in->bad && model->width >= 1 &&
	       model->width + 2 * model_entries_d(model) <= kvi_in_remaining(in);
}

/* The head of a table or of a correction, behind the arrays (no model has both);
 * proves that all arrays are there. */
static bool look_ahead(struct kvi_model *model, struct kvi_in in)
{
	uint64_t bytes = array_bytes(model);
	if (bytes > kvi_in_remaining(&in))
		return false;
	kvi_get_bytes(&in, (size_t)bytes);
	if (model->flags & KVI_MODEL_CORRECTS)
		return look_at_width(model, &in);
	if (!(model->flags & KVI_MODEL_TABLE))
		return true;
	model->tshift = kvi_get8(&in);
	model->unknown = kvi_get8(&in);
	model->n_ids = (uint32_t)kvi_get_varint(&in, KVI_TABLE_ROWS_MAX);
	return !in.bad && model->tshift <= KVI_TABLE_SHIFT_MAX &&
	       model->unknown <= KVI_UNKNOWN_MAX &&
	       model->n_ids <= kvi_in_remaining(&in) / (4 + model->C);
}

static void get_matrix(struct kvi_in *in, const struct kvi_model *model, uint8_t *q, size_t rows,
                       uint64_t entries, row_walk *walk)
{
	struct const_planes from = { NULL, (size_t)entries };
	const uint8_t *shifts = kvi_get_bytes(in, rows);
	from.at = kvi_get_bytes(in, 2 * from.n);
	if (!shifts || !from.at)
		return;
	memcpy(q, shifts, rows);
	for (size_t c = 0; c < rows; c++)
		walk(model, c, get_run, &from);
}

static void parse_arrays(struct kvi_model *model, struct kvi_in *in)
{
	get_planes16(in, model->step, model->C);
	get_planes16(in, model->k, model->C);
	get_planes32(in, model->mean, model->C);
	if (model->a_stride)
		get_matrix(in, model, model->qa, model->C, model_entries_a(model), kvi_model_row_a);
	if (model->b_stride)
		get_matrix(in, model, model->qb, model->C, model_entries_b(model), kvi_model_row_b);
	if (model->m_stride)
		get_matrix(in, model, model->qm, model->C, model_entries_m(model), model_row_m);
	/* look_ahead has read what stands in front of the next arrays. */
	if (model->d_stride) {
		kvi_get_varint(in, KVI_CORRECTS_WIDTH_MAX);
		get_matrix(in, model, model->e, model->width, model_entries_d(model),
		           kvi_model_row_d);
	}
	if (!(model->flags & KVI_MODEL_TABLE))
		return;
	kvi_get_bytes(in, 2);
	kvi_get_varint(in, KVI_TABLE_ROWS_MAX);
	get_planes32(in, model->ids, model->n_ids);
	const uint8_t *rows = kvi_get_bytes(in, model->n_ids * model->C);
	if (rows && model->n_ids)
		memcpy(model->table, rows, model->n_ids * model->C);
}

/* Sources come before the models that use them: they are in profile already. */
static kvarc_ret parse_models(struct kvi_profile *profile, struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MODELS_MAX);
	if (in->bad || n == 0 || n > kvi_in_remaining(in) / MODEL_BYTES_MIN)
		return KVARC_DATA;
	profile->models = kvi_calloc(profile->alloc, n, sizeof *profile->models);
	if (!profile->models)
		return kvi_alloc_error(profile->alloc);
	for (size_t i = 0; i < n; i++) {
		struct kvi_model *m = &profile->models[i];
		kvarc_ret ret = parse_model_head(profile, m, in);
		if (ret)
			return ret;
		if ((i && kvi_model_compare(m - 1, m) >= 0) || !look_ahead(m, *in))
			return KVARC_DATA;
		profile->n_models = i + 1;
		ret = model_make_arrays(profile, m);
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

kvarc_ret kvi_profile_header_parse(struct kvi_profile_header *header, const uint8_t *file,
                                   size_t bytes)
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
	header->content_bytes = kvi_load64(file + 16);
	header->packed_bytes = kvi_load64(file + 24);
	header->digest = kvi_load_h128(file + 32);
	if (header->content_bytes > CONTENT_MAX || header->packed_bytes == 0 ||
	    header->packed_bytes > header->content_bytes + 1 || kvi_load64(file + 48))
		return KVARC_DATA;
	/* A content that no memory of this machine can hold. */
	return header->content_bytes > SIZE_MAX / 2 ? KVARC_MEMLIMIT : KVARC_OK;
}

kvarc_ret kvi_profile_unpack(struct kvi_profile **out, const struct kvi_alloc *alloc,
                             const struct kvi_profile_header *header, const uint8_t *packed)
{
	struct kvi_packer packer;
	const uint8_t *content;
	uint8_t *owned;
	*out = NULL;
	kvi_packer_init(&packer, alloc);
	kvarc_ret ret = kvi_unpack(&packer, packed, (size_t)header->packed_bytes,
	                           (size_t)header->content_bytes, &content, &owned);
	kvi_packer_free(&packer);
	if (ret)
		return ret;
	if (kvi_h128_equal(kvi_h128(content, (size_t)header->content_bytes), header->digest))
		ret = kvi_profile_parse(out, alloc, content, (size_t)header->content_bytes);
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

static void put_header(uint8_t *to, const struct kvi_profile_header *header)
{
	memset(to, 0, KVI_PROFILE_HEADER_BYTES);
	memcpy(to, magic, sizeof magic);
	kvi_store16(to + 8, VERSION_MAJOR);
	kvi_store16(to + 10, VERSION_MINOR);
	kvi_store64(to + 16, header->content_bytes);
	kvi_store64(to + 24, header->packed_bytes);
	kvi_store_h128(to + 32, header->digest);
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
	kvarc_ret ret = kvi_pack(&packer, out, content->p, content->n, 1);
	kvi_packer_free(&packer);
	if (ret || out->failed)
		return ret ? ret : kvi_alloc_error(out->alloc);
	h.packed_bytes = out->n - start - sizeof blank;
	h.digest = kvi_h128(content->p, content->n);
	put_header(out->p + start, &h);
	return KVARC_OK;
}

kvarc_ret kvi_profile_write_file(const struct kvi_profile *profile, struct kvi_out *out)
{
	struct kvi_out content;
	kvi_out_init(&content, out->alloc);
	kvi_profile_put(profile, &content);
	kvarc_ret ret = content.failed ? kvi_alloc_error(out->alloc) : write_content(out, &content);
	kvi_out_free(&content);
	return ret;
}
