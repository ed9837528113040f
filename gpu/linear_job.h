/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_job.h - what kernels are given about linear models and what they predict from (spec
 * linear, profile 3): C for callers, C++ for kernels
 *
 * Addresses as in device_job.h. Tokens are padded to whole steps of 32. Features are numbers of 16
 * bits without sign, 32768 more than z and r, in panels: a panel has KVI_GPU_PANEL slots of a head,
 * its last one fewer, at the 32 tokens of a step, and of each token four words: the low bytes of
 * slots 0 to 3 and their high bytes, then those of slots 4 to 7. Features of a tensor: step after
 * step, head after head, panel after panel. Addresses of work and kept memory are not 0, as far as
 * there is any.
 */
#ifndef KVI_GPU_LINEAR_JOB_H
#define KVI_GPU_LINEAR_JOB_H

#include "model_job.h"

/* Sizes that the format fixes, and slots whose sums are made together. */
enum { KVI_GPU_LOWER = 8, KVI_GPU_SAME = 4, KVI_GPU_PANEL = 8 };

/* Flags of a model (spec profile 3). */
enum {
	KVI_GPU_MODEL_SELF = 1,
	KVI_GPU_MODEL_SELF_HEAD = 2,
	KVI_GPU_MODEL_SCALE = 4,
	KVI_GPU_MODEL_TABLE = 8
};

/* How much of the features of a chunk is made. */
enum { KVI_GPU_FEATURES_NONE = 0, KVI_GPU_FEATURES_Z = 1, KVI_GPU_FEATURES_ALL = 2 };

/*
 * A model that the host has checked. Arrays are aligned.
 *
 * `slots` has four words a slot: step; k and, in the high half, mean; qa and, from bit 8 on, qb;
 * 2^20 less the binary32 pattern of 13 * n before the slot (spec linear 4). `offsets` has what is
 * added to a slot's sums over features, of `a` and of `b`: half(q), less 32768 times all
 * coefficients.
 *
 * Matrices are in the order in which lanes of a warp want them: of a panel of slots blocks of four
 * panels of features, and of these, of each lane, the coefficients of slot lane / 4 and features
 * panel lane % 4 in four words: the low bytes of all, then the high ones. Each source begins a
 * block, and so do earlier slots of the tensor itself: of these, `b` has the panels before a slot's
 * own. `near` has, of each slot, those in its own panel: as many as there are before it (a pair is
 * one step), at the end of the panel; in four words as features. 0 where there is none.
 *
 * The matrix `d` of a correction is as `b`, its slots are numbers of the hidden state, its sources
 * those of the same layer, of all heads, then the tensor itself; `d_rows` has two words for each of
 * these: as in `offsets`, and the fp32 pattern of 2^-e. Both have whole panels.
 *
 * The basis of codec 14 has, of each panel of slots and each pair of a head's coefficients, of a
 * slot's two the low bytes, then the high ones; `qm` is 128 more than the exponents of gains.
 */
struct kvi_gpu_model {
	uint64_t slots;      /* i32[channels][4] */
	uint64_t offsets;    /* u32[channels][2] */
	uint64_t a, b;       /* u32[panels][blocks][32][4]; 0: no matrix */
	uint64_t near;       /* u32[channels][4]; 0: none */
	uint64_t basis, qm;  /* u32[panels][pairs][KVI_GPU_PANEL], u8[channels]; 0: none */
	uint64_t ids, table; /* i32[n_ids], i8[n_ids][channels]; 0: none */
	uint64_t d, d_rows;  /* u32[panels][blocks][32][4], u32[panels * 8][2]; 0: no correction */
	uint32_t a_blocks, b_blocks, d_blocks;
	uint32_t width; /* of the hidden state that is corrected; 0: none */
	uint32_t n_ids, tshift, unknown;
	uint32_t heads, head_channels, rotary;
	uint32_t flags, n0, beta;
	uint32_t n_lower, n_same;
	uint32_t reserved;
};

/* What remains of a chunk for the chunks of other layers; z follows where it is wanted. */
struct kvi_gpu_kept {
	uint32_t status;
	uint32_t reserved[3];
};

/* A chunk whose features another one needs. */
struct kvi_gpu_source {
	uint64_t features;      /* of a lower layer z, of the same one r */
	uint64_t kept;          /* kvi_gpu_kept */
	uint64_t hashes;        /* of its E (model_job.h); 0: it has none */
	uint32_t heads, panels; /* of its tensor; panels of a head */
	uint32_t scope;         /* 1: the slot's own head alone */
	uint32_t reserved;
};

/* What a chunk needs that is predicted, or that others are predicted from. */
struct kvi_gpu_linear {
	uint64_t model;       /* kvi_gpu_model */
	uint64_t ids;         /* of the tokens, i32[tokens]; 0: not known */
	uint64_t frequencies; /* u64[rotary / 2] of the tensor's rope; 0: none */
	/* Work memory: u16[channels][padded] elements of slots, i16 and i32 of the same shape:
	 * bases, and sums of the predictions in the layer; features r; u32[padded] distances w, and
	 * rows of the table; of each rotated pair u32[padded] cosine and sine, u8[padded] class;
	 * of two slots u32[2][3][padded]. */
	uint64_t elements, bases, sums, r, w, rows, turns, classes, slots;
	uint64_t kept;                              /* kvi_gpu_kept */
	uint64_t z;                                 /* behind kept; 0: not wanted */
	uint64_t scale_w, scale_kept, scale_hashes; /* of the scale source; 0: none */
	uint32_t scale_n;                           /* its N */
	uint32_t interleaved;
	uint32_t features; /* KVI_GPU_FEATURES_*; all of a chunk of codec 7 or 8 */
	uint32_t predicts; /* 1: bases are made, as features are all, or the codec is 14 */
	struct kvi_gpu_source lower[KVI_GPU_LOWER], same[KVI_GPU_SAME];
	struct kvi_gpu_expects expects;
};

#endif
