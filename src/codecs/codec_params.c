/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_params.c - parameters of a tensor: memory, tables, parsing (spec 8) */
#include "codecs/lossy/lossy_codec.h"

#include <string.h>

struct kvi_params *kvi_params_new(const struct kvi_alloc *alloc, uint8_t codec,
                                  const struct kvi_chunk *shape, unsigned n_tables,
                                  unsigned symbols)
{
	/* C is at most 2^20 and a table at most 257 entries: no overflow. */
	size_t C = kvi_chunk_channels(shape);
	size_t freq = (size_t)n_tables * symbols * sizeof(uint16_t);
	size_t body = n_tables ? freq + 2 * C : C * (sizeof(uint32_t) + 2 * sizeof(int16_t) + 1);
	struct kvi_params *p = kvi_calloc(alloc, 1, sizeof *p + body);
	if (!p)
		return NULL;
	uint8_t *at = (uint8_t *)(p + 1);
	p->alloc = alloc;
	p->codec = codec;
	p->dtype = shape->dtype;
	p->heads = shape->heads;
	p->head_channels = shape->head_channels;
	p->n_tables = n_tables;
	if (n_tables) {
		p->freq = (uint16_t *)(void *)at;
		p->table = at + freq;
		p->top = p->table + C;
	} else {
		p->ctx = (uint32_t *)(void *)at;
		p->k = (int16_t *)(void *)(p->ctx + C);
		p->mean = p->k + C;
		p->set = (uint8_t *)(p->mean + C);
	}
	return p;
}

void kvi_params_free(struct kvi_params *p)
{
	if (p)
		kvi_free(p->alloc, p);
}

bool kvi_params_rotates(const struct kvi_params *p)
{
	return p->rotate;
}

/* A table sums to 2048, none of its frequencies is 2048, and the escape can
 * be coded. */
bool kvi_params_get_table(struct kvi_in *in, unsigned symbols, uint16_t *freq)
{
	uint32_t sum = 0;
	for (unsigned s = 0; s < symbols; s++) {
		freq[s] = (uint16_t)kvi_get_varint(in, KVI_PROB_TOTAL - 1);
		sum += freq[s];
	}
	return !in->bad && sum == KVI_PROB_TOTAL && freq[symbols - 1];
}

kvarc_ret kvi_params_get_tables(const struct kvi_alloc *alloc, uint8_t codec,
                                const struct kvi_chunk *shape, struct kvi_in *in, unsigned symbols,
                                struct kvi_params **out)
{
	size_t C = kvi_chunk_channels(shape);
	unsigned n = kvi_get8(in);
	if (n < 1 || n > KVI_TABLES_MAX || kvi_in_remaining(in) < (size_t)n * symbols + C)
		return KVARC_DATA;
	struct kvi_params *p = kvi_params_new(alloc, codec, shape, n, symbols);
	if (!p)
		return kvi_alloc_error(alloc);
	bool good = true;
	for (unsigned i = 0; i < n && good; i++)
		good = kvi_params_get_table(in, symbols, p->freq + i * symbols);
	const uint8_t *table = good ? kvi_get_bytes(in, C) : NULL;
	if (table)
		memcpy(p->table, table, C);
	for (size_t c = 0; c < C && table && good; c++)
		good = table[c] < n;
	if (!good || !table) {
		kvi_params_free(p);
		return KVARC_DATA;
	}
	*out = p;
	return KVARC_OK;
}

void kvi_params_put_tables(const struct kvi_params *p, unsigned symbols, struct kvi_out *out)
{
	kvi_put8(out, (uint8_t)p->n_tables);
	for (unsigned i = 0; i < p->n_tables * symbols; i++)
		kvi_put_varint(out, p->freq[i]);
	kvi_put_bytes(out, p->table, kvi_params_channels(p));
}

const struct kvi_tables *kvi_params_tables(struct kvi_coder *c, const struct kvi_params *p,
                                           unsigned symbols, unsigned stride, bool with_lut)
{
	size_t lut = with_lut ? (size_t)p->n_tables * KVI_PROB_TOTAL : 0;
	uint32_t *buffer = kvi_scratch(c, KVI_SCRATCH_TABLES,
	                               (lut + p->n_tables * stride) * sizeof *buffer);
	if (!buffer)
		return NULL;
	c->lut = (struct kvi_tables){ .n_tables = p->n_tables,
		                      .symbols = symbols,
		                      .stride = stride,
		                      .lut = with_lut ? buffer : NULL,
		                      .enc = buffer + lut };
	/* Frequencies were checked when they were parsed or made. */
	return kvi_tables_build(&c->lut, p->freq) ? &c->lut : NULL;
}

kvarc_ret kvi_params_parse(struct kvi_params **out, const struct kvi_alloc *alloc, uint8_t codec,
                           uint8_t dtype, uint32_t heads, uint32_t head_channels,
                           const kvarc_rope *rope, const uint8_t *content, size_t bytes)
{
	const struct kvi_codec *vt = kvi_codec_get(codec);
	const struct kvi_lossy_codec *lossy = kvi_lossy_codec_get(codec);
	struct kvi_chunk shape = { .dtype = dtype,
		                   .n_tokens = 1,
		                   .heads = heads,
		                   .head_channels = head_channels,
		                   .rope = rope };
	struct kvi_in in = kvi_in_make(content, bytes);
	struct kvi_params *p = NULL;
	*out = NULL;
	if (!vt && !(lossy && lossy->parse))
		return kvi_codec_name(codec) ? KVARC_DATA : KVARC_OPTIONS;
	if (!kvi_chunk_valid(&shape) || !kvi_codec_takes(codec, dtype))
		return KVARC_DATA;
	kvarc_ret ret = (vt ? vt->parse : lossy->parse)(alloc, &shape, &in, &p);
	if (ret)
		return ret;
	if (in.bad || kvi_in_remaining(&in)) {
		kvi_params_free(p);
		return KVARC_DATA;
	}
	*out = p;
	return KVARC_OK;
}
