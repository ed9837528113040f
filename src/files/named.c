/* SPDX-License-Identifier: BSD-3-Clause */
/* named.c - named dense tensors (safetensors, npy) recognised as keys and values */
#include "named.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "util/error.h"

/* Tried in order when the user gives no rule; the first that fits a name wins. */
static const char *const default_rules[] = {
	"layers.{layer}.{key|value}",
	"layers.{layer}.{keys|values}",
	"layers.{layer}.{k|v}",
	"layers.{layer}.{k_cache|v_cache}",
	"layers.{layer}.{key_cache|value_cache}",
	"layer.{layer}.{key|value}",
	"layer.{layer}.{k|v}",
	"layer_{layer}_{key|value}",
	"layer_{layer}_{k|v}",
	"past_key_values.{layer}.{key|value}",
	"present.{layer}.{key|value}",
	"{key|value}_cache.{layer}",
	"{key|value}_cache_{layer}",
	"{k|v}_cache.{layer}",
	"{key|value}.{layer}",
	"{key|value}_{layer}",
	"{k|v}.{layer}",
	"{k|v}_{layer}",
	"{layer}.{key|value}",
	"{layer}.{k|v}",
};

enum { TRACKS_PER_FILE = 64 };

/* One of two words "A|B}" at *name: moves past it. */
static bool match_word(const char **rule, const char **name, bool *value)
{
	const char *bar = strchr(*rule, '|'), *close = strchr(*rule, '}');
	if (!bar || !close || bar > close)
		return false;
	size_t a = (size_t)(bar - *rule), b = (size_t)(close - bar - 1);
	bool is_a = a && !strncmp(*name, *rule, a);
	bool is_b = b && !strncmp(*name, bar + 1, b);
	if (is_a && is_b) /* one is the start of the other */
		is_a = a > b;
	if (!is_a && !is_b)
		return false;
	*value = !is_a;
	*name += is_a ? a : b;
	*rule = close + 1;
	return true;
}

static bool match_layer(const char **name, uint32_t *layer)
{
	const char *p = *name;
	*layer = 0;
	for (; *p >= '0' && *p <= '9'; p++) {
		*layer = *layer * 10 + (uint32_t)(*p - '0');
		if (*layer > KVI_IMPORT_LAYER_MAX)
			return false;
	}
	if (p == *name)
		return false;
	*name = p;
	return true;
}

bool kvi_named_match(const char *rule, const char *name, uint32_t *layer, bool *value)
{
	*layer = 0;
	*value = false;
	while (*rule) {
		if (!strncmp(rule, "{layer}", 7)) {
			if (!match_layer(&name, layer))
				return false;
			rule += 7;
		} else if (*rule == '{') {
			rule++;
			if (!match_word(&rule, &name, value))
				return false;
		} else if (*rule++ != *name++) {
			return false;
		}
	}
	return *name == '\0';
}

/* A recognised tensor. */
struct name_found {
	const struct kvi_named *named;
	uint32_t layer;
	bool value;
};

static bool recognise(const kvarc_import *im, const struct kvi_named *x, struct name_found *f)
{
	f->named = x;
	if (!x->dtype || !x->bytes)
		return false;
	if (im->options.kv_rule)
		return kvi_named_match(im->options.kv_rule, x->name, &f->layer, &f->value);
	for (size_t i = 0; i < sizeof default_rules / sizeof *default_rules; i++)
		if (kvi_named_match(default_rules[i], x->name, &f->layer, &f->value))
			return true;
	return false;
}

static int by_layer(const void *a, const void *b)
{
	const struct name_found *x = a, *y = b;
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
		if (x->n_axes < 3)
			continue;
		uint64_t a = x->shape[x->n_axes - 3], b = x->shape[x->n_axes - 2];
		htc += ids ? b == n_ids : a <= 128 || a <= b;
		thc += ids ? a == n_ids : a > 128 && a > b;
	}
	return thc > htc ? "thc" : "htc";
}

struct name_axes {
	uint64_t batch, tokens, heads, channels;
	bool heads_first;
};

/* Letters from the last axis on: b (the first one), t, h, c and 1; each letter at most once. */
static bool take_axes(const struct kvi_named *x, const char *letters, struct name_axes *a)
{
	size_t n = strlen(letters), at_h = n, at_t = n, at_c = n;
	if (n != x->n_axes)
		return false;
	*a = (struct name_axes){ 1, 1, 1, 1, false };
	for (size_t i = 0; i < n; i++) {
		uint64_t size = x->shape[i];
		switch (letters[i]) {
		case '1':
			if (size != 1)
				return false;
			break;
		case 'b':
			if (i > 0)
				return false;
			a->batch = size;
			break;
		case 't':
			a->tokens = size;
			at_t = i;
			break;
		case 'h':
			a->heads = size;
			at_h = i;
			break;
		case 'c':
			a->channels = size;
			at_c = i;
			break;
		default:
			return false;
		}
	}
	a->heads_first = at_h < at_t;
	/* channels are the innermost axis */
	return at_t < n && at_c < n && at_t < at_c && (at_h == n || at_h < at_c) && a->batch &&
	       a->tokens && a->heads && a->channels && a->tokens <= UINT32_MAX &&
	       a->heads <= 65535 && a->channels <= 65535 &&
	       a->heads * a->channels <= KVI_IMPORT_WIDTH_MAX;
}

static bool axes_of(const kvarc_import *im, const struct kvi_named *x, const char *guess,
                    struct name_axes *a)
{
	char letters[8];
	if (im->options.axes)
		return take_axes(x, im->options.axes, a);
	snprintf(letters, sizeof letters, "%s%s", x->n_axes == 4 ? "b" : "",
	         x->n_axes == 2 ? "tc" : guess);
	return take_axes(x, letters, a);
}

/* How many ids each row of the batch has; 0: they are of other rows. */
static uint64_t ids_of_row(const struct kvi_named *ids, const struct name_axes *a)
{
	if (!ids || (ids->n_axes == 2 ? ids->shape[0] : 1) != a->batch)
		return 0;
	return ids->shape[ids->n_axes - 1];
}

/* The track of a row of the batch and this many tokens among those from `first` on. */
static struct kvi_imp_track *track_for(kvarc_import *im, size_t first, const struct name_axes *a,
                                       uint64_t row, const struct kvi_named *ids, uint32_t *index)
{
	const uint64_t tokens = a->tokens;
	for (size_t i = first; i < im->n_tracks; i++)
		if (im->tracks[i].n == tokens && im->tracks[i].row == row) {
			*index = (uint32_t)i;
			return &im->tracks[i];
		}
	if (im->n_tracks - first >= TRACKS_PER_FILE)
		return NULL;
	struct kvi_imp_track *t = kvi_import_add_track(im, tokens);
	*index = (uint32_t)im->n_tracks - 1;
	uint64_t n_ids = ids_of_row(ids, a);
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

static kvarc_ret add(kvarc_import *im, const struct name_found *f, const struct name_axes *a,
                     uint64_t row, uint32_t track)
{
	const struct kvi_named *x = f->named;
	uint64_t es = kvarc_dtype_bytes(x->dtype);
	uint64_t bytes = x->bytes / a->batch;
	if (!kvi_import_add_area(im, x->item, track, x->offset + row * bytes, bytes))
		return kvi_import_full(im);
	struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
	if (!t)
		return kvi_import_full(im);
	t->pub.layer = f->layer;
	t->pub.kind = f->value ? KVARC_VALUE : KVARC_KEY;
	t->pub.flags = (uint8_t)(f->value ? 0 : KVARC_TENSOR_POST_ROPE);
	t->pub.dtype = x->dtype;
	t->pub.heads = (uint32_t)a->heads;
	t->pub.channels = (uint32_t)a->channels;
	snprintf(t->name, sizeof t->name, "%s", x->name);
	t->at.elem_stride = es;
	if (a->heads_first && a->heads > 1) {
		t->at.block_elems = (uint32_t)a->channels;
		t->at.token_stride = a->channels * es;
		t->at.block_stride = a->tokens * a->channels * es;
	} else {
		t->at.block_elems = (uint32_t)(a->heads * a->channels);
		t->at.token_stride = a->heads * a->channels * es;
		t->at.block_stride = t->at.token_stride;
	}
	return KVARC_OK;
}

/* A tensor: each row of its batch is one of a track of its own. */
static kvarc_ret add_rows(kvarc_import *im, const struct name_found *f, const struct name_axes *a,
                          size_t first, const struct kvi_named *ids)
{
	for (uint64_t row = 0; row < a->batch; row++) {
		uint32_t track;
		if (!track_for(im, first, a, row, ids, &track)) {
			if (im->n_tracks - first < TRACKS_PER_FILE)
				return kvi_import_full(im);
			kvi_import_note(im, "too many sequences, or different numbers of "
			                    "tokens: some tensors kept as bytes");
			return KVARC_OK;
		}
		kvarc_ret ret = add(im, f, a, row, track);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret add_all(kvarc_import *im, struct name_found *f, size_t n,
                         const struct kvi_named *ids, size_t *found)
{
	size_t first = im->n_tracks;
	const char *guess = guess_axes(f, n, ids);
	qsort(f, n, sizeof *f, by_layer);
	for (size_t i = 0; i < n; i++) {
		struct name_axes a;
		if (!axes_of(im, f[i].named, guess, &a)) {
			kvi_import_note(im, "the shape of some keys and values "
			                    "does not fit the axes: kept as bytes");
			continue;
		}
		const size_t had = im->n_tensors;
		kvarc_ret ret = add_rows(im, &f[i], &a, first, ids);
		if (ret)
			return ret;
		snprintf(im->layout, sizeof im->layout, "%s",
		         a.heads_first ? "head, token, channel" : "token, head, channel");
		*found += im->n_tensors > had;
	}
	return KVARC_OK;
}

kvarc_ret kvi_import_named(kvarc_import *im, const struct kvi_named *named, size_t n, size_t *found)
{
	*found = 0;
	if (n == 0)
		return KVARC_OK;
	struct name_found *f = kvi_array(&im->alloc, n, sizeof *f);
	if (!f)
		return kvi_fail_alloc(im->error, &im->alloc);
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		k += recognise(im, &named[i], &f[k]);
	kvarc_ret ret = KVARC_OK;
	if (k)
		ret = add_all(im, f, k, find_ids(named, n), found);
	kvi_free(&im->alloc, f);
	return ret;
}
