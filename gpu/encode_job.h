/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_job.h - what encoding kernels are given and what they write (device_job.h) */
#ifndef KVI_GPU_ENCODE_JOB_H
#define KVI_GPU_ENCODE_JOB_H

#include "device_job.h"

/* Sizes of what the encoder writes (spec rans 4, 5), and of its work. */
enum {
	KVI_GPU_ENTRY = 144,      /* table entry and states of a stream */
	KVI_GPU_SPARE_WORDS = 64, /* of a stream's memory, beyond those that elements take */
	KVI_GPU_PLANES = 3
};

/* The bytes of a plane that one slice of 32 tokens makes. */
struct kvi_gpu_plane_slice {
	uint8_t same, value; /* whether all are equal, and to what */
};

/* State of a chunk on its way out. */
struct kvi_gpu_encoding {
	struct kvi_gpu_opened o; /* rows, columns, streams and contexts, as decoders have them */
	uint32_t payload_bytes;  /* as the answer has it */
	uint32_t section_bytes, stream_size;
	uint32_t n_words[KVI_GPU_STREAMS];
	uint32_t state[KVI_GPU_STREAMS][KVI_GPU_LANES];
	struct kvi_gpu_plane_slice slice[KVI_GPU_STREAMS][KVI_GPU_PLANES];
	/* 1: all elements of the token are equal; 2, of codec 8: not all of them are finite */
	uint8_t row_flags[KVI_GPU_TOKENS];
};

/* What an encoder of codec 13 or 14 is given beyond parameters or a model (spec lossy 1, had 2):
 * fp32 in patterns. */
struct kvi_gpu_quantiser {
	uint32_t step, inverse;           /* of the body; 1 / step */
	uint32_t offset;                  /* what is added before rounding down */
	int32_t shift;                    /* of classes */
	uint32_t generation;              /* that the payload will have */
	uint32_t exact_first, exact_last; /* tokens of the chunk that stay exact */
	uint32_t reserved;
	/* Codec 14: the inverse of the basis, in the order of kvi_gpu_model.basis, and the fp32
	 * value of 1 in each of its rows, u32[channels]. */
	uint64_t analysis, gains;
};

/*
 * A chunk to be encoded by codec 4, 5 or 13 with parameters that are there, or by codec 7, 8 or 14
 * with its model; codec 0: its features alone are wanted. job: as for decoding, but payload is
 * where the payload goes, payload_bytes its capacity (kvi_gpu_encode_bound), the view is where the
 * elements come from, opened is a kvi_gpu_encoding, and contexts of codecs 7 and 8 are
 * u32[channels][tokens, padded to whole steps of 32]. A view without a base: decoded has the
 * elements, token-major.
 */
struct kvi_gpu_encode {
	struct kvi_gpu_chunk job;
	uint32_t hashed,
		unused; /* hashed: whether the answer has the hash; 240 bytes are too few */
	/* Work memory, aligned (kvi_gpu_encode_work): words of all streams, planes, u32 for each 32
	 * channels. */
	uint64_t words, planes, channel_bits;
	/* Codecs 13 and 14: codes are in `planes`, i8[blocks of 32 tokens][channels][32]; in
	 * `channel_bits` which tokens are refused, u32[blocks][heads], of codec 14 [panels]; then,
	 * of codec 14, units of slots, u32[blocks][heads][32]. decoded has elements, then
	 * points. */
	struct kvi_gpu_quantiser lossy;
};

/*
 * The answer for a chunk. status: OK; HOST (the mask leaves no element or, of codecs 7 and 8, not
 * all tokens, or an element of codec 8 is not finite, or all are those that the engine predicts, or
 * the payload would not be smaller than its capacity: such a chunk is for other codecs; of a tier,
 * too, where all tokens are exact, or one has a code that is out of range); PAGE (a token has no
 * page).
 */
struct kvi_gpu_encoded {
	uint32_t status;
	uint32_t payload_bytes; /* of the CHUNK frame, header included */
	uint32_t elements;      /* that the mask leaves; of a tier: that are not exact */
	uint32_t fits;          /* codecs 7, 8: level 1 need not be tried, as the model fits */
	uint32_t body_bytes;    /* of a tier: of the payload behind the exact tokens */
	uint32_t reserved;
	uint64_t hash[2]; /* H128 of the elements that a decoder makes, low and high half */
};

#endif
