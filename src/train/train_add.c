/* SPDX-License-Identifier: BSD-3-Clause */
/* train_add.c - caches come in: their tensors, their shape, where their elements are */
#include "trainer.h"

#include <string.h>

#include "util/error.h"
#include "reader/reader_internal.h"

static kvarc_ret refuse(kvarc_trainer *t, const char *what)
{
	return kvi_fail(t->error, KVARC_GEOMETRY, "%s", what);
}

/* Whether a tensor can have a model (spec linear). */
static bool has_model(const kvarc_tensor *x, uint32_t track)
{
	bool kind = x->kind == KVARC_KEY || x->kind == KVARC_VALUE || x->kind == KVARC_MLA_LATENT;
	bool whole = x->first_head == 0 && (!x->total_heads || x->total_heads == x->heads);
	return x->track == track && kind && whole && x->role == KVARC_WHOLE &&
	       x->dtype >= KVARC_F32 && x->dtype <= KVARC_E5M2 &&
	       !(x->flags & KVARC_TENSOR_HADAMARD);
}

/* Index + 1 of a RoPE with the same frequencies (slots have no pairing); 0: no memory. */
static uint32_t rope_index(kvarc_trainer *t, const kvarc_rope *r)
{
	size_t bytes = r->rotary / 2 * sizeof *r->freq;
	for (size_t i = 0; i < t->n_ropes; i++)
		if (t->ropes[i].rotary == r->rotary &&
		    memcmp(t->ropes[i].freq, r->freq, bytes) == 0)
			return (uint32_t)i + 1;
	if (t->n_ropes == KVI_MAX_ROPES)
		return 0;
	uint64_t *freq = kvi_malloc(&t->alloc, bytes);
	if (!freq)
		return 0;
	memcpy(freq, r->freq, bytes);
	t->ropes[t->n_ropes] = (struct kvi_profile_rope){ r->rotary, freq };
	return (uint32_t)++t->n_ropes;
}

static int compare(const struct kvi_train_shape *a, const struct kvi_train_shape *b)
{
	return a->layer != b->layer ? (a->layer < b->layer ? -1 : 1) : (int)a->kind - (int)b->kind;
}

/* Shapes and tensors of a cache, ascending; n is at most the number of its tensors. */
struct train_found {
	struct kvi_train_shape *shapes;
	uint32_t *tensors;
	size_t n;
};

static kvarc_ret insert(kvarc_trainer *t, struct train_found *f, const struct kvi_train_shape *s,
                        uint32_t tensor)
{
	size_t at = f->n;
	while (at && compare(s, &f->shapes[at - 1]) < 0)
		at--;
	if (at && compare(s, &f->shapes[at - 1]) == 0)
		return refuse(t, "a layer has two tensors of a kind");
	memmove(f->shapes + at + 1, f->shapes + at, (f->n - at) * sizeof *s);
	memmove(f->tensors + at + 1, f->tensors + at, (f->n - at) * sizeof *f->tensors);
	f->shapes[at] = *s;
	f->tensors[at] = tensor;
	f->n++;
	return KVARC_OK;
}

static kvarc_ret find(kvarc_trainer *t, const kvarc_geometry *g, uint32_t track,
                      struct train_found *f)
{
	kvarc_ret ret = KVARC_OK;
	f->shapes = kvi_array(&t->alloc, g->n_tensors + 1, sizeof *f->shapes);
	f->tensors = kvi_array(&t->alloc, g->n_tensors + 1, sizeof *f->tensors);
	if (!f->shapes || !f->tensors)
		return kvi_train_no_memory(t);
	for (size_t i = 0; i < g->n_tensors && !ret; i++) {
		const kvarc_tensor *x = &g->tensors[i];
		const kvarc_rope *rope = kvi_tensor_rope(g, x);
		struct kvi_train_shape s = { x->layer, x->kind, x->heads, x->channels, 0 };
		if (!has_model(x, track))
			continue;
		if (rope && !(s.rope = rope_index(t, rope)))
			return refuse(t, "too many different rotary embeddings");
		ret = insert(t, f, &s, (uint32_t)i);
	}
	if (!ret && f->n == 0)
		ret = refuse(t, "no keys or values in floating point to learn from");
	return ret;
}

/* Two caches share either all of their layers or none. */
static kvarc_ret find_stack(kvarc_trainer *t, const struct train_found *f,
                            struct kvi_train_stack **stack)
{
	for (size_t i = 0; i < t->n_stacks; i++) {
		struct kvi_train_stack *s = &t->stacks[i];
		size_t common = 0;
		for (size_t a = 0, b = 0; a < s->n_shapes && b < f->n;) {
			int d = compare(&s->shapes[a], &f->shapes[b]);
			if (d == 0 && (s->shapes[a].heads != f->shapes[b].heads ||
			               s->shapes[a].channels != f->shapes[b].channels))
				return refuse(t, "another model's: heads or "
				                 "channels differ from the first input's");
			if (d == 0 && s->shapes[a].rope != f->shapes[b].rope)
				return refuse(t, "another model's: the rotary "
				                 "embedding differs from the first input's");
			common += d == 0;
			a += d <= 0;
			b += d >= 0;
		}
		if (common && (common < f->n || common < s->n_shapes))
			return refuse(t, "another model's: the number of layers "
			                 "differs from the first input's");
		if (common) {
			*stack = s;
			return KVARC_OK;
		}
	}
	if (!kvi_array_grow(&t->alloc, &t->stacks, &t->cap_stacks, t->n_stacks, sizeof *t->stacks))
		return kvi_train_no_memory(t);
	*stack = &t->stacks[t->n_stacks];
	memset(*stack, 0, sizeof **stack);
	(*stack)->shapes = kvi_array(&t->alloc, f->n, sizeof *f->shapes);
	if (!(*stack)->shapes)
		return kvi_train_no_memory(t);
	memcpy((*stack)->shapes, f->shapes, f->n * sizeof *f->shapes);
	(*stack)->n_shapes = f->n;
	t->n_stacks++;
	return KVARC_OK;
}

static kvarc_ret copy_tokens(kvarc_trainer *t, struct kvi_train_cache *c, const int32_t *ids,
                             const int32_t *positions)
{
	size_t n = c->n;
	c->positions = kvi_array(&t->alloc, n, sizeof *c->positions);
	if (ids)
		c->ids = kvi_array(&t->alloc, n, sizeof *c->ids);
	if (!c->positions || (ids && !c->ids))
		return kvi_train_no_memory(t);
	for (size_t i = 0; i < n; i++) {
		size_t at = kvi_train_token(c, i);
		c->positions[i] = positions ? positions[at] : (int32_t)at;
		if (ids)
			c->ids[i] = ids[at];
	}
	return KVARC_OK;
}

/* Reads one block in `every` to bound the work; a transformer needs a prefix of the tokens. */
static void choose_tokens(const kvarc_trainer *t, struct kvi_train_cache *c, size_t n)
{
	size_t blocks = n / KVI_TRAIN_BLOCK;
	c->every = 1;
	c->n = n;
	if (!t->look_at || n <= t->look_at)
		return;
	if (t->predictor) {
		c->n = t->look_at;
		return;
	}
	c->every = (n + t->look_at - 1) / t->look_at;
	c->n = (blocks + c->every - 1) / c->every * KVI_TRAIN_BLOCK;
}

static kvarc_ret add(kvarc_trainer *t, struct kvi_train_cache *c, size_t n, const kvarc_geometry *g,
                     const int32_t *ids, const int32_t *positions, struct train_found *f)
{
	struct kvi_train_stack *s = NULL;
	kvarc_ret ret = kvi_geometry_copy(&c->geometry, &t->alloc, g);
	if (ret)
		return kvi_train_no_memory(t);
	choose_tokens(t, c, n);
	ret = find(t, &c->geometry, c->track, f);
	if (!ret)
		ret = copy_tokens(t, c, ids, positions);
	if (!ret)
		ret = find_stack(t, f, &s);
	if (!ret &&
	    !kvi_array_grow(&t->alloc, &s->caches, &s->cap_caches, s->n_caches, sizeof *s->caches))
		ret = kvi_train_no_memory(t);
	if (ret)
		return ret;
	c->tensors = f->tensors;
	f->tensors = NULL;
	c->first = s->n_tokens;
	c->held = c->n - c->n * t->held_out / 100;
	s->n_tokens += c->n;
	s->all_tokens += (double)n * t->stands_for;
	s->caches[s->n_caches++] = c;
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

static kvarc_ret add_cache(kvarc_trainer *t, const kvarc_geometry *g, uint64_t n,
                           const int32_t *ids, const int32_t *positions,
                           const struct kvi_train_cache *from)
{
	struct train_found f = { 0 };
	const char *wrong = kvi_geometry_wrong(g);
	if (t->ran)
		return KVARC_PROG;
	if (wrong || from->track >= g->n_tracks)
		return refuse(t, wrong ? wrong : "no such track");
	if (n == 0)
		return refuse(t, "no tokens in it");
	if (n > UINT32_MAX)
		return refuse(t, "too many tokens in one cache");
	if (t->predictor && !whole_sequence(n, ids, positions)) {
		t->n_without_ids++;
		return KVARC_OK;
	}
	struct kvi_train_cache *c = kvi_calloc(&t->alloc, 1, sizeof *c);
	if (!c)
		return kvi_train_no_memory(t);
	*c = *from;
	kvarc_ret ret = add(t, c, (size_t)n, g, ids, positions, &f);
	kvi_free(&t->alloc, f.shapes);
	kvi_free(&t->alloc, f.tensors);
	if (ret)
		kvi_train_cache_free(t, c);
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

kvarc_ret kvi_train_add_own(kvarc_trainer *t, const kvarc_geometry *g, uint64_t n,
                            const int32_t *ids, enum kvi_train_origin origin, uint64_t seed)
{
	const struct kvi_train_cache from = { .origin = origin, .seed = seed };
	return add_cache(t, g, n, ids, NULL, &from);
}

/* Whether a tensor of the track can have a model. */
static bool track_has_model(const kvarc_geometry *g, uint32_t track)
{
	for (size_t i = 0; i < g->n_tensors; i++)
		if (has_model(&g->tensors[i], track))
			return true;
	return false;
}

/* Tracks share what a fit for a file looks at. Gives the distance between tracks that are looked
 * at. */
static uint32_t share_out(kvarc_trainer *t, const kvarc_geometry *g)
{
	uint32_t tracks = (uint32_t)(t->look_at / KVI_TRAIN_BLOCK), n = 0, every;
	if (!t->look_at)
		return 1;
	for (uint32_t i = 0; i < g->n_tracks; i++)
		n += track_has_model(g, i);
	every = n / tracks + (n % tracks > 0);
	every += every == 0;
	t->stands_for = every;
	t->look_at /= n ? (n + every - 1) / every : 1;
	return every;
}

/* A cache is of an archive, or of the import that is its opaque pointer. */
static kvarc_ret read_tokens(const struct kvi_train_cache *c, uint64_t n, int32_t *ids,
                             int32_t *positions)
{
	return c->reader ? kvarc_reader_read_tokens(c->reader, c->track, 0, n, ids, positions)
	                 : kvarc_import_read_tokens(c->opaque, c->track, 0, n, ids, positions);
}

static kvarc_ret add_track(kvarc_trainer *t, const kvarc_geometry *g,
                           const struct kvi_train_cache *from, uint64_t n)
{
	if (n > UINT32_MAX)
		return refuse(t, "too many tokens in one cache");
	int32_t *ids = kvi_array(&t->alloc, (size_t)n, sizeof *ids), *known = ids;
	int32_t *positions = kvi_array(&t->alloc, (size_t)n, sizeof *positions);
	kvarc_ret ret = ids && positions ? read_tokens(from, n, ids, positions)
	                                 : kvi_train_no_memory(t);
	if (ret == KVARC_OPTIONS) { /* ids are not stored */
		known = NULL;
		ret = read_tokens(from, n, NULL, positions);
	}
	if (ret == KVARC_IO && !from->reader)
		ret = kvi_fail(t->error, ret, "reading the input failed");
	if (!ret)
		ret = add_cache(t, g, n, known, positions, from);
	kvi_free(&t->alloc, ids);
	kvi_free(&t->alloc, positions);
	return ret;
}

/* Adds one in `every` of the tracks that can have models. */
static kvarc_ret add_tracks(kvarc_trainer *t, const kvarc_geometry *g, struct kvi_train_cache from,
                            uint32_t every)
{
	kvarc_ret ret = KVARC_OK;
	size_t added = 0, seen = 0;
	for (uint32_t i = 0; i < g->n_tracks && !ret; i++) {
		uint64_t n = from.reader ? kvarc_reader_tokens(from.reader, i)
		                         : kvarc_import_tokens(from.opaque, i);
		if (!track_has_model(g, i) || !n || seen++ % every)
			continue;
		from.track = i;
		ret = add_track(t, g, &from, n);
		added++;
	}
	return ret || added ? ret : refuse(t, "no keys or values in floating point to learn from");
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

/* The reader of an archive has already set the error. */
static kvarc_ret fetch_archive(const struct kvi_train_cache *c, kvarc_view *views, uint32_t tensor,
                               size_t t0, uint32_t n, void *to)
{
	const kvarc_tensor *x = &c->geometry.tensors[tensor];
	uint32_t size = (uint32_t)kvarc_dtype_bytes(x->dtype);
	kvarc_range range = {
		.track = c->track, .layer0 = x->layer, .n_layers = 1, .t0 = t0, .n = n
	};
	views[tensor] = (kvarc_view){ .data = to,
		                      .token_stride = kvi_tensor_bytes(x),
		                      .block_elems = kvi_tensor_width(x),
		                      .elem_stride = size };
	return kvarc_reader_read(c->reader, &range, views);
}

kvarc_ret kvi_train_progress(kvarc_trainer *t, uint64_t bytes)
{
	const kvarc_common *common = &t->options.common;
	t->done += bytes;
	if (common->progress && common->progress(common->progress_opaque, t->done, t->total))
		return kvi_fail(t->error, KVARC_IO, "stopped by the caller");
	return KVARC_OK;
}

kvarc_ret kvi_train_fetch(kvarc_trainer *t, const struct kvi_train_cache *c, uint32_t tensor,
                          size_t t0, uint32_t n, void *to)
{
	const kvarc_tensor *x = &c->geometry.tensors[tensor];
	uint64_t bytes = (uint64_t)n * kvi_tensor_bytes(x);
	kvarc_ret ret = KVARC_OK;
	t0 = kvi_train_token(c, t0);
	if (c->origin) {
		kvi_train_made(t, c, tensor, t0, n, to);
	} else if (c->reader) {
		kvarc_view *views = kvi_calloc(&t->alloc, c->geometry.n_tensors, sizeof *views);
		if (!views)
			return kvi_train_no_memory(t);
		ret = fetch_archive(c, views, tensor, t0, n, to);
		kvi_free(&t->alloc, views);
	} else {
		ret = c->fetch(c->opaque, tensor, 0, x->heads, t0, n, to) ? KVARC_IO : KVARC_OK;
		if (ret)
			ret = kvi_fail(t->error, ret, "reading the input failed");
	}
	return ret ? ret : kvi_train_progress(t, bytes);
}
