/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_ids.h - numbers, names and properties of the codecs, as the format has them (spec 7) */
#ifndef KVI_CODEC_IDS_H
#define KVI_CODEC_IDS_H

#include <stdbool.h>

/* Chunk type numbers (spec 7). */
enum {
	KVI_CODEC_RAW = 0,
	KVI_CODEC_ZSTD = 1,
	KVI_CODEC_CONSTANT = 2,
	KVI_CODEC_REPEAT = 3,
	KVI_CODEC_LAYERS = 4,
	KVI_CODEC_GRID = 5,
	KVI_CODEC_BYTES = 6,
	KVI_CODEC_LINEAR = 7,
	KVI_CODEC_MODEL = 8,
	KVI_CODEC_PREDICTED = 9,
	KVI_CODEC_NEAR = 10,
	KVI_CODEC_TSC = 11,
	KVI_CODEC_VQ = 12,
	KVI_CODEC_HAD = 13,
	KVI_CODEC_KLT = 14,
	KVI_CODEC_STATE = 15,
	KVI_CODEC_CELLS = 16,
	KVI_N_CODECS = 17
};

/* Bytes of a payload of KVI_CODEC_PREDICTED whose elements equal the predicted ones; other payloads
 * are longer. */
enum { KVI_PREDICTED_EXACT = 9 };

/* Properties of a codec. */
enum {
	KVI_CODEC_IS_LOSSY = 1,   /* decoded elements are not those that were packed (spec lossy) */
	KVI_CODEC_IS_GUIDED = 2,  /* a transformer that runs over all tokens predicts its chunks */
	KVI_CODEC_IS_LINEAR = 4,  /* chunks need a linear model of their tensor, or predictions */
	KVI_CODEC_HAS_PARAMS = 8, /* chunks have PARAMS (kvi_codec_params) */
	KVI_CODEC_HAS_STREAMS = 16, /* chunks have a mask and streams (spec rans 4) */
	KVI_CODEC_IS_SOURCE = 32 /* chunks of codec state may refer to its chunks (spec state 3) */
};

/* Name and properties of a codec number. */
struct kvi_codec_id {
	const char *name;
	unsigned flags; /* KVI_CODEC_IS_* and KVI_CODEC_HAS_* */
};
/* The row of a codec; of a number that is not known: no name, no flags. Never NULL. */
const struct kvi_codec_id *kvi_codec_id(unsigned codec);

/* "grid"; NULL for a number that is not known. */
static inline const char *kvi_codec_name(unsigned codec)
{
	return kvi_codec_id(codec)->name;
}
/* Whether decoded elements differ from those that were packed. */
static inline bool kvi_codec_lossy(unsigned codec)
{
	return kvi_codec_id(codec)->flags & KVI_CODEC_IS_LOSSY;
}
/* Whether a transformer that runs over all tokens predicts its chunks. */
static inline bool kvi_codec_uses_prediction(unsigned codec)
{
	return kvi_codec_id(codec)->flags & KVI_CODEC_IS_GUIDED;
}
/* Whether decoding needs kvi_decode_request.linear. */
static inline bool kvi_codec_predicts(unsigned codec)
{
	return kvi_codec_id(codec)->flags & KVI_CODEC_IS_LINEAR;
}
static inline bool kvi_codec_has_params(unsigned codec)
{
	return kvi_codec_id(codec)->flags & KVI_CODEC_HAS_PARAMS;
}
/* The codec whose PARAMS chunks of a codec with PARAMS have. */
static inline unsigned kvi_codec_params(unsigned codec)
{
	return codec == KVI_CODEC_CELLS ? KVI_CODEC_GRID : codec;
}
static inline bool kvi_codec_has_streams(unsigned codec)
{
	return kvi_codec_id(codec)->flags & KVI_CODEC_HAS_STREAMS;
}
/* Whether a chunk of codec state may refer to one of this codec (spec state 3). */
static inline bool kvi_state_may_refer(unsigned codec)
{
	return kvi_codec_id(codec)->flags & KVI_CODEC_IS_SOURCE;
}

#endif
