/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/gate.h - how far a cache may be changed, by what its model says, or without one */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc/tools.h> instead of this file.
#endif
#ifndef KVARC_GATE_H
#define KVARC_GATE_H

/*
 * The last tokens of a cache (the continuation) are teacher-forced twice: after the tokens before
 * them (the prefix) as an archive of a tier decodes them, and after the exact prefix. Where the
 * distributions of the next tokens differ by more than the limit, layers get more bits, starting
 * with the layer whose loss alone changes them most; a layer that would need a higher rate than
 * the tier has stays lossless.
 *
 * Without a model (max_error) there are no queries, and a proxy takes their place: for each KV head
 * 64 directions at random, the same in every run, that look back from tokens all over the cache,
 * each scaled so that the logits of the tokens before it have a standard deviation of 4. The error
 * of a head is sqrt(sum |o' - o|^2 / sum |o|^2), o being the outputs of attention with keys and
 * values as they are stored and o' with those decoded from an archive; a layer's error is that of
 * its worst head. The layer gets more bits until its error is within the limit, or stays lossless.
 * A layer also stays lossless if it does not have exactly one tensor of keys and one of values,
 * both of floats, or if an element is not finite.
 */
typedef struct kvarc_gate kvarc_gate;

/* Options of a gate; set unused members to 0. */
typedef struct kvarc_gate_options {
	kvarc_common common; /* memlimit 0: none; progress in tokens, total unknown */
	/* the model that generated the cache, with an LM head; not used with max_error */
	const kvarc_predictor *predictor;
	const kvarc_writer_options *writer; /* its lossy is the first tier tried: had or klt */
	double max_kl; /* nats per token, > 0: as kvarc_eval_passes; 0 with max_error */
	/* tokens, 0: 4096 and 64; a continuation has at least 2. Of a longer cache the first prefix
	 * + continuation tokens are used. With max_error: prefix alone */
	uint32_t prefix, continuation;
	double max_error;     /* without a model, of each KV head, 0 < x < 1; 0: by max_kl */
	uint64_t reserved[3]; /* zero */
} kvarc_gate_options;
#define KVARC_GATE_OPTIONS_INIT KVARC_ZERO

/* Findings of a gate. */
typedef struct kvarc_gate_result {
	int passed;        /* 0: no rate did; nothing of the cache may change */
	unsigned archives; /* that were tried */
	/* layers of the cache; layers with more bits; lossless layers */
	uint32_t layers, raised, unchanged;
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
 * too few tokens), OPTIONS (no model, one without an LM head, another tier, or one that drops
 * tokens), PREDICTOR (not the cache of this model), PROG, and as writers and readers.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_gate_import(kvarc_gate **g, kvarc_import *im,
                                                       const kvarc_gate_options *options);
/* NULL-safe; sets *g to NULL. */
KVARC_API void kvarc_gate_close(kvarc_gate **g);
/* The tier for a writer's options, with a note that describes the result; owned by the gate.
 * NULL: nothing passed. */
KVARC_API const kvarc_lossy *kvarc_gate_lossy(const kvarc_gate *g);
/* Copies what the gate found. Returns OK, PROG (a pointer is NULL). */
KVARC_API kvarc_ret kvarc_gate_get_result(const kvarc_gate *g, kvarc_gate_result *result);

#endif
