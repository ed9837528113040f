/* SPDX-License-Identifier: BSD-3-Clause */
/* typed_tensors.c - tensors that no rule knows, coded by the type of their elements alone */
#include "typed_tensors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "codecs/codec.h"
#include "format/packed.h"
#include "import_internal.h"
#include "named_tensors.h"
#include "numeric/formats.h"
#include "util/error.h"
#include "util/source.h"

enum {
	TRACKS_MAX = 64,        /* tracks of a file: numbers of rows that differ */
	PARTS_MAX = 256,        /* areas of a tensor, and tensors of one in the file */
	FLAT_CHANNELS = 64,     /* channels of a row of a tensor whose own rows are short */
	SHORT_ROW = 16,         /* elements of such a row, at most */
	LEAST_BYTES = 1 << 10,  /* of a tensor: fewer are frames mostly */
	SEGMENT_TOKENS = 256,   /* of the writer */
	CHUNK_EXTRA = 160,      /* bytes of the frames around a chunk's payload */
	BLOB_BYTES = 256 << 10, /* bytes that are packed as one */
	SAMPLE_BYTES = 1 << 20, /* smaller tensors are coded as a whole to find a way */
	SAMPLE_LEVEL = 0,       /* the level without parameters, which a few chunks do not pay */
	ORDERS = 4,             /* orders of the last axes */
	SPLITS = 3              /* numbers of leading axes that may count tensors: 0 to 2 */
};

/* A way to read a tensor of a file as tensors of rows. */
struct typed_shape {
	uint64_t tensors;          /* one behind the other */
	uint64_t parts, rows;      /* areas of each, and rows of an area */
	uint64_t heads, channels;  /* of a row */
	struct kvi_area_view view; /* of an area; its tensor is not set */
};

/* Bytes of a sample, and those that they are coded as. */
struct typed_cost {
	uint64_t bytes, coded;
};

struct typing {
	kvarc_import *im;
	struct kvi_coder_tables *tables;
	struct kvi_coder *coder;
	struct kvi_packer packer;
	struct kvi_out packed;
	uint8_t *elements; /* a chunk, or the bytes of a sample */
	size_t capacity;
	const struct kvi_named *last; /* the tensor that was coded last; NULL: none */
	size_t last_way;              /* and the way to read it, a number for shape_at */
};

/* ==== Ways to read the axes of a tensor as rows ==== */

static uint64_t axis(const struct kvi_named *named, size_t from_last)
{
	return from_last < named->n_axes ? named->shape[named->n_axes - 1 - from_last] : 1;
}

/* The product of all axes but the first and the last ones. */
static uint64_t between(const struct kvi_named *named, size_t first, size_t last)
{
	uint64_t n = 1;
	for (size_t i = first; i + last < named->n_axes; i++)
		n *= named->shape[i];
	return n;
}

/* Rows of heads x channels elements, one behind the other. */
static void plain_rows(struct typed_shape *shape, uint64_t rows, uint64_t heads, uint64_t channels)
{
	shape->parts = 1;
	shape->rows = rows;
	shape->heads = heads;
	shape->channels = channels;
	shape->view.token_stride = shape->view.block_stride = heads * channels;
	shape->view.block_elems = (uint32_t)(heads * channels);
}

/* [parts, head, row, channel]. */
static void rows_of_heads(struct typed_shape *shape, uint64_t parts, uint64_t heads, uint64_t rows,
                          uint64_t channels)
{
	shape->parts = parts;
	shape->rows = rows;
	shape->heads = heads;
	shape->channels = channels;
	shape->view.token_stride = channels;
	shape->view.block_elems = (uint32_t)channels;
	shape->view.block_stride = rows * channels;
}

/* Rows in that order, when the first axes count tensors. No product overflows: the file has all
 * elements. False: the tensor has not enough axes. */
static bool take_order(const struct kvi_named *named, size_t order, size_t first,
                       struct typed_shape *shape)
{
	const uint64_t last = axis(named, 0), above = axis(named, 1), heads = axis(named, 2);
	const uint64_t elements = between(named, first, 0);
	const size_t axes = named->n_axes - first;
	if (order == 0 && (last < SHORT_ROW || last > 65535 || axes < 2)) {
		const uint64_t flat = elements < FLAT_CHANNELS ? elements : FLAT_CHANNELS;
		plain_rows(shape, elements / flat, 1, flat);
	} else if (order == 0) {
		plain_rows(shape, between(named, first, 1), 1, last);
	} else if (axes < 2 || above < 2) {
		return false;
	} else if (order == 1) { /* [.., row, head, channel] */
		plain_rows(shape, between(named, first, 2), above, last);
	} else if (order == 2) { /* [.., head, row, channel] */
		rows_of_heads(shape, between(named, first, 3), heads, above, last);
		return axes > 2 && heads > 1;
	} else { /* [.., channel, row] */
		rows_of_heads(shape, between(named, first, 2), above, last, 1);
	}
	return true;
}

/* The shape of that number, of ORDERS * SPLITS. False: the tensor has none, or an archive cannot
 * describe it. */
static bool shape_at(const struct kvi_named *named, size_t number, struct typed_shape *shape)
{
	const uint64_t es = kvarc_dtype_bytes(named->dtype);
	const size_t first = number / ORDERS;
	*shape = (struct typed_shape){ .tensors = 1 };
	if (first && (first + 2 > named->n_axes || named->shape[first - 1] < 2))
		return false;
	for (size_t i = 0; i < first; i++)
		shape->tensors *= named->shape[i];
	if (!take_order(named, number % ORDERS, first, shape))
		return false;
	shape->view.elem_stride = es;
	shape->view.token_stride *= es;
	shape->view.block_stride *= es;
	return shape->tensors <= PARTS_MAX && shape->parts <= PARTS_MAX / shape->tensors &&
	       shape->heads <= 65535 && shape->channels <= 65535 &&
	       shape->heads * shape->channels <= KVI_IMPORT_WIDTH_MAX &&
	       shape->rows <= INT32_MAX / shape->parts;
}

static uint64_t part_bytes(const struct kvi_named *named, const struct typed_shape *shape)
{
	return shape->rows * shape->heads * shape->channels * kvarc_dtype_bytes(named->dtype);
}

/* ==== What a tensor costs as numbers and as bytes, by a sample ==== */

static kvarc_ret reserve(struct typing *typing, size_t bytes)
{
	if (bytes <= typing->capacity)
		return KVARC_OK;
	kvi_free(&typing->im->alloc, typing->elements);
	typing->elements = kvi_malloc(&typing->im->alloc, bytes);
	typing->capacity = typing->elements ? bytes : 0;
	return typing->elements ? KVARC_OK : kvi_fail_alloc(typing->im->error, &typing->im->alloc);
}

/* Reads n rows from `row` on of a tensor of the shape into typing->elements. */
static kvarc_ret read_rows(struct typing *typing, const struct kvi_named *named,
                           const struct typed_shape *shape, uint64_t tensor, uint64_t row,
                           uint32_t n)
{
	kvarc_import *im = typing->im;
	const uint64_t bytes = part_bytes(named, shape);
	struct kvi_block b = { .channels = (uint32_t)(shape->heads * shape->channels),
		               .elem_bytes = (uint32_t)kvarc_dtype_bytes(named->dtype) };
	uint8_t *to = typing->elements;
	for (const uint64_t end = row + n; row < end; row += b.n) {
		const uint64_t part = tensor * shape->parts + row / shape->rows;
		b.t0 = row % shape->rows;
		b.n = (uint32_t)(shape->rows - b.t0 < end - row ? shape->rows - b.t0 : end - row);
		kvarc_ret ret = kvi_strided_read(&im->alloc, &im->items[named->item].src,
		                                 named->offset + part * bytes, &shape->view, &b,
		                                 to);
		if (ret)
			return ret;
		to += (size_t)b.n * b.channels * b.elem_bytes;
	}
	return KVARC_OK;
}

/* Codes n rows from `row` on of a tensor of the shape. */
static kvarc_ret code_chunk(struct typing *typing, const struct kvi_named *named,
                            const struct typed_shape *shape, uint64_t tensor, uint64_t row,
                            uint32_t n, struct typed_cost *cost)
{
	struct kvi_encode_request request = { .kind = KVARC_OPAQUE, .level = SAMPLE_LEVEL };
	struct kvi_encoded coded;
	request.chunk.dtype = named->dtype;
	request.chunk.n_tokens = n;
	request.chunk.heads = (uint32_t)shape->heads;
	request.chunk.head_channels = (uint32_t)shape->channels;
	const size_t bytes = kvi_chunk_bytes(&request.chunk);
	kvarc_ret ret = reserve(typing, bytes);
	if (!ret)
		ret = read_rows(typing, named, shape, tensor, row, n);
	if (!ret)
		ret = kvi_chunk_encode(typing->coder, &request, typing->elements, &coded);
	if (ret)
		return kvi_fail_memory(typing->im->error, ret, &typing->im->alloc);
	cost->bytes += bytes;
	cost->coded += coded.payload_bytes + CHUNK_EXTRA;
	return KVARC_OK;
}

/* Codes chunks at equal distances, or all where they are few. */
static kvarc_ret sample_numbers(struct typing *typing, const struct kvi_named *named,
                                const struct typed_shape *shape, struct typed_cost *cost)
{
	const uint64_t row_bytes = part_bytes(named, shape) / shape->rows;
	const uint64_t fit = (1 << 20) / row_bytes; /* the writer has no larger chunks of a head */
	const uint64_t most = fit > SEGMENT_TOKENS ? SEGMENT_TOKENS : fit ? fit : 1;
	const uint64_t rows = shape->parts * shape->rows, each = (rows + most - 1) / most;
	const uint64_t all = each * shape->tensors;
	const uint64_t some = SAMPLE_BYTES / (most * row_bytes) + 1;
	const uint64_t wanted = named->bytes <= SAMPLE_BYTES || some > all ? all : some;
	kvarc_ret ret = KVARC_OK;
	*cost = (struct typed_cost){ 0 };
	for (uint64_t i = 0; i < wanted && !ret; i++) {
		const uint64_t chunk = all * i / wanted, row = chunk % each * most;
		ret = code_chunk(typing, named, shape, chunk / each, row,
		                 (uint32_t)(rows - row < most ? rows - row : most), cost);
	}
	return ret;
}

/* Packs bytes at equal distances as a BLOB would have them, or all where they are few. */
static kvarc_ret sample_bytes(struct typing *typing, const struct kvi_named *named,
                              struct typed_cost *cost)
{
	kvarc_import *im = typing->im;
	const uint64_t all = (named->bytes + BLOB_BYTES - 1) / BLOB_BYTES;
	const uint64_t wanted = all < SAMPLE_BYTES / BLOB_BYTES ? all : SAMPLE_BYTES / BLOB_BYTES;
	kvarc_ret ret = reserve(typing, BLOB_BYTES);
	*cost = (struct typed_cost){ 0 };
	for (uint64_t i = 0; i < wanted && !ret; i++) {
		const uint64_t at = all * i / wanted * BLOB_BYTES, left = named->bytes - at;
		const uint64_t n = left < BLOB_BYTES ? left : BLOB_BYTES;
		if (kvi_source_read(&im->items[named->item].src, typing->elements, (size_t)n,
		                    named->offset + at))
			return KVARC_IO;
		typing->packed.n = 0;
		ret = kvi_pack(&typing->packer, &typing->packed, typing->elements, (size_t)n, 1);
		cost->bytes += n;
		cost->coded += typing->packed.n;
	}
	return kvi_fail_memory(im->error, ret, &im->alloc);
}

/* Whether one cost is less than the other, by byte. */
static bool is_less(const struct typed_cost *cost, const struct typed_cost *other)
{
	return (double)cost->coded * (double)other->bytes <
	       (double)other->coded * (double)cost->bytes;
}

/* Whether the tensor has the type and axes of the one before it. */
static bool is_like_last(const struct typing *typing, const struct kvi_named *named)
{
	const struct kvi_named *last = typing->last;
	return last && last->dtype == named->dtype && last->n_axes == named->n_axes &&
	       !memcmp(last->shape, named->shape, named->n_axes * sizeof *named->shape);
}

/* The way in which the tensor is smallest, that of the one before it where that is alike. *typed:
 * it is smaller than the bytes are. */
static kvarc_ret choose(struct typing *typing, const struct kvi_named *named, size_t *way,
                        bool *typed)
{
	const bool like = is_like_last(typing, named);
	struct typed_cost least, cost;
	struct typed_shape shape;
	kvarc_ret ret = sample_bytes(typing, named, &least);
	*typed = false;
	for (size_t i = 0; i < ORDERS * SPLITS && !ret; i++) {
		if ((like && i != typing->last_way) || !shape_at(named, i, &shape))
			continue;
		ret = sample_numbers(typing, named, &shape, &cost);
		if (ret || !is_less(&cost, &least))
			continue;
		least = cost;
		*way = i;
		*typed = true;
	}
	return ret;
}

/* ==== Tensors of the import ==== */

/* The track of that many rows; NULL: there are too many, or there is no memory. */
static struct kvi_imp_track *track_of(kvarc_import *im, uint64_t rows, uint32_t *index)
{
	for (size_t i = 0; i < im->n_tracks; i++) {
		*index = (uint32_t)i;
		if (im->tracks[i].n == rows && im->tracks[i].pub.kind == KVARC_TRACK_OTHER)
			return &im->tracks[i];
	}
	if (im->n_tracks >= TRACKS_MAX)
		return NULL;
	struct kvi_imp_track *t = kvi_import_add_track(im, rows);
	*index = (uint32_t)im->n_tracks - 1;
	if (t) {
		t->pub.kind = KVARC_TRACK_OTHER;
		snprintf(t->label, sizeof t->label, "rows");
	}
	return t;
}

/* The first number in a name, which may be that of a layer; 0: it has none. */
static uint32_t layer_of(const char *name)
{
	const char *p = name + strcspn(name, "0123456789");
	uint32_t n = 0;
	for (; *p >= '0' && *p <= '9' && n <= KVI_IMPORT_LAYER_MAX; p++)
		n = n * 10 + (uint32_t)(*p - '0');
	return n <= KVI_IMPORT_LAYER_MAX ? n : 0;
}

/* Adds one of the tensors of a shape, which begins at the offset. */
static kvarc_ret add_tensor(kvarc_import *im, const struct kvi_named *named,
                            const struct typed_shape *shape, uint32_t track, uint64_t offset)
{
	const uint64_t bytes = part_bytes(named, shape);
	struct kvi_imp_area *a = kvi_import_add_area(im, named->item, track, offset, bytes);
	if (!a)
		return kvi_import_full(im);
	a->n_tokens = shape->rows;
	struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
	if (!t)
		return kvi_import_full(im);
	t->pub.layer = layer_of(named->name);
	t->pub.kind = KVARC_OPAQUE;
	t->pub.dtype = named->dtype;
	t->pub.heads = (uint32_t)shape->heads;
	t->pub.channels = (uint32_t)shape->channels;
	t->at = shape->view;
	snprintf(t->name, sizeof t->name, "%s", named->name);
	for (uint64_t i = 1; i < shape->parts; i++)
		if (!kvi_import_add_part(im, offset + i * bytes, bytes, i * shape->rows,
		                         shape->rows))
			return kvi_import_full(im);
	return KVARC_OK;
}

static kvarc_ret add(kvarc_import *im, const struct kvi_named *named,
                     const struct typed_shape *shape)
{
	const uint64_t bytes = shape->parts * part_bytes(named, shape);
	uint32_t track;
	kvarc_ret ret = KVARC_OK;
	if (!track_of(im, shape->parts * shape->rows, &track))
		return im->n_tracks >= TRACKS_MAX ? KVARC_OK : kvi_import_full(im);
	for (uint64_t i = 0; i < shape->tensors && !ret; i++)
		ret = add_tensor(im, named, shape, track, named->offset + i * bytes);
	return ret;
}

static kvarc_ret open_coder(struct typing *typing)
{
	kvarc_import *im = typing->im;
	kvarc_ret ret = kvi_coder_tables_open(&typing->tables, &im->alloc);
	if (!ret)
		ret = kvi_coder_open(&typing->coder, &im->alloc, typing->tables,
		                     im->options.common.isa_mask);
	return kvi_fail_memory(im->error, ret, &im->alloc);
}

static bool is_candidate(const struct kvi_named *named)
{
	return named->dtype && kvi_float_format(named->dtype) && named->bytes >= LEAST_BYTES &&
	       named->n_axes;
}

kvarc_ret kvi_import_typed(kvarc_import *im, const struct kvi_named *named, size_t n)
{
	struct typing t = { .im = im };
	kvi_packer_init(&t.packer, &im->alloc);
	kvi_out_init(&t.packed, &im->alloc);
	kvarc_ret ret = open_coder(&t);
	for (size_t i = 0; i < n && !ret; i++) {
		struct typed_shape shape;
		size_t way;
		bool typed;
		if (!is_candidate(&named[i]))
			continue;
		ret = choose(&t, &named[i], &way, &typed);
		if (ret || !typed || !shape_at(&named[i], way, &shape))
			continue;
		t.last = &named[i];
		t.last_way = way;
		ret = add(im, &named[i], &shape);
	}
	if (!ret && im->n_tensors)
		snprintf(im->layout, sizeof im->layout, "rows, by the types of tensors alone");
	kvi_coder_close(t.coder);
	kvi_coder_tables_close(t.tables);
	kvi_packer_free(&t.packer);
	kvi_out_free(&t.packed);
	kvi_free(&im->alloc, t.elements);
	return ret;
}
