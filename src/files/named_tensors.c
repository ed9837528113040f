/* SPDX-License-Identifier: BSD-3-Clause */
/* named_tensors.c - named dense tensors of safetensors, npy and kvc files */
#include "config.h"

#include "named_tensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "kv_rules.h"
#include "typed_tensors.h"
#include "parse/st_header.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/source.h"

#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"
#endif

/* ==== Named dense tensors (safetensors, npy) recognised as keys, values and states ==== */

enum { TRACKS_PER_FILE = 64 };

/* The names and metadata of one file. */
struct names {
	kvarc_import *im;
	struct kvi_rules rules;
	struct kvi_rule_tests tests;
	size_t first; /* first track of these tensors */
	const struct kvi_named *named, *ids;
	size_t n;
	bool misfit; /* the axes of a rule did not fit a tensor that it names */
};

/* A recognised tensor. */
struct name_found {
	const struct kvi_named *named;
	char axes[KVI_NAMED_AXES_MAX + 1]; /* "": guess */
	const char *engine;
	uint32_t layer;
	bool value;
	bool one_layer; /* from a file for one layer, whose name has the layer */
};

/* The axes of a rule, of the options before those of a known engine; NULL: guess. */
static const char *letters_of(const struct names *names, size_t rule, const char *letters)
{
	const char *given = names->im->options.axes;
	if (letters && kvi_axes_of_state(letters))
		return letters; /* a state: the options give axes of keys and values alone */
	return given && rule >= names->rules.n_own ? given : letters ? letters : given;
}

/* Most layers of one tensor that a known rule takes: more are pages. */
enum { LAYERS_GUESSED = 128 };

/* Whether letters fit a tensor. guessed: the user has not given them, so that a tensor of several
 * layers may be another one, whose tokens are fewer than its heads. */
static bool is_fit(const struct kvi_named *named, const char *letters, bool guessed)
{
	struct kvi_axes a;
	return kvi_axes_take(named, letters, &a) &&
	       (!guessed || !kvi_axes_stacked(letters) ||
	        (a.heads <= a.tokens && a.stacked <= 2 * (uint64_t)LAYERS_GUESSED));
}

/* Takes the first of the letters, which are separated by bars, that fit; NULL: guess later. */
static bool take_letters(struct name_found *found, const char *list, bool guessed)
{
	found->axes[0] = '\0';
	while (list && *list) {
		const size_t n = strcspn(list, "|");
		snprintf(found->axes, sizeof found->axes, "%.*s", (int)n, list);
		if (n < sizeof found->axes && is_fit(found->named, found->axes, guessed))
			return true;
		list += n + (list[n] == '|');
	}
	return !list;
}

/* Whether a rule is about a tensor. *stop: no other rule is. found->named is NULL when the axes
 * of a rule about it did not fit. */
static bool follows(struct names *names, const struct kvi_named *named, size_t number,
                    struct name_found *found, bool *stop)
{
	const struct kvi_rule *rule = kvi_rules_at(&names->rules, number);
	struct kvi_rule_match m;
	*stop = !rule;
	if (!rule || !kvi_rule_match(rule->pattern, named->name, &m) ||
	    !kvi_rule_holds(&names->tests, rule, &m))
		return false;
	*stop = rule->axes && !strcmp(rule->axes, "-");
	if (*stop)
		return false;
	*found = (struct name_found){
		.named = named, .engine = rule->engine, .layer = m.layer, .value = m.value
	};
	if (!m.has_layer)
		found->one_layer = kvi_rule_layer_of_file(names->im->items[named->item].name,
		                                          &found->layer);
	const char *letters = letters_of(names, number, rule->axes);
	if (take_letters(found, letters, letters == rule->axes && number >= names->rules.n_own))
		return true;
	found->named = NULL;
	return false;
}

static bool recognise(struct names *names, const struct kvi_named *named, struct name_found *found)
{
	if (!named->dtype || !named->bytes)
		return false;
	bool stop = false;
	found->named = named;
	for (size_t i = 0; !stop; i++)
		if (follows(names, named, i, found, &stop))
			return true;
	names->misfit = names->misfit || (!found->named && named->n_axes > 1);
	return false;
}

static bool is_state(const struct name_found *found)
{
	return kvi_axes_of_state(found->axes);
}

/* States behind keys and values: the first track is one of tokens where there are any. */
static int by_layer(const void *a, const void *b)
{
	const struct name_found *x = a, *y = b;
	const bool x_state = is_state(x), y_state = is_state(y);
	if (x_state != y_state)
		return x_state ? 1 : -1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->value != y->value)
		return x->value ? 1 : -1;
	/* equal keys: ordered by position, to be the same every time */
	if (x->named->item != y->named->item)
		return x->named->item < y->named->item ? -1 : 1;
	return x->named->offset < y->named->offset ? -1 : 1;
}

static const struct kvi_named *find_ids(const struct kvi_named *named, size_t n)
{
	static const char *const names[] = { "tokens", "input_ids", "ids" };
	for (size_t k = 0; k < sizeof names / sizeof *names; k++)
		for (size_t i = 0; i < n; i++) {
			const struct kvi_named *x = &named[i];
			if (x->int_bytes && (x->n_axes == 1 || x->n_axes == 2) &&
			    !strcmp(x->name, names[k]))
				return x;
		}
	return NULL;
}

/*
 * The order of the axes, behind a batch: [heads, tokens, channels] unless more tensors are [tokens,
 * heads, channels] by the number of token ids, or without ids by more than 128 heads and more heads
 * than tokens.
 */
static const char *guess_axes(const struct name_found *found, size_t n, const struct kvi_named *ids)
{
	uint64_t n_ids = ids ? ids->shape[ids->n_axes - 1] : 0;
	size_t htc = 0, thc = 0;
	for (size_t i = 0; i < n; i++) {
		const struct kvi_named *x = found[i].named;
		if (found[i].axes[0] || x->n_axes < 3)
			continue;
		uint64_t a = x->shape[x->n_axes - 3], b = x->shape[x->n_axes - 2];
		htc += ids ? b == n_ids : a <= 128 || a <= b;
		thc += ids ? a == n_ids : a > 128 && a > b;
	}
	return thc > htc ? "thc" : "htc";
}

static bool axes_of(const struct name_found *found, const char *guess, struct kvi_axes *axes)
{
	const struct kvi_named *x = found->named;
	char letters[8];
	if (found->axes[0])
		return kvi_axes_take(x, found->axes, axes);
	snprintf(letters, sizeof letters, "%s%s", x->n_axes == 4 ? "b" : "",
	         x->n_axes == 2 ? "tc" : guess);
	return kvi_axes_take(x, letters, axes);
}

/* The number of ids of each row of the batch; 0: the ids are of other rows. */
static uint64_t ids_of_row(const struct kvi_named *ids, const struct kvi_axes *axes)
{
	if (!ids || (ids->n_axes == 2 ? ids->shape[0] : 1) != axes->batch)
		return 0;
	return ids->shape[ids->n_axes - 1];
}

/* Whether two items are files of one folder. */
static bool is_beside(const kvarc_import *im, uint32_t item, uint32_t other)
{
	const char *x = im->items[item].name, *y = im->items[other].name;
	const char *x_slash = strrchr(x, '/'), *y_slash = strrchr(y, '/');
	size_t n = x_slash ? (size_t)(x_slash - x) : 0;
	return n == (y_slash ? (size_t)(y_slash - y) : 0) && !memcmp(x, y, n);
}

/* A track of this file, or for a file of one layer, of one for another layer beside it. */
static struct kvi_imp_track *find_track(const struct names *names, const struct name_found *found,
                                        const struct kvi_axes *axes, uint64_t row, uint32_t *index)
{
	kvarc_import *im = names->im;
	for (size_t i = found->one_layer ? 0 : names->first; i < im->n_tracks; i++) {
		struct kvi_imp_track *t = &im->tracks[i];
		bool here = i >= names->first ||
		            (t->one_layer && is_beside(im, found->named->item, t->item));
		*index = (uint32_t)i;
		bool state = t->pub.kind == KVARC_TRACK_STATE;
		if (here && t->n == axes->tokens && t->row == row && state == axes->is_state)
			return t;
	}
	return NULL;
}

/* The integers of a batch that mlx-lm saves beside keys and values as its left padding: the fourth
 * part of the same state. NULL: there are none. */
static const struct kvi_named *find_padding(const struct names *names,
                                            const struct name_found *found, uint64_t batch)
{
	const char *name = found->named->name, *dot = strrchr(name, '.');
	const size_t stem = dot ? (size_t)(dot - name) + 1 : 0;
	if (!stem || !found->engine || strcmp(found->engine, "mlx-lm"))
		return NULL;
	for (size_t i = 0; i < names->n; i++) {
		const struct kvi_named *x = &names->named[i];
		if (x->int_bytes && x->n_axes == 1 && x->shape[0] == batch &&
		    !strncmp(x->name, name, stem) && !strcmp(x->name + stem, "3"))
			return x;
	}
	return NULL;
}

/* Leading rows of a track that are of no token; 0 where the file does not say. */
static uint64_t padding_of(const struct names *names, const struct name_found *found,
                           const struct kvi_axes *axes, uint64_t row)
{
	uint8_t p[8] = { 0 };
	const struct kvi_named *x = axes->batch > 1 ? find_padding(names, found, axes->batch)
	                                            : NULL;
	if (!x || kvi_source_read(&names->im->items[x->item].src, p, x->int_bytes,
	                          x->offset + row * x->int_bytes))
		return 0;
	const uint64_t n = kvi_load64(p);
	return n < axes->tokens ? n : 0;
}

/* The track of a row of the batch and this many tokens. */
static struct kvi_imp_track *track_for(const struct names *names, const struct name_found *found,
                                       const struct kvi_axes *axes, uint64_t row, uint32_t *index)
{
	kvarc_import *im = names->im;
	const struct kvi_named *ids = names->ids;
	const uint64_t tokens = axes->tokens;
	struct kvi_imp_track *t = find_track(names, found, axes, row, index);
	if (t)
		return t;
	if (im->n_tracks - names->first >= TRACKS_PER_FILE)
		return NULL;
	t = kvi_import_add_track(im, tokens);
	*index = (uint32_t)im->n_tracks - 1;
	uint64_t n_ids = axes->is_state ? 0 : ids_of_row(ids, axes);
	if (t && axes->is_state) {
		t->pub.kind = KVARC_TRACK_STATE;
		snprintf(t->label, sizeof t->label, "states");
	}
	if (t) {
		t->item = found->named->item;
		t->one_layer = found->one_layer;
	}
	if (t && axes->batch > 1) {
		t->row = row;
		t->padding = padding_of(names, found, axes, row);
		snprintf(t->label, sizeof t->label, "sequence %u", (unsigned)row);
	}
	if (t && n_ids >= tokens) {
		/* a shorter track is a window: the last tokens */
		uint64_t skip = n_ids - tokens;
		t->has_ids = true;
		t->ids_item = ids->item;
		t->ids_bytes = ids->int_bytes;
		t->ids_at = ids->offset + (row * n_ids + skip) * ids->int_bytes;
		if (skip) {
			t->pub.kind = KVARC_TRACK_WINDOW;
			if (kvi_import_position(im, t, (int64_t)skip))
				return NULL;
			t->runs[0].count = tokens;
		}
	}
	return t;
}

static uint8_t kind_of(const struct kvi_axes *axes, bool value)
{
	if (axes->is_state)
		return axes->is_conv ? KVARC_CONV_STATE : KVARC_RECURRENT_STATE;
	return axes->is_latent ? KVARC_MLA_LATENT : value ? KVARC_VALUE : KVARC_KEY;
}

/* A tensor of the last area. */
static kvarc_ret add_part(kvarc_import *im, const struct name_found *found,
                          const struct kvi_axes *axes, bool value, uint64_t offset)
{
	const struct kvi_named *x = found->named;
	uint64_t es = kvarc_dtype_bytes(x->dtype);
	struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
	if (!t)
		return kvi_import_full(im);
	t->pub.layer = found->layer;
	t->pub.kind = kind_of(axes, value);
	t->pub.flags = (uint8_t)(value || axes->is_state ? 0 : KVARC_TENSOR_POST_ROPE);
	t->pub.dtype = x->dtype;
	t->pub.heads = (uint32_t)axes->heads;
	t->pub.channels = (uint32_t)axes->channels;
	snprintf(t->name, sizeof t->name, "%s", x->name);
	t->at.offset = offset * es;
	t->at.elem_stride = es;
	t->at.token_stride = axes->token_stride * es;
	if (axes->head_stride == axes->channels) {
		t->at.block_elems = (uint32_t)(axes->heads * axes->channels);
		t->at.block_stride = axes->heads * axes->channels * es;
	} else {
		t->at.block_elems = (uint32_t)axes->channels;
		t->at.block_stride = axes->head_stride * es;
	}
	return KVARC_OK;
}

/* A row of the batch: an area of keys, of values, or of both; or one after the other. */
static kvarc_ret add_row(kvarc_import *im, const struct name_found *found,
                         const struct kvi_axes *axes, uint64_t row, uint32_t track)
{
	uint64_t bytes = found->named->bytes / axes->batch;
	uint64_t offset = found->named->offset + row * bytes;
	const uint64_t areas = axes->parts_apart ? 2 : 1;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t i = 0; i < areas && !ret; i++) {
		uint64_t part = bytes / areas;
		if (!kvi_import_add_area(im, found->named->item, track, offset + i * part, part))
			return kvi_import_full(im);
		ret = add_part(im, found, axes, found->value || i > 0, 0);
		if (!ret && axes->parts > areas)
			ret = add_part(im, found, axes, true, axes->part_stride);
	}
	return ret;
}

/* A tensor: each row of its batch is one of a track of its own. */
static kvarc_ret add_rows(const struct names *names, const struct name_found *found,
                          const struct kvi_axes *axes)
{
	kvarc_import *im = names->im;
	for (uint64_t row = 0; row < axes->batch; row++) {
		uint32_t track;
		if (!track_for(names, found, axes, row, &track)) {
			if (im->n_tracks - names->first < TRACKS_PER_FILE)
				return kvi_import_full(im);
			kvi_import_note(im, "too many sequences, or different numbers of "
			                    "tokens: some tensors kept as bytes");
			return KVARC_OK;
		}
		kvarc_ret ret = add_row(im, found, axes, row, track);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

/* A tensor of a stack; its axes are those of found behind the letters that count. */
static struct name_found one_of(const struct name_found *found, uint64_t stacked, uint64_t i,
                                struct kvi_named *named)
{
	const size_t skip = kvi_axes_stacked(found->axes);
	struct name_found one = *found;
	*named = *found->named;
	named->n_axes = (uint8_t)(named->n_axes - skip);
	memmove(named->shape, named->shape + skip, named->n_axes * sizeof *named->shape);
	named->bytes /= stacked;
	named->offset += i * named->bytes;
	one.named = named;
	snprintf(one.axes, sizeof one.axes, "%s", found->axes + skip);
	const uint64_t layers = skip == 2 ? stacked / 2 : stacked;
	const bool pairs_outside = found->axes[0] == '2';
	one.layer += (uint32_t)(skip < 2 ? i : pairs_outside ? i % layers : i / 2);
	if (skip == 2)
		one.value = pairs_outside ? i >= layers : i % 2;
	return one;
}

/* The tensors of a stack of layers, or one alone. */
static kvarc_ret add_stacked(const struct names *names, const struct name_found *found,
                             const struct kvi_axes *axes)
{
	kvarc_ret ret = KVARC_OK;
	if (!kvi_axes_stacked(found->axes))
		return add_rows(names, found, axes);
	for (uint64_t i = 0; i < axes->stacked && !ret; i++) {
		struct kvi_named named;
		const struct name_found one = one_of(found, axes->stacked, i, &named);
		if (one.layer > KVI_IMPORT_LAYER_MAX)
			break;
		ret = add_rows(names, &one, axes);
	}
	return ret;
}

static void describe(kvarc_import *im, const struct name_found *found, const struct kvi_axes *axes)
{
	if (!axes->is_state)
		snprintf(im->layout, sizeof im->layout, "%s%s",
		         axes->heads_first ? "head, token, channel" : "token, head, channel",
		         axes->parts > 1 ? " of keys and values" : "");
	if (found->engine)
		im->engine = found->engine;
}

static kvarc_ret add_all(struct names *names, struct name_found *name_found, size_t n,
                         size_t *found)
{
	kvarc_import *im = names->im;
	const char *guess = guess_axes(name_found, n, names->ids);
	qsort(name_found, n, sizeof *name_found, by_layer);
	for (size_t i = 0; i < n; i++) {
		struct kvi_axes a;
		if (!axes_of(&name_found[i], guess, &a)) {
			names->misfit = true;
			continue;
		}
		const size_t had = im->n_tensors;
		kvarc_ret ret = add_stacked(names, &name_found[i], &a);
		if (ret)
			return ret;
		describe(im, &name_found[i], &a);
		*found += im->n_tensors > had;
	}
	return KVARC_OK;
}

/* The first tensor that may be of a cache, or the first one. */
static const struct kvi_named *first_of(const struct kvi_named *named, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (named[i].dtype && named[i].n_axes > 1)
			return &named[i];
	return named;
}

/* Why tensors with names of keys and values are none, and what rule may help: import.c makes a note
 * of it. */
static void describe_unknown(const struct names *names, const struct kvi_named *named, size_t n)
{
	kvarc_import *im = names->im;
	const struct kvi_named *first = first_of(named, n);
	char shape[64] = "", rule[KVI_RULE_SUGGESTED];
	if (im->unknown[0])
		return;
	for (size_t i = 0, at = 0; i < first->n_axes && at < sizeof shape; i++)
		at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%" PRIu64, i ? ", " : "",
		                       first->shape[i]);
	if (names->tests.seen[0] && !names->misfit) {
		snprintf(im->unknown, sizeof im->unknown,
		         "the metadata say that the tensors are neither keys, values nor states "
		         "(%s)",
		         names->tests.seen);
		return;
	}
	snprintf(im->unknown, sizeof im->unknown,
	         names->misfit ? "the axes of no rule fit its tensors (first: '%.80s' [%s])"
	                       : "no rule has the names of its tensors (first: '%.80s' [%s])",
	         first->name, shape);
	if (kvi_rule_suggest(rule, first))
		snprintf(im->hint, sizeof im->hint,
		         "; if they are a cache, give a rule like --kv-rule '%s' "
		         "(" KVI_AXES_LEGEND ")",
		         rule);
}

/* Says what no rule has. */
static void note_others(struct names *names, const struct kvi_named *named, size_t n, size_t found)
{
	if (names->misfit && found)
		kvi_import_note(names->im, "the shape of some keys and values "
		                           "does not fit the axes: kept as bytes");
	else if (n && !found)
		describe_unknown(names, named, n);
}

/* As kvi_import_named for a file with metadata, which rules may test; NULL: none. */
static kvarc_ret import_named_about(kvarc_import *im, const struct kvi_named *named, size_t n,
                                    const struct kvi_metadata *metadata, size_t *found)
{
	struct names *names = kvi_calloc(&im->alloc, 1, sizeof *names);
	struct name_found *f = kvi_array(&im->alloc, n ? n : 1, sizeof *f);
	kvarc_ret ret;
	*found = 0;
	if (im->typing) {
		const size_t had = im->n_tensors;
		ret = kvi_import_typed(im, named, n);
		*found = im->n_tensors - had;
		goto out;
	}
	if (!names || !f) {
		ret = kvi_fail_alloc(im->error, &im->alloc);
		goto out;
	}
	names->im = im;
	names->first = im->n_tracks;
	names->named = named;
	names->n = n;
	names->ids = find_ids(named, n);
	names->tests.metadata = metadata;
	ret = kvi_rules_parse(&names->rules, &im->alloc, im->options.kv_rule, im->error);
	size_t k = 0;
	for (size_t i = 0; i < n && !ret; i++)
		k += recognise(names, &named[i], &f[k]);
	if (!ret && k)
		ret = add_all(names, f, k, found);
	if (!ret)
		note_others(names, named, n, *found);
	kvi_rules_free(&names->rules, &im->alloc);
out:
	kvi_free(&im->alloc, f);
	kvi_free(&im->alloc, names);
	return ret;
}

/* The kinds of the imported tensors, as words of a message. */
static const char *import_named_what(const kvarc_import *im)
{
	bool states = false, others = false;
	if (im->typing)
		return "coded by their types alone";
	for (size_t i = 0; i < im->n_tracks; i++) {
		states = states || im->tracks[i].pub.kind == KVARC_TRACK_STATE;
		others = others || im->tracks[i].pub.kind != KVARC_TRACK_STATE;
	}
	return !states ? "keys and values" : others ? "keys, values and states" : "states";
}

kvarc_ret kvi_import_named(kvarc_import *im, const struct kvi_named *named, size_t n, size_t *found)
{
	return import_named_about(im, named, n, NULL, found);
}

/* ==== Safetensors files: a length, a JSON header, tensors ==== */

#define SAFETENSORS_NEED "safetensors files need " JANSSON_MISSING ": kept as an opaque file"

/* Reads the u64 header length and checks the brace behind it. END: not safetensors. */
static kvarc_ret header_bytes(const kvarc_import *im, uint32_t item, uint64_t *bytes)
{
	const kvarc_source *src = &im->items[item].src;
	uint8_t head[9];
	if (src->size < sizeof head)
		return KVARC_END;
	if (kvi_source_read(src, head, sizeof head, 0))
		return KVARC_IO;
	*bytes = kvi_load64(head);
	if (head[8] != '{' || *bytes < 2 || *bytes > KVI_ST_HEADER_MAX || *bytes > src->size - 8)
		return KVARC_END;
	return KVARC_OK;
}

#ifdef HAVE_JANSSON

static const struct {
	const char *name;
	uint8_t bytes, dtype, int_bytes;
} dtypes[] = {
	{ "BF16", 2, KVARC_BF16, 0 },
	{ "F16", 2, KVARC_F16, 0 },
	{ "F32", 4, KVARC_F32, 0 },
	{ "F8_E4M3", 1, KVARC_E4M3, 0 },
	{ "F8_E5M2", 1, KVARC_E5M2, 0 },
	{ "I8", 1, KVARC_I8, 0 },
	{ "U8", 1, KVARC_U8, 0 },
	{ "I32", 4, 0, 4 },
	{ "I64", 8, 0, 8 },
	/* types that stay bytes, but whose sizes are known */
	{ "BOOL", 1, 0, 0 },
	{ "I16", 2, 0, 0 },
	{ "U16", 2, 0, 0 },
	{ "U32", 4, 0, 0 },
	{ "U64", 8, 0, 0 },
	{ "F64", 8, 0, 0 },
};

static bool get_tensor(const json_t *v, uint64_t data_at, uint64_t data_bytes,
                       struct kvi_named *named)
{
	struct kvi_st_entry e;
	uint64_t bytes = 0, size;
	if (!kvi_st_entry(v, data_bytes, &e))
		return false;
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
		if (!strcmp(e.dtype, dtypes[i].name)) {
			bytes = dtypes[i].bytes;
			named->dtype = dtypes[i].dtype;
			named->int_bytes = dtypes[i].int_bytes;
		}
	if (bytes && (kvi_mul(e.elements, bytes, &size) || size != e.end - e.begin))
		return false;
	bool fits = e.axes <= KVI_NAMED_AXES_MAX;
	if (!fits)
		named->dtype = named->int_bytes = 0;
	for (size_t i = 0; fits && i < e.axes; i++)
		named->shape[i] = e.shape[i];
	named->n_axes = (uint8_t)(fits ? e.axes : 0);
	named->offset = data_at + e.begin;
	named->bytes = e.end - e.begin;
	return true;
}

static int by_offset(const void *a, const void *b)
{
	const struct kvi_named *x = a, *y = b;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Tensors may not overlap; holes between them are literal bytes. */
static bool disjoint(struct kvi_named *named, size_t n)
{
	qsort(named, n, sizeof *named, by_offset);
	for (size_t i = 1; i < n; i++)
		if (named[i - 1].offset + named[i - 1].bytes > named[i].offset)
			return false;
	return true;
}

/* The parts of a header that rules for tensor names may test. */
struct st_about {
	const json_t *root, *metadata;
	const kvarc_source *src;
	uint64_t data_at;
};

static const char *metadata_text(const void *opaque, const char *key)
{
	const struct st_about *about = opaque;
	return json_string_value(json_object_get(about->metadata, key));
}

static bool tensor_text(const void *opaque, const char *name, char text[KVI_SPELLED_BYTES])
{
	const struct st_about *about = opaque;
	const json_t *v = json_object_get(about->root, name);
	uint8_t data[4 * (KVI_SPELLED_BYTES - 1)];
	struct kvi_named x = { 0 };
	if (!v || !get_tensor(v, about->data_at, about->src->size - about->data_at, &x) ||
	    x.int_bytes != 4 || x.n_axes != 1 || x.bytes > sizeof data ||
	    kvi_source_read(about->src, data, (size_t)x.bytes, x.offset))
		return false;
	const size_t n = (size_t)x.bytes / 4;
	for (size_t i = 0; i < n; i++) {
		const uint32_t c = kvi_load32(data + 4 * i);
		if (c < ' ' || c > '~')
			return false;
		text[i] = (char)c;
	}
	text[n] = '\0';
	return true;
}

/* Whether metadata have more than the "format" that writers of tensors add. */
static bool says_something(const json_t *metadata)
{
	return json_object_size(metadata) > (json_object_get(metadata, "format") ? 1u : 0u);
}

static kvarc_ret take_header(kvarc_import *im, uint32_t item, json_t *root, uint64_t data_at)
{
	size_t n = 0, found = 0, capacity = json_object_size(root);
	uint64_t data_bytes = im->items[item].src.size - data_at;
	struct kvi_named *x;
	const char *key;
	json_t *v;
	if (capacity == 0)
		return KVARC_END;
	x = kvi_calloc(&im->alloc, capacity, sizeof *x);
	if (!x)
		return kvi_fail_alloc(im->error, &im->alloc);
	bool good = true;
	json_object_foreach(root, key, v)
	{
		if (!strcmp(key, "__metadata__"))
			continue;
		x[n].item = item;
		x[n].name = key;
		good = good && get_tensor(v, data_at, data_bytes, &x[n]);
		n++;
	}
	kvarc_ret ret = KVARC_END;
	const struct st_about about = { root, json_object_get(root, "__metadata__"),
		                        &im->items[item].src, data_at };
	const struct kvi_metadata metadata = { metadata_text, tensor_text, &about,
		                               says_something(about.metadata) };
	if (good && disjoint(x, n))
		ret = import_named_about(im, x, n, &metadata, &found);
	else
		kvi_import_note(im, "the header of a safetensors file is not "
		                    "valid: kept as an opaque file");
	if (!ret) {
		im->items[item].kind = KVI_ITEM_SAFETENSORS;
		snprintf(im->format, sizeof im->format,
		         "safetensors%s%s, %zu of %zu tensors are %s", im->engine ? " of " : "",
		         im->engine ? im->engine : "", found, n, import_named_what(im));
	}
	kvi_free(&im->alloc, x);
	return ret;
}

kvarc_ret kvi_import_safetensors(kvarc_import *im, uint32_t item)
{
	uint64_t bytes;
	kvarc_ret ret = header_bytes(im, item, &bytes);
	if (ret)
		return ret;
	if (!kvi_jansson(NULL)) {
		kvi_import_note(im, SAFETENSORS_NEED);
		return KVARC_END;
	}
	uint64_t budget = im->alloc.limit;
	if (!kvi_json_fits((size_t)bytes, budget)) {
		kvi_import_note(im, "the header of a safetensors file needs "
		                    "more memory than the limit: kept as an opaque file");
		return KVARC_END;
	}
	char *text = kvi_malloc(&im->alloc, (size_t)bytes);
	if (!text)
		return kvi_fail_alloc(im->error, &im->alloc);
	json_t *root = NULL;
	if (kvi_source_read(&im->items[item].src, text, (size_t)bytes, 8)) {
		ret = KVARC_IO;
	} else {
		/* a text that is not JSON has no root */
		(void)!kvi_json_parse(text, (size_t)bytes, &budget, &root);
	}
	kvi_free(&im->alloc, text);
	if (!ret && json_is_object(root)) {
		ret = take_header(im, item, root, 8 + bytes);
	} else if (!ret) {
		kvi_import_note(im, "looks like safetensors, but its header is "
		                    "not JSON: kept as an opaque file");
		ret = KVARC_END;
	}
	json_decref(root);
	return ret;
}

#else

kvarc_ret kvi_import_safetensors(kvarc_import *im, uint32_t item)
{
	uint64_t bytes;
	kvarc_ret ret = header_bytes(im, item, &bytes);
	if (!ret)
		kvi_import_note(im, SAFETENSORS_NEED);
	return ret ? ret : KVARC_END;
}

#endif

/* ==== NumPy array files, alone or as the members of an npz ==== */

enum { HEADER_MAX = 4096, NAME_MAX_BYTES = 96 };

/* An array; n_axes and so on in named, whose name points to name. */
struct array {
	char name[NAME_MAX_BYTES];
};

/* The value behind 'key': in the header's dictionary, or NULL. */
static const char *value_of(const char *text, const char *key)
{
	const char *p = strstr(text, key);
	if (!p)
		return NULL;
	p += strlen(key);
	while (*p == ' ' || *p == ':')
		p++;
	return p;
}

static bool take_dtype(const char *p, struct kvi_named *named, uint8_t *bytes)
{
	/* NumPy has no bf16 and fp8: they are saved as opaque bytes or as integers; ml_dtypes
	 * writes <V2 for bf16, <V1 for e4m3 and <f1 for e5m2. */
	static const struct {
		const char *descr;
		uint8_t bytes, dtype, int_bytes;
	} known[] = {
		{ "'<f2'", 2, KVARC_F16, 0 },  { "'<f4'", 4, KVARC_F32, 0 },
		{ "'|V2'", 2, KVARC_BF16, 0 }, { "'<V2'", 2, KVARC_BF16, 0 },
		{ "'<u2'", 2, KVARC_BF16, 0 }, { "'<i2'", 2, KVARC_BF16, 0 },
		{ "'|i1'", 1, KVARC_I8, 0 },   { "'|u1'", 1, KVARC_U8, 0 },
		{ "'|V1'", 1, KVARC_U8, 0 },   { "'<V1'", 1, KVARC_U8, 0 },
		{ "'<f1'", 1, KVARC_E5M2, 0 }, { "'<i4'", 4, 0, 4 },
		{ "'<i8'", 8, 0, 8 },
	};
	for (size_t i = 0; p && i < sizeof known / sizeof *known; i++)
		if (!strncmp(p, known[i].descr, strlen(known[i].descr))) {
			named->dtype = known[i].dtype;
			named->int_bytes = known[i].int_bytes;
			*bytes = known[i].bytes;
			return true;
		}
	return false;
}

/* Parses a shape, "(3, 1024, 64)"; *size is the product. */
static bool take_shape(const char *p, struct kvi_named *named, uint64_t *size)
{
	if (!p || *p++ != '(')
		return false;
	*size = 1;
	named->n_axes = 0;
	while (*p != ')') {
		uint64_t n = 0;
		if (named->n_axes >= KVI_NAMED_AXES_MAX || *p < '0' || *p > '9')
			return false;
		for (; *p >= '0' && *p <= '9'; p++)
			if (kvi_mul(n, (uint64_t)10, &n) || kvi_add(n, (uint64_t)(*p - '0'), &n))
				return false;
		if (kvi_mul(*size, n, size))
			return false;
		named->shape[named->n_axes++] = n;
		while (*p == ',' || *p == ' ')
			p++;
	}
	return true;
}

/* Reads the header of an npy file. END: not an array that is understood. */
static kvarc_ret read_header(const kvarc_import *im, uint32_t item, struct kvi_named *named)
{
	const kvarc_source *src = &im->items[item].src;
	uint8_t raw[12];
	char text[HEADER_MAX + 1];
	uint8_t elem = 0;
	uint64_t size;
	if (src->size < sizeof raw)
		return KVARC_END;
	if (kvi_source_read(src, raw, sizeof raw, 0))
		return KVARC_IO;
	if (memcmp(raw, "\x93NUMPY", 6) || raw[6] < 1 || raw[6] > 3)
		return KVARC_END;
	uint32_t at = raw[6] == 1 ? 10 : 12;
	uint32_t n = raw[6] == 1 ? kvi_load16(raw + 8) : kvi_load32(raw + 8);
	if (n > HEADER_MAX || n > src->size - at)
		return KVARC_END;
	if (kvi_source_read(src, text, n, at))
		return KVARC_IO;
	text[n] = '\0';
	const char *order = value_of(text, "'fortran_order'");
	if (!take_dtype(value_of(text, "'descr'"), named, &elem) ||
	    !take_shape(value_of(text, "'shape'"), named, &size) || !order ||
	    strncmp(order, "False", 5) || kvi_mul(size, (uint64_t)elem, &named->bytes) ||
	    named->bytes != src->size - at - n)
		return KVARC_END;
	named->item = item;
	named->offset = (uint64_t)at + n;
	return KVARC_OK;
}

/* The base name without ".npy"; one that is too long follows no rule. */
static void array_name(char *dst, const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *base = slash ? slash + 1 : name;
	size_t n = strlen(base);
	if (n > 4 && !strcmp(base + n - 4, ".npy"))
		n -= 4;
	dst[0] = '\0';
	if (n < NAME_MAX_BYTES)
		snprintf(dst, NAME_MAX_BYTES, "%.*s", (int)n, base);
}

kvarc_ret kvi_import_npy(kvarc_import *im, uint32_t first)
{
	size_t n = 0, capacity = im->n_items - first, found = 0;
	struct kvi_named *x = kvi_calloc(&im->alloc, capacity, sizeof *x);
	struct array *arrays = kvi_calloc(&im->alloc, capacity, sizeof *arrays);
	kvarc_ret ret = KVARC_OK;
	if (!x || !arrays)
		ret = kvi_fail_alloc(im->error, &im->alloc);
	for (uint32_t i = first; i < im->n_items && !ret; i++) {
		if (im->items[i].kind != KVI_ITEM_OPAQUE)
			continue;
		ret = read_header(im, i, &x[n]);
		if (ret == KVARC_OK) {
			im->items[i].kind = KVI_ITEM_NPY;
			array_name(arrays[n].name, im->items[i].name);
			x[n].name = arrays[n].name;
			n++;
		} else if (ret == KVARC_END) {
			memset(&x[n], 0, sizeof *x);
			ret = KVARC_OK;
		}
	}
	if (!ret && n) {
		ret = kvi_import_named(im, x, n, &found);
		snprintf(im->format, sizeof im->format, "npy, %zu of %zu arrays are %s", found, n,
		         import_named_what(im));
	}
	kvi_free(&im->alloc, x);
	kvi_free(&im->alloc, arrays);
	return ret;
}

/* ==== KVC files: a header of 48 bytes that ds4, erllama and hanzo share ==== */

/*
 * "KVC", u8 version 1, u8 quant_bits, u8 reason, u8 reserved[2], u32 tokens, u32 hits, u32
 * context_size, u8 reserved[4], u64 created, u64 last_used, u64 payload_bytes * erllama has a
 * second header behind it: u64 payload_offset, u64 payload_length, u32 CRC-32C of the payload, u32
 * reserved; then a text and a list of (u8 tag, u32 length, value), each behind its u32 length;
 * then the payload, to the end of the file, a bare state of llama.cpp. The payloads of others have
 * formats of their own.
 */

enum { HEADER_BYTES = 48, SECOND_BYTES = 24, TAG_TOKENS = 9, TAGS_MAX = 4096 };

struct kvc {
	uint64_t payload_at, payload_bytes;
	uint32_t check;
	uint64_t ids_at; /* 0: none */
	uint32_t n_ids;
};

/* CRC-32C (Castagnoli), four bits at a time. */
static uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
	static const uint32_t table[16] = { 0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
		                            0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		                            0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		                            0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75 };
	crc = ~crc;
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}

/* A section behind its u32 length; *at is moved past it. END: it is longer than the file. */
static kvarc_ret take_section(const kvarc_source *src, uint64_t *at, uint64_t end, uint32_t *bytes)
{
	uint8_t p[4];
	if (*at > end || end - *at < sizeof p)
		return KVARC_END;
	if (kvi_source_read(src, p, sizeof p, *at))
		return KVARC_IO;
	*bytes = kvi_load32(p);
	*at += sizeof p;
	if (*bytes > end - *at)
		return KVARC_END;
	*at += *bytes;
	return KVARC_OK;
}

/* Finds the token ids among the tags from `at` on, which end at `end`. */
static kvarc_ret take_tags(const kvarc_source *src, uint64_t at, uint64_t end, struct kvc *kvc)
{
	for (int i = 0; i < TAGS_MAX && at < end; i++) {
		uint8_t tag;
		uint32_t bytes;
		if (kvi_source_read(src, &tag, 1, at++))
			return KVARC_IO;
		kvarc_ret ret = take_section(src, &at, end, &bytes);
		if (ret)
			return ret;
		if (tag == TAG_TOKENS && bytes % 4 == 0 && bytes) {
			kvc->ids_at = at - bytes;
			kvc->n_ids = bytes / 4;
		}
	}
	return at == end ? KVARC_OK : KVARC_END;
}

/* The second header and what stands behind it, up to the payload. END: it is not erllama's. */
static kvarc_ret read_second(const kvarc_source *src, uint64_t payload_bytes, struct kvc *kvc)
{
	uint8_t p[SECOND_BYTES];
	uint64_t at = HEADER_BYTES + SECOND_BYTES;
	uint32_t text, tags;
	if (src->size < at)
		return KVARC_END;
	if (kvi_source_read(src, p, sizeof p, HEADER_BYTES))
		return KVARC_IO;
	*kvc = (struct kvc){ .payload_at = kvi_load64(p),
		             .payload_bytes = kvi_load64(p + 8),
		             .check = kvi_load32(p + 16) };
	if (kvc->payload_bytes != payload_bytes || kvc->payload_at > src->size ||
	    src->size - kvc->payload_at != payload_bytes)
		return KVARC_END;
	kvarc_ret ret = take_section(src, &at, kvc->payload_at, &text);
	if (!ret)
		ret = take_section(src, &at, kvc->payload_at, &tags);
	if (!ret && at != kvc->payload_at)
		ret = KVARC_END;
	return ret ? ret : take_tags(src, at - tags, at, kvc);
}

/* A wrong check is no reason to refuse: the file comes back as it is. */
static kvarc_ret compare_check(kvarc_import *im, const kvarc_source *src, const struct kvc *kvc)
{
	enum { STEP = 64 << 10 };
	uint8_t *buf = kvi_malloc(&im->alloc, STEP);
	uint32_t crc = 0;
	kvarc_ret ret = KVARC_OK;
	if (!buf)
		return kvi_fail_alloc(im->error, &im->alloc);
	for (uint64_t at = 0; at < kvc->payload_bytes && !ret; at += STEP) {
		const uint64_t left = kvc->payload_bytes - at;
		const size_t n = left < STEP ? (size_t)left : STEP;
		if (kvi_source_read(src, buf, n, kvc->payload_at + at))
			ret = KVARC_IO;
		else
			crc = crc32c(crc, buf, n);
	}
	kvi_free(&im->alloc, buf);
	if (!ret && crc != kvc->check)
		kvi_import_note(im, "the check of its payload is wrong: kept as it is; "
		                    "erllama will not load it");
	return ret;
}

kvarc_ret kvi_import_kvc(kvarc_import *im, uint32_t item)
{
	const kvarc_source *src = &im->items[item].src;
	uint8_t p[HEADER_BYTES];
	struct kvc k;
	if (src->size < sizeof p)
		return KVARC_END;
	if (kvi_source_read(src, p, sizeof p, 0))
		return KVARC_IO;
	if (memcmp(p, "KVC\1", 4))
		return KVARC_END;
	kvarc_ret ret = read_second(src, kvi_load64(p + 40), &k);
	if (!ret)
		ret = compare_check(im, src, &k);
	if (!ret)
		ret = kvi_import_llama_state(im, item, k.payload_at, k.ids_at, k.n_ids);
	if (ret == KVARC_END)
		kvi_import_note(im, "a KVC file whose payload is no state of llama.cpp: kept "
		                    "as an opaque file");
	if (ret)
		return ret;
	im->items[item].kind = KVI_ITEM_OTHER;
	im->engine = "erllama";
	snprintf(im->format, sizeof im->format, "KVC file, a state of llama.cpp");
	return KVARC_OK;
}
