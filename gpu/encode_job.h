/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_job.h - what encoding kernels are given and what they write (device_job.h) */
#ifndef KVI_GPU_ENCODE_JOB_H
#define KVI_GPU_ENCODE_JOB_H

#include "device_job.h"

/* Sizes of what the encoder writes (spec rans 4), and of its work. */
enum {
	KVI_GPU_ENTRY = 144,     /* table entry and states of a stream */
	KVI_GPU_SPARE_WORDS = 64 /* of a stream's memory, beyond those that elements take */
};

/* State of a chunk on its way out. */
struct kvi_gpu_encoding {
	struct kvi_gpu_opened o; /* rows, columns, streams and contexts, as decoders have them */
	uint32_t payload_bytes;  /* as the answer has it */
	uint32_t section_bytes, stream_size;
	uint32_t n_words[KVI_GPU_STREAMS];
	uint32_t state[KVI_GPU_STREAMS][KVI_GPU_LANES];
	uint8_t row_same[KVI_GPU_TOKENS]; /* 1: all elements of the token are equal */
};

/*
 * A chunk to be encoded by codec 5 with parameters that are there. job: as for decoding, but
 * payload is where the payload goes, payload_bytes its capacity (kvi_gpu_encode_bound), the view is
 * where the elements come from, and opened is a kvi_gpu_encoding. A view without a base: decoded
 * has the elements, token-major.
 */
struct kvi_gpu_encode {
	struct kvi_gpu_chunk job;
	uint32_t hashed,
		unused; /* hashed: whether the answer has the hash; 240 bytes are too few */
	/* Work memory, aligned (kvi_gpu_encode_work): words of all streams, u32 for each 32
	 * channels. */
	uint64_t words, channel_bits;
};

/*
 * The answer for a chunk. status: OK; HOST (the mask leaves no element, or the payload would not be
 * smaller than its capacity: such a chunk is for other codecs); PAGE (a token has no page).
 */
struct kvi_gpu_encoded {
	uint32_t status;
	uint32_t payload_bytes; /* of the CHUNK frame, header included */
	uint32_t elements;      /* that the mask leaves */
	uint32_t reserved;
	uint64_t hash[2]; /* H128 of the elements that a decoder makes, low and high half */
};

#endif
