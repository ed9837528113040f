/* SPDX-License-Identifier: BSD-3-Clause */
/* named.c - named dense tensors (safetensors, npy) recognised as keys, values and states */
#include "named.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "kv_rules.h"
#include "named_axes.h"
#include "util/error.h"

enum { TRACKS_PER_FILE = 64 };

/* The names and metadata of one file. */
struct names {
	kvarc_import *im;
	struct kvi_rules rules;
	struct kvi_rule_tests tests;
	size_t first; /* of its tracks */
	const struct kvi_named *ids;
	bool misfit; /* the axes of a rule did not fit a tensor that it names */
};

/* A recognised tensor. */
struct name_found {
	const struct kvi_named *named;
	const char *axes; /* NULL: guess */
	const char *engine;
	uint32_t layer;
	bool value;
	bool one_layer; /* of a file for one layer, whose name has the layer */
};

/* The axes of a rule, of the options before those of a known engine; NULL: guess. */
static const char *letters_of(const struct names *names, size_t rule, const char *letters)
{
	const char *given = names->im->options.axes;
	if (letters && kvi_axes_of_state(letters))
		return letters; /* neither keys nor values, whose axes the options say */
	return given && rule >= names->rules.n_own ? given : letters ? letters : given;
}

/* Whether a rule is about a tensor. *stop: no other rule is. f->named is NULL when the axes of a
 * rule about it did not fit. */
static bool follows(struct names *names, const struct kvi_named *x, size_t number,
                    struct name_found *f, bool *stop)
{
	const struct kvi_rule *rule = kvi_rules_at(&names->rules, number);
	struct kvi_rule_match m;
	struct kvi_axes a;
	*stop = !rule;
	if (!rule || !kvi_rule_match(rule->pattern, x->name, &m) ||
	    !kvi_rule_holds(&names->tests, rule, &m))
		return false;
	*stop = rule->axes && !strcmp(rule->axes, "-");
	if (*stop)
		return false;
	*f = (struct name_found){ x, letters_of(names, number, rule->axes), rule->engine,
		                  m.layer, m.value, false };
	if (!m.has_layer)
		f->one_layer = kvi_rule_layer_of_file(names->im->items[x->item].name, &f->layer);
	if (!f->axes || kvi_axes_take(x, f->axes, &a))
		return true;
	f->named = NULL;
	return false;
}

static bool recognise(struct names *names, const struct kvi_named *x, struct name_found *f)
{
	if (!x->dtype || !x->bytes)
		return false;
	bool stop = false;
	f->named = x;
	for (size_t i = 0; !stop; i++)
		if (follows(names, x, i, f, &stop))
			return true;
	names->misfit = names->misfit || (!f->named && x->n_axes > 1);
	return false;
}

static bool is_state(const struct name_found *f)
{
	return f->axes && kvi_axes_of_state(f->axes);
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
	/* same place twice: by where they are, to be the same every time */
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
static const char *guess_axes(const struct name_found *f, size_t n, const struct kvi_named *ids)
{
	uint64_t n_ids = ids ? ids->shape[ids->n_axes - 1] : 0;
	size_t htc = 0, thc = 0;
	for (size_t i = 0; i < n; i++) {
		const struct kvi_named *x = f[i].named;
		if (f[i].axes || x->n_axes < 3)
			continue;
		uint64_t a = x->shape[x->n_axes - 3], b = x->shape[x->n_axes - 2];
		htc += ids ? b == n_ids : a <= 128 || a <= b;
		thc += ids ? a == n_ids : a > 128 && a > b;
	}
	return thc > htc ? "thc" : "htc";
}

static bool axes_of(const struct name_found *f, const char *guess, struct kvi_axes *a)
{
	const struct kvi_named *x = f->named;
	char letters[8];
	if (f->axes)
		return kvi_axes_take(x, f->axes, a);
	snprintf(letters, sizeof letters, "%s%s", x->n_axes == 4 ? "b" : "",
	         x->n_axes == 2 ? "tc" : guess);
	return kvi_axes_take(x, letters, a);
}

/* How many ids each row of the batch has; 0: they are of other rows. */
static uint64_t ids_of_row(const struct kvi_named *ids, const struct kvi_axes *a)
{
	if (!ids || (ids->n_axes == 2 ? ids->shape[0] : 1) != a->batch)
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
static struct kvi_imp_track *find_track(const struct names *names, const struct name_found *f,
                                        const struct kvi_axes *a, uint64_t row, uint32_t *index)
{
	kvarc_import *im = names->im;
	for (size_t i = f->one_layer ? 0 : names->first; i < im->n_tracks; i++) {
		struct kvi_imp_track *t = &im->tracks[i];
		bool here = i >= names->first ||
		            (t->one_layer && is_beside(im, f->named->item, t->item));
		*index = (uint32_t)i;
		bool state = t->pub.kind == KVARC_TRACK_STATE;
		if (here && t->n == a->tokens && t->row == row && state == a->is_state)
			return t;
	}
	return NULL;
}

/* The track of a row of the batch and this many tokens. */
static struct kvi_imp_track *track_for(const struct names *names, const struct name_found *f,
                                       const struct kvi_axes *a, uint64_t row, uint32_t *index)
{
	kvarc_import *im = names->im;
	const struct kvi_named *ids = names->ids;
	const uint64_t tokens = a->tokens;
	struct kvi_imp_track *t = find_track(names, f, a, row, index);
	if (t)
		return t;
	if (im->n_tracks - names->first >= TRACKS_PER_FILE)
		return NULL;
	t = kvi_import_add_track(im, tokens);
	*index = (uint32_t)im->n_tracks - 1;
	uint64_t n_ids = a->is_state ? 0 : ids_of_row(ids, a);
	if (t && a->is_state) {
		t->pub.kind = KVARC_TRACK_STATE;
		snprintf(t->label, sizeof t->label, "states");
	}
	if (t) {
		t->item = f->named->item;
		t->one_layer = f->one_layer;
	}
	if (t && a->batch > 1) {
		t->row = row;
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

static uint8_t kind_of(const struct kvi_axes *a, bool value)
{
	if (a->is_state)
		return a->is_conv ? KVARC_CONV_STATE : KVARC_RECURRENT_STATE;
	return a->is_latent ? KVARC_MLA_LATENT : value ? KVARC_VALUE : KVARC_KEY;
}

/* A tensor of the last area. */
static kvarc_ret add_part(kvarc_import *im, const struct name_found *f, const struct kvi_axes *a,
                          bool value, uint64_t offset)
{
	const struct kvi_named *x = f->named;
	uint64_t es = kvarc_dtype_bytes(x->dtype);
	struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
	if (!t)
		return kvi_import_full(im);
	t->pub.layer = f->layer;
	t->pub.kind = kind_of(a, value);
	t->pub.flags = (uint8_t)(value || a->is_state ? 0 : KVARC_TENSOR_POST_ROPE);
	t->pub.dtype = x->dtype;
	t->pub.heads = (uint32_t)a->heads;
	t->pub.channels = (uint32_t)a->channels;
	snprintf(t->name, sizeof t->name, "%s", x->name);
	t->at.offset = offset * es;
	t->at.elem_stride = es;
	t->at.token_stride = a->token_stride * es;
	if (a->head_stride == a->channels) {
		t->at.block_elems = (uint32_t)(a->heads * a->channels);
		t->at.block_stride = a->heads * a->channels * es;
	} else {
		t->at.block_elems = (uint32_t)a->channels;
		t->at.block_stride = a->head_stride * es;
	}
	return KVARC_OK;
}

/* A row of the batch: an area of keys, of values, or of both; or one after the other. */
static kvarc_ret add_row(kvarc_import *im, const struct name_found *f, const struct kvi_axes *a,
                         uint64_t row, uint32_t track)
{
	uint64_t bytes = f->named->bytes / a->batch;
	uint64_t offset = f->named->offset + row * bytes;
	const uint64_t areas = a->parts_apart ? 2 : 1;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t i = 0; i < areas && !ret; i++) {
		uint64_t part = bytes / areas;
		if (!kvi_import_add_area(im, f->named->item, track, offset + i * part, part))
			return kvi_import_full(im);
		ret = add_part(im, f, a, f->value || i > 0, 0);
		if (!ret && a->parts > areas)
			ret = add_part(im, f, a, true, a->part_stride);
	}
	return ret;
}

/* A tensor: each row of its batch is one of a track of its own. */
static kvarc_ret add_rows(const struct names *names, const struct name_found *f,
                          const struct kvi_axes *a)
{
	kvarc_import *im = names->im;
	for (uint64_t row = 0; row < a->batch; row++) {
		uint32_t track;
		if (!track_for(names, f, a, row, &track)) {
			if (im->n_tracks - names->first < TRACKS_PER_FILE)
				return kvi_import_full(im);
			kvi_import_note(im, "too many sequences, or different numbers of "
			                    "tokens: some tensors kept as bytes");
			return KVARC_OK;
		}
		kvarc_ret ret = add_row(im, f, a, row, track);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static void describe(kvarc_import *im, const struct name_found *f, const struct kvi_axes *a)
{
	if (!a->is_state)
		snprintf(im->layout, sizeof im->layout, "%s%s",
		         a->heads_first ? "head, token, channel" : "token, head, channel",
		         a->parts > 1 ? " of keys and values" : "");
	if (f->engine)
		im->engine = f->engine;
}

static kvarc_ret add_all(struct names *names, struct name_found *f, size_t n, size_t *found)
{
	kvarc_import *im = names->im;
	const char *guess = guess_axes(f, n, names->ids);
	qsort(f, n, sizeof *f, by_layer);
	for (size_t i = 0; i < n; i++) {
		struct kvi_axes a;
		if (!axes_of(&f[i], guess, &a)) {
			names->misfit = true;
			continue;
		}
		const size_t had = im->n_tensors;
		kvarc_ret ret = add_rows(names, &f[i], &a);
		if (ret)
			return ret;
		describe(im, &f[i], &a);
		*found += im->n_tensors > had;
	}
	return KVARC_OK;
}

/* Why tensors with names of keys and values are none. */
static void note_others(struct names *names, size_t found)
{
	if (names->misfit)
		kvi_import_note(names->im, "the shape of some keys and values "
		                           "does not fit the axes: kept as bytes");
	else if (!found && names->tests.seen[0])
		kvi_import_note(names->im,
		                "the metadata say that the tensors are neither keys, values nor "
		                "states (%s): kept as bytes",
		                names->tests.seen);
}

kvarc_ret kvi_import_named_about(kvarc_import *im, const struct kvi_named *named, size_t n,
                                 const struct kvi_metadata *metadata, size_t *found)
{
	struct names *names = kvi_calloc(&im->alloc, 1, sizeof *names);
	struct name_found *f = kvi_array(&im->alloc, n ? n : 1, sizeof *f);
	kvarc_ret ret;
	*found = 0;
	if (!names || !f) {
		ret = kvi_fail_alloc(im->error, &im->alloc);
		goto out;
	}
	names->im = im;
	names->first = im->n_tracks;
	names->ids = find_ids(named, n);
	names->tests.metadata = metadata;
	ret = kvi_rules_parse(&names->rules, &im->alloc, im->options.kv_rule, im->error);
	size_t k = 0;
	for (size_t i = 0; i < n && !ret; i++)
		k += recognise(names, &named[i], &f[k]);
	if (!ret && k)
		ret = add_all(names, f, k, found);
	if (!ret)
		note_others(names, *found);
	kvi_rules_free(&names->rules, &im->alloc);
out:
	kvi_free(&im->alloc, f);
	kvi_free(&im->alloc, names);
	return ret;
}

const char *kvi_import_named_what(const kvarc_import *im)
{
	bool states = false, others = false;
	for (size_t i = 0; i < im->n_tracks; i++) {
		states = states || im->tracks[i].pub.kind == KVARC_TRACK_STATE;
		others = others || im->tracks[i].pub.kind != KVARC_TRACK_STATE;
	}
	return !states ? "keys and values" : others ? "keys, values and states" : "states";
}

kvarc_ret kvi_import_named(kvarc_import *im, const struct kvi_named *named, size_t n, size_t *found)
{
	return kvi_import_named_about(im, named, n, NULL, found);
}
