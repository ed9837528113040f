/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_sizes.c - a profile of nothing but the sizes of channels, for predictors that need no
 * correction */
#include "format/geometry_check.h"
#include "numeric/formats.h"
#include "linear_model.h"
#include "util/arguments.h"
#include "util/error.h"
#include "profile_handle.h"
#include "util/view.h"

enum {
	ROWS = 64,         /* of a sample, at a time */
	BELOW_LARGEST = 14 /* binades from the largest number to a step; X has 15 bits */
};

struct sizing {
	struct kvi_profile *p;
	const kvarc_geometry *g;
	unsigned level;
	uint64_t n;
	const kvarc_view *views;
};

static bool wanted(const struct sizing *s, const kvarc_tensor *t)
{
	if ((t->kind != KVARC_KEY && t->kind != KVARC_VALUE) || t->role != KVARC_WHOLE ||
	    t->dtype < KVARC_F32 || t->dtype > KVARC_E5M2)
		return false;
	for (size_t i = 0; i < s->p->n_models; i++)
		if (s->p->models[i].layer == t->layer && s->p->models[i].kind == t->kind)
			return false;
	return true;
}

/* 1 + its number in the profile; 0: no memory. */
static uint32_t rope_number(struct kvi_profile *p, const kvarc_rope *rope)
{
	size_t bytes = rope->rotary / 2 * sizeof *rope->freq;
	for (uint32_t i = 0; i < p->n_ropes; i++)
		if (p->ropes[i].rotary == rope->rotary &&
		    !memcmp(p->ropes[i].freq, rope->freq, bytes))
			return i + 1;
	struct kvi_profile_rope *x = &p->ropes[p->n_ropes];
	x->rotary = rope->rotary;
	x->freq = kvi_malloc(p->alloc, bytes);
	if (!x->freq)
		return 0;
	memcpy(x->freq, rope->freq, bytes);
	return (uint32_t)++p->n_ropes;
}

/* The smallest e with amax < 2^e. */
static int binade(float amax)
{
	uint32_t bits;
	memcpy(&bits, &amax, sizeof bits);
	int e = (int)(bits >> 23) - 126;
	return e < -80 ? -80 : e > 100 ? 100 : e;
}

/* amax of each channel of a tensor's sample. */
static kvarc_ret measure(const struct sizing *s, size_t tensor, float *amax)
{
	const kvarc_tensor *t = &s->g->tensors[tensor];
	uint32_t C = t->heads * t->channels;
	uint32_t elem = (uint32_t)kvarc_dtype_bytes(t->dtype);
	uint8_t *raw = kvi_array(s->p->alloc, C, ROWS * elem);
	float *x = kvi_array(s->p->alloc, C, ROWS * sizeof *x);
	for (uint64_t row = 0; raw && x && row < s->n; row += ROWS) {
		uint64_t left = s->n - row;
		const struct kvi_view_block b = {
			.row = row, .n = left < ROWS ? (uint32_t)left : ROWS, .nc = C, .elem = elem
		};
		kvi_view_gather(&s->views[tensor], &b, raw);
		kvi_floats_exact(t->dtype, raw, (size_t)b.n * C, x);
		for (size_t i = 0; i < (size_t)b.n * C; i++) {
			float v = x[i] < 0 ? -x[i] : x[i];
			amax[i % C] = v > amax[i % C] ? v : amax[i % C];
		}
	}
	kvarc_ret ret = raw && x ? KVARC_OK : kvi_alloc_error(s->p->alloc);
	kvi_free(s->p->alloc, raw);
	kvi_free(s->p->alloc, x);
	return ret;
}

/* Both slots of a pair have the step of the larger one. */
static void fill(struct kvi_model *m, const kvarc_rope *rope, const float *amax)
{
	for (size_t c = 0; c < m->C; c++) {
		size_t slot = c % m->head_channels, head = c - slot;
		size_t other = slot < m->rotary ? slot ^ 1 : slot;
		int a = binade(amax[head + kvi_slot_channel(m, rope, slot)]);
		int b = binade(amax[head + kvi_slot_channel(m, rope, other)]);
		m->step[c] = (int16_t)((a > b ? a : b) - BELOW_LARGEST);
	}
	kvi_model_expect_nothing(m);
}

static kvarc_ret add(struct sizing *s, size_t tensor)
{
	const kvarc_tensor *t = &s->g->tensors[tensor];
	const kvarc_rope *rope = kvi_tensor_rope(s->g, t);
	struct kvi_model *m = &s->p->models[s->p->n_models];
	*m = (struct kvi_model){ .level = (uint8_t)s->level,
		                 .layer = t->layer,
		                 .kind = t->kind,
		                 .heads = t->heads,
		                 .head_channels = t->channels };
	if (rope && !(m->rope = rope_number(s->p, rope)))
		return kvi_alloc_error(s->p->alloc);
	s->p->n_models++;
	float *amax = kvi_calloc(s->p->alloc, (size_t)t->heads * t->channels, sizeof *amax);
	kvarc_ret ret = !amax ? kvi_alloc_error(s->p->alloc) : kvi_model_reserve(s->p, m);
	if (ret == KVARC_OK)
		ret = measure(s, tensor, amax);
	if (ret == KVARC_OK)
		fill(m, rope, amax);
	kvi_free(s->p->alloc, amax);
	return ret;
}

static kvarc_ret make(kvarc_profile *h, struct sizing *s)
{
	kvarc_ret ret = kvi_profile_new(&h->profile, &h->alloc);
	if (ret)
		return ret;
	struct kvi_profile *p = s->p = h->profile;
	p->ropes = kvi_calloc(p->alloc, s->g->n_tensors, sizeof *p->ropes);
	p->models = kvi_calloc(p->alloc, s->g->n_tensors, sizeof *p->models);
	if (!p->ropes || !p->models)
		return kvi_alloc_error(p->alloc);
	for (size_t i = 0; i < s->g->n_tensors && !ret; i++)
		if (s->views[i].data && wanted(s, &s->g->tensors[i]))
			ret = add(s, i);
	if (!ret && p->n_models == 0)
		return KVARC_GEOMETRY;
	if (!ret)
		ret = kvi_profile_finish(p);
	return ret ? ret : kvi_profile_handle_finish(h);
}

kvarc_ret kvarc_profile_of_sizes(kvarc_profile **out, unsigned level, const kvarc_geometry *g,
                                 uint64_t n, const kvarc_view *views, const kvarc_common *common)
{
	static const kvarc_common defaults = KVARC_COMMON_INIT;
	const kvarc_common *c = common ? common : &defaults;
	struct sizing s = { .g = g, .level = kvi_models_level(level), .n = n, .views = views };
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!g || !views || level < KVI_LEVEL_MODEL || level > KVI_LEVEL_PREDICTED)
		return kvi_fail(c->error, KVARC_PROG, "sizes are for levels 4 to 8");
	const char *call = "kvarc_profile_of_sizes";
	kvarc_ret ret = kvi_check_geometry(g, call, c->error);
	for (size_t i = 0; !ret && i < g->n_tensors; i++)
		if (views[i].data)
			ret = kvi_check_view(c->error, call, &views[i], i, &g->tensors[i], n);
	if (!ret)
		ret = kvi_profile_handle_new(out, c);
	if (ret)
		return ret;
	ret = make(*out, &s);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(c->error, &(*out)->alloc);
	else if (ret)
		kvi_fail(c->error, ret, "no key or value tensor of the sample can be predicted");
	if (ret)
		kvarc_profile_close(out);
	return ret;
}
