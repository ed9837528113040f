/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/gate.h - how far a cache may be changed before its model says something else */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_GATE_H
#define KVARC_GATE_H

/*
 * The last tokens of a cache (the continuation) are told to the model again, after what an archive of
 * a tier gives back of those before them (the prefix), and after those themselves. Where the
 * distributions of the next tokens differ by more than they may, layers get more bits, those
 * first that alone do most harm; a layer that would need more than the tier has stays as it is.
 */
typedef struct kvarc_gate kvarc_gate;

typedef struct kvarc_gate_options {
	kvarc_common common;          /* memlimit 0: none; progress in tokens, total unknown */
	const kvarc_predictor *predictor; /* the model that made the cache, with a head */
	const kvarc_writer_options *writer; /* its lossy is where to begin: tier had or klt */
	double max_kl;                /* nats a token, > 0: as kvarc_eval_passes */
	uint32_t prefix, continuation; /* tokens; of longer caches the first so many. At least 1 and 2 */
	uint64_t reserved[4];         /* zero */
} kvarc_gate_options;
#define KVARC_GATE_OPTIONS_INIT {.prefix = 4096, .continuation = 64}

typedef struct kvarc_gate_result {
	int passed;                   /* 0: no rate did; nothing of the cache may change */
	unsigned archives;            /* that were tried */
	uint32_t layers, raised, unchanged; /* of the model; with more bits; that stay as they are */
	kvarc_eval_result eval;       /* of the last archive */
	uint64_t reserved[4];
} kvarc_gate_result;

/*
 * Looks for the rates of a cache's layers. It needs token ids, one track, positions from 0 on, and
 * all keys and values of the model as floats. Memory: the prefix in the cache's type three times
 * and as floats once, besides the model. On failure *g is NULL.
 * Returns OK (also when no rate passed), MEM, MEMLIMIT, IO, DATA, GEOMETRY (no ids, several tracks, too few tokens),
 * OPTIONS (no model, one without a head, another tier, or one that leaves tokens out), PREDICTOR
 * (not the cache of this model), PROG, and what writers and readers return.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_gate_import(kvarc_gate **g,
	kvarc_import *im, const kvarc_gate_options *options);
/* NULL-safe; sets *g to NULL. */
KVARC_API void kvarc_gate_close(kvarc_gate **g);
/* For a writer's options, with a note that says what was found; the gate's. NULL: nothing passed. */
KVARC_API const kvarc_lossy *kvarc_gate_lossy(const kvarc_gate *g);
KVARC_API kvarc_ret kvarc_gate_get_result(const kvarc_gate *g,
	kvarc_gate_result *result);

#endif
