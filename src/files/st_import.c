/* SPDX-License-Identifier: BSD-3-Clause */
/* st_import.c - safetensors files: a length, a JSON header, tensors */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "named.h"
#include "parse/st_header.h"
#include "util/error.h"
#include "util/ckd.h"
#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"
#endif

#define SAFETENSORS_NEED "safetensors files need " JANSSON_MISSING ": kept as an opaque file"

/* u64 length and the brace that follows. END: not safetensors. */
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
	/* kept as bytes, but their sizes are known */
	{ "BOOL", 1, 0, 0 },
	{ "I16", 2, 0, 0 },
	{ "U16", 2, 0, 0 },
	{ "U32", 4, 0, 0 },
	{ "U64", 8, 0, 0 },
	{ "F64", 8, 0, 0 },
};

static bool get_tensor(const json_t *v, uint64_t data_at, uint64_t data_bytes, struct kvi_named *x)
{
	struct kvi_st_entry e;
	uint64_t bytes = 0, size;
	if (!kvi_st_entry(v, data_bytes, &e))
		return false;
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
		if (!strcmp(e.dtype, dtypes[i].name)) {
			bytes = dtypes[i].bytes;
			x->dtype = dtypes[i].dtype;
			x->int_bytes = dtypes[i].int_bytes;
		}
	if (bytes && (kvi_mul(e.elements, bytes, &size) || size != e.end - e.begin))
		return false;
	bool fits = e.axes <= KVI_NAMED_AXES_MAX;
	if (!fits)
		x->dtype = x->int_bytes = 0;
	for (size_t i = 0; fits && i < e.axes; i++)
		x->shape[i] = e.shape[i];
	x->n_axes = (uint8_t)(fits ? e.axes : 0);
	x->offset = data_at + e.begin;
	x->bytes = e.end - e.begin;
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
static bool disjoint(struct kvi_named *x, size_t n)
{
	qsort(x, n, sizeof *x, by_offset);
	for (size_t i = 1; i < n; i++)
		if (x[i - 1].offset + x[i - 1].bytes > x[i].offset)
			return false;
	return true;
}

/* What rules for tensor names may ask a header for. */
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
	const struct kvi_metadata metadata = { metadata_text, tensor_text, &about };
	if (good && disjoint(x, n))
		ret = kvi_import_named_about(im, x, n, &metadata, &found);
	else
		kvi_import_note(im, "the header of a safetensors file is not "
		                    "valid: kept as an opaque file");
	if (!ret) {
		im->items[item].kind = KVI_ITEM_SAFETENSORS;
		snprintf(im->format, sizeof im->format,
		         "safetensors%s%s, %zu of %zu tensors are %s", im->engine ? " of " : "",
		         im->engine ? im->engine : "", found, n, kvi_import_named_what(im));
		if (!found)
			kvi_import_note(im, "no tensor name follows the rule "
			                    "for keys and values: kept as bytes");
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
		/* what is no JSON has no root */
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
