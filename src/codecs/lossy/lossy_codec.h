/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy_codec.h - what the lossy codecs have in common (spec/codecs/lossy.md) */
#ifndef KVI_LOSSY_CODEC_H
#define KVI_LOSSY_CODEC_H

#include "codecs/coder.h"

/* The tokens that a body codes: those of the chunk that are not kept exactly and have a rate. */
struct kvi_lossy_job {
	struct kvi_chunk chunk;          /* of these tokens, with their positions */
	const uint8_t *token;            /* which tokens of the segment they are */
	const struct kvi_params *params; /* NULL: the codec has none */
	uint8_t lane_order;
	uint8_t *decoded; /* packed elements, as they come back */
	/* Encoders alone. */
	const kvarc_lossy *tier;
	const uint8_t *elements; /* packed, finite */
	uint8_t *refused;        /* of each token: set where it has to stay exact */
};

/* What a lossy codec does; one table for each. */
struct kvi_lossy_codec {
	/* What follows `u8 codec` in PARAMS; NULL: there are none. */
	kvarc_ret (*parse)(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
	                   struct kvi_in *in, struct kvi_params **out);
	void (*serialise)(const struct kvi_params *p, struct kvi_out *out);
	/* Parameters for the tokens of the job. Or, where tokens were refused, *out is left.
	 * Returns OK, MEM, MEMLIMIT, END (there are too few tokens, or numbers that it cannot work
	 * with). */
	kvarc_ret (*fit)(struct kvi_coder *c, const struct kvi_lossy_job *job,
	                 struct kvi_params **out);
	/* Whether it takes chunks like this one, all tokens of which are finite. */
	bool (*takes)(const kvarc_lossy *tier, const struct kvi_chunk *chunk);
	/* The body, and job->decoded. Or, where tokens were refused, nothing and *refused. */
	kvarc_ret (*encode)(struct kvi_coder *c, const struct kvi_lossy_job *job,
	                    struct kvi_out *body, bool *refused);
	kvarc_ret (*decode)(struct kvi_coder *c, const struct kvi_lossy_job *job,
	                    struct kvi_in *in);
};

/* NULL: the codec is not lossy. */
const struct kvi_lossy_codec *kvi_lossy_codec_get(unsigned codec);
extern const struct kvi_lossy_codec kvi_lossy_near, kvi_lossy_tsc, kvi_lossy_vq, kvi_lossy_had,
	kvi_lossy_klt;

/* A payload of a lossy codec; raw: kvi_chunk_bytes. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_lossy_decode(struct kvi_coder *c, const struct kvi_chunk_payload *p, uint8_t *raw);

/* Whether keys may be turned back. */
static inline bool kvi_lossy_rotations(const kvarc_lossy *tier, const struct kvi_chunk *chunk)
{
	return !(tier->flags & KVARC_LOSSY_NO_UNROPE) && chunk->rope && chunk->positions &&
	       chunk->kind == KVARC_KEY;
}

#endif
