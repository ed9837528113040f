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
	ROWS = 64,         /* rows of a sample that are read at once */
	BELOW_LARGEST = 14 /* binades from the largest number to a step; X has 15 bits */
};

struct sizing {
	struct kvi_profile *p;
	const kvarc_geometry *g;
	unsigned level;
	uint64_t n;
	const kvarc_view *views;
};

static bool wanted(const struct sizing *sizing, const kvarc_tensor *tensor)
{
	if ((tensor->kind != KVARC_KEY && tensor->kind != KVARC_VALUE) ||
	    tensor->role != KVARC_WHOLE || tensor->dtype < KVARC_F32 || tensor->dtype > KVARC_E5M2)
		return false;
	for (size_t i = 0; i < sizing->p->n_models; i++)
		if (sizing->p->models[i].layer == tensor->layer &&
		    sizing->p->models[i].kind == tensor->kind)
			return false;
	return true;
}

/* 1 + the index of a RoPE in the profile, added if need be; 0: no memory. */
static uint32_t rope_number(struct kvi_profile *profile, const kvarc_rope *rope)
{
	size_t bytes = rope->rotary / 2 * sizeof *rope->freq;
	for (uint32_t i = 0; i < profile->n_ropes; i++)
		if (profile->ropes[i].rotary == rope->rotary &&
		    !memcmp(profile->ropes[i].freq, rope->freq, bytes))
			return i + 1;
	struct kvi_profile_rope *x = &profile->ropes[profile->n_ropes];
	x->rotary = rope->rotary;
	x->freq = kvi_malloc(profile->alloc, bytes);
	if (!x->freq)
		return 0;
	memcpy(x->freq, rope->freq, bytes);
	return (uint32_t)++profile->n_ropes;
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
static kvarc_ret measure(const struct sizing *sizing, size_t tensor, float *amax)
{
	const kvarc_tensor *t = &sizing->g->tensors[tensor];
	uint32_t C = t->heads * t->channels;
	uint32_t elem = (uint32_t)kvarc_dtype_bytes(t->dtype);
	uint8_t *raw = kvi_array(sizing->p->alloc, C, ROWS * elem);
	float *x = kvi_array(sizing->p->alloc, C, ROWS * sizeof *x);
	for (uint64_t row = 0; raw && x && row < sizing->n; row += ROWS) {
		uint64_t left = sizing->n - row;
		const struct kvi_view_block b = {
			.row = row, .n = left < ROWS ? (uint32_t)left : ROWS, .nc = C, .elem = elem
		};
		kvi_view_gather(&sizing->views[tensor], &b, raw);
		kvi_floats_exact(t->dtype, raw, (size_t)b.n * C, x);
		for (size_t i = 0; i < (size_t)b.n * C; i++) {
			float v = x[i] < 0 ? -x[i] : x[i];
			amax[i % C] = v > amax[i % C] ? v : amax[i % C];
		}
	}
	kvarc_ret ret = raw && x ? KVARC_OK : kvi_alloc_error(sizing->p->alloc);
	kvi_free(sizing->p->alloc, raw);
	kvi_free(sizing->p->alloc, x);
	return ret;
}

/* Sets the steps from the sizes of channels: both slots of a pair have the step of the larger
 * one. */
static void fill(struct kvi_model *model, const kvarc_rope *rope, const float *amax)
{
	for (size_t c = 0; c < model->C; c++) {
		size_t slot = c % model->head_channels, head = c - slot;
		size_t other = slot < model->rotary ? slot ^ 1 : slot;
		int a = binade(amax[head + kvi_slot_channel(model, rope, slot)]);
		int b = binade(amax[head + kvi_slot_channel(model, rope, other)]);
		model->step[c] = (int16_t)((a > b ? a : b) - BELOW_LARGEST);
	}
	kvi_model_expect_nothing(model);
}

static kvarc_ret add(struct sizing *sizing, size_t tensor)
{
	const kvarc_tensor *t = &sizing->g->tensors[tensor];
	const kvarc_rope *rope = kvi_tensor_rope(sizing->g, t);
	struct kvi_model *m = &sizing->p->models[sizing->p->n_models];
	*m = (struct kvi_model){ .level = (uint8_t)sizing->level,
		                 .layer = t->layer,
		                 .kind = t->kind,
		                 .heads = t->heads,
		                 .head_channels = t->channels };
	if (rope && !(m->rope = rope_number(sizing->p, rope)))
		return kvi_alloc_error(sizing->p->alloc);
	sizing->p->n_models++;
	float *amax = kvi_calloc(sizing->p->alloc, (size_t)t->heads * t->channels, sizeof *amax);
	kvarc_ret ret = !amax ? kvi_alloc_error(sizing->p->alloc) : kvi_model_reserve(sizing->p, m);
	if (ret == KVARC_OK)
		ret = measure(sizing, tensor, amax);
	if (ret == KVARC_OK)
		fill(m, rope, amax);
	kvi_free(sizing->p->alloc, amax);
	return ret;
}

static kvarc_ret make(kvarc_profile *profile, struct sizing *sizing)
{
	kvarc_ret ret = kvi_profile_new(&profile->profile, &profile->alloc);
	if (ret)
		return ret;
	struct kvi_profile *p = sizing->p = profile->profile;
	p->ropes = kvi_calloc(p->alloc, sizing->g->n_tensors, sizeof *p->ropes);
	p->models = kvi_calloc(p->alloc, sizing->g->n_tensors, sizeof *p->models);
	if (!p->ropes || !p->models)
		return kvi_alloc_error(p->alloc);
	for (size_t i = 0; i < sizing->g->n_tensors && !ret; i++)
		if (sizing->views[i].data && wanted(sizing, &sizing->g->tensors[i]))
			ret = add(sizing, i);
	if (!ret && p->n_models == 0)
		return KVARC_GEOMETRY;
	if (!ret)
		ret = kvi_profile_finish(p);
	return ret ? ret : kvi_profile_handle_finish(profile);
}

kvarc_ret kvarc_profile_of_sizes(kvarc_profile **out, unsigned level,
                                 const kvarc_geometry *geometry, uint64_t n,
                                 const kvarc_view *views, const kvarc_common *common)
{
	static const kvarc_common defaults = KVARC_COMMON_INIT;
	const kvarc_common *c = common ? common : &defaults;
	struct sizing s = {
		.g = geometry, .level = kvi_models_level(level), .n = n, .views = views
	};
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	if (!geometry || !views || level < KVI_LEVEL_MODEL || level > KVI_LEVEL_PREDICTED)
		return kvi_fail(c->error, KVARC_PROG, "sizes are for levels 4 to 8");
	const char *call = "kvarc_profile_of_sizes";
	kvarc_ret ret = kvi_check_geometry(geometry, call, c->error);
	for (size_t i = 0; !ret && i < geometry->n_tensors; i++)
		if (views[i].data)
			ret = kvi_check_view(c->error, call, &views[i], i, &geometry->tensors[i],
			                     n);
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
