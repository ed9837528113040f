/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_job.h - what a chunk has of the exact engine, with whose predictions it begins (spec
 * model): C for callers, C++ for kernels
 *
 * Addresses as in device_job.h. Rows are of the chunk's tokens, fp32 and in the order of slots;
 * strides are numbers from a row to the next one, of rows that belong to all tokens of a sequence.
 */
#ifndef KVI_GPU_MODEL_JOB_H
#define KVI_GPU_MODEL_JOB_H

#include <stdint.h>

/* Hashes of a chunk: of its own E; then a list of those that its check is made of. */
enum { KVI_GPU_HASHES = 8 };

/* What a chunk has of the engine; all 0: nothing, as with models of levels 2, 3 and 9. */
struct kvi_gpu_expects {
	uint64_t p; /* predictions: keys before RoPE, values */
	/* Work memory: E, i16[tokens][channels]; u64[KVI_GPU_HASHES]. 0: no bases are made. */
	uint64_t e, hashes;
	uint64_t numbers; /* to: the elements, keys after RoPE, for attention; 0: not wanted */
	/* Of a model that corrects: the hidden state, which is changed, and the root of the layer's
	 * input norm, a number a token. 0: nothing is corrected. */
	uint64_t h, root;
	/* u32, of a sequence: from this token on nothing of the layers above is predicted, since a
	 * chunk was damaged. ~0: nothing was. 0: elements change no prediction of other layers. */
	uint64_t lost;
	uint32_t p_stride, numbers_stride, h_stride;
	uint32_t t0; /* the chunk's first token in the sequence */
};

#endif
