/* SPDX-License-Identifier: BSD-3-Clause */
/* token_coder.c - token ids by what a model says of each next one (spec tokens) */
#include "token_coder.h"

#include <string.h>

#include "kernels/range_coder.h"
#include "util/fpmode.h"
#include "exact/head.h"
#include "util/error.h"
#include "util/list.h"

_Static_assert((size_t)KVI_CODE_ID_BYTES == (size_t)KVI_RANGE_SYMBOL_BYTES &&
                       (size_t)KVI_CODE_END_BYTES == (size_t)KVI_RANGE_END_BYTES,
               "the buffer of a segment holds the code of its ids");

struct kvi_token_coder {
	struct kvi_prediction_options o;
	const struct kvi_alloc *alloc;
	const struct kvi_model_file *file;
	struct kvi_run_options run_options;
	struct kvi_run *run;
	struct kvi_head *head;
	float *last;       /* the hidden state of the token before the next one */
	uint32_t *weights; /* of the words, as the next token */
	uint64_t total;
	int32_t *ids, *positions; /* of all tokens so far */
	size_t n, cap_ids, cap_positions;
	kvi_token_stop stop;
	void *stop_opaque;
	bool fell_back;
};

static kvarc_ret open_run(struct kvi_token_coder *c)
{
	kvarc_ret ret = kvi_run_open(&c->run, &c->run_options);
	return ret ? ret : kvi_head_open(&c->head, &c->run_options);
}

static void close_run(struct kvi_token_coder *c)
{
	kvi_head_close(&c->head);
	kvi_run_close(&c->run);
}

static kvarc_ret fail(struct kvi_token_coder *c, kvarc_ret ret, kvarc_error *error)
{
	if (ret == KVARC_OK || ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_memory(error, ret, c->alloc);
	return kvi_fail(error, ret, "%s",
	                ret == KVARC_IO ? "stopped on request"
	                : ret == KVARC_PREDICTOR
	                        ? "token ids diverged: this machine's predictor is not exact, or "
	                          "that of the machine that wrote the archive was not"
	                        : "token ids: not a code, or a token or position that the model "
	                          "does not have");
}

static kvarc_ret open_all(struct kvi_token_coder *c, kvarc_error *error)
{
	const struct kvi_predictor *p = c->o.description;
	const struct kvi_arithmetic a = { p->wide_weights, p->wide_activations, p->fp8 };
	struct kvi_run_options *run = &c->run_options;
	*run = (struct kvi_run_options){ .alloc = c->alloc,
		                         .isa_mask = c->o.isa_mask,
		                         .whole = true,
		                         .kernels = kvi_predictor_kernels(c->o.predictor,
		                                                          c->o.isa_mask) };
	kvarc_ret ret = kvi_prediction_ropes(&c->o, run->freq, error);
	if (!ret)
		ret = kvi_predictor_head(c->o.predictor, &a, c->o.isa_mask, &run->engine, error);
	if (ret)
		return ret;
	c->last = kvi_array(c->alloc, c->file->width, sizeof *c->last);
	c->weights = kvi_array(c->alloc, c->file->vocabulary, sizeof *c->weights);
	ret = c->last && c->weights ? kvi_pool_open(&run->pool, c->alloc, c->o.threads)
	                            : kvi_alloc_error(c->alloc);
	return fail(c, ret ? ret : open_run(c), error);
}

kvarc_ret kvi_token_coder_open(struct kvi_token_coder **out, const struct kvi_prediction_options *o,
                               kvarc_error *error)
{
	const struct kvi_alloc *alloc = kvi_predictor_alloc(o->predictor);
	const struct kvi_model_file *file = kvi_predictor_file(o->predictor);
	*out = NULL;
	if (!file || file->vocabulary > KVI_HEAD_VOCAB_MAX)
		return kvi_fail(error, KVARC_OPTIONS,
		                "token ids cannot be coded by the predictor: %s",
		                file ? "its vocabulary has more than 2^20 entries"
		                     : "a predictor of an application has no vocabulary");
	struct kvi_token_coder *c = kvi_calloc(alloc, 1, sizeof *c);
	if (!c)
		return kvi_fail_alloc(error, alloc);
	c->o = *o;
	c->alloc = alloc;
	c->file = file;
	kvarc_ret ret = open_all(c, error);
	if (ret)
		kvi_token_coder_close(c);
	else
		*out = c;
	return ret;
}

void kvi_token_coder_close(struct kvi_token_coder *c)
{
	if (!c)
		return;
	close_run(c);
	kvi_pool_close(c->run_options.pool);
	kvi_free(c->alloc, c->last);
	kvi_free(c->alloc, c->weights);
	kvi_free(c->alloc, c->ids);
	kvi_free(c->alloc, c->positions);
	kvi_free(c->alloc, c);
}

void kvi_token_coder_stopped_by(struct kvi_token_coder *c, kvi_token_stop stop, void *opaque)
{
	c->stop = stop;
	c->stop_opaque = opaque;
}

uint64_t kvi_token_coder_next(const struct kvi_token_coder *c)
{
	return c->n;
}

bool kvi_token_coder_fell_back(const struct kvi_token_coder *c)
{
	return c->fell_back;
}

void kvi_token_coder_ids(const struct kvi_token_coder *c, uint64_t t0, size_t n, int32_t *ids)
{
	memcpy(ids, c->ids + t0, n * sizeof *ids);
}

/* Through all layers, in an open loop. Afterwards kvi_run_hidden is what the head looks at. */
static kvarc_ret go(struct kvi_token_coder *c, const int32_t *ids, const int32_t *positions,
                    size_t n)
{
	if (c->stop && c->stop(c->stop_opaque))
		return KVARC_IO;
	return kvi_run_through(c->run, ids, positions, n, NULL);
}

/* The hidden state of token i of those that were gone through last is that of the track's last
 * one. */
static void keep_last(struct kvi_token_coder *c, size_t i)
{
	struct kvi_hidden h = kvi_run_hidden(c->run);
	memcpy(c->last, h.h + i * h.width, c->file->width * sizeof *c->last);
}

/* The state of the last token is made again. */
kvarc_ret kvi_token_coder_rewind(struct kvi_token_coder *c, uint64_t t0, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	const size_t last = t0 ? (size_t)t0 - 1 : 0;
	if (t0 == c->n)
		return KVARC_OK;
	kvi_run_rewind(c->run, last);
	if (t0)
		ret = go(c, c->ids + last, c->positions + last, 1);
	if (!ret && t0)
		keep_last(c, 0);
	c->n = (size_t)t0;
	return fail(c, ret, error);
}

static void weigh(struct kvi_token_coder *c, const float *z)
{
	uint64_t mode = kvi_fp_exact();
	c->total = kvi_head_weigh(c->run_options.pool, z, c->file->vocabulary, c->weights);
	kvi_fp_restore(mode);
}

/* The first token of a segment. */
static void weigh_first(struct kvi_token_coder *c, uint64_t t0)
{
	if (t0) {
		weigh(c, kvi_head_logits(c->head, c->last, c->file->width, 1).z);
		return;
	}
	c->total = c->file->vocabulary;
	for (size_t i = 0; i < c->file->vocabulary; i++)
		c->weights[i] = 1;
}

static struct kvi_range_part part_of(const struct kvi_token_coder *c, int32_t id)
{
	struct kvi_range_part p = { 0, c->weights[id], c->total };
	for (int32_t i = 0; i < id; i++)
		p.below += c->weights[i];
	return p;
}

static bool knows(const struct kvi_token_coder *c, const struct kvi_segment *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->ids[i] < 0 || (uint32_t)s->ids[i] >= c->file->vocabulary)
			return false;
	return s->has_ids;
}

/* The tokens behind the first one, some of them at a time. */
static void encode_rest(struct kvi_token_coder *c, const struct kvi_segment *s,
                        struct kvi_range_encoder *e)
{
	struct kvi_hidden h = kvi_run_hidden(c->run);
	for (size_t t = 0; t + 1 < s->n; t += KVI_HEAD_TOKENS) {
		size_t n = s->n - 1 - t;
		n = n < KVI_HEAD_TOKENS ? n : KVI_HEAD_TOKENS;
		struct kvi_logits z = kvi_head_logits(c->head, h.h + t * h.width, h.width, n);
		for (size_t i = 0; i < n; i++) {
			weigh(c, z.z + i * z.stride);
			struct kvi_range_part p = part_of(c, s->ids[t + i + 1]);
			kvi_range_put(e, &p);
		}
	}
}

/* Appends a segment's ids and positions. */
static kvarc_ret remember(struct kvi_token_coder *c, const struct kvi_segment *s)
{
	const size_t want = c->n + s->n;
	if (!kvi_array_reserve(c->alloc, &c->ids, &c->cap_ids, c->n, want, sizeof *c->ids) ||
	    !kvi_array_reserve(c->alloc, &c->positions, &c->cap_positions, c->n, want,
	                       sizeof *c->positions))
		return kvi_alloc_error(c->alloc);
	memcpy(c->ids + c->n, s->ids, s->n * sizeof *c->ids);
	memcpy(c->positions + c->n, s->positions, s->n * sizeof *c->positions);
	c->n += s->n;
	return KVARC_OK;
}

kvarc_ret kvi_token_coder_pass(struct kvi_token_coder *c, struct kvi_segment *s, bool encode,
                               kvarc_error *error)
{
	struct kvi_range_encoder e;
	if (!knows(c, s))
		return fail(c, KVARC_DATA, error);
	if (encode) {
		weigh_first(c, s->t0);
		struct kvi_range_part p = part_of(c, s->ids[0]);
		kvi_range_begin(&e, s->code);
		kvi_range_put(&e, &p);
	}
	kvarc_ret ret = go(c, s->ids, s->positions, s->n);
	if (!ret && encode) {
		encode_rest(c, s, &e);
		s->code_bytes = (uint32_t)kvi_range_end(&e);
		s->check = kvi_segment_ids_check(s);
		s->coded = true;
	}
	if (!ret) {
		keep_last(c, s->n - 1);
		ret = remember(c, s);
	}
	return fail(c, ret, error);
}

/* The word whose part a number below the total is in. */
static int32_t find(const struct kvi_token_coder *c, uint64_t at, struct kvi_range_part *p)
{
	int32_t id = 0;
	*p = (struct kvi_range_part){ 0, c->weights[0], c->total };
	while (at - p->below >= p->weight) {
		p->below += p->weight;
		p->weight = c->weights[++id];
	}
	return id;
}

/* DATA: too long, or the model does not have its positions; END: the check does not hold. */
static kvarc_ret decode(struct kvi_token_coder *c, struct kvi_segment *s)
{
	struct kvi_range_decoder d;
	struct kvi_range_part p;
	kvi_range_open(&d, s->code, s->code_bytes);
	weigh_first(c, s->t0);
	for (uint32_t i = 0; i < s->n; i++) {
		if (i)
			weigh(c, kvi_head_logits(c->head, c->last, c->file->width, 1).z);
		s->ids[i] = find(c, kvi_range_get(&d, c->total), &p);
		kvi_range_take(&d, &p);
		kvarc_ret ret = go(c, &s->ids[i], &s->positions[i], 1);
		if (ret)
			return ret;
		keep_last(c, 0);
	}
	if (kvi_segment_ids_check(s) != s->check)
		return KVARC_END;
	return kvi_range_done(&d) ? KVARC_OK : KVARC_DATA;
}

/* From the first token on, by scalar arithmetic from now on. */
static kvarc_ret start_again(struct kvi_token_coder *c)
{
	c->fell_back = true;
	c->run_options.kernels = &kvi_exact_scalar;
	c->run_options.isa_mask = KVARC_ISA_SCALAR;
	close_run(c);
	kvarc_ret ret = open_run(c);
	for (size_t t = 0; t < c->n && !ret;) {
		size_t n = c->n - t;
		n = n < KVI_SEGMENT_TOKENS ? n : KVI_SEGMENT_TOKENS;
		ret = go(c, c->ids + t, c->positions + t, n);
		keep_last(c, n - 1);
		t += n;
	}
	return ret;
}

kvarc_ret kvi_token_coder_decode(struct kvi_token_coder *c, struct kvi_segment *s,
                                 kvarc_error *error)
{
	kvarc_ret ret = decode(c, s);
	if (ret == KVARC_END && !c->fell_back) {
		ret = start_again(c);
		ret = ret ? ret : decode(c, s);
	}
	s->has_ids = ret == KVARC_OK;
	if (!ret)
		ret = remember(c, s);
	return fail(c, ret == KVARC_END ? KVARC_PREDICTOR : ret, error);
}
