/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_attempt.c - payload and parameters of a chunk, by one of the codecs */
#include "chunk_attempt.h"

#include "codecs/planes.h"

enum {
	PARAMS_FRAME = 64, /* bytes around the content of a PARAMS frame */
	PARAMS_LEVEL = 1,  /* Zstandard level of PARAMS content, as in kvi_pack */
	ROWS_TO_FIT = 4,   /* fewer tokens never pay for new parameters */
	CHECK = 8          /* bytes in front of the mask of the model codec */
};

void kvi_attempt_drop(struct kvi_attempt *attempt)
{
	kvi_params_free(attempt->params);
	kvi_out_free(&attempt->content);
	attempt->params = NULL;
}

/* Bytes in front of the mask. */
static size_t head_bytes(unsigned codec)
{
	return codec == KVI_CODEC_STATE           ? KVI_STATE_HEAD
	       : kvi_codec_uses_prediction(codec) ? CHECK
	                                          : 0;
}

static void put_state_head(const struct kvi_coder_job *job, const struct kvi_attempt *attempt,
                           uint8_t *to)
{
	kvi_store64(to, job->before ? job->chunk->before_sequence : 0);
	kvi_store64(to + 8, job->before ? job->chunk->before_offset : 0);
	to[16] = (uint8_t)(attempt->out.group - 1);
}

/* The section in front of the streams. */
static void put_section(const struct kvi_coder_job *job, struct kvi_attempt *attempt)
{
	const size_t head = head_bytes(attempt->codec);
	uint8_t *at;
	attempt->section_bytes = job->section_bytes + head;
	attempt->out.begin -= attempt->section_bytes +
	                      (-attempt->section_bytes & (KVI_STREAM_ALIGN - 1));
	at = attempt->out.begin;
	if (attempt->codec == KVI_CODEC_STATE)
		put_state_head(job, attempt, at);
	else if (head)
		kvi_store64(at, kvi_expected_check(job->chunk->linear));
	at += head;
	memcpy(at, job->section, job->section_bytes);
	kvi_put_padding(at + job->section_bytes, attempt->section_bytes);
}

kvarc_ret kvi_attempt_write(struct kvi_coder *coder, struct kvi_coder_job *job,
                            struct kvi_attempt *attempt, enum kvi_scratch where)
{
	const struct kvi_codec *row = kvi_codec_get(attempt->codec);
	size_t n = kvi_mask_elements(&job->mask);
	size_t head = KVI_ENCODED_FRONT + job->section_bytes + head_bytes(attempt->codec) +
	              KVI_STREAMS_EXTRA + KVI_STREAM_ALIGN;
	size_t words = row->words_each * n * 2;
	unsigned bits = row->plane_bits ? row->plane_bits(job->chunk->dtype) : 0;
	uint64_t check[KVI_STREAMS_MAX];
	head += -(head + words) & (KVI_STREAM_ALIGN - 1);
	size_t side = row->side_bytes ? row->side_bytes(&job->mask) : 0;
	size_t tail = side + kvi_planes_capacity(n, bits) + KVI_ENCODED_BEHIND;
	uint8_t *base = kvi_scratch(coder, where, head + words + tail);
	if (!base)
		return kvi_alloc_error(coder->alloc);
	attempt->out.words = base + head + words;
	kvarc_ret ret = row->encode(coder, job, &attempt->out);
	if (ret)
		return ret;
	if (attempt->out.streams.n > 1) {
		attempt->raw_check = kvi_streams_check(&attempt->out.streams, &job->mask, job->raw,
		                                       check);
		kvi_streams_set_checks(&attempt->out.streams, attempt->out.begin, check);
	}
	put_section(job, attempt);
	return KVARC_OK;
}

static kvarc_ret make_params(struct kvi_coder *coder, const struct kvi_coder_job *job,
                             struct kvi_attempt *attempt)
{
	kvarc_ret ret = kvi_codec_get(attempt->codec)->fit(coder, job, &attempt->params);
	if (!ret)
		ret = kvi_params_write(attempt->params, coder->alloc, &attempt->content);
	attempt->params_bytes = attempt->content.n + PARAMS_FRAME;
	return ret;
}

kvarc_ret kvi_attempt_price(struct kvi_coder *coder, struct kvi_attempt *attempt)
{
	if (!attempt->params || attempt->priced)
		return KVARC_OK;
	size_t n = attempt->content.n;
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_PLANE_OUT, n);
	/* A lack of memory is an error, never a different choice: the same input gives the same
	 * bytes, or none. */
	if (!buffer)
		return kvi_alloc_error(coder->alloc);
	size_t packed = kvi_zstd_write(coder, attempt->content.p, n, buffer, n, PARAMS_LEVEL);
	attempt->params_bytes = (packed ? packed : n) + PARAMS_FRAME;
	attempt->priced = true;
	return KVARC_OK;
}

kvarc_ret kvi_attempt_codec(struct kvi_coder *coder, struct kvi_coder_job *job, unsigned codec,
                            const struct kvi_params *current, struct kvi_attempt *best)
{
	size_t n = kvi_mask_elements(&job->mask);
	struct kvi_attempt fresh = { .codec = codec };
	kvarc_ret ret;
	*best = fresh;
	if (kvi_params_serve(current, job->chunk, codec)) {
		job->params = current;
		ret = kvi_attempt_write(coder, job, best, KVI_SCRATCH_OUT);
		if (ret || !kvi_params_drifted(current, kvi_attempt_bytes(best), n))
			return ret;
	}
	if (job->mask.rows < ROWS_TO_FIT)
		return KVARC_OK;
	ret = make_params(coder, job, &fresh);
	job->params = fresh.params;
	if (!ret)
		ret = kvi_attempt_write(coder, job, &fresh,
		                        best->out.begin ? KVI_SCRATCH_OUT2 : KVI_SCRATCH_OUT);
	if (!ret && best->out.begin)
		ret = kvi_attempt_price(coder, &fresh);
	if (!ret && (!best->out.begin || kvi_attempt_cost(&fresh) < kvi_attempt_cost(best))) {
		fresh.params->expected = kvi_params_rate(kvi_attempt_bytes(&fresh), n);
		*best = fresh;
		return KVARC_OK;
	}
	kvi_attempt_drop(&fresh);
	return ret;
}
