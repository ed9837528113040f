/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/predictor.h - models that predict caches in exact arithmetic (spec/arithmetic.md) */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_PREDICTOR_H
#define KVARC_PREDICTOR_H

/*
 * A model, for levels 4 to 8. Immutable for its users; may be shared by readers, writers and
 * threads, which do not run at the same time as its close. Before a reader or writer uses one,
 * the kernels of its isa_mask have to give a known answer: PREDICTOR, "self-test of the exact
 * arithmetic failed", when they do not.
 */
typedef struct kvarc_predictor kvarc_predictor;

/* Shape of what a predictor predicts, and its name. */
typedef struct kvarc_predictor_model {
	char arch[32], name[128];         /* "llama"; name may be empty */
	uint32_t layers, heads, channels; /* of keys and values: heads of channels each */
	uint32_t vocabulary;
	uint64_t reserved[8];
} kvarc_predictor_model;

/*
 * A predictor of the application: an engine whose results are the same bits wherever its archives
 * are read. Each function but close returns 0, or anything else when it failed: PREDICTOR for the
 * reader or writer. Memory is the library's, until the function returns. Threads of a pool call
 * them, those of one sequence one at a time, those of several sequences perhaps at once; a
 * sequence is what one reader or writer has of one track.
 */
typedef struct kvarc_external {
	uint8_t identity[16];             /* another one for anything that predicts otherwise */
	const char *name;                 /* human-readable, copied; NULL: none */
	uint32_t layers, heads, channels; /* of keys and values; at most 256 channels a head */
	/* A sequence without tokens. */
	int (*open)(void *opaque, void **sequence);
	void (*close)(void *sequence);
	/* The next n tokens, 1 to 256. Then come, for layers 0, 1 ..., predict and advance; the
	 * last layers may be left out when nobody reads them, in all segments up to restart. */
	int (*segment)(void *sequence, const int32_t *ids, const int32_t *positions, size_t n);
	/* Fills n rows of heads x channels with what keys and values are expected to be: as the
	 * cache has them, keys after RoPE where it keeps them so. Where they round to the elements,
	 * bit for bit, a layer's keys or values of a segment take some 100 bytes. */
	int (*predict)(void *sequence, uint32_t layer, float *k, float *v);
	/* Meaning of the values: the same rows, exact (8-bit and 16-bit floats fit fp32). */
	int (*advance)(void *sequence, uint32_t layer, const float *k, const float *v);
	/* Before the first token again. */
	int (*restart)(void *sequence);
	void *opaque;         /* of open */
	uint64_t reserved[8]; /* zero */
} kvarc_external;

/*
 * external is copied, what opaque points to must stay. common as below. Archives record its
 * identity, and a reader's check of each layer fails when it computed other numbers ("diverged").
 * Returns OK, MEM, MEMLIMIT, PROG (a function is missing, a shape that cannot be).
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_predictor_open_external(kvarc_predictor **p,
                                                                   const kvarc_external *external,
                                                                   const kvarc_common *common);

/*
 * path: a GGUF file, or a folder with config.json and safetensors. Files are mapped, and so are
 * those of weight_cache: none may be changed in place or become shorter until p is closed (one that
 * is renamed over or removed is safe). Where that can happen, the program that calls must expect
 * SIGBUS in any thread that runs the model, as with every mapped file: the library installs no
 * handlers. After one, p and all that use it are lost. common, or NULL for none: memlimit 0 means
 * none here (the weights as integers take 1 to 2 bytes each unless weight_cache has them, the keys
 * and values that attention looks at as much as the cache); threads for the conversion and for all
 * who run the model; progress, in weights, of
 * the conversion, which the first user of the model waits for. On failure *p is NULL.
 * Returns OK, MEM, MEMLIMIT, IO, FORMAT (no model), OPTIONS (architecture or type that is not
 * known), DATA, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_predictor_open_model(kvarc_predictor **p,
                                                                const char *path,
                                                                const kvarc_common *common);
/* Ways in which a model predicts a token that it does not see, from those before it alone. */
#define KVARC_BLIND_TOP_MAX 16u    /* 1 to this many: the likeliest candidates, mixed */
#define KVARC_BLIND_EMBEDDING 256u /* the model's answer to the expected row of its embedding */
/*
 * The same, of a model with an output matrix, as a predictor that does not see the token that it
 * predicts (spec/codecs/model.md 6). It costs about 2 bits more for each element than one that
 * does, and blind + 1 passes of the model a token (of an embedding 2): for research. It has no
 * closed loop. Memory, besides: fp32 rows of 256 tokens of all layers, twice. Returns also PROG
 * (blind is none of those); its first users OPTIONS where the model has no output matrix.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_predictor_open_blind(kvarc_predictor **p,
                                                                const char *path, unsigned blind,
                                                                const kvarc_common *common);
/* NULL-safe; sets *p to NULL. Readers and writers that use it must be closed before. */
KVARC_API void kvarc_predictor_close(kvarc_predictor **p);
/* How levels 4 to 8 run a model, when not as the level says (spec/codecs/model.md 1). */
typedef enum kvarc_arithmetic {
	KVARC_ARITHMETIC_LEVEL = 0, /* 4 and 5: W8A8, 6: W8A15, 7: W15A15 */
	KVARC_ARITHMETIC_W8A8 = 1,  /* integers of 8 bits; where keys and values are made in a
	                              * closed loop of 15 */
	KVARC_ARITHMETIC_W8A15 = 2, /* activations of 15 bits, weights as before */
	KVARC_ARITHMETIC_W15A15 = 3,
	KVARC_ARITHMETIC_FP8 = 4 /* weights in e4m3, activations in fp32; not of a model whose
	                              * file is quantised */
} kvarc_arithmetic;
/* Which keys and values attention sees. */
typedef enum kvarc_loop {
	KVARC_LOOP_LEVEL = 0, /* 4: open, 5 to 7: closed */
	KVARC_LOOP_OPEN = 1,  /* attention looks at the model's own keys and values */
	KVARC_LOOP_CLOSED = 2 /* at the true ones, as they become known */
} kvarc_loop;

/* Copies what the predictor predicts. Returns OK, PROG (a pointer is NULL). */
KVARC_API kvarc_ret kvarc_predictor_get_model(const kvarc_predictor *p,
                                              kvarc_predictor_model *model);
/* Digest of the weights (spec/arithmetic.md 9), of which it reads all once, or none with
 * a weight_cache that has them; of an external one its identity.
 * Returns OK, MEM, MEMLIMIT, DATA (a weight is not finite), PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_predictor_digest(const kvarc_predictor *p,
                                                            uint8_t digest[16]);

#endif
