/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/gate.h - how far a cache may be changed, by what its model says, or without one */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_GATE_H
#define KVARC_GATE_H

/*
 * The last tokens of a cache (the continuation) are teacher-forced again, after what an archive
 * of a tier gives back of those before them (the prefix), and after those themselves. Where the
 * distributions of the next tokens differ by more than they may, layers get more bits, those
 * first that alone do most harm; a layer that would need more than the tier has stays as it is.
 *
 * Without a model (max_error) there are no queries, and a proxy takes their place: for each KV head
 * 64 directions at random, the same in every run, that look back from tokens all over the cache,
 * each scaled so that the logits of the tokens before it have a standard deviation of 4. The error
 * of a head is sqrt(sum |o' - o|^2 / sum |o|^2), o being the outputs of attention with keys and
 * values as they are stored and o' with those that an archive gives back; a layer's is that of its
 * worst head. It gets more bits until that is within the limit, or stays as it is. So does a layer
 * that has not one tensor of keys and one of values, floats both, and one with elements that are
 * not finite.
 */
typedef struct kvarc_gate kvarc_gate;

/* What a gate is opened with; set unused members to 0. */
typedef struct kvarc_gate_options {
	kvarc_common common; /* memlimit 0: none; progress in tokens, total unknown */
	const kvarc_predictor
		*predictor; /* the model that made the cache, with a head; not used with
	                               * max_error */
	const kvarc_writer_options *writer; /* its lossy is where to begin: tier had or klt */
	double max_kl; /* nats a token, > 0: as kvarc_eval_passes; 0 with max_error */
	uint32_t prefix,
		continuation; /* tokens; of longer caches the first so many. At least 1 and 2;
	                               * max_error: prefix alone */
	double max_error;     /* without a model, of each KV head, 0 < x < 1; 0: by max_kl */
	uint64_t reserved[3]; /* zero */
} kvarc_gate_options;
#define KVARC_GATE_OPTIONS_INIT                    \
	{                                          \
		.prefix = 4096, .continuation = 64 \
	}

/* What a gate found. */
typedef struct kvarc_gate_result {
	int passed;        /* 0: no rate did; nothing of the cache may change */
	unsigned archives; /* that were tried */
	uint32_t layers, raised,
		unchanged;      /* of the cache; with more bits; that stay as they are */
	kvarc_eval_result eval; /* of the last archive; max_error: its bytes and tokens alone */
	double worst_error;     /* max_error: of all layers that the last archive changed */
	uint64_t reserved[3];
} kvarc_gate_result;

/*
 * Looks for the rates of a cache's layers. It needs one track, and with a model token ids,
 * positions from 0 on, and all keys and values of the model as floats. Memory: the prefix in the
 * cache's type three times and as floats once, besides the model; with max_error, instead of these,
 * one head as floats for each thread. On failure *g is NULL.
 * Returns OK (also when no rate passed), MEM, MEMLIMIT, IO, DATA, GEOMETRY (no ids, several tracks,
 * too few tokens),
 * OPTIONS (no model, one without a head, another tier, or one that leaves tokens out), PREDICTOR
 * (not the cache of this model), PROG, and what writers and readers return.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_gate_import(kvarc_gate **g, kvarc_import *im,
                                                       const kvarc_gate_options *options);
/* NULL-safe; sets *g to NULL. */
KVARC_API void kvarc_gate_close(kvarc_gate **g);
/* For a writer's options, with a note that says what was found; the gate's. NULL: nothing passed.
 * */
KVARC_API const kvarc_lossy *kvarc_gate_lossy(const kvarc_gate *g);
/* Copies what the gate found. Returns OK, PROG (a pointer is NULL). */
KVARC_API kvarc_ret kvarc_gate_get_result(const kvarc_gate *g, kvarc_gate_result *result);

#endif
