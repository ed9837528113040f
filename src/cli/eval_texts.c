/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_texts.c - sequences of token ids out of the files of kvarc eval */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "cmd_eval.h"
#include "ids.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"

/* Sequences one behind the other, all of the same length. */
struct eval_file {
	const char *name;
	int32_t *ids;
	size_t length, n, capacity; /* of a sequence; sequences */
	size_t share;               /* the number of sequences taken from it */
	unsigned dtype;             /* of a cache; 0: a text, or none that eval makes */
};

/* A text's sequences; what is left over at its end is not used. */
static bool take(void *opaque, const int32_t *ids, size_t n)
{
	struct eval_file *f = opaque;
	size_t more = n / f->length;

	if (f->n + more > f->capacity) {
		size_t capacity = 2 * (f->n + more);
		int32_t *p = realloc(f->ids, capacity * f->length * sizeof(*p));
		if (!p) {
			msg_error(NULL, "out of memory");
			return false;
		}
		f->ids = p;
		f->capacity = capacity;
	}
	if (more)
		memcpy(f->ids + f->n * f->length, ids, more * f->length * sizeof(*ids));
	f->n += more;
	return true;
}

/* The ids of an archive, or of a cache that has some. */
static bool take_track(struct eval_file *f, kvarc_reader *r, kvarc_import *im,
                       const kvarc_error *error, const struct input *in)
{
	uint64_t n = r ? kvarc_reader_tokens(r, 0) : kvarc_import_tokens(im, 0);
	int32_t *ids = calloc(n + 1, sizeof(*ids));
	kvarc_ret ret = KVARC_MEM;
	bool ok = false;

	if (ids)
		ret = r ? kvarc_reader_read_tokens(r, 0, 0, n, ids, NULL)
		        : kvarc_import_read_tokens(im, 0, 0, n, ids, NULL);
	if (ret == KVARC_OK)
		ok = take(f, ids, (size_t)n);
	else
		library_error(f->name, ret, error, in, NULL);
	free(ids);
	return ok;
}

/* The element type of its keys and values, if a model's caches can have it. */
static unsigned dtype_of(const kvarc_geometry *g)
{
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		if (t->role == KVARC_WHOLE &&
		    (t->dtype == KVARC_F32 || t->dtype == KVARC_F16 || t->dtype == KVARC_BF16))
			return t->dtype;
	}
	return 0;
}

static bool take_cache(struct eval_file *f, const struct options *o, struct input *in)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source source = input_source(in);
	kvarc_import *im = NULL;
	kvarc_reader *r = NULL;
	kvarc_error error;
	bool ok = false;

	if (input_is_archive(in)) {
		r = library_open(o, in, 0, &error);
		ok = r && take_track(f, r, NULL, &error, in);
		f->dtype = r ? dtype_of(kvarc_reader_geometry(r)) : 0;
		kvarc_reader_close(&r);
		return ok;
	}
	library_import_options(o, &io, &error);
	if (kvarc_import_open(&im, &source, paths_base(in->name), &io) == KVARC_OK &&
	    kvarc_import_tokens(im, 0) && kvarc_import_geometry(im)->n_tensors)
		ok = take_track(f, NULL, im, &error, in);
	else
		msg_error(f->name, "no token ids: neither a text of them, nor a cache "
		                   "that has some");
	f->dtype = ok ? dtype_of(kvarc_import_geometry(im)) : 0;
	kvarc_import_close(&im);
	return ok;
}

static bool read_file(struct eval_file *f, const struct options *o)
{
	struct input in;
	bool ok;

	if (!input_open(&in, f->name, true))
		return false;
	ok = ids_is_text(&in) ? ids_read(&in, take, f) : take_cache(f, o, &in);
	input_close(&in);
	return ok;
}

/* One after the other takes one more, until there are enough or all. */
static size_t share_out(struct eval_texts *t, size_t wanted)
{
	size_t n = 0, before;

	do {
		before = n;
		for (size_t i = 0; i < t->n_files && n < wanted; i++) {
			if (t->files[i].share < t->files[i].n) {
				t->files[i].share++;
				n++;
			}
		}
	} while (n > before);
	return n;
}

static bool choose(struct eval_texts *t, size_t wanted)
{
	size_t n = share_out(t, wanted);

	t->list = calloc(n + 1, sizeof(*t->list));
	if (!t->list) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < t->n_files; i++) {
		const struct eval_file *f = &t->files[i];
		for (size_t k = 0; k < f->share; k++) {
			size_t at = k * f->n / f->share;
			t->list[t->n].file = f->name;
			t->list[t->n++].ids = f->ids + at * f->length;
		}
	}
	return true;
}

bool eval_texts_read(struct eval_texts *t, const struct options *o)
{
	size_t length = (size_t)(o->prefix + o->continuation);

	t->n_files = o->n_files;
	t->files = calloc(o->n_files + 1, sizeof(*t->files));
	if (!t->files) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < o->n_files; i++) {
		t->files[i].name = o->files[i];
		t->files[i].length = length;
		if (!read_file(&t->files[i], o))
			return false;
		t->dtype = t->dtype ? t->dtype : t->files[i].dtype;
	}
	if (!choose(t, (size_t)o->sequences))
		return false;
	if (t->n == 0)
		msg_error(NULL,
		          "eval: no sequence of %zu tokens: give more text, or "
		          "a smaller --prefix or --continue",
		          length);
	else if (t->n < o->sequences)
		msg_warning(NULL, "only %zu sequences of %zu tokens, not %zu", t->n, length,
		            (size_t)o->sequences);
	return t->n > 0;
}

void eval_texts_free(struct eval_texts *t)
{
	for (size_t i = 0; t->files && i < t->n_files; i++)
		free(t->files[i].ids);
	free(t->files);
	free(t->list);
}
