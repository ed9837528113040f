/* SPDX-License-Identifier: BSD-3-Clause */
/* npy_import.c - NumPy array files, alone or as the members of an npz */
#include <stdio.h>
#include <string.h>

#include "import_internal.h"
#include "named.h"
#include "util/error.h"
#include "util/ckd.h"

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

static bool take_dtype(const char *p, struct kvi_named *x, uint8_t *bytes)
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
			x->dtype = known[i].dtype;
			x->int_bytes = known[i].int_bytes;
			*bytes = known[i].bytes;
			return true;
		}
	return false;
}

/* "(3, 1024, 64)"; *size is the product. */
static bool take_shape(const char *p, struct kvi_named *x, uint64_t *size)
{
	if (!p || *p++ != '(')
		return false;
	*size = 1;
	x->n_axes = 0;
	while (*p != ')') {
		uint64_t n = 0;
		if (x->n_axes >= KVI_NAMED_AXES_MAX || *p < '0' || *p > '9')
			return false;
		for (; *p >= '0' && *p <= '9'; p++)
			if (kvi_mul(n, (uint64_t)10, &n) || kvi_add(n, (uint64_t)(*p - '0'), &n))
				return false;
		if (kvi_mul(*size, n, size))
			return false;
		x->shape[x->n_axes++] = n;
		while (*p == ',' || *p == ' ')
			p++;
	}
	return true;
}

/* END: not an array that is understood. */
static kvarc_ret read_header(const kvarc_import *im, uint32_t item, struct kvi_named *x)
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
	if (!take_dtype(value_of(text, "'descr'"), x, &elem) ||
	    !take_shape(value_of(text, "'shape'"), x, &size) || !order ||
	    strncmp(order, "False", 5) || kvi_mul(size, (uint64_t)elem, &x->bytes) ||
	    x->bytes != src->size - at - n)
		return KVARC_END;
	x->item = item;
	x->offset = (uint64_t)at + n;
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
		         kvi_import_named_what(im));
	}
	kvi_free(&im->alloc, x);
	kvi_free(&im->alloc, arrays);
	return ret;
}
