/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.h - a transformer in exact arithmetic (spec/arithmetic.md 8)
 *
 * An engine is a model with its matrices as integer operands: immutable, may be shared.
 * A run is one sequence of tokens going through it, segment by segment and layer by
 * layer; its driver gives the keys and values that attention looks at.
 */
#ifndef KVI_ENGINE_H
#define KVI_ENGINE_H

#include "exact/matmul.h"
#include "util/hash.h"
#include "util/pool.h"
#include "weights/model_file.h"
#include "util/shared.h"

/* Kinds of products; each has its own precision. */
enum kvi_matrix_kind {
	KVI_MATRIX_KV,
	KVI_MATRIX_Q,
	KVI_MATRIX_O,
	KVI_MATRIX_FFN,
	KVI_MATRIX_DOWN,
	KVI_MATRIX_KEYS,   /* attention: queries by the keys of the cache */
	KVI_MATRIX_VALUES, /* attention: probabilities by its values */
	KVI_MATRIX_KINDS,
	KVI_MATRIX_HEAD = KVI_MATRIX_KINDS /* always wide, in no struct kvi_arithmetic (head.h) */
};

/* Sets of kinds, for struct kvi_arithmetic: keys and values, attention, everything. */
enum {
	KVI_WIDE_KV = 1 << KVI_MATRIX_KV,
	KVI_WIDE_ATTENTION = 1 << KVI_MATRIX_KEYS | 1 << KVI_MATRIX_VALUES,
	KVI_WIDE_ALL = (1 << KVI_MATRIX_KINDS) - 1,
	/* 12 bits: in wide_weights for keys and queries, in wide_activations for probabilities; the
	 * bits of their kinds are then 0 */
	KVI_ATTENTION_12 = 1 << KVI_MATRIX_KINDS
};

/* Bit k of each: matrices of kind k. */
struct kvi_arithmetic {
	uint8_t wide_weights;     /* W15, else W8; quantised types keep their integers */
	uint8_t wide_activations; /* A15, else A8 */
	bool fp8; /* matrices of the model are E4M3, by floats; no quantised types */
};
/* Whether two arithmetics are the same. */
bool kvi_arithmetic_equal(const struct kvi_arithmetic *arithmetic, const struct kvi_arithmetic *b);

/* The computation of a predictor: arithmetic and loop. */
struct kvi_engine_level {
	struct kvi_arithmetic arithmetic;
	bool closed;
};
/* The arithmetic and loop of a level, 4 to 8 (spec/codecs/model.md 1). */
struct kvi_engine_level kvi_engine_level(unsigned level);
/* A level with another arithmetic or loop; KVARC_ARITHMETIC_LEVEL, KVARC_LOOP_LEVEL: the level's
 * own. */
struct kvi_engine_level kvi_engine_choice(const struct kvi_engine_level *level,
                                          kvarc_arithmetic arithmetic, kvarc_loop loop);
/* Whether arithmetic and loop are the same. */
bool kvi_engine_level_equal(const struct kvi_engine_level *level,
                            const struct kvi_engine_level *arithmetic);
/* The name of a computation, like "fp8 open"; NULL: it has none. */
const char *kvi_engine_text(const struct kvi_engine_level *level);
/* Parses the text of kvi_engine_text(). false: unknown; *level is then not set. */
bool kvi_engine_of_text(const char *text, struct kvi_engine_level *level);
/* Key of a profile's identity for that text, where it is not the level's own. */
enum { KVI_ARITHMETIC_KEY_BYTES = 16 };
/* Writes the key of a level. */
void kvi_arithmetic_key(char key[KVI_ARITHMETIC_KEY_BYTES], unsigned level);

struct kvi_engine;

/* The inputs of an engine's conversion. */
struct kvi_engine_options {
	const struct kvi_alloc *alloc;
	const struct kvi_model_file *file;
	struct kvi_arithmetic arithmetic;
	struct kvi_pool *pool;           /* workers of the conversion */
	kvarc_error *error;              /* gets the reason of a failure; NULL: not wanted */
	const kvarc_weight_cache *cache; /* used by kvi_cached_engine alone; NULL: none */
	kvarc_progress progress;         /* progress of the conversion, in weights; NULL: none */
	void *progress_opaque;
};
/*
 * Converts the weights of a model. file must stay open as long as the engine: rows of embeddings
 * are read from it. On failure *engine is NULL and error->text has the reason.
 * Returns OK, MEM, MEMLIMIT, OPTIONS (heads of more than 256 channels), DATA (a scale or gain
 * that is not finite, sizes and shapes that do not fit each other), IO (progress stopped it).
 */
kvarc_ret kvi_engine_make(struct kvi_engine **engine, const struct kvi_engine_options *options);
/* kvi_engine_make without cache and progress. */
kvarc_ret kvi_engine_open(struct kvi_engine **engine, const struct kvi_alloc *alloc,
                          const struct kvi_model_file *file,
                          const struct kvi_arithmetic *arithmetic, struct kvi_pool *pool,
                          kvarc_error *error);
KVI_SHARED void kvi_engine_close(struct kvi_engine **e); /* NULL-safe */
/* The model file that the engine was made of. */
KVI_SHARED const struct kvi_model_file *kvi_engine_model(const struct kvi_engine *engine);
/* Digest of the weights as they are in the file, equal for GGUF and safetensors files of equal
 * numbers (spec/arithmetic.md 9). */
struct kvi_h128 kvi_engine_digest(const struct kvi_engine *engine);

struct kvi_run;

/* The inputs of a run; all pointers must outlive it. */
struct kvi_run_options {
	const struct kvi_engine *engine;
	const struct kvi_alloc *alloc;
	struct kvi_pool *pool;
	uint32_t isa_mask;
	const struct kvi_exact_kernels *kernels; /* NULL: those of isa_mask */
	const uint64_t *freq[2]; /* frequencies of the cache's keys, by the model's ropes; NULL:
	                          * the model's */
	unsigned round_to;       /* a dtype: rounds where an engine of that dtype does, for
	                          * trainers; 0: exact arithmetic */
	size_t lanes;            /* number of independent sequences, 0: one; with lanes a segment
	                          * has one token of every sequence, all at the same position */
	bool whole;              /* runs the last layer, too, for a head */
};

/* Opens a run before its first token. Returns OK, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_run_open(struct kvi_run **run, const struct kvi_run_options *options);
KVI_SHARED void kvi_run_close(struct kvi_run **run); /* NULL-safe */

/*
 * Begins the next 1 to 256 tokens at the first layer. Ids outside the vocabulary are not predicted:
 * DATA. Returns OK, MEM, MEMLIMIT, DATA.
 */
KVI_SHARED kvarc_ret kvi_run_segment(struct kvi_run *run, const int32_t *ids,
                                     const int32_t *positions, size_t n);

/* Begins the current segment again at its first layer, in scalar arithmetic from now on: layers
 * that the segment has passed are advanced with their keys and values in place. Returns as
 * kvi_run_segment. */
kvarc_ret kvi_run_again(struct kvi_run *run, const int32_t *ids, const int32_t *positions);

/*
 * Begins a pass over candidates: other tokens at positions that the run has already processed, for
 * runs without lanes. Each candidate sees the tokens before it and itself. Then predict and advance
 * layer by layer as for a segment, without the last layer. Candidates of one position follow each
 * other, and later positions come first: keys and values of a candidate stay in the layer's cache
 * until kvi_run_put stores those of the token (keys rotated).
 */
struct kvi_candidates {
	const int32_t *ids;
	const float *rows; /* `width` floats of each in place of rows of the embedding; NULL: the
	                    * embedding's */
	const int32_t *positions;
	const size_t *at; /* indices in the sequence; must stay until the candidates are done */
	size_t n;         /* 1 to 256 */
};
/* Begins a pass over candidates at the first layer; kvi_run_place returns to the sequence. Returns
 * OK, DATA (an id or position that the model lacks). */
kvarc_ret kvi_run_candidates(struct kvi_run *run, const struct kvi_candidates *candidates);
/*
 * Stores keys (in slot order, rotated) and values of n tokens from token `at` on in the cache of a
 * layer, for runs without lanes; stride: floats from row to row of k and v. All tokens before `at`
 * have been processed or stored. To continue behind the stored tokens: kvi_run_place, with their
 * number as `before` and no tokens, then kvi_run_segment.
 * Returns OK; MEM, MEMLIMIT where the cache had to grow.
 */
KVI_SHARED kvarc_ret kvi_run_put(struct kvi_run *run, size_t layer, size_t at, const float *k,
                                 const float *v, size_t stride, size_t n);

/* Moves the run before its first token again. */
KVI_SHARED void kvi_run_restart(struct kvi_run *run);
/* Makes the next segment come behind the first `tokens` tokens, as if there were no others. */
void kvi_run_rewind(struct kvi_run *run, size_t tokens);

/*
 * A layer's predicted rows: one row of kv heads x head channels for each token of the segment, keys
 * in slot order before RoPE. The run owns them until the next prediction; the run's driver may
 * rotate k in place.
 */
struct kvi_predicted {
	float *k;
	const float *v;
	size_t stride; /* floats from one token's row to the next */
};
/* Computes the rows of the current layer. Layers of a segment come in order. */
KVI_SHARED struct kvi_predicted kvi_run_predict(struct kvi_run *run);

/* The hidden state of the layer, n rows of `width`: to be corrected before kvi_run_advance.
 * roots: of the norm of each token. */
struct kvi_hidden {
	float *h;
	const float *root;
	size_t width;
};
/* The hidden state of the current layer, owned by the run. */
KVI_SHARED struct kvi_hidden kvi_run_hidden(struct kvi_run *run);

/*
 * Advances through the current layer: attention over k and v, rows of kv heads x head channels,
 * keys in slots, rotated; NULL: the layer has those of the segment since it was advanced before
 * kvi_run_again. corrected: the hidden state was changed. After the last layer the segment is done;
 * with `whole`, kvi_run_hidden is then the input of the head. Returns OK, MEM, MEMLIMIT.
 */
KVI_SHARED kvarc_ret kvi_run_advance(struct kvi_run *run, const float *k, const float *v,
                                     size_t stride, bool corrected);
/*
 * Callbacks of a driver of whole segments between a layer's prediction and its attention. Members
 * may be NULL. A result other than OK ends the pass.
 */
struct kvi_run_pass {
	void *opaque;
	/* The layer was predicted; keys in *p have no RoPE yet. */
	kvarc_ret (*predicted)(void *opaque, size_t layer, const struct kvi_predicted *p);
	/* Keys in *p have RoPE applied. May let *p point to other rows, which attention then
	 * sees and which must stay until `advanced` is called. */
	kvarc_ret (*rows)(void *opaque, size_t layer, struct kvi_predicted *p);
	/* The layer was advanced: its queries are there (kvi_run_queries). */
	kvarc_ret (*advanced)(void *opaque, size_t layer);
};
/*
 * Runs the next 1 to 256 tokens through all layers in an open loop; pass NULL: attention sees the
 * predicted rows. Afterwards kvi_run_hidden has the input of the LM head, if the run was opened
 * with `whole`. Returns as kvi_run_segment and kvi_run_advance, or the result of a callback.
 */
KVI_SHARED kvarc_ret kvi_run_through(struct kvi_run *run, const int32_t *ids,
                                     const int32_t *positions, size_t n,
                                     const struct kvi_run_pass *pass);
/* kvi_run_through for tokens that kvi_run_segment or kvi_run_candidates put at the first layer. */
kvarc_ret kvi_run_layers(struct kvi_run *run, const struct kvi_run_pass *pass);
/* Queries of the layer that was advanced last: n rows of heads x head channels, in slots, rotated.
 * Owned by the run, until the next layer. */
struct kvi_queries {
	const float *q;
	size_t stride;
};
/* See struct kvi_queries. */
KVI_SHARED struct kvi_queries kvi_run_queries(const struct kvi_run *run);
/*
 * Puts n tokens at `before` of a sequence at the input of a layer; the caller fills in the hidden
 * state. Attention sees the tokens of the layer that were advanced since kvi_run_forget. For
 * trainers, which run all sequences through a layer before the next one.
 */
KVI_SHARED void kvi_run_place(struct kvi_run *run, size_t layer, size_t before,
                              const int32_t *positions, size_t n);
/* Drops all keys and values of a layer. */
KVI_SHARED void kvi_run_forget(struct kvi_run *run, size_t layer);
/* Rotates n rows of keys in slots at the positions of the segment, in place; open loop. */
KVI_SHARED void kvi_run_rotate(struct kvi_run *run, float *k, size_t stride);
/* Rotates the row of keys of token t of the segment, in exact arithmetic that the caller has set
 * (fpmode.h). */
void kvi_run_rotate_row(const struct kvi_run *run, size_t t, float *k);

#endif
