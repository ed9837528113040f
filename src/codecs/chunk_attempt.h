/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_attempt.h - payload and parameters of a chunk, by one of the codecs */
#ifndef KVI_CHUNK_ATTEMPT_H
#define KVI_CHUNK_ATTEMPT_H

#include "coder.h"

/* A chunk encoded with one codec and its parameters. */
struct kvi_attempt {
	unsigned codec;
	struct kvi_payload out; /* out.begin NULL: the codec made no payload */
	size_t section_bytes;
	uint64_t raw_check;        /* check of the elements; several streams alone */
	bool refers;               /* the payload refers to chunk->before */
	struct kvi_params *params; /* new parameters, or NULL */
	struct kvi_out content;    /* PARAMS content of new parameters */
	size_t params_bytes;       /* bytes of new parameters in the file */
	bool priced;               /* params_bytes is exact, else an upper bound */
};

/* Bytes of the payload. */
static inline size_t kvi_attempt_bytes(const struct kvi_attempt *attempt)
{
	return (size_t)(attempt->out.end - attempt->out.begin);
}
/* Bytes of the payload and of its new parameters. */
static inline size_t kvi_attempt_cost(const struct kvi_attempt *attempt)
{
	return kvi_attempt_bytes(attempt) + attempt->params_bytes;
}
/* Frees new parameters. */
void kvi_attempt_drop(struct kvi_attempt *attempt);
/* Section, streams and planes by attempt->codec and job->params, in scratch memory `where`.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_attempt_write(struct kvi_coder *coder, struct kvi_coder_job *job,
                            struct kvi_attempt *attempt, enum kvi_scratch where);
/* Computes the bytes that new parameters take once they are packed. Packing takes as long as an
 * eighth of a chunk of level 0: only where that decides something. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_attempt_price(struct kvi_coder *coder, struct kvi_attempt *attempt);
/*
 * The best of the parameters in force and new ones. Leaves best->out empty
 * when neither can be used. Returns OK, MEM, MEMLIMIT.
 */
kvarc_ret kvi_attempt_codec(struct kvi_coder *coder, struct kvi_coder_job *job, unsigned codec,
                            const struct kvi_params *current, struct kvi_attempt *best);

#endif
