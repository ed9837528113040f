/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/train.h - fitting a profile to caches of a model (spec/profile.md) */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc/tools.h> instead of this file.
#endif
#ifndef KVARC_TRAIN_H
#define KVARC_TRAIN_H

/*
 * Collects caches, reads them again layer by layer while it runs, and gives a profile. Memory:
 * tokens x the width of about four layers. The same caches in the same order give the same
 * profile on every machine, with any number of threads.
 */
typedef struct kvarc_trainer kvarc_trainer;

/* Channels are predicted from those of their own head only: smaller and faster. Default for
 * layers of more than 512 channels. */
#define KVARC_TRAIN_HEAD_BLOCK 0x1u
/* Channels are predicted from all of the layer, however wide. */
#define KVARC_TRAIN_WHOLE_LAYER 0x2u
/* No table of tokens for the lowest layer, though token ids are known. */
#define KVARC_TRAIN_NO_TABLE 0x4u
/* The profile is for these caches alone and goes into their archive: coefficients are as few and
 * as coarse as pays, and there is one level, 2 or (if asked for, and there are tokens enough) 3.
 * All tokens are fitted, of more than 16384 only that many, in blocks; no table. With a model the
 * first 2048, without a correction of its hidden state, and without coefficients for a layer that
 * the model predicts bit for bit. */
#define KVARC_TRAIN_IN_FILE 0x8u
/* KVARC_TRAIN_MODEL: channel means and scales of the prediction residual alone. */
#define KVARC_TRAIN_NO_STAGES 0x10u

/* kvarc_trainer_options.held_out: all tokens are fitted. */
#define KVARC_TRAIN_NONE_HELD_OUT UINT32_MAX

/* Aim that a profile is fitted for. */
typedef enum kvarc_train_mode {
	KVARC_TRAIN_LINEAR = 0, /* levels 2 and 3: linear models, from caches alone */
	KVARC_TRAIN_MODEL = 1,  /* a level of 4 to 7: the residual of a transformer's prediction */
	KVARC_TRAIN_KLT = 2     /* transforms for KVARC_TIER_KLT */
} kvarc_train_mode;

/* KVARC_TRAIN_MODEL; all zero in the other modes. */
typedef struct kvarc_train_model {
	/* a GGUF file, or a folder with config.json and safetensors, of the transformer that
	 * predicts the caches */
	const char *path;
	int level; /* 4 to 7 */
	/* arithmetic of the model, and its loop; 0: the level's own. Another one is in the identity
	 * of the profile: "arithmetic_4" */
	kvarc_arithmetic arithmetic;
	kvarc_loop loop;
	/* predict without the current token, as in kvarc_predictor_open_blind; its rows of all
	 * layers are in memory. 0: with the token */
	unsigned blind;
	uint64_t reserved[2]; /* zero */
} kvarc_train_model;

/* KVARC_TRAIN_KLT; all zero in the other modes. */
typedef struct kvarc_train_klt {
	/* layers per prediction group (0: 8, 1: none). Reading a layer decodes the lower layers of
	 * its group */
	unsigned group;
	/* the model of the caches, with an LM head: heads of high sensitivity get finer
	 * quantisation steps. It runs over the 64 tokens after the first 512 of up to four caches
	 * with token ids, once for each head. NULL, or without such a cache or an output matrix:
	 * all heads get steps of the same part of their tensor's variance */
	const kvarc_predictor *sensitivity;
	uint64_t reserved[2]; /* zero */
} kvarc_train_klt;

/* Options of a trainer; set unused members to 0. */
typedef struct kvarc_trainer_options {
	kvarc_common common;
	kvarc_train_mode mode;
	unsigned levels; /* KVARC_TRAIN_LINEAR: bit 2: level 2, bit 3: level 3; 0: both */
	unsigned flags;  /* KVARC_TRAIN_HEAD_BLOCK and so on */
	/* percentage of the tokens of every cache, the last ones, that are measured and not
	 * fitted: 1 to 50, 0: 10, KVARC_TRAIN_NONE_HELD_OUT: 0 % */
	unsigned held_out;
	kvarc_train_model model;
	kvarc_train_klt klt;
	uint64_t reserved[4]; /* zero */
} kvarc_trainer_options;
#define KVARC_TRAINER_OPTIONS_INIT KVARC_ZERO

/* On failure *t is NULL. Returns OK, MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_open(kvarc_trainer **t,
                                                        const kvarc_trainer_options *options);
/* NULL-safe; sets *t to NULL. */
KVARC_API void kvarc_trainer_close(kvarc_trainer **t);

/* Identity pairs of the profile, in any order; a key that is there already gets the new value.
 * Returns OK, MEM, MEMLIMIT, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_identity(kvarc_trainer *t, const char *key,
                                                            const char *value);

/* Share of the caches that are added from now on: held_out of the options, or 100, to be measured
 * alone.
 * Returns OK, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_held_out(kvarc_trainer *t, unsigned percent);

/*
 * Adds one track of a cache. geometry, ids (or NULL) and positions are copied; fetch is called
 * until kvarc_trainer_run has returned, one call at a time. Tensors that have no
 * linear model (not floating point, planes of quantised blocks, parts of a layer) are left out.
 * All caches that have some layers in common must have the same layers, of the same shape.
 * Returns OK, MEM, MEMLIMIT, GEOMETRY (another model's, or nothing to learn from; the
 * trainer can be used on), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_add(kvarc_trainer *t,
                                                       const kvarc_geometry *geometry,
                                                       uint32_t track, uint64_t n,
                                                       const int32_t *ids, const int32_t *positions,
                                                       kvarc_fetch fetch, void *opaque);
/* All tracks of an archive or an import, which must stay until kvarc_trainer_run has returned. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_add_reader(kvarc_trainer *t, kvarc_reader *r);
/* Adds all tracks of an import, likewise. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_add_import(kvarc_trainer *t, kvarc_import *im);

/*
 * Instead of a cache: the model of the options makes keys and values of the n token ids, from
 * position 0 on, rounded as an engine of this dtype (KVARC_F32, F16 or BF16) does. ids are copied.
 * Returns OK, MEM, MEMLIMIT, GEOMETRY (an id or a length that the model does not know, or
 * another rotary embedding than the caches before), PROG (also: no model).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_add_ids(kvarc_trainer *t, uint64_t n,
                                                           const int32_t *ids, unsigned dtype);
/*
 * The same of n tokens that the model writes itself during the run, in sequences of up to 1024,
 * each word picked from what it says of the next: the same seed gives the same ones everywhere.
 * first: what each sequence begins with, -1: what the model says. Memory, besides: 8 sequences'
 * keys and values of all layers in 16 bits. Returns as kvarc_trainer_add_ids, and OPTIONS (no
 * such first token, or a model without output matrix).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_write(kvarc_trainer *t, uint64_t n,
                                                         int32_t first, uint64_t seed,
                                                         unsigned dtype);

/* Tokens of all tracks added so far, but of those that are only measured. */
KVARC_API uint64_t kvarc_trainer_tokens(const kvarc_trainer *t);

/*
 * Fits. Returns OK, MEM, MEMLIMIT, IO, GEOMETRY (no tokens; for transforms also: none can be
 * fitted to any tensor, the error says why), PROG (called twice), or what a reader returned;
 * with a predictor also PREDICTOR (the caches are not of it), and as kvarc_eval_open and
 * kvarc_eval_sequence.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_run(kvarc_trainer *t);
/* The profile, once: the caller closes it. Returns OK, PROG, END (with KVARC_TRAIN_IN_FILE and
 * no model: it would not save what it costs). */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_trainer_profile(kvarc_trainer *t, kvarc_profile **p);

/*
 * One shot with KVARC_TRAIN_IN_FILE: a profile for the archive of an import, to be embedded
 * (KVARC_WRITE_EMBED_PROFILE). level: 2; 3 for 2 or 3, whichever is smaller; 4 to 8 for that, or 2
 * if smaller, with a transformer (and blind as in kvarc_trainer_options, else NULL and 0) that the
 * writer must be given, too. *p is NULL, and the return OK, when none would pay. Returns OK, MEM,
 * MEMLIMIT, IO, PROG (level, blind, or a model where none belongs), and with a model GEOMETRY (it
 * is not that of the cache), FORMAT, OPTIONS, DATA. common may be NULL.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_train_import(kvarc_profile **p, kvarc_import *im,
                                                        int level, const char *model,
                                                        unsigned blind, const kvarc_common *common);

/* Cost of a tensor, in bits per element, without anything that a file adds. */
typedef struct kvarc_trained {
	uint32_t layer;
	uint8_t kind; /* kvarc_kind */
	int measured; /* on held-out tokens; 0: there were none, on fitted ones */
	uint64_t elements;
	/* By level; [1]: channel means and scales alone, with a transformer those of its prediction
	 * residual; 0: not fitted. */
	double bits[8];
	/* KVARC_TRAIN_KLT: by rate of the tier, 1 to 6: expected for data with the variances of the
	 * fitted ones. */
	double klt_bits[8];
	uint64_t reserved[4];
} kvarc_trained;
/* Tensor i in order of layer and kind, after the run; END past the last. */
KVARC_API kvarc_ret kvarc_trainer_report(const kvarc_trainer *t, size_t i, kvarc_trained *trained);
/* Notes for the user, one line each ("too few tokens ..."); NULL past the last. */
KVARC_API const char *kvarc_trainer_note(const kvarc_trainer *t, size_t i);

/* Stages of a predictor; each does what those before it do, and more. */
typedef enum kvarc_stage {
	KVARC_STAGE_MEANS = 0, /* channel means and scales alone, about level 1 */
	KVARC_STAGE_LAYER = 1, /* other channels of the layer; values from keys */
	KVARC_STAGE_SCALE = 2, /* scales that follow the token: level 2 */
	KVARC_STAGE_BELOW = 3  /* the layers below, or a table of tokens: level 3 */
} kvarc_stage;
#define KVARC_STAGES 4

/* A tensor of an archive, in bits per element, without anything that a file adds. */
typedef struct kvarc_measured {
	uint32_t tensor;           /* of the geometry */
	uint64_t tokens;           /* that were looked at */
	double bits[KVARC_STAGES]; /* 0: not a stage of this archive, or of its profile */
	const float *channel_bits; /* at the last stage, one a channel of all heads */
	int table;                 /* the last stage uses a table of tokens */
	uint64_t reserved[4];
} kvarc_measured;
typedef void (*kvarc_measured_fn)(void *opaque, const kvarc_measured *measured);

/*
 * Measures what the stages of an archive's predictor are worth on 256 tokens of a track, fewer of
 * very wide caches, and calls fn for each tensor, by layer and kind. Scales of the stages before
 * KVARC_STAGE_SCALE are fitted to these tokens. Layers whose models are of another form than the
 * trainer's are left out. Memory: the tokens, and as a trainer.
 * Returns OK, END (no predictor), OPTIONS (a pipe), GEOMETRY (track), and as kvarc_reader_read.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_reader_measure(kvarc_reader *r, uint32_t track,
                                                          kvarc_measured_fn fn, void *opaque);

#endif
