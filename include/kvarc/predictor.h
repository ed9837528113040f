/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/predictor.h - models that predict caches in exact arithmetic (spec/arithmetic.md) */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_PREDICTOR_H
#define KVARC_PREDICTOR_H

/*
 * A model, for levels 4 to 7. Immutable for its users; may be shared by readers, writers and
 * threads, which do not run at the same time as its close. Before a reader or writer uses one,
 * the kernels of its isa_mask have to give a known answer: PREDICTOR, "self-test of the exact
 * arithmetic failed", when they do not.
 */
typedef struct kvarc_predictor kvarc_predictor;

typedef struct kvarc_predictor_model {
	char arch[32], name[128];  /* "llama"; name may be empty */
	uint32_t layers, heads, channels; /* of keys and values: heads of channels each */
	uint32_t vocabulary;
	uint64_t reserved[8];
} kvarc_predictor_model;

/*
 * path: a GGUF file, or a folder with config.json and safetensors. Files are mapped and must stay
 * as they are. common, or NULL for none: memlimit 0 means none here (the weights as integers take
 * 1 to 2 bytes each, the keys and values that attention looks at as much as the cache); threads for
 * the conversion and for all who run the model. On failure *p is NULL.
 * Returns OK, MEM, MEMLIMIT, IO, FORMAT (no model), OPTIONS (architecture or type that is not
 * known), DATA, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_predictor_open_model(
	kvarc_predictor **p, const char *path, const kvarc_common *common);
/* NULL-safe; sets *p to NULL. Readers and writers that use it must be closed before. */
KVARC_API void kvarc_predictor_close(kvarc_predictor **p);
KVARC_API kvarc_ret kvarc_predictor_get_model(const kvarc_predictor *p,
	kvarc_predictor_model *model);
/* Digest of the weights (spec/arithmetic.md 9). Reads all of them once.
 * Returns OK, MEM, MEMLIMIT, DATA (a weight is not finite), PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_predictor_digest(
	const kvarc_predictor *p, uint8_t digest[16]);

#endif
