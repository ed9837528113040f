/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_params.c - what chunks and parameters of all codecs have in common (spec 8) */
#include "coder.h"

enum { PARAMS_FRAME = 64 }; /* bytes around the content of a PARAMS frame */

bool kvi_chunk_valid(const struct kvi_chunk *chunk)
{
	return kvarc_dtype_bytes(chunk->dtype) && chunk->n_tokens >= 1 && chunk->n_tokens <= 256 &&
	       chunk->heads >= 1 && chunk->heads <= 65535 && chunk->head_channels >= 1 &&
	       chunk->head_channels <= 65535 &&
	       (uint64_t)chunk->heads * chunk->head_channels <= (uint64_t)1 << 20;
}

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

void kvi_params_free(struct kvi_params *params)
{
	if (params)
		kvi_free(params->alloc, params);
}

bool kvi_params_rotates(const struct kvi_params *params)
{
	return params->rotates;
}

bool kvi_params_match(const struct kvi_params *params, const struct kvi_chunk *chunk,
                      unsigned codec)
{
	return params && params->codec == kvi_codec_params(codec) &&
	       params->dtype == chunk->dtype && params->heads == chunk->heads &&
	       params->head_channels == chunk->head_channels;
}

bool kvi_params_serve(const struct kvi_params *params, const struct kvi_chunk *chunk,
                      unsigned codec)
{
	return kvi_params_match(params, chunk, codec) &&
	       (!params->rotates || (chunk->rope && chunk->positions));
}

uint64_t kvi_params_rate(size_t bytes, size_t elements)
{
	return (uint64_t)bytes * 8000 / elements;
}

bool kvi_params_drifted(const struct kvi_params *params, size_t bytes, size_t elements)
{
	/* New parameters must save 1/256: a fit takes as long as encoding, and the chunk is
	 * encoded again. */
	const uint64_t least = params->expected / 256 +
	                       kvi_params_rate(params->refit_bytes, elements);
	return !params->expected || kvi_params_rate(bytes, elements) > params->expected + least;
}
