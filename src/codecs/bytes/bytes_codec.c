/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes_codec.c - codec 6: whole bytes with tables per channel class (spec bytes) */
#include "bytes_codec.h"

enum { ENC_STRIDE = 512, ESCAPE = 256 };

static size_t planes_capacity(unsigned dtype, size_t n)
{
	(void)dtype;
	(void)n;
	return 0;
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	return kvi_params_get_tables(alloc, KVI_CODEC_BYTES, shape, in, KVI_BYTE_SYMBOLS, out);
}

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	kvi_params_put_tables(p, KVI_BYTE_SYMBOLS, out);
}

static bool make_job(struct kvi_coder *c, const struct kvi_coder_job *job, bool decoding,
                     struct kvi_sym_job *s)
{
	size_t C = job->lanes.channels;
	uint8_t *channels = kvi_scratch(c, KVI_SCRATCH_CHANNELS, C);
	uint8_t *buffer = kvi_scratch(c, KVI_SCRATCH_CONTEXT, kvi_ring_capacity(&job->lanes));
	if (!channels || !buffer)
		return false;
	kvi_job_channels8(job, job->params->table, channels);
	struct kvi_ring8 tab = kvi_ring8_make(&job->lanes, channels, buffer);
	*s = (struct kvi_sym_job){
		.steps = kvi_lane_steps(&job->lanes),
		.tables = kvi_params_tables(c, job->params, KVI_BYTE_SYMBOLS, ENC_STRIDE, decoding),
		.tab = tab.full,
		.tab_tail = tab.tail,
		.tab_steps = tab.steps,
		.escape = ESCAPE,
		.per_step = job->lanes.order == KVI_LANES_TOKENS,
	};
	return s->tables != NULL;
}

/* Symbols and escapes of n bytes: a byte that its table lacks escapes. */
static void to_symbols(const struct kvi_coder_job *job, const uint8_t *table, uint16_t *sym)
{
	const uint8_t *packed = job->packed;
	const uint16_t *freq = job->params->freq;
	for (size_t t = 0; t < job->lanes.rows; t++)
		for (size_t c = 0; c < job->lanes.channels; c++) {
			unsigned b = *packed++;
			bool coded = freq[table[c] * KVI_BYTE_SYMBOLS + b];
			*sym++ = (uint16_t)(coded ? b : ESCAPE);
		}
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	size_t n = kvi_mask_elements(&job->mask);
	struct kvi_sym_job s;
	uint32_t state[KVI_LANES];
	uint16_t *sym = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, n * sizeof *sym);
	if (!sym || !make_job(c, job, false, &s))
		return kvi_alloc_error(c->alloc);
	const uint8_t *table = c->scratch[KVI_SCRATCH_CHANNELS].p;
	to_symbols(job, table, sym);
	const uint8_t *esc = job->packed;
	if (job->lanes.order == KVI_LANES_TOKENS) {
		uint16_t *lane = kvi_scratch(c, KVI_SCRATCH_OTHER, 3 * n);
		if (!lane)
			return kvi_alloc_error(c->alloc);
		uint8_t *lane_esc = (uint8_t *)(lane + n);
		kvi_lanes_to16(&job->lanes, sym, lane);
		kvi_lanes_to8(&job->lanes, job->packed, lane_esc);
		sym = lane;
		esc = lane_esc;
	}
	size_t words = c->kernels->sym_encode(&s, sym, esc, (uint16_t *)(void *)out->words, state);
	out->end = out->words;
	kvi_stream_put(out, words, state);
	return KVARC_OK;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in,
                        uint8_t *packed)
{
	size_t n = kvi_mask_elements(&job->mask);
	struct kvi_sym_job job_sym;
	struct kvi_stream s;
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	uint16_t *sym = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, n * sizeof *sym);
	uint8_t *esc = kvi_scratch(c, KVI_SCRATCH_OTHER, 2 * n);
	if (!sym || !esc || !make_job(c, job, true, &job_sym))
		return kvi_alloc_error(c->alloc);
	if (!c->kernels->sym_decode(&job_sym, &s, sym, esc))
		return KVARC_DATA;
	bool tokens = job->lanes.order == KVI_LANES_TOKENS;
	uint8_t *to = tokens ? esc + n : packed;
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(sym[i] == ESCAPE ? esc[i] : sym[i]);
	if (tokens)
		kvi_lanes_from8(&job->lanes, to, packed);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_bytes = { "bytes",       planes_capacity, parse, serialise,
	                                   kvi_bytes_fit, encode,          decode };
