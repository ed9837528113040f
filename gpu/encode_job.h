/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_job.h - what encoding kernels write, and what a block of one shares (device_job.h) */
#ifndef KVI_GPU_ENCODE_JOB_H
#define KVI_GPU_ENCODE_JOB_H

#include "device_job.h"

/* Sizes of what the encoder writes (spec rans 4), and of its work. */
enum {
	KVI_GPU_ENTRY = 144,      /* table entry and states of a stream */
	KVI_GPU_WORDS_EACH = 3,   /* most words of an element */
	KVI_GPU_SPARE_WORDS = 64, /* of a stream's memory, beyond those that elements take */
	KVI_GPU_HASH_BLOCK = 1024 /* bytes of elements that have sums of their own */
};

/* The payloads of a plan: `bytes` bytes lie behind it. */
struct kvi_gpu_output {
	uint64_t taken; /* 0 at first: bytes that have payloads, each of which is aligned */
	uint64_t bytes;
};

/*
 * The answer for a chunk. status: OK; HOST (the mask leaves no element, the payload is larger than
 * 15/16 of the elements, or there is no place for it: such a chunk is for others); PAGE (a token
 * has no page).
 */
struct kvi_gpu_encoded {
	uint32_t status;
	uint32_t payload_bytes; /* of the CHUNK frame, header included */
	uint32_t elements;      /* that the mask leaves */
	uint32_t reserved;
	uint64_t offset;  /* offset of the payload behind kvi_gpu_output */
	uint64_t hash[2]; /* H128 of the elements that a decoder makes, low and high half */
};

/* State of a chunk on its way out, which the warps of a block share, behind kvi_gpu_block. */
struct kvi_gpu_encoding {
	uint32_t first_column;  /* of the channels that remain */
	uint32_t section_bytes; /* of the mask */
	uint32_t stream_size, payload_bytes;
	uint64_t offset; /* as the answer has it */
	uint32_t channel_bits[KVI_GPU_CHANNELS / 32];
	uint8_t row_same[KVI_GPU_TOKENS]; /* 1: all elements of the token are equal */
	/* codec 4: whether all tops are base; bits of the rest that streams use, or of codec 16
	 * how many elements of some tokens are of low classes; counts of their
	 * layers, and those of the tops; where the parts in front of them end; how often each top
	 * and each exponent is there; what tops cost */
	uint32_t one_top, used[KVI_GPU_STREAMS], counts[KVI_GPU_STREAMS + 1][4];
	uint32_t end[KVI_GPU_STREAMS + 1];
	uint32_t histogram[3][256];
	/* codecs 5 and 16 */
	uint32_t n_words[KVI_GPU_STREAMS], state[KVI_GPU_STREAMS][KVI_GPU_LANES];
};
/* Words of shared memory behind it. Codec 4: lists of layers, then a byte a channel; codecs 5 and
 * 16: tables. */
enum {
	KVI_GPU_OUT_WORDS = KVI_GPU_STREAMS * (3 * 256 + 128 + 24),
	KVI_GPU_GRID_OUT_WORDS = 2 * KVI_GPU_GRID_CODES + 64,
	KVI_GPU_CELL_OUT_WORDS = KVI_GPU_CELL_ENTRIES / 2 + KVI_GPU_CELL_SHARED
};

#endif
