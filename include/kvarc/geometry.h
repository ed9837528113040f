/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/geometry.h - what a cache looks like: tracks, tensors, RoPE (spec 4) */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_GEOMETRY_H
#define KVARC_GEOMETRY_H

/* Types of elements. Other numbers are of later versions, and their size follows from the number:
 * 1 byte from 8 on, 2 bytes from 64 on, 4 bytes from 128 to 191. */
typedef enum kvarc_dtype {
	KVARC_BYTES = 0,
	KVARC_F32 = 1,
	KVARC_F16 = 2,
	KVARC_BF16 = 3,
	KVARC_E4M3 = 4,
	KVARC_E5M2 = 5,
	KVARC_I8 = 6,
	KVARC_U8 = 7
} kvarc_dtype;

/* Kind of values that a tensor holds. Other numbers are of later versions: as KVARC_OPAQUE. */
typedef enum kvarc_kind {
	KVARC_KEY = 0,
	KVARC_VALUE = 1,
	KVARC_KV_PACKED = 2,
	KVARC_MLA_LATENT = 3,
	KVARC_INDEXER_KEY = 4,
	KVARC_CONV_STATE = 5,
	KVARC_RECURRENT_STATE = 6,
	KVARC_CROSS_KEY = 7,
	KVARC_CROSS_VALUE = 8,
	KVARC_OPAQUE = 9
} kvarc_kind;

/* The tensor itself, or what belongs to another one: a plane of a ggml block type, or scales. Other
 * numbers are of later versions. */
typedef enum kvarc_role {
	KVARC_WHOLE = 0,
	KVARC_SCALE = 1,
	KVARC_MINIMUM = 2,
	KVARC_PAYLOAD = 3,
	KVARC_HIGH_BITS = 4
} kvarc_role;

/* Kind of tokens that a track has. Other numbers are of later versions: as KVARC_TRACK_OTHER. */
typedef enum kvarc_track_kind {
	KVARC_TRACK_SELF = 0,
	KVARC_TRACK_WINDOW = 1,
	KVARC_TRACK_CROSS = 2,
	KVARC_TRACK_STATE = 3,
	KVARC_TRACK_OTHER = 255
} kvarc_track_kind;

#define KVARC_ROPE_HALF 0        /* channel i turns with i + rotary/2 */
#define KVARC_ROPE_INTERLEAVED 1 /* channel 2i turns with 2i + 1 */

#define KVARC_TENSOR_POST_ROPE 0x1u
#define KVARC_TENSOR_HADAMARD 0x2u

/* Rotary embedding. freq[i], rotary/2 of them: angle per position of pair i,
 * as a fraction of a full turn times 2^64. */
typedef struct kvarc_rope {
	uint8_t pairing;
	uint32_t rotary;
	const uint64_t *freq;
	uint64_t reserved[2]; /* zero */
} kvarc_rope;

/* One token axis. label may be NULL. */
typedef struct kvarc_track {
	uint8_t kind;
	uint32_t window;
	const char *label;
	uint64_t reserved[2]; /* zero */
} kvarc_track;

/* One tensor: [token, head, channel]; width = heads * channels elements a token. */
typedef struct kvarc_tensor {
	uint32_t layer;
	uint8_t kind;         /* kvarc_kind */
	uint8_t role;         /* kvarc_role */
	uint8_t dtype;        /* kvarc_dtype */
	uint8_t flags;        /* KVARC_TENSOR_* */
	uint16_t source_type; /* 0, or 0x100 + ggml type */
	uint32_t heads;
	uint32_t channels; /* of one head */
	uint32_t track;
	uint32_t rope;                    /* 0 none, else 1 + index into ropes */
	uint32_t first_head, total_heads; /* shard; total_heads 0: heads */
	/* Index of the tensor that this one belongs to, as scales do, and 1; 0: none. The other is
	 * on the same track and belongs to none. Its column c (head * channels + channel) goes with
	 * this tensor's column c / group; 0 where belongs_to is 0. */
	uint32_t belongs_to, group;
	const char *name;     /* may be NULL */
	uint64_t reserved[2]; /* zero */
} kvarc_tensor;

/* The tensors of a cache, the tracks (token axes) that they are on, and their RoPEs. */
typedef struct kvarc_geometry {
	size_t n_ropes, n_tracks, n_tensors;
	const kvarc_rope *ropes;
	const kvarc_track *tracks;
	const kvarc_tensor *tensors;
	uint64_t reserved[2]; /* zero */
} kvarc_geometry;

/* Bytes of one element; 0: no version 1 has the dtype. */
KVARC_API size_t kvarc_dtype_bytes(unsigned dtype);
/* "bf16"; "unknown-70" for one of later versions; NULL above 255. Static storage. */
KVARC_API const char *kvarc_dtype_name(unsigned dtype);
/* "key"; "unknown-70" for one of later versions; NULL above 255. Static storage. */
KVARC_API const char *kvarc_kind_name(unsigned kind);

#endif
