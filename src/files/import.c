/* SPDX-License-Identifier: BSD-3-Clause */
/* import.c - looks at files and finds the caches in them */
#include "import_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/arguments.h"
#include "util/error.h"
#include "util/ckd.h"

static void drop_tracks(kvarc_import *im, size_t keep)
{
	while (im->n_tracks > keep)
		kvi_free(&im->alloc, im->tracks[--im->n_tracks].runs);
}

void kvi_import_drop_items(kvarc_import *im)
{
	while (im->n_items) {
		struct kvi_imp_item *item = &im->items[--im->n_items];
		if (item->fd >= 0)
			(void)close(item->fd);
		kvi_free(&im->alloc, item->window);
		kvi_free(&im->alloc, item->name);
	}
}

void kvarc_import_close(kvarc_import **pim)
{
	kvarc_import *im = pim ? *pim : NULL;
	if (!im)
		return;
	*pim = NULL;
	kvi_import_drop_items(im);
	drop_tracks(im, 0);
	kvi_free(&im->alloc, im->items);
	kvi_free(&im->alloc, im->tracks);
	kvi_free(&im->alloc, im->tensors);
	kvi_free(&im->alloc, im->areas);
	kvi_free(&im->alloc, im->pub_tracks);
	kvi_free(&im->alloc, im->pub_tensors);
	kvi_identity_free(&im->identity, &im->alloc);
	kvi_free(&im->alloc, im);
}

/* Where a parser started, to take back what it added. */
struct mark {
	size_t tracks, tensors, areas;
};

static void roll_back(kvarc_import *im, const struct mark *m)
{
	drop_tracks(im, m->tracks);
	im->n_tensors = m->tensors;
	im->n_areas = m->areas;
}

/* Asks the parsers in turn; what none of them knows stays opaque. */
static kvarc_ret look_at(kvarc_import *im, uint32_t item)
{
	static kvarc_ret (*const parsers[])(kvarc_import *, uint32_t) = {
		kvi_import_llama, kvi_import_kvc, kvi_import_safetensors
	};
	struct mark m = { im->n_tracks, im->n_tensors, im->n_areas };
	for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++) {
		kvarc_ret ret = parsers[i](im, item);
		if (ret != KVARC_END)
			return ret;
		roll_back(im, &m);
		im->items[item].kind = KVI_ITEM_OPAQUE;
	}
	return KVARC_OK;
}

static kvarc_ret look_at_all(kvarc_import *im)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < im->n_items && !ret; i++)
		ret = look_at(im, (uint32_t)i);
	if (ret)
		return ret;
	struct mark m = { im->n_tracks, im->n_tensors, im->n_areas };
	ret = kvi_import_pt(im);
	if (ret == KVARC_END) {
		roll_back(im, &m);
		ret = kvi_import_npy(im, 0);
	}
	if (ret == KVARC_END) {
		roll_back(im, &m);
		ret = KVARC_OK;
	}
	return ret ? ret : kvi_import_find_ropes(im);
}

/* The public geometry. An archive needs a track, even an empty one. */
static kvarc_ret finish(kvarc_import *im)
{
	if (im->n_tracks == 0 && !kvi_import_add_track(im, 0))
		return kvi_import_full(im);
	im->pub_tracks = kvi_array(&im->alloc, im->n_tracks, sizeof(kvarc_track));
	if (im->n_tensors)
		im->pub_tensors = kvi_array(&im->alloc, im->n_tensors, sizeof(kvarc_tensor));
	if (!im->pub_tracks || (im->n_tensors && !im->pub_tensors))
		return kvi_import_full(im);
	for (size_t i = 0; i < im->n_tracks; i++) {
		im->pub_tracks[i] = im->tracks[i].pub;
		im->pub_tracks[i].label = im->tracks[i].label;
	}
	for (size_t i = 0; i < im->n_tensors; i++) {
		im->pub_tensors[i] = im->tensors[i].pub;
		im->pub_tensors[i].name = im->tensors[i].name;
	}
	for (size_t i = 0; i < im->n_ropes; i++)
		im->pub_ropes[i] = (kvarc_rope){ .pairing = im->ropes[i].pairing,
			                         .rotary = im->ropes[i].rotary,
			                         .freq = im->ropes[i].freq };
	im->geometry = (kvarc_geometry){ .n_ropes = im->n_ropes,
		                         .n_tracks = im->n_tracks,
		                         .n_tensors = im->n_tensors,
		                         .ropes = im->pub_ropes,
		                         .tracks = im->pub_tracks,
		                         .tensors = im->pub_tensors };
	return KVARC_OK;
}

static kvarc_ret read_model(kvarc_import *im)
{
	if (!im->options.model)
		return KVARC_OK;
	kvarc_ret ret = kvi_gguf_read(&im->gguf, &im->alloc, im->options.model);
	if (ret == KVARC_FORMAT)
		return kvi_fail_at(im->error, KVARC_DATA, 0, KVARC_UNKNOWN,
		                   "the model file is not a GGUF file");
	if (ret == KVARC_OPTIONS)
		return kvi_fail_at(im->error, ret, 4, KVARC_UNKNOWN,
		                   "the model file is a GGUF of "
		                   "an unknown version (2 and 3 are supported)");
	if (ret == KVARC_DATA)
		return kvi_fail(im->error, ret, "the metadata of the GGUF model file are damaged");
	return ret;
}

static kvarc_ret open_single(kvarc_import *im, const kvarc_source *src, const char *name)
{
	struct kvi_imp_item *item = kvi_import_add_item(im, name);
	if (!item)
		return kvi_import_full(im);
	item->src = *src;
	return KVARC_OK;
}

/* Back to before the container was looked into. */
static void close_container(kvarc_import *im)
{
	roll_back(im, &(struct mark){ 0, 0, 0 });
	kvi_import_drop_items(im);
	im->n_members = 0;
}

/*
 * A container with caches among its stored members is one item: the tensors of all members, and
 * literal bytes between them. When members were asked for they are items of their own.
 */
static kvarc_ret open_container(kvarc_import *im, const kvarc_source *src, const char *name)
{
	kvarc_ret ret = kvi_import_container(im, src);
	if (!ret)
		ret = look_at_all(im);
	if (!ret && im->n_tensors == 0) {
		kvi_import_note(im, "no cache was found in the archive: it is "
		                    "kept as an opaque file");
		ret = KVARC_END;
	}
	if (ret == KVARC_END)
		close_container(im);
	if (ret)
		return ret;
	snprintf(im->format, sizeof im->format, "%s archive of %zu files", im->container_kind,
	         im->n_items);
	if (im->n_members)
		return KVARC_OK;
	kvi_import_join_members(im);
	ret = open_single(im, src, name);
	if (!ret)
		im->items[0].kind = KVI_ITEM_OTHER;
	return ret;
}

/* The caller said what the file is: nothing else is tried. */
static kvarc_ret open_raw(kvarc_import *im, const kvarc_source *src, const char *name)
{
	kvarc_ret ret = open_single(im, src, name);
	if (!ret)
		ret = kvi_import_raw(im, 0);
	if (ret == KVARC_END)
		ret = kvi_fail(im->error, KVARC_GEOMETRY,
		               "raw pages: more tensors than an archive can describe");
	return ret ? ret : finish(im);
}

static kvarc_ret open_all(kvarc_import *im, const kvarc_source *src, const char *name)
{
	kvarc_ret ret = read_model(im);
	if (!ret && im->options.raw)
		return open_raw(im, src, name);
	if (!ret && !im->options.opaque) {
		ret = open_container(im, src, name);
		if (ret != KVARC_END)
			return ret ? ret : finish(im);
		ret = open_single(im, src, name);
		if (!ret)
			ret = look_at_all(im);
	} else if (!ret) {
		ret = open_single(im, src, name);
	}
	if (!ret && im->n_tensors == 0 && im->items[0].kind == KVI_ITEM_OPAQUE)
		snprintf(im->format, sizeof im->format, "opaque file");
	return ret ? ret : finish(im);
}

kvarc_ret kvarc_import_open(kvarc_import **pim, const kvarc_source *source, const char *name,
                            const kvarc_import_options *options)
{
	static const kvarc_import_options defaults = KVARC_IMPORT_OPTIONS_INIT;
	const kvarc_import_options *o = options ? options : &defaults;
	kvarc_import *im;
	if (!pim)
		return KVARC_PROG;
	*pim = NULL;
	kvarc_ret ret = kvi_check_source(o->common.error, "kvarc_import_open", source, false);
	if (!ret && source->size == KVARC_UNKNOWN)
		ret = kvi_fail(o->common.error, KVARC_PROG,
		               "kvarc_import_open: an import needs a source of known size");
	if (!ret)
		ret = KVI_CHECK_RESERVED(o->common.error, "kvarc_import_open",
		                         "kvarc_import_options", o);
	if (ret)
		return ret;
	ret = kvi_handle_new(&im, sizeof *im, offsetof(kvarc_import, alloc), &o->common,
	                     o->common.memlimit);
	if (ret)
		return ret;
	im->error = o->common.error;
	im->options = *o;
	ret = open_all(im, source, name);
	if (ret == KVARC_IO)
		ret = kvi_fail(im->error, ret, "reading the input failed");
	if (ret)
		kvarc_import_close(&im);
	*pim = im;
	return ret;
}

const kvarc_geometry *kvarc_import_geometry(const kvarc_import *im)
{
	return im ? &im->geometry : NULL;
}

uint64_t kvarc_import_tokens(const kvarc_import *im, uint32_t track)
{
	return im && track < im->n_tracks ? im->tracks[track].n : 0;
}

kvarc_ret kvarc_import_read_tokens(const kvarc_import *im, uint32_t track, uint64_t t0, uint64_t n,
                                   int32_t *ids, int32_t *positions)
{
	int32_t unused[2][256];
	if (!im)
		return KVARC_PROG;
	if (track >= im->n_tracks || t0 > im->tracks[track].n || n > im->tracks[track].n - t0)
		return KVARC_GEOMETRY;
	if (ids && !im->tracks[track].has_ids)
		return KVARC_OPTIONS;
	for (uint64_t i = 0; i < n; i += 256) {
		uint32_t k = n - i < 256 ? (uint32_t)(n - i) : 256;
		kvarc_ret ret = kvi_import_tokens(im, track, t0 + i, k,
		                                  positions ? positions + i : unused[0],
		                                  ids ? ids + i : unused[1]);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

const char *kvarc_import_format(const kvarc_import *im)
{
	return im ? im->format : NULL;
}

const char *kvarc_import_layout(const kvarc_import *im)
{
	return im ? im->layout : NULL;
}

uint32_t kvarc_import_streams(const kvarc_import *im)
{
	return im ? im->streams : 0;
}

size_t kvarc_import_members(const kvarc_import *im)
{
	return im ? im->n_members : 0;
}

kvarc_ret kvarc_import_identity(kvarc_import *im, const char *key, const char *value)
{
	static const char *const own[] = { "created_by", "layout", "lossy" };
	if (!im || !key || !value)
		return KVARC_PROG;
	if (!*key)
		return kvi_fail(im->error, KVARC_PROG, "kvarc_import_identity: the key is empty");
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (strcmp(own[i], key) == 0)
			return kvi_fail(im->error, KVARC_PROG,
			                "the identity '%s' is recorded by the library itself", key);
	kvarc_ret ret = kvi_identity_set(&im->identity, &im->alloc, key, value);
	if (ret == KVARC_PROG)
		return kvi_fail(im->error, ret,
		                "kvarc_import_identity: too many pairs, or a key "
		                "or value that is too long");
	return kvi_fail_memory(im->error, ret, &im->alloc);
}

const char *kvarc_import_model(const kvarc_import *im)
{
	if (!im)
		return NULL;
	const struct kvi_gguf *g = &im->gguf;
	return g->name[0] ? g->name : g->arch[0] ? g->arch : NULL;
}

const char *kvarc_import_note(const kvarc_import *im)
{
	return im && im->note[0] ? im->note : NULL;
}

void kvarc_import_sizes(const kvarc_import *im, uint64_t *file_bytes, uint64_t *tensor_bytes)
{
	uint64_t files = 0, tensors = 0;
	for (size_t i = 0; im && i < im->n_items; i++)
		files += im->items[i].src.size;
	for (size_t i = 0; im && i < im->n_areas; i++)
		tensors += im->areas[i].bytes;
	if (file_bytes)
		*file_bytes = files;
	if (tensor_bytes)
		*tensor_bytes = tensors;
}

/* The first area of a tensor that holds a token, NULL: none does. */
static const struct kvi_imp_area *area_of(const kvarc_import *im, const struct kvi_imp_tensor *t,
                                          uint64_t token)
{
	const struct kvi_imp_area *a = &im->areas[t->area];
	const struct kvi_imp_area *end = im->areas + im->n_areas;
	for (uint32_t first = a->first_tensor; a < end && a->first_tensor == first; a++)
		if (token >= a->t0 && token - a->t0 < a->n_tokens)
			return a;
	return NULL;
}

int kvarc_import_fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                       uint32_t n, void *dst)
{
	const kvarc_import *im = opaque;
	if (tensor >= im->n_tensors)
		return 1;
	const struct kvi_imp_tensor *t = &im->tensors[tensor];
	const struct kvi_imp_area *area = &im->areas[t->area];
	uint64_t tokens = im->tracks[area->track].n;
	if (n == 0 || heads == 0 || t0 > tokens || n > tokens - t0 || head > t->pub.heads ||
	    heads > t->pub.heads - head)
		return 1;
	struct kvi_block b = { .c0 = head * t->pub.channels,
		               .channels = heads * t->pub.channels,
		               .elem_bytes = (uint32_t)kvarc_dtype_bytes(t->pub.dtype) };
	uint8_t *to = dst;
	for (uint64_t at = t0; at < t0 + n; at += b.n) {
		area = area_of(im, t, at);
		if (!area)
			return 1;
		uint64_t left = area->t0 + area->n_tokens - at;
		b.t0 = at - area->t0;
		b.n = left < t0 + n - at ? (uint32_t)left : (uint32_t)(t0 + n - at);
		if (kvi_strided_read(&im->alloc, &im->items[area->item].src, area->offset, &t->at,
		                     &b, to))
			return 1;
		to += (size_t)b.n * b.channels * b.elem_bytes;
	}
	return 0;
}
