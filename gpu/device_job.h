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
	KVI_GPU_DATA = 1, /* damaged, or not valid */
	KVI_GPU_HOST = 2, /* outside of the GPU subset (spec 3.6) or of the limits below */
	KVI_GPU_OPEN = 3, /* the header is good, the elements are not there yet */
	KVI_GPU_PAGE = 4  /* the page table names a page that the view does not have */
};

/* Sizes that the format fixes, and limits of these kernels. */
enum {
	KVI_GPU_LANES = 32,
	KVI_GPU_STREAMS = 8,
	KVI_GPU_TOKENS = 256,
	KVI_GPU_HEADER = 48,    /* bytes of a chunk header (spec 7) */
	KVI_GPU_CHANNELS = 8192 /* of a chunk */
};

/* Entries of the tables of codec 16, and words of all. */
enum {
	KVI_GPU_CELL_CODES = 16 * 32, /* u32: of each class and code (cells_shared) */
	KVI_GPU_ANGLES = 4096,        /* u32: cosine and sine of each angle */
	KVI_GPU_SCALES = 65 * 64,     /* i8 (spec grid 2) */
	KVI_GPU_CELL_WORDS = KVI_GPU_CELL_CODES + KVI_GPU_ANGLES + KVI_GPU_SCALES / 4,
	KVI_GPU_CELL_ENTRIES = 16 * 256 /* u16: of each class and distance */
};

/* A PARAMS frame of codec 5 that the host has checked (spec 8). Arrays are aligned. */
struct kvi_gpu_params {
	uint64_t k, mean; /* i16[channels] */
	uint64_t rope;    /* u64[rotary / 2] frequencies */
	uint32_t channels, head_channels;
	uint32_t rotary; /* channels of a head whose means rotate; 0: none */
	uint32_t interleaved;
};

/* Tables that are the same for all chunks. */
struct kvi_gpu_tables {
	uint64_t grid;   /* u32[192 * 41]: frequency | cumulative frequency << 16 (spec grid 5) */
	uint64_t first;  /* u8[192 * 256]: the symbol of every eighth slot */
	uint64_t cosine; /* i16[4096] (spec grid 2) */
	uint64_t scale;  /* i8[65 * 64] (spec grid 2) */
	uint64_t cells;  /* u32[KVI_GPU_CELL_WORDS]: codes, angles, scales */
	/* u16[KVI_GPU_CELL_ENTRIES]: the code of a distance, NB << 5, place in the interval << 8 */
	uint64_t entries;
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

/* A chunk to be decoded, or encoded (encode_job.h): then the view is where its elements come from,
 * and payload is not used. */
struct kvi_gpu_chunk {
	uint64_t payload; /* of the CHUNK frame, aligned, at its end, too: header, codec payload */
	uint32_t payload_bytes;
	uint32_t dtype, tokens, heads, head_channels;
	uint32_t codec;
	uint32_t head[8];   /* bytes 0 to 31 of the header that the index promises; byte 25 is 0 */
	uint64_t params;    /* kvi_gpu_params; 0: the codec has none */
	uint64_t positions; /* i32[tokens]; 0: nothing rotates */
	uint64_t opened;    /* kvi_gpu_opened, in shared memory */
	/* Work memory, offsets in a slot of the batch, aligned, each 16 bytes more than: elements
	 * in coding order; elements of all tokens; u32[elements or 2 * channels + 256] for contexts
	 * of codec 5, or u32[4 * channels] for what those of codec 16 are made of; u32[channels]
	 * for those that remain. Of a chunk to be encoded by codec 5, then u16[KVI_GPU_WORDS_EACH *
	 * elements + KVI_GPU_STREAMS * KVI_GPU_SPARE_WORDS] for words; by codec 16, one word an
	 * element, and u8[2 * elements] for codes. */
	uint64_t packed, decoded, contexts, columns, words;
	struct kvi_gpu_view view;
	uint32_t from, to; /* the tokens of the chunk that go there: from .. to - 1 */
	/* of a chunk to be encoded */
	uint64_t output; /* kvi_gpu_output */
	uint64_t sums;   /* u64[8] for each 1024 bytes of elements, if hashed */
	uint32_t hashed; /* whether the answer has the hash; 240 bytes are too few */
	uint32_t unused;
};

/* A stream as kernels know it: offsets in the payload. */
struct kvi_gpu_stream {
	uint32_t states, words, n_words;       /* codecs 5 and 16 */
	uint32_t n_second, n_escapes, escapes; /* codec 16 */
	uint32_t counts, planes; /* codec 4: of its layers; its planes, then layer 1; codec 16:
	                          * codes, then second ones */
	uint32_t good;           /* decoded to its end */
};

/* The parts of a payload that the first kernel finds, for those that follow. */
struct kvi_gpu_opened {
	uint32_t status;
	uint32_t n_streams, stream_tokens; /* remaining tokens of a stream */
	uint32_t rows, columns;            /* tokens and channels that the mask leaves */
	uint32_t row_bits, row_values, channel_bits, channel_values; /* offsets; 0: none */
	uint32_t ring; /* contexts repeat after this many elements; 0: never */
	uint32_t base, absent, tops_counts, tops; /* codec 4; tops 0: every one is base */
	struct kvi_gpu_stream stream[KVI_GPU_STREAMS];
	uint64_t raw_check;
	uint64_t check[KVI_GPU_STREAMS];
	uint16_t token[KVI_GPU_TOKENS]; /* of each remaining row */
};

/* Chunks of one plan in a batch. */
struct kvi_gpu_part {
	uint64_t chunks; /* kvi_gpu_chunk[n] */
	uint64_t status; /* answers: u32[n], or kvi_gpu_encoded[n] */
	uint64_t n;
};
/* Parts of a batch at most: arguments of a kernel have 4096 bytes. */
enum { KVI_GPU_PARTS = 128 };
/* Chunks to be decoded, or encoded, by one launch, whose blocks take them in turn. A block whose
 * chunk needs work memory takes a free slot of it for that time. */
struct kvi_gpu_batch {
	uint64_t tables; /* kvi_gpu_tables */
	uint64_t work;   /* aligned: slots of slot_bytes, which is a multiple of 16 */
	uint64_t locks;  /* u32[slots]: 0 of those that are free, which all are between launches */
	uint64_t slot_bytes;
	uint32_t n, slots; /* n: chunks of all parts */
	struct kvi_gpu_part part[KVI_GPU_PARTS];
};

/* The beginning of a block's shared memory: what all of its warps know. */
struct kvi_gpu_block {
	struct kvi_gpu_chunk job; /* the chunk in hand, with addresses */
	struct kvi_gpu_opened opened;
	uint64_t token[KVI_GPU_TOKENS]; /* address of each token in the view; 0: not written */
	uint64_t answer;                /* address of the answer for the chunk */
	uint32_t slot;                  /* that the block has; KVI_GPU_NO_SLOT: none */
	uint32_t direct;                /* elements go from registers to the view, or back */
	uint32_t tables;                /* codec whose tables are in shared memory; 0: none */
};
/* Number of a slot: the block has none. */
enum { KVI_GPU_NO_SLOT = 0xffff };
/* Words of shared memory behind it, for decoders. Codec 4: the rings of layers, then a byte a
 * channel; codec 5: tables; codec 16: tables, memory of warps, then 4 words a channel. */
enum {
	KVI_GPU_RING_WORDS = KVI_GPU_STREAMS * (4 * 258 + 24),
	KVI_GPU_GRID_CODES = 192 * 41,
	KVI_GPU_GRID_WORDS = KVI_GPU_GRID_CODES + 64 + 192 * 256 / 4,
	KVI_GPU_CELL_SHARED = KVI_GPU_CELL_WORDS + KVI_GPU_TOKENS + KVI_GPU_LANES,
	KVI_GPU_CELL_ROWS = KVI_GPU_STREAMS * (256 + 128),
	KVI_GPU_CELL_CHANNELS = 2048 /* that have their words in shared memory */
};

#endif
