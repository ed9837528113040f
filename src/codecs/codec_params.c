/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_params.c - what the parameters of all codecs have in common (spec 8) */
#include "coder.h"

enum { PARAMS_FRAME = 64 }; /* bytes around the content of a PARAMS frame */

void *kvi_params_new(const struct kvi_alloc *alloc, uint8_t codec, const struct kvi_chunk *shape,
                     size_t bytes, size_t more)
{
	struct kvi_params *p = kvi_calloc(alloc, 1, bytes);
	if (p)
		*p = (struct kvi_params){ .alloc = alloc,
			                  .codec = codec,
			                  .dtype = shape->dtype,
			                  .heads = shape->heads,
			                  .head_channels = shape->head_channels,
			                  .refit_bytes = 2 * kvi_chunk_channels(shape) +
			                                 PARAMS_FRAME + more };
	return p;
}

void kvi_params_free(struct kvi_params *p)
{
	if (p)
		kvi_free(p->alloc, p);
}

bool kvi_params_rotates(const struct kvi_params *p)
{
	return p->rotates;
}

bool kvi_params_match(const struct kvi_params *p, const struct kvi_chunk *chunk, unsigned codec)
{
	return p && p->codec == codec && p->dtype == chunk->dtype && p->heads == chunk->heads &&
	       p->head_channels == chunk->head_channels;
}

bool kvi_params_serve(const struct kvi_params *p, const struct kvi_chunk *chunk, unsigned codec)
{
	return kvi_params_match(p, chunk, codec) &&
	       (!p->rotates || (chunk->rope && chunk->positions));
}

uint64_t kvi_params_rate(size_t bytes, size_t elements)
{
	return (uint64_t)bytes * 8000 / elements;
}

bool kvi_params_drifted(const struct kvi_params *p, size_t bytes, size_t elements)
{
	/* What they have to save: a fit takes as long as encoding, and the chunk is encoded again.
	 * Level 0 is the one for speed. */
	const unsigned worth = p->codec == KVI_CODEC_EXPONENT ? 128 : 256;
	const uint64_t least = p->expected / worth + kvi_params_rate(p->refit_bytes, elements);
	return !p->expected || kvi_params_rate(bytes, elements) > p->expected + least;
}

kvarc_ret kvi_params_write(const struct kvi_params *p, const struct kvi_alloc *alloc,
                           struct kvi_out *content)
{
	kvi_out_init(content, alloc);
	kvi_codec_get(p->codec)->serialise(p, content);
	if (!content->failed)
		return KVARC_OK;
	kvi_out_free(content);
	return kvi_alloc_error(alloc);
}

kvarc_ret kvi_params_parse(struct kvi_params **out, const struct kvi_alloc *alloc, uint8_t codec,
                           uint8_t dtype, uint32_t heads, uint32_t head_channels,
                           const kvarc_rope *rope, const uint8_t *content, size_t bytes)
{
	const struct kvi_codec *row = kvi_codec_get(codec);
	struct kvi_chunk shape = { .dtype = dtype,
		                   .n_tokens = 1,
		                   .heads = heads,
		                   .head_channels = head_channels,
		                   .rope = rope };
	struct kvi_in in = kvi_in_make(content, bytes);
	struct kvi_params *p = NULL;
	*out = NULL;
	if (!row->parse)
		return kvi_codec_name(codec) ? KVARC_DATA : KVARC_OPTIONS;
	if (!kvi_chunk_valid(&shape) || !kvi_codec_takes(codec, dtype))
		return KVARC_DATA;
	kvarc_ret ret = row->parse(alloc, &shape, &in, &p);
	if (ret)
		return ret;
	if (in.bad || kvi_in_remaining(&in)) {
		kvi_params_free(p);
		return KVARC_DATA;
	}
	*out = p;
	return KVARC_OK;
}
