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
	uint32_t *weights; /* weights of the vocabulary for the next token */
	uint64_t total;
	int32_t *ids, *positions; /* ids and positions of all tokens so far */
	size_t n, cap_ids, cap_positions;
	kvi_token_stop stop;
	void *stop_opaque;
	bool fell_back;
};

static kvarc_ret open_run(struct kvi_token_coder *coder)
{
	kvarc_ret ret = kvi_run_open(&coder->run, &coder->run_options);
	return ret ? ret : kvi_head_open(&coder->head, &coder->run_options);
}

static void close_run(struct kvi_token_coder *coder)
{
	kvi_head_close(&coder->head);
	kvi_run_close(&coder->run);
}

static kvarc_ret fail(struct kvi_token_coder *coder, kvarc_ret ret, kvarc_error *error)
{
	if (ret == KVARC_OK || ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_memory(error, ret, coder->alloc);
	return kvi_fail(error, ret, "%s",
	                ret == KVARC_IO ? "stopped on request"
	                : ret == KVARC_PREDICTOR
	                        ? "token ids diverged: this machine's predictor is not exact, or "
	                          "that of the machine that wrote the archive was not"
	                        : "token ids: not a code, or a token or position that the model "
	                          "does not have");
}

static kvarc_ret open_all(struct kvi_token_coder *coder, kvarc_error *error)
{
	const struct kvi_predictor *p = coder->o.description;
	const struct kvi_arithmetic a = { p->wide_weights, p->wide_activations, p->fp8 };
	struct kvi_run_options *run = &coder->run_options;
	*run = (struct kvi_run_options){ .alloc = coder->alloc,
		                         .isa_mask = coder->o.isa_mask,
		                         .whole = true,
		                         .kernels = kvi_predictor_kernels(coder->o.predictor,
		                                                          coder->o.isa_mask) };
	kvarc_ret ret = kvi_prediction_ropes(&coder->o, run->freq, error);
	if (!ret)
		ret = kvi_predictor_head(coder->o.predictor, &a, coder->o.isa_mask, &run->engine,
		                         error);
	if (ret)
		return ret;
	coder->last = kvi_array(coder->alloc, coder->file->width, sizeof *coder->last);
	coder->weights = kvi_array(coder->alloc, coder->file->vocabulary, sizeof *coder->weights);
	ret = coder->last && coder->weights
	              ? kvi_pool_open(&run->pool, coder->alloc, coder->o.threads)
	              : kvi_alloc_error(coder->alloc);
	return fail(coder, ret ? ret : open_run(coder), error);
}

kvarc_ret kvi_token_coder_open(struct kvi_token_coder **out,
                               const struct kvi_prediction_options *options, kvarc_error *error)
{
	const struct kvi_alloc *alloc = kvi_predictor_alloc(options->predictor);
	const struct kvi_model_file *file = kvi_predictor_file(options->predictor);
	*out = NULL;
	if (!file || file->vocabulary > KVI_HEAD_VOCAB_MAX)
		return kvi_fail(error, KVARC_OPTIONS,
		                "token ids cannot be coded by the predictor: %s",
		                file ? "its vocabulary has more than 2^20 entries"
		                     : "a predictor of an application has no vocabulary");
	struct kvi_token_coder *c = kvi_calloc(alloc, 1, sizeof *c);
	if (!c)
		return kvi_fail_alloc(error, alloc);
	c->o = *options;
	c->alloc = alloc;
	c->file = file;
	kvarc_ret ret = open_all(c, error);
	if (ret)
		kvi_token_coder_close(c);
	else
		*out = c;
	return ret;
}

void kvi_token_coder_close(struct kvi_token_coder *coder)
{
	if (!coder)
		return;
	close_run(coder);
	kvi_pool_close(coder->run_options.pool);
	kvi_free(coder->alloc, coder->last);
	kvi_free(coder->alloc, coder->weights);
	kvi_free(coder->alloc, coder->ids);
	kvi_free(coder->alloc, coder->positions);
	kvi_free(coder->alloc, coder);
}

void kvi_token_coder_stopped_by(struct kvi_token_coder *coder, kvi_token_stop stop, void *opaque)
{
	coder->stop = stop;
	coder->stop_opaque = opaque;
}

uint64_t kvi_token_coder_next(const struct kvi_token_coder *coder)
{
	return coder->n;
}

bool kvi_token_coder_fell_back(const struct kvi_token_coder *coder)
{
	return coder->fell_back;
}

void kvi_token_coder_ids(const struct kvi_token_coder *coder, uint64_t t0, size_t n, int32_t *ids)
{
	memcpy(ids, coder->ids + t0, n * sizeof *ids);
}

/* Runs tokens through all layers in an open loop. Afterwards kvi_run_hidden is the head's input. */
static kvarc_ret go(struct kvi_token_coder *coder, const int32_t *ids, const int32_t *positions,
                    size_t n)
{
	if (coder->stop && coder->stop(coder->stop_opaque))
		return KVARC_IO;
	return kvi_run_through(coder->run, ids, positions, n, NULL);
}

/* Stores the hidden state of token i of the last pass, which is the track's last token. */
static void keep_last(struct kvi_token_coder *coder, size_t i)
{
	struct kvi_hidden h = kvi_run_hidden(coder->run);
	memcpy(coder->last, h.h + i * h.width, coder->file->width * sizeof *coder->last);
}

/* Runs the last token once more, for its hidden state. */
kvarc_ret kvi_token_coder_rewind(struct kvi_token_coder *coder, uint64_t t0, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	const size_t last = t0 ? (size_t)t0 - 1 : 0;
	if (t0 == coder->n)
		return KVARC_OK;
	kvi_run_rewind(coder->run, last);
	if (t0)
		ret = go(coder, coder->ids + last, coder->positions + last, 1);
	if (!ret && t0)
		keep_last(coder, 0);
	coder->n = (size_t)t0;
	return fail(coder, ret, error);
}

static void weigh(struct kvi_token_coder *coder, const float *z)
{
	uint64_t mode = kvi_fp_exact();
	coder->total = kvi_head_coder_weights(coder->run_options.pool, z, coder->file->vocabulary,
	                                      coder->weights);
	kvi_fp_restore(mode);
}

/* The first token of a segment. */
static void weigh_first(struct kvi_token_coder *coder, uint64_t t0)
{
	if (t0) {
		weigh(coder, kvi_head_logits(coder->head, coder->last, coder->file->width, 1).z);
		return;
	}
	coder->total = coder->file->vocabulary;
	for (size_t i = 0; i < coder->file->vocabulary; i++)
		coder->weights[i] = 1;
}

static struct kvi_range_part part_of(const struct kvi_token_coder *coder, int32_t id)
{
	struct kvi_range_part p = { 0, coder->weights[id], coder->total };
	for (int32_t i = 0; i < id; i++)
		p.below += coder->weights[i];
	return p;
}

static bool knows(const struct kvi_token_coder *coder, const struct kvi_segment *segment)
{
	for (uint32_t i = 0; i < segment->n; i++)
		if (segment->ids[i] < 0 || (uint32_t)segment->ids[i] >= coder->file->vocabulary)
			return false;
	return segment->has_ids;
}

/* The tokens behind the first one, some of them at a time. */
static void encode_rest(struct kvi_token_coder *coder, const struct kvi_segment *segment,
                        struct kvi_range_encoder *encoder)
{
	struct kvi_hidden h = kvi_run_hidden(coder->run);
	for (size_t t = 0; t + 1 < segment->n; t += KVI_HEAD_TOKENS) {
		size_t n = segment->n - 1 - t;
		n = n < KVI_HEAD_TOKENS ? n : KVI_HEAD_TOKENS;
		struct kvi_logits z = kvi_head_logits(coder->head, h.h + t * h.width, h.width, n);
		for (size_t i = 0; i < n; i++) {
			weigh(coder, z.z + i * z.stride);
			struct kvi_range_part p = part_of(coder, segment->ids[t + i + 1]);
			kvi_range_put(encoder, &p);
		}
	}
}

/* Appends a segment's ids and positions. */
static kvarc_ret remember(struct kvi_token_coder *coder, const struct kvi_segment *segment)
{
	const size_t want = coder->n + segment->n;
	if (!kvi_array_reserve(coder->alloc, &coder->ids, &coder->cap_ids, coder->n, want,
	                       sizeof *coder->ids) ||
	    !kvi_array_reserve(coder->alloc, &coder->positions, &coder->cap_positions, coder->n,
	                       want, sizeof *coder->positions))
		return kvi_alloc_error(coder->alloc);
	memcpy(coder->ids + coder->n, segment->ids, segment->n * sizeof *coder->ids);
	memcpy(coder->positions + coder->n, segment->positions,
	       segment->n * sizeof *coder->positions);
	coder->n += segment->n;
	return KVARC_OK;
}

kvarc_ret kvi_token_coder_pass(struct kvi_token_coder *coder, struct kvi_segment *segment,
                               bool encode, kvarc_error *error)
{
	struct kvi_range_encoder e;
	if (!knows(coder, segment))
		return fail(coder, KVARC_DATA, error);
	if (encode) {
		weigh_first(coder, segment->t0);
		struct kvi_range_part p = part_of(coder, segment->ids[0]);
		kvi_range_begin(&e, segment->code);
		kvi_range_put(&e, &p);
	}
	kvarc_ret ret = go(coder, segment->ids, segment->positions, segment->n);
	if (!ret && encode) {
		encode_rest(coder, segment, &e);
		segment->code_bytes = (uint32_t)kvi_range_end(&e);
		segment->check = kvi_segment_ids_check(segment);
		segment->coded = true;
	}
	if (!ret) {
		keep_last(coder, segment->n - 1);
		ret = remember(coder, segment);
	}
	return fail(coder, ret, error);
}

/* The word whose part a number below the total is in. */
static int32_t find(const struct kvi_token_coder *coder, uint64_t at, struct kvi_range_part *part)
{
	int32_t id = 0;
	*part = (struct kvi_range_part){ 0, coder->weights[0], coder->total };
	while (at - part->below >= part->weight) {
		part->below += part->weight;
		part->weight = coder->weights[++id];
	}
	return id;
}

/* DATA: too long, or the model does not have its positions; END: the check does not hold. */
static kvarc_ret decode(struct kvi_token_coder *coder, struct kvi_segment *segment)
{
	struct kvi_range_decoder d;
	struct kvi_range_part p;
	kvi_range_open(&d, segment->code, segment->code_bytes);
	weigh_first(coder, segment->t0);
	for (uint32_t i = 0; i < segment->n; i++) {
		if (i)
			weigh(coder,
			      kvi_head_logits(coder->head, coder->last, coder->file->width, 1).z);
		segment->ids[i] = find(coder, kvi_range_get(&d, coder->total), &p);
		kvi_range_take(&d, &p);
		kvarc_ret ret = go(coder, &segment->ids[i], &segment->positions[i], 1);
		if (ret)
			return ret;
		keep_last(coder, 0);
	}
	if (kvi_segment_ids_check(segment) != segment->check)
		return KVARC_END;
	return kvi_range_done(&d) ? KVARC_OK : KVARC_DATA;
}

/* Runs all tokens again, from the first one on, in scalar arithmetic, which stays. */
static kvarc_ret start_again(struct kvi_token_coder *coder)
{
	coder->fell_back = true;
	coder->run_options.kernels = &kvi_exact_scalar;
	coder->run_options.isa_mask = KVARC_ISA_SCALAR;
	close_run(coder);
	kvarc_ret ret = open_run(coder);
	for (size_t t = 0; t < coder->n && !ret;) {
		size_t n = coder->n - t;
		n = n < KVI_SEGMENT_TOKENS ? n : KVI_SEGMENT_TOKENS;
		ret = go(coder, coder->ids + t, coder->positions + t, n);
		keep_last(coder, n - 1);
		t += n;
	}
	return ret;
}

kvarc_ret kvi_token_coder_decode(struct kvi_token_coder *coder, struct kvi_segment *segment,
                                 kvarc_error *error)
{
	kvarc_ret ret = decode(coder, segment);
	if (ret == KVARC_END && !coder->fell_back) {
		ret = start_again(coder);
		ret = ret ? ret : decode(coder, segment);
	}
	segment->has_ids = ret == KVARC_OK;
	if (!ret)
		ret = remember(coder, segment);
	return fail(coder, ret == KVARC_END ? KVARC_PREDICTOR : ret, error);
}
