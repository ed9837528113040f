/* SPDX-License-Identifier: BSD-3-Clause */
/* shape.c - what an archive holds, layer by layer, and what that costs */
#include "config.h"

#include "shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static bool codec_has(unsigned number, unsigned flag)
{
	kvarc_codec codec;

	return kvarc_codec_info(number, &codec) == KVARC_OK && codec.flags & flag;
}

unsigned shape_kind(const kvarc_tensor *tensor)
{
	switch (tensor->kind) {
	case KVARC_KEY:
	case KVARC_CROSS_KEY:
		return SHAPE_KEY;
	case KVARC_VALUE:
	case KVARC_CROSS_VALUE:
		return SHAPE_VALUE;
	default:
		return SHAPE_OTHER;
	}
}

const char *shape_kind_name(unsigned kind)
{
	static const char *const names[] = { "key", "value", "other" };

	return names[kind];
}

static int by_number(const void *a, const void *b)
{
	const struct shape_layer *x = a, *y = b;

	return (x->layer > y->layer) - (x->layer < y->layer);
}

static struct shape_layer *find_layer(const struct shape *shape, uint32_t layer)
{
	struct shape_layer key = { .layer = layer };

	return bsearch(&key, shape->layers, shape->n_layers, sizeof(key), by_number);
}

/* Scales that an engine keeps beside a tensor say nothing about its heads and type. */
static bool is_beside(const kvarc_tensor *tensor)
{
	return tensor->belongs_to && tensor->source_type == 0;
}

static void add_tensor(struct shape_cell *cell, const kvarc_tensor *tensor)
{
	if (!cell->tensor || (is_beside(cell->tensor) && !is_beside(tensor)))
		cell->tensor = tensor;
	else if (is_beside(tensor))
		return;
	else if (tensor->role == KVARC_SCALE && cell->tensor->role != KVARC_SCALE &&
	         tensor->source_type == cell->tensor->source_type)
		cell->tensor = tensor; /* scales have the channels of the model */
	else if (cell->tensor->source_type != tensor->source_type ||
	         (tensor->source_type == 0 &&
	          (cell->tensor->dtype != tensor->dtype || cell->tensor->heads != tensor->heads ||
	           cell->tensor->channels != tensor->channels)))
		cell->mixed = true;
}

/* Makes one entry per layer, then adds every tensor to its cell. */
static kvarc_ret make_layers(struct shape *shape)
{
	const kvarc_geometry *g = shape->geometry;
	size_t n = 0;

	shape->layers = calloc(g->n_tensors ? g->n_tensors : 1, sizeof(*shape->layers));
	if (!shape->layers)
		return KVARC_MEM;
	for (size_t i = 0; i < g->n_tensors; i++)
		shape->layers[i].layer = g->tensors[i].layer;
	qsort(shape->layers, g->n_tensors, sizeof(*shape->layers), by_number);
	for (size_t i = 0; i < g->n_tensors; i++) {
		if (n == 0 || shape->layers[n - 1].layer != shape->layers[i].layer)
			shape->layers[n++].layer = shape->layers[i].layer;
	}
	shape->n_layers = n;
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		add_tensor(&find_layer(shape, t->layer)->cells[shape_kind(t)], t);
		add_tensor(&shape->total, t);
	}
	return KVARC_OK;
}

static void add_chunk(struct shape_cell *cell, const kvarc_tensor *tensor,
                      const kvarc_chunk_info *info)
{
	unsigned codec = info->codec < SHAPE_CODECS ? info->codec : SHAPE_CODECS - 1;

	cell->elements += (uint64_t)info->n * info->heads * tensor->channels;
	cell->raw_bytes += info->raw_bytes;
	cell->frame_bytes += info->frame_bytes;
	cell->codecs[codec]++;
	/* Repeats of lossy chunks have their generation. */
	if (codec_has(info->codec, KVARC_CODEC_LOSSY) || info->generation) {
		cell->lossy_chunks++;
		cell->lossy_elements += (uint64_t)info->n * info->heads * tensor->channels;
		if (info->generation > cell->generation)
			cell->generation = info->generation;
	}
	if (info->predicted_exactly) {
		cell->exact_chunks++;
		cell->exact_elements += (uint64_t)info->n * info->heads * tensor->channels;
	}
}

static void scale(uint64_t *v, double by)
{
	*v = (uint64_t)((double)*v * by + 0.5);
}

static void scale_cell(struct shape_cell *cell, double by)
{
	scale(&cell->elements, by);
	scale(&cell->raw_bytes, by);
	scale(&cell->lossy_elements, by);
}

/* Bits are those of what was packed. All tracks as if they had lost alike. */
static void count_dropped(struct shape *shape)
{
	double by;

	shape->dropped = shape->info.dropped_tokens;
	if (!shape->dropped)
		return;
	by = (double)(shape->track_tokens + shape->dropped) / (double)shape->track_tokens;
	for (size_t i = 0; i < shape->n_layers; i++)
		for (unsigned k = 0; k < SHAPE_KINDS; k++)
			scale_cell(&shape->layers[i].cells[k], by);
	scale_cell(&shape->total, by);
	scale(&shape->info.elements, by);
	scale(&shape->info.raw_bytes, by);
}

kvarc_ret shape_make(struct shape *shape, kvarc_reader *r)
{
	kvarc_chunk_info c;
	kvarc_ret ret;

	memset(shape, 0, sizeof(*shape));
	shape->geometry = kvarc_reader_geometry(r);
	ret = make_layers(shape);
	for (uint64_t i = 0; ret == KVARC_OK; i++) {
		ret = kvarc_reader_chunk(r, i, &c);
		if (ret != KVARC_OK)
			break;
		if (c.tensor >= shape->geometry->n_tensors)
			continue;
		const kvarc_tensor *t = &shape->geometry->tensors[c.tensor];
		add_chunk(&find_layer(shape, t->layer)->cells[shape_kind(t)], t, &c);
		add_chunk(&shape->total, t, &c);
		shape->chunk_bytes += c.frame_bytes;
	}
	if (ret == KVARC_END)
		ret = kvarc_reader_get_info(r, &shape->info);
	for (size_t i = 0; i < shape->geometry->n_tracks; i++)
		shape->track_tokens += kvarc_reader_tokens(r, (uint32_t)i);
	shape->tokens = library_tokens(r);
	if (ret == KVARC_OK)
		count_dropped(shape);
	if (ret != KVARC_OK)
		shape_free(shape);
	return ret;
}

void shape_free(struct shape *shape)
{
	free(shape->layers);
	shape->layers = NULL;
}

bool shape_is_predicted(const struct shape_cell *cell)
{
	for (unsigned i = 0; i < SHAPE_CODECS; i++) {
		if (cell->codecs[i] && codec_has(i, KVARC_CODEC_PREDICTS) &&
		    !codec_has(i, KVARC_CODEC_LOSSY))
			return true;
	}
	return false;
}

double shape_bits(uint64_t bytes, uint64_t elements)
{
	return elements ? 8.0 * (double)bytes / (double)elements : -1;
}

uint64_t shape_raw_bytes(const struct shape *shape)
{
	return shape->info.raw_bytes + shape->info.literal_bytes;
}

/* Names of codecs by their number of chunks, which is used up. */
static void put_names(char *out, size_t size, uint64_t left[SHAPE_CODECS])
{
	size_t n = 0;

	out[0] = '\0';
	for (;;) {
		unsigned best = 0;
		for (unsigned i = 1; i < SHAPE_CODECS; i++) {
			if (left[i] > left[best])
				best = i;
		}
		if (left[best] == 0 || n >= size)
			break;
		n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "+" : "",
		                      library_codec_name(best));
		left[best] = 0;
	}
}

void shape_codecs(char *out, size_t size, const struct shape_cell *cell)
{
	uint64_t left[SHAPE_CODECS];

	memcpy(left, cell->codecs, sizeof(left));
	put_names(out, size, left);
}

void shape_tiers(char *out, size_t size, const struct shape_cell *cell)
{
	uint64_t left[SHAPE_CODECS];

	for (unsigned i = 0; i < SHAPE_CODECS; i++)
		left[i] = codec_has(i, KVARC_CODEC_LOSSY) ? cell->codecs[i] : 0;
	put_names(out, size, left);
}

const char *shape_dtype(const kvarc_tensor *tensor)
{
	/* ggml type numbers as they are stored in GGUF files. */
	static const struct {
		uint16_t type;
		const char *name;
	} ggml[] = {
		{ 0, "f32" },   { 1, "f16" },   { 2, "q4_0" },  { 3, "q4_1" },  { 6, "q5_0" },
		{ 7, "q5_1" },  { 8, "q8_0" },  { 9, "q8_1" },  { 10, "q2_k" }, { 11, "q3_k" },
		{ 12, "q4_k" }, { 13, "q5_k" }, { 14, "q6_k" }, { 15, "q8_k" }, { 20, "iq4_nl" },
		{ 24, "i8" },   { 30, "bf16" },
	};
	const char *name = kvarc_dtype_name(tensor->dtype);

	for (size_t i = 0; i < sizeof(ggml) / sizeof(ggml[0]); i++) {
		if (tensor->source_type == 0x100 + ggml[i].type)
			return ggml[i].name;
	}
	return name ? name : "?";
}
