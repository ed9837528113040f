/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exp_run.h - a stream of exponents on its way through a decoder or an encoder in AVX-512
 *
 * What exp_avx512.c shares with exp_vbmi.c and exp_vbmi_encode.c, which take turns with a stream.
 */
#ifndef KVI_EXP_RUN_H
#define KVI_EXP_RUN_H

#include "ops_avx512.h"

#include "feed.h"

/* The tables of a search (exp_avx512.c). */
struct exp_search {
	vec low[3];  /* entries by table, in each 128 bits */
	vec mid[3];  /* entries by table and quarter */
	vec last[4]; /* entries by table and pair */
};

/* Output of the next step: exponents, or bf16 elements made with the rest. */
struct exp_out {
	uint8_t *e;
	const uint8_t *rest;
	uint16_t *x;
};

/* A stream of exponents on its way through the full steps. */
struct exp_run {
	const struct kvi_exp_job *job;
	struct exp_search search; /* set when searched */
	bool searched;
	struct kvi_exp_ring ring;
	struct kvi_feed feed;
	const uint8_t *p;
	struct exp_out out;
	size_t steps; /* steps that remain */
	uint32_t bad; /* nonzero: a symbol gave E < 0 */
	uint32_t state[KVI_LANES];
};

/* Begins a stream; the job, *in and the output are the caller's and outlive the run. False when
 * it has too few words to begin with. */
bool kvi_avx512_exp_open(struct exp_run *r, const struct kvi_exp_job *job,
                         const struct kvi_stream *in, void *out);
/* Decodes the rest of a stream, and tests its end; false when it is not valid. */
bool kvi_avx512_exp_finish(struct exp_run *r);

/* A stream of exponents on its way through the full steps of an encoder, from the last one. */
struct exp_encode_run {
	const struct kvi_exp_job *job;
	struct kvi_exp_ring ring; /* behind the next step */
	const uint8_t *x;         /* fields behind those of the next step */
	uint16_t *w, *end;        /* the words so far */
	size_t steps;             /* steps that remain */
	uint32_t state[KVI_LANES];
};

/* Begins a stream with its tail; arguments as those of kvi_coding_kernels.exp_encode, which outlive
 * the run. */
void kvi_avx512_exp_encode_open(struct exp_encode_run *r, const struct kvi_exp_job *job,
                                const uint8_t *e, uint16_t *end);
/* Encodes the rest of a stream; returns the number of its words. */
size_t kvi_avx512_exp_encode_finish(struct exp_encode_run *r, uint32_t state[KVI_LANES]);

#endif
