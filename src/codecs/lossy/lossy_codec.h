/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy_codec.h - the decoder of lossy payloads, and rules of tiers (spec/codecs/lossy.md) */
#ifndef KVI_LOSSY_CODEC_H
#define KVI_LOSSY_CODEC_H

#include "codecs/coder.h"

/* Decodes a lossy payload. codec: the row of its codec; raw: kvi_chunk_bytes. Returns OK, MEM,
 * MEMLIMIT, DATA, OPTIONS, PREDICTOR, LOSSY (kvi_coder_tables_lossy was not called). */
kvarc_ret kvi_lossy_decode(struct kvi_coder *coder, const struct kvi_codec *codec,
                           const struct kvi_decode_request *request, uint8_t *raw);

/* Whether a tier codes tensors of a kind and has the rate that they get. */
bool kvi_lossy_takes(const kvarc_lossy *tier, unsigned kind);

/* Encoders: whether RoPE may be removed from keys before they are coded. */
static inline bool kvi_lossy_rotations(const struct kvi_coder_job *job)
{
	return !(job->tier->flags & KVARC_LOSSY_NO_UNROPE) && job->chunk->rope &&
	       job->chunk->positions && job->request->kind == KVARC_KEY;
}

/* The generation of a payload of this tier: one more than that of its input, 255 at most. */
static inline uint8_t kvi_lossy_next_generation(const kvarc_lossy *tier)
{
	enum { MOST = 255 };
	return tier->generation < MOST ? (uint8_t)(tier->generation + 1) : MOST;
}

/* Whole bits per element of a kind, of tsc and vq: rates are in 1/16 bit, and keys get key_rate on
 * top. */
static inline int kvi_lossy_bits(const kvarc_lossy *tier, unsigned kind)
{
	enum { UNIT = 16 };
	return (tier->rate + (kind == KVARC_KEY ? tier->key_rate : 0)) / UNIT;
}

#endif
