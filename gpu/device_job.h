/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_job.h - input and results of kernels: C for callers, C++ for kernels
 *
 * Addresses are of device memory (of host memory where kernels run on the host); all of it is the
 * caller's. What is called aligned is at a multiple of 16.
 */
#ifndef KVI_GPU_DEVICE_JOB_H
#define KVI_GPU_DEVICE_JOB_H

#include <stdint.h>

/* The answer for a chunk; other values mean that its kernels have not run. */
enum kvi_gpu_status {
	KVI_GPU_OK = 0,
	KVI_GPU_DATA = 1,     /* damaged, or not valid */
	KVI_GPU_HOST = 2,     /* outside of the GPU subset (spec 3.6) or of the limits below */
	KVI_GPU_OPEN = 3,     /* the header is good, the elements are not there yet */
	KVI_GPU_PAGE = 4,     /* the page table names a page that the view does not have */
	KVI_GPU_SOURCE = 5,   /* a chunk that it is predicted from is damaged */
	KVI_GPU_PREDICTOR = 6 /* codec 8: the engine predicts something else than the writer's */
};

/* Sizes that the format fixes, and limits of these kernels. */
enum {
	KVI_GPU_LANES = 32,
	KVI_GPU_STREAMS = 8,
	KVI_GPU_TOKENS = 256,
	KVI_GPU_HEADER = 48,    /* bytes of a chunk header (spec 7) */
	KVI_GPU_TABLES = 8,     /* of a PARAMS frame of codec 4 (spec 3.6) */
	KVI_GPU_BODIES = 4,     /* of a lossy chunk (spec lossy 1) */
	KVI_GPU_CLASSES = 33,   /* of codes (spec lossy 4) */
	KVI_GPU_CHANNELS = 8192 /* of a chunk */
};

/* A PARAMS frame that the host has checked (spec 8). Arrays are aligned. */
struct kvi_gpu_params {
	uint64_t freq;       /* codec 4: u16[n_tables][32] */
	uint64_t table, top; /* codec 4: u8[channels] */
	uint64_t k, mean;    /* codecs 5, 13: i16[channels]; means of codec 13: fp32 */
	uint64_t rope;       /* codecs 5 and 13: u64[rotary / 2] frequencies */
	uint32_t n_tables;
	uint32_t channels, head_channels;
	/* channels of a head whose means rotate, of codec 13 that RoPE is applied to; 0: none */
	uint32_t rotary;
	uint32_t interleaved;
	uint32_t hadamard; /* codec 13 */
};

/* Tables that are the same for all chunks. */
struct kvi_gpu_tables {
	uint64_t grid;   /* u32[192 * 41]: frequency | cumulative frequency << 16 (spec grid 5) */
	uint64_t first;  /* u8[192 * 256]: the symbol of every eighth slot */
	uint64_t cosine; /* i16[4096] (spec grid 2) */
	uint64_t scale;  /* i8[65 * 64] (spec grid 2) */
	/* Of codes, KVI_GPU_CLASSES tables (spec lossy 4). codes: like grid, of a table's symbols
	 * 0 .. n - 2 and the escape, without gaps; code_at: u32[KVI_GPU_CLASSES + 1] where a table
	 * begins; code_first: of every eighth slot the symbol, n - 1 for the escape. */
	uint64_t codes, code_at, code_first;
	uint32_t n_codes, reserved;
};

/*
 * Where a chunk's elements go: that of token t and head h of the chunk and of channel c is at
 * base + page * page_stride + slot * token_stride + h * head_stride + c * elem_stride, where
 * n = first_token + t, page = pages[n / page_tokens], slot = n % page_tokens. Without a page table
 * page is 0 and slot is n. Tokens of a page below 0 are not written.
 */
struct kvi_gpu_view {
	uint64_t base;       /* 0: elements are not wanted, the chunk is checked alone */
	uint64_t bytes;      /* of the memory at base: no element lies outside */
	uint64_t page_table; /* i32[n_table]; 0: contiguous */
	uint64_t page_stride, token_stride, head_stride, elem_stride; /* bytes */
	uint32_t n_table, page_tokens;
	uint32_t n_pages; /* that the memory at base has */
	uint32_t first_token;
};

/* A chunk to be decoded. */
struct kvi_gpu_chunk {
	uint64_t payload; /* of the CHUNK frame, aligned: header and codec payload */
	uint32_t payload_bytes;
	uint32_t dtype, tokens, heads, head_channels;
	uint32_t codec;
	uint32_t head[8];   /* bytes 0 to 31 of the header that the index promises; byte 25 is 0 */
	uint64_t params;    /* kvi_gpu_params; 0: the codec has none */
	uint64_t positions; /* i32[tokens]; 0: nothing rotates */
	uint64_t opened;    /* kvi_gpu_opened */
	uint64_t linear;    /* kvi_gpu_linear; 0: not predicted, and nothing is predicted from it */
	/* Work memory, aligned, each 16 bytes more than: elements in coding order; decoded
	 * elements; u32[elements or 2 * channels + 256] for contexts of codec 5; u32[channels].
	 * Of codecs 13 and 14 (lossy_codes_body.h): elements; rows of points; i32[blocks][channels]
	 * [32] coefficients; angles, u32[pairs of a rope][tokens, padded to whole steps of 32]. */
	uint64_t packed, decoded, contexts, columns;
	struct kvi_gpu_view view;
	uint32_t from, to; /* the tokens of the chunk that go there: from .. to - 1 */
	uint32_t stage;    /* behind the chunks of its layer that it is predicted from */
	uint32_t reserved;
};

/* What kernels know of a stream: offsets in the payload. */
struct kvi_gpu_stream {
	uint32_t states, words, n_words;
	uint32_t good; /* decoded to its end */
};

/* A plane (spec rans 5): where its bytes are; of a constant plane where its value is. */
struct kvi_gpu_plane {
	uint32_t at;
	uint32_t keep; /* ~0: a byte each; 0: the value serves for all */
};

/* A body of a lossy chunk (spec had 2, klt 1): its tokens are some of the chunk's. */
struct kvi_gpu_body {
	uint32_t step; /* fp32 pattern */
	int32_t shift;
	uint32_t near[2];       /* with a sign */
	uint32_t states, words; /* offsets in the payload, at any byte */
	uint32_t n_words;
	uint32_t row, rows; /* its tokens: numbers in kvi_gpu_opened.token */
	uint32_t block;     /* its first block of 32 tokens, among those of all bodies */
	uint32_t good;      /* decoded to its end */
};

/* What the first kernel finds in a payload, for those that follow. */
struct kvi_gpu_opened {
	uint32_t status;
	uint32_t n_streams, stream_tokens; /* remaining tokens of a stream */
	uint32_t rows, columns;            /* tokens and channels that the mask leaves */
	uint32_t row_bits, row_values, channel_bits, channel_values; /* offsets; 0: none */
	uint32_t ring; /* contexts repeat after this many elements; 0: never */
	struct kvi_gpu_plane plane[3];
	struct kvi_gpu_stream stream[KVI_GPU_STREAMS];
	uint64_t raw_check;
	uint64_t expected_check; /* of codec 8 */
	uint64_t check[KVI_GPU_STREAMS];
	/* of each remaining row; of a lossy chunk those of all bodies, then those that are exact */
	uint16_t token[KVI_GPU_TOKENS];
	uint32_t n_bodies, exact; /* exact: offset of the planes of exact tokens; 0: none */
	struct kvi_gpu_body body[KVI_GPU_BODIES];
};

#endif
