/* SPDX-License-Identifier: BSD-3-Clause */
/* trainer.c - a trainer: its options, and the caches that come in */
#include "trainer.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "train_predict.h"
#include "exact/head.h"
#include "numeric/formats.h"
#include "reader/reader_internal.h"
#include "token_blind/token_blind.h"
#include "util/arguments.h"
#include "util/error.h"
#include "weights/model_geometry.h"

/* ==== Opening, closing and reporting of a trainer ==== */

enum {
	HELD_OUT_MAX = 50,
	HELD_OUT_DEFAULT = 10,
	GROUP = 8,
	KNOWN = KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER | KVARC_TRAIN_NO_TABLE |
	        KVARC_TRAIN_IN_FILE | KVARC_TRAIN_NO_STAGES
};

/* NULL, or what is wrong with the options that belong to a mode. */
static const char *mode_wrong(const kvarc_trainer_options *options)
{
	const kvarc_train_model *m = &options->model;
	const unsigned linear = 1u << KVI_LEVEL_PROFILE | 1u << KVI_LEVEL_LOWER;
	if (options->mode > KVARC_TRAIN_KLT)
		return "the mode is not known";
	if (options->levels && (options->mode != KVARC_TRAIN_LINEAR || options->levels & ~linear))
		return "levels are bits 2 and 3, of KVARC_TRAIN_LINEAR";
	if (options->mode != KVARC_TRAIN_KLT && !kvi_all_zero(&options->klt, sizeof options->klt))
		return "klt is for KVARC_TRAIN_KLT";
	if (options->mode != KVARC_TRAIN_MODEL)
		return !kvi_all_zero(m, sizeof *m)              ? "model is for KVARC_TRAIN_MODEL"
		       : options->flags & KVARC_TRAIN_NO_STAGES ? "KVARC_TRAIN_NO_STAGES is for "
		                                                  "KVARC_TRAIN_MODEL"
		                                                : NULL;
	if (!m->path || m->level < KVI_LEVEL_MODEL || m->level > KVI_LEVEL_PREDICTED - 1)
		return "model needs a path, and a level from 4 to 7";
	if (m->blind && (!kvi_token_blind_known(m->blind) || m->loop == KVARC_LOOP_CLOSED))
		return "prediction without the current token needs an open loop";
	if (m->arithmetic > KVARC_ARITHMETIC_FP8 || m->loop > KVARC_LOOP_CLOSED)
		return "an arithmetic or loop that is not known";
	return NULL;
}

static kvarc_ret check(const kvarc_trainer_options *options)
{
	const char *call = "kvarc_trainer_open", *wrong = mode_wrong(options);
	const unsigned both = KVARC_TRAIN_HEAD_BLOCK | KVARC_TRAIN_WHOLE_LAYER;
	kvarc_error *e = options->common.error;
	if (!wrong && ((options->flags & both) == both || options->flags & ~KNOWN))
		wrong = "flags that exclude each other, or are not known";
	if (!wrong && options->held_out > HELD_OUT_MAX &&
	    options->held_out != KVARC_TRAIN_NONE_HELD_OUT)
		wrong = "held_out is at most half of the tokens";
	if (wrong)
		return kvi_fail(e, KVARC_PROG, "%s: %s", call, wrong);
	kvarc_ret ret = KVI_CHECK_RESERVED(e, call, "kvarc_trainer_options", options);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_train_model", &options->model);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_train_klt", &options->klt);
	return ret;
}

/* The levels that are fitted, as bits; models of levels 4 to 7 are fitted like those of level 2. */
static unsigned levels_of(const kvarc_trainer_options *options)
{
	const unsigned linear = 1u << KVI_LEVEL_PROFILE | 1u << KVI_LEVEL_LOWER;
	if (options->mode == KVARC_TRAIN_KLT)
		return 1u << KVI_LEVEL_BASIS;
	if (options->flags & KVARC_TRAIN_IN_FILE)
		return options->levels >> KVI_LEVEL_LOWER & 1 ? 1u << KVI_LEVEL_LOWER
		                                              : 1u << KVI_LEVEL_PROFILE;
	if (options->mode == KVARC_TRAIN_MODEL)
		return 1u << KVI_LEVEL_PROFILE;
	return options->levels ? options->levels : linear;
}

kvarc_ret kvarc_trainer_open(kvarc_trainer **out, const kvarc_trainer_options *options)
{
	static const kvarc_trainer_options defaults = KVARC_TRAINER_OPTIONS_INIT;
	const kvarc_trainer_options *o = options ? options : &defaults;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	kvarc_ret ret = check(o);
	if (!ret)
		ret = kvi_handle_new(out, sizeof **out, offsetof(kvarc_trainer, alloc), &o->common,
		                     o->common.memlimit);
	if (ret)
		return ret;
	kvarc_trainer *t = *out;
	t->options = *o;
	t->options.levels = levels_of(o);
	t->options.klt.group = o->klt.group ? o->klt.group : GROUP;
	t->stands_for = 1;
	t->held_out = o->held_out ? o->held_out : HELD_OUT_DEFAULT;
	if (o->held_out == KVARC_TRAIN_NONE_HELD_OUT || o->flags & KVARC_TRAIN_IN_FILE)
		t->held_out = 0;
	if (o->flags & KVARC_TRAIN_IN_FILE)
		t->look_at = o->mode == KVARC_TRAIN_MODEL ? KVI_TRAIN_IN_FILE_MODEL
		                                          : KVI_TRAIN_IN_FILE;
	t->error = o->common.error;
	t->options.model.path = NULL; /* the caller's */
	if (o->mode == KVARC_TRAIN_MODEL)
		ret = kvi_train_predictor_open(t, o->model.path, (unsigned)o->model.level);
	if (ret)
		kvarc_trainer_close(out);
	return ret;
}

/* Frees a cache and all of its memory; NULL is accepted. */
static void train_cache_free(kvarc_trainer *trainer, struct kvi_train_cache *cache)
{
	if (!cache)
		return;
	kvi_geometry_free(&cache->geometry, &trainer->alloc);
	kvi_free(&trainer->alloc, cache->ids);
	kvi_free(&trainer->alloc, cache->positions);
	kvi_free(&trainer->alloc, cache->tensors);
	kvi_free(&trainer->alloc, cache);
}

void kvarc_trainer_close(kvarc_trainer **pt)
{
	kvarc_trainer *t = pt ? *pt : NULL;
	if (!t)
		return;
	*pt = NULL;
	for (size_t i = 0; i < t->n_stacks; i++) {
		struct kvi_train_stack *s = &t->stacks[i];
		for (size_t k = 0; k < s->n_caches; k++)
			train_cache_free(t, s->caches[k]);
		kvi_free(&t->alloc, s->caches);
		kvi_free(&t->alloc, s->shapes);
	}
	kvi_free(&t->alloc, t->stacks);
	kvi_train_predictor_close(t);
	for (size_t i = 0; i < t->n_ropes; i++)
		kvi_free(&t->alloc, t->ropes[i].freq);
	for (size_t i = 0; i < t->n_notes; i++)
		kvi_free(&t->alloc, t->notes[i]);
	kvi_free(&t->alloc, t->notes);
	kvi_free(&t->alloc, t->report);
	kvi_free(&t->alloc, t->units);
	kvi_identity_free(&t->identity, &t->alloc);
	kvarc_profile_close(&t->profile);
	kvi_free(&t->alloc, t);
}

kvarc_ret kvarc_trainer_held_out(kvarc_trainer *t, unsigned percent)
{
	if (!t || (percent > HELD_OUT_MAX && percent != 100) ||
	    t->options.flags & KVARC_TRAIN_IN_FILE)
		return KVARC_PROG;
	t->held_out = percent;
	return KVARC_OK;
}

uint64_t kvarc_trainer_tokens(const kvarc_trainer *t)
{
	uint64_t sum = 0;
	for (size_t i = 0; t && i < t->n_stacks; i++)
		for (size_t k = 0; k < t->stacks[i].n_caches; k++) {
			const struct kvi_train_cache *c = t->stacks[i].caches[k];
			sum += c->held ? c->n : 0;
		}
	return sum;
}

const char *kvarc_trainer_note(const kvarc_trainer *t, size_t i)
{
	return t && i < t->n_notes ? t->notes[i] : NULL;
}

kvarc_ret kvarc_trainer_report(const kvarc_trainer *t, size_t i, kvarc_trained *trained)
{
	if (!t || !trained)
		return KVARC_PROG;
	if (i >= t->n_report)
		return KVARC_END;
	*trained = t->report[i];
	return KVARC_OK;
}

/* ==== Caches that the transformer makes itself, from token ids or from nothing ==== */

enum { WRITTEN = 1024 }; /* tokens of a sequence */

static kvarc_ret fail(kvarc_trainer *trainer, kvarc_ret ret, const char *what)
{
	return kvi_fail(trainer->error, ret, "%s", what);
}

static kvarc_ret train_add_own(kvarc_trainer *trainer, const kvarc_geometry *geometry, uint64_t n,
                               const int32_t *ids, enum kvi_train_origin origin, uint64_t seed);

/* Channels lie in slots. */
static kvarc_ret add_generated(kvarc_trainer *trainer, uint64_t n, const int32_t *ids,
                               unsigned dtype, enum kvi_train_origin origin, uint64_t seed)
{
	struct kvi_model_geometry g;
	if (kvi_model_geometry_make(&g, &trainer->alloc, trainer->predictor->file, dtype,
	                            KVARC_ROPE_INTERLEAVED))
		return kvi_train_no_memory(trainer);
	kvarc_ret ret = train_add_own(trainer, &g.geometry, n, ids, origin, seed);
	kvi_model_geometry_free(&g, &trainer->alloc);
	return ret;
}

static bool may_add(const kvarc_trainer *trainer, uint64_t n, unsigned dtype)
{
	return trainer && trainer->predictor && n &&
	       (dtype == KVARC_F32 || dtype == KVARC_F16 || dtype == KVARC_BF16);
}

kvarc_ret kvarc_trainer_add_ids(kvarc_trainer *t, uint64_t n, const int32_t *ids, unsigned dtype)
{
	if (!may_add(t, n, dtype) || !ids)
		return KVARC_PROG;
	const struct kvi_model_file *m = t->predictor->file;
	for (uint64_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= m->vocabulary)
			return kvi_fail(t->error, KVARC_GEOMETRY,
			                "token id %ld is not one of the "
			                "model's, which are below %lu",
			                (long)ids[i], (unsigned long)m->vocabulary);
	if (n > kvi_model_positions(m))
		return fail(t, KVARC_GEOMETRY,
		            "a sequence of ids is longer than the model can see");
	return add_generated(t, n, ids, dtype, KVI_TRAIN_IDS, 0);
}

kvarc_ret kvarc_trainer_write(kvarc_trainer *t, uint64_t n, int32_t first, uint64_t seed,
                              unsigned dtype)
{
	if (!may_add(t, n, dtype) || n > UINT32_MAX)
		return KVARC_PROG;
	const struct kvi_model_file *m = t->predictor->file;
	uint64_t most = kvi_model_positions(m) < WRITTEN ? kvi_model_positions(m) : WRITTEN;
	uint64_t sequences = (n + most - 1) / most;
	int32_t ids[WRITTEN] = { first < 0 ? m->first_token : first };
	kvarc_ret ret = kvi_engine_check_head(m, t->error);
	if (ret)
		return ret;
	if (ids[0] < 0)
		return fail(t, KVARC_OPTIONS,
		            "the model does not say what text begins with: give a first token");
	if ((uint32_t)ids[0] >= m->vocabulary)
		return fail(t, KVARC_OPTIONS, "the first token is not one of the model's");
	for (uint64_t i = 0; i < sequences && !ret; i++)
		ret = add_generated(t, (n + sequences - 1 - i) / sequences, ids, dtype,
		                    KVI_TRAIN_WRITTEN, seed + i);
	return ret;
}

/* ==== Caches come in: their tensors, their shape, where their elements are ==== */

static kvarc_ret refuse(kvarc_trainer *trainer, const char *what)
{
	return kvi_fail(trainer->error, KVARC_GEOMETRY, "%s", what);
}

/* Whether a tensor can have a model (spec linear). */
static bool has_model(const kvarc_tensor *tensor, uint32_t track)
{
	bool kind = tensor->kind == KVARC_KEY || tensor->kind == KVARC_VALUE ||
	            tensor->kind == KVARC_MLA_LATENT;
	bool whole = tensor->first_head == 0 &&
	             (!tensor->total_heads || tensor->total_heads == tensor->heads);
	return tensor->track == track && kind && whole && tensor->role == KVARC_WHOLE &&
	       tensor->dtype >= KVARC_F32 && tensor->dtype <= KVARC_E5M2 &&
	       !(tensor->flags & KVARC_TENSOR_HADAMARD);
}

/* Index + 1 of a RoPE with the same frequencies (slots have no pairing); 0: no memory. */
static uint32_t rope_index(kvarc_trainer *trainer, const kvarc_rope *r)
{
	size_t bytes = r->rotary / 2 * sizeof *r->freq;
	for (size_t i = 0; i < trainer->n_ropes; i++)
		if (trainer->ropes[i].rotary == r->rotary &&
		    memcmp(trainer->ropes[i].freq, r->freq, bytes) == 0)
			return (uint32_t)i + 1;
	if (trainer->n_ropes == KVI_MAX_ROPES)
		return 0;
	uint64_t *freq = kvi_malloc(&trainer->alloc, bytes);
	if (!freq)
		return 0;
	memcpy(freq, r->freq, bytes);
	trainer->ropes[trainer->n_ropes] = (struct kvi_profile_rope){ r->rotary, freq };
	return (uint32_t)++trainer->n_ropes;
}

static int compare(const struct kvi_train_shape *shape, const struct kvi_train_shape *train_shape)
{
	return shape->layer != train_shape->layer ? (shape->layer < train_shape->layer ? -1 : 1)
	                                          : (int)shape->kind - (int)train_shape->kind;
}

/* Shapes and tensors of a cache, ascending; n is at most the number of its tensors. */
struct train_found {
	struct kvi_train_shape *shapes;
	uint32_t *tensors;
	size_t n;
};

static kvarc_ret insert(kvarc_trainer *trainer, struct train_found *found,
                        const struct kvi_train_shape *shape, uint32_t tensor)
{
	size_t at = found->n;
	while (at && compare(shape, &found->shapes[at - 1]) < 0)
		at--;
	if (at && compare(shape, &found->shapes[at - 1]) == 0)
		return refuse(trainer, "a layer has two tensors of a kind");
	memmove(found->shapes + at + 1, found->shapes + at, (found->n - at) * sizeof *shape);
	memmove(found->tensors + at + 1, found->tensors + at,
	        (found->n - at) * sizeof *found->tensors);
	found->shapes[at] = *shape;
	found->tensors[at] = tensor;
	found->n++;
	return KVARC_OK;
}

static kvarc_ret find(kvarc_trainer *trainer, const kvarc_geometry *geometry, uint32_t track,
                      struct train_found *found)
{
	kvarc_ret ret = KVARC_OK;
	found->shapes = kvi_array(&trainer->alloc, geometry->n_tensors + 1, sizeof *found->shapes);
	found->tensors = kvi_array(&trainer->alloc, geometry->n_tensors + 1,
	                           sizeof *found->tensors);
	if (!found->shapes || !found->tensors)
		return kvi_train_no_memory(trainer);
	for (size_t i = 0; i < geometry->n_tensors && !ret; i++) {
		const kvarc_tensor *x = &geometry->tensors[i];
		const kvarc_rope *rope = kvi_tensor_rope(geometry, x);
		struct kvi_train_shape s = { x->layer, x->kind, x->heads, x->channels, 0 };
		if (!has_model(x, track))
			continue;
		if (rope && !(s.rope = rope_index(trainer, rope)))
			return refuse(trainer, "too many different rotary embeddings");
		ret = insert(trainer, found, &s, (uint32_t)i);
	}
	if (!ret && found->n == 0)
		ret = refuse(trainer, "no keys or values in floating point to learn from");
	return ret;
}

/* Two caches share either all of their layers or none. */
static kvarc_ret find_stack(kvarc_trainer *trainer, const struct train_found *found,
                            struct kvi_train_stack **stack)
{
	for (size_t i = 0; i < trainer->n_stacks; i++) {
		struct kvi_train_stack *s = &trainer->stacks[i];
		size_t common = 0;
		for (size_t a = 0, b = 0; a < s->n_shapes && b < found->n;) {
			int d = compare(&s->shapes[a], &found->shapes[b]);
			if (d == 0 && (s->shapes[a].heads != found->shapes[b].heads ||
			               s->shapes[a].channels != found->shapes[b].channels))
				return refuse(trainer, "another model's: heads or "
				                       "channels differ from the first input's");
			if (d == 0 && s->shapes[a].rope != found->shapes[b].rope)
				return refuse(trainer, "another model's: the rotary "
				                       "embedding differs from the first input's");
			common += d == 0;
			a += d <= 0;
			b += d >= 0;
		}
		if (common && (common < found->n || common < s->n_shapes))
			return refuse(trainer, "another model's: the number of layers "
			                       "differs from the first input's");
		if (common) {
			*stack = s;
			return KVARC_OK;
		}
	}
	if (!kvi_array_grow(&trainer->alloc, &trainer->stacks, &trainer->cap_stacks,
	                    trainer->n_stacks, sizeof *trainer->stacks))
		return kvi_train_no_memory(trainer);
	*stack = &trainer->stacks[trainer->n_stacks];
	memset(*stack, 0, sizeof **stack);
	(*stack)->shapes = kvi_array(&trainer->alloc, found->n, sizeof *found->shapes);
	if (!(*stack)->shapes)
		return kvi_train_no_memory(trainer);
	memcpy((*stack)->shapes, found->shapes, found->n * sizeof *found->shapes);
	(*stack)->n_shapes = found->n;
	trainer->n_stacks++;
	return KVARC_OK;
}

static kvarc_ret copy_tokens(kvarc_trainer *trainer, struct kvi_train_cache *cache,
                             const int32_t *ids, const int32_t *positions)
{
	size_t n = cache->n;
	cache->positions = kvi_array(&trainer->alloc, n, sizeof *cache->positions);
	if (ids)
		cache->ids = kvi_array(&trainer->alloc, n, sizeof *cache->ids);
	if (!cache->positions || (ids && !cache->ids))
		return kvi_train_no_memory(trainer);
	for (size_t i = 0; i < n; i++) {
		size_t at = kvi_train_token(cache, i);
		cache->positions[i] = positions ? positions[at] : (int32_t)at;
		if (ids)
			cache->ids[i] = ids[at];
	}
	return KVARC_OK;
}

/* Reads one block in `every` to bound the work; a transformer needs a prefix of the tokens. */
static void choose_tokens(const kvarc_trainer *trainer, struct kvi_train_cache *cache, size_t n)
{
	size_t blocks = n / KVI_TRAIN_BLOCK;
	cache->every = 1;
	cache->n = n;
	if (!trainer->look_at || n <= trainer->look_at)
		return;
	if (trainer->predictor) {
		cache->n = trainer->look_at;
		return;
	}
	cache->every = (n + trainer->look_at - 1) / trainer->look_at;
	cache->n = (blocks + cache->every - 1) / cache->every * KVI_TRAIN_BLOCK;
}

static kvarc_ret add_sequence(kvarc_trainer *trainer, struct kvi_train_cache *cache, size_t n,
                              const kvarc_geometry *geometry, const int32_t *ids,
                              const int32_t *positions, struct train_found *found)
{
	struct kvi_train_stack *s = NULL;
	kvarc_ret ret = kvi_geometry_copy(&cache->geometry, &trainer->alloc, geometry);
	if (ret)
		return kvi_train_no_memory(trainer);
	choose_tokens(trainer, cache, n);
	ret = find(trainer, &cache->geometry, cache->track, found);
	if (!ret)
		ret = copy_tokens(trainer, cache, ids, positions);
	if (!ret)
		ret = find_stack(trainer, found, &s);
	if (!ret && !kvi_array_grow(&trainer->alloc, &s->caches, &s->cap_caches, s->n_caches,
	                            sizeof *s->caches))
		ret = kvi_train_no_memory(trainer);
	if (ret)
		return ret;
	cache->tensors = found->tensors;
	found->tensors = NULL;
	cache->first = s->n_tokens;
	cache->held = cache->n - cache->n * trainer->held_out / 100;
	s->n_tokens += cache->n;
	s->all_tokens += (double)n * trainer->stands_for;
	s->caches[s->n_caches++] = cache;
	return KVARC_OK;
}

/* Models begin at token 0 and need all ids. */
static bool whole_sequence(uint64_t n, const int32_t *ids, const int32_t *positions)
{
	for (uint64_t i = 0; positions && i < n; i++)
		if (positions[i] < 0 || (uint64_t)positions[i] != i)
			return false;
	return ids;
}

static kvarc_ret add_cache(kvarc_trainer *trainer, const kvarc_geometry *geometry, uint64_t n,
                           const int32_t *ids, const int32_t *positions,
                           const struct kvi_train_cache *from)
{
	struct train_found f = { 0 };
	const char *wrong = kvi_geometry_wrong(geometry);
	if (trainer->ran)
		return KVARC_PROG;
	if (wrong || from->track >= geometry->n_tracks)
		return refuse(trainer, wrong ? wrong : "no such track");
	if (n == 0)
		return refuse(trainer, "no tokens in it");
	if (n > UINT32_MAX)
		return refuse(trainer, "too many tokens in one cache");
	if (trainer->predictor && !whole_sequence(n, ids, positions)) {
		trainer->n_without_ids++;
		return KVARC_OK;
	}
	struct kvi_train_cache *c = kvi_calloc(&trainer->alloc, 1, sizeof *c);
	if (!c)
		return kvi_train_no_memory(trainer);
	*c = *from;
	kvarc_ret ret = add_sequence(trainer, c, (size_t)n, geometry, ids, positions, &f);
	kvi_free(&trainer->alloc, f.shapes);
	kvi_free(&trainer->alloc, f.tensors);
	if (ret)
		train_cache_free(trainer, c);
	return ret;
}

kvarc_ret kvarc_trainer_add(kvarc_trainer *t, const kvarc_geometry *geometry, uint32_t track,
                            uint64_t n, const int32_t *ids, const int32_t *positions,
                            kvarc_fetch fetch, void *opaque)
{
	const struct kvi_train_cache from = { .fetch = fetch, .opaque = opaque, .track = track };
	if (!t || !geometry || !fetch)
		return KVARC_PROG;
	return add_cache(t, geometry, n, ids, positions, &from);
}

/* Adds a cache whose keys and values the transformer will compute during the run. Returns as
 * kvarc_trainer_add. */
static kvarc_ret train_add_own(kvarc_trainer *trainer, const kvarc_geometry *geometry, uint64_t n,
                               const int32_t *ids, enum kvi_train_origin origin, uint64_t seed)
{
	const struct kvi_train_cache from = { .origin = origin, .seed = seed };
	return add_cache(trainer, geometry, n, ids, NULL, &from);
}

/* Whether a tensor of the track can have a model. */
static bool track_has_model(const kvarc_geometry *geometry, uint32_t track)
{
	for (size_t i = 0; i < geometry->n_tensors; i++)
		if (has_model(&geometry->tensors[i], track))
			return true;
	return false;
}

/* Tracks share what a fit for a file looks at. Gives the distance between tracks that are looked
 * at. */
static uint32_t share_out(kvarc_trainer *trainer, const kvarc_geometry *geometry)
{
	uint32_t tracks = (uint32_t)(trainer->look_at / KVI_TRAIN_BLOCK), n = 0, every;
	if (!trainer->look_at)
		return 1;
	for (uint32_t i = 0; i < geometry->n_tracks; i++)
		n += track_has_model(geometry, i);
	every = n / tracks + (n % tracks > 0);
	every += every == 0;
	trainer->stands_for = every;
	trainer->look_at /= n ? (n + every - 1) / every : 1;
	return every;
}

/* A cache is of an archive, or of the import that is its opaque pointer. */
static kvarc_ret read_tokens(const struct kvi_train_cache *cache, uint64_t n, int32_t *ids,
                             int32_t *positions)
{
	return cache->reader
	               ? kvarc_reader_read_tokens(cache->reader, cache->track, 0, n, ids, positions)
	               : kvarc_import_read_tokens(cache->opaque, cache->track, 0, n, ids,
	                                          positions);
}

static kvarc_ret add_track(kvarc_trainer *trainer, const kvarc_geometry *geometry,
                           const struct kvi_train_cache *from, uint64_t n)
{
	if (n > UINT32_MAX)
		return refuse(trainer, "too many tokens in one cache");
	int32_t *ids = kvi_array(&trainer->alloc, (size_t)n, sizeof *ids), *known = ids;
	int32_t *positions = kvi_array(&trainer->alloc, (size_t)n, sizeof *positions);
	kvarc_ret ret = ids && positions ? read_tokens(from, n, ids, positions)
	                                 : kvi_train_no_memory(trainer);
	if (ret == KVARC_OPTIONS) { /* ids are not stored */
		known = NULL;
		ret = read_tokens(from, n, NULL, positions);
	}
	if (ret == KVARC_IO && !from->reader)
		ret = kvi_fail(trainer->error, ret, "reading the input failed");
	if (!ret)
		ret = add_cache(trainer, geometry, n, known, positions, from);
	kvi_free(&trainer->alloc, ids);
	kvi_free(&trainer->alloc, positions);
	return ret;
}

/* Adds one in `every` of the tracks that can have models. */
static kvarc_ret add_tracks(kvarc_trainer *trainer, const kvarc_geometry *geometry,
                            struct kvi_train_cache from, uint32_t every)
{
	kvarc_ret ret = KVARC_OK;
	size_t added = 0, seen = 0;
	for (uint32_t i = 0; i < geometry->n_tracks && !ret; i++) {
		uint64_t n = from.reader ? kvarc_reader_tokens(from.reader, i)
		                         : kvarc_import_tokens(from.opaque, i);
		if (!track_has_model(geometry, i) || !n || seen++ % every)
			continue;
		from.track = i;
		ret = add_track(trainer, geometry, &from, n);
		added++;
	}
	return ret || added ? ret
	                    : refuse(trainer, "no keys or values in floating point to learn from");
}

kvarc_ret kvarc_trainer_add_reader(kvarc_trainer *t, kvarc_reader *r)
{
	if (!t || !r)
		return KVARC_PROG;
	const struct kvi_train_cache from = { .reader = r };
	return add_tracks(t, kvarc_reader_geometry(r), from, 1);
}

kvarc_ret kvarc_trainer_add_import(kvarc_trainer *t, kvarc_import *im)
{
	if (!t || !im)
		return KVARC_PROG;
	const kvarc_geometry *g = kvarc_import_geometry(im);
	const struct kvi_train_cache from = { .fetch = kvarc_import_fetch, .opaque = im };
	return add_tracks(t, g, from, share_out(t, g));
}
