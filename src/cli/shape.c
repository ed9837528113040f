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

unsigned shape_kind(const kvarc_tensor *t)
{
	switch (t->kind) {
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

static struct shape_layer *find_layer(const struct shape *s, uint32_t layer)
{
	struct shape_layer key = { .layer = layer };

	return bsearch(&key, s->layers, s->n_layers, sizeof(key), by_number);
}

static void add_tensor(struct shape_cell *c, const kvarc_tensor *t)
{
	if (!c->tensor)
		c->tensor = t;
	else if (t->role == KVARC_SCALE && c->tensor->role != KVARC_SCALE &&
	         t->source_type == c->tensor->source_type)
		c->tensor = t; /* its channels are those of the model */
	else if (c->tensor->source_type != t->source_type ||
	         (t->source_type == 0 &&
	          (c->tensor->dtype != t->dtype || c->tensor->heads != t->heads ||
	           c->tensor->channels != t->channels)))
		c->mixed = true;
}

/* One entry a layer, then every tensor to its cell. */
static kvarc_ret make_layers(struct shape *s)
{
	const kvarc_geometry *g = s->geometry;
	size_t n = 0;

	s->layers = calloc(g->n_tensors ? g->n_tensors : 1, sizeof(*s->layers));
	if (!s->layers)
		return KVARC_MEM;
	for (size_t i = 0; i < g->n_tensors; i++)
		s->layers[i].layer = g->tensors[i].layer;
	qsort(s->layers, g->n_tensors, sizeof(*s->layers), by_number);
	for (size_t i = 0; i < g->n_tensors; i++) {
		if (n == 0 || s->layers[n - 1].layer != s->layers[i].layer)
			s->layers[n++].layer = s->layers[i].layer;
	}
	s->n_layers = n;
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		add_tensor(&find_layer(s, t->layer)->cells[shape_kind(t)], t);
		add_tensor(&s->total, t);
	}
	return KVARC_OK;
}

static void add_chunk(struct shape_cell *cell, const kvarc_tensor *t, const kvarc_chunk_info *c)
{
	unsigned codec = c->codec < SHAPE_CODECS ? c->codec : SHAPE_CODECS - 1;

	cell->elements += (uint64_t)c->n * c->heads * t->channels;
	cell->raw_bytes += c->raw_bytes;
	cell->frame_bytes += c->frame_bytes;
	cell->codecs[codec]++;
	/* Repeats of lossy chunks have their generation. */
	if (codec_has(c->codec, KVARC_CODEC_LOSSY) || c->generation) {
		cell->lossy_chunks++;
		cell->lossy_elements += (uint64_t)c->n * c->heads * t->channels;
		if (c->generation > cell->generation)
			cell->generation = c->generation;
	}
	if (c->predicted_exactly) {
		cell->exact_chunks++;
		cell->exact_elements += (uint64_t)c->n * c->heads * t->channels;
	}
}

static void scale(uint64_t *v, double by)
{
	*v = (uint64_t)((double)*v * by + 0.5);
}

static void scale_cell(struct shape_cell *c, double by)
{
	scale(&c->elements, by);
	scale(&c->raw_bytes, by);
	scale(&c->lossy_elements, by);
}

/* Bits are those of what was packed. All tracks as if they had lost alike. */
static void count_dropped(struct shape *s)
{
	double by;

	s->dropped = s->info.dropped_tokens;
	if (!s->dropped)
		return;
	by = (double)(s->track_tokens + s->dropped) / (double)s->track_tokens;
	for (size_t i = 0; i < s->n_layers; i++)
		for (unsigned k = 0; k < SHAPE_KINDS; k++)
			scale_cell(&s->layers[i].cells[k], by);
	scale_cell(&s->total, by);
	scale(&s->info.elements, by);
	scale(&s->info.raw_bytes, by);
}

kvarc_ret shape_make(struct shape *s, kvarc_reader *r)
{
	kvarc_chunk_info c;
	kvarc_ret ret;

	memset(s, 0, sizeof(*s));
	s->geometry = kvarc_reader_geometry(r);
	ret = make_layers(s);
	for (uint64_t i = 0; ret == KVARC_OK; i++) {
		ret = kvarc_reader_chunk(r, i, &c);
		if (ret != KVARC_OK)
			break;
		if (c.tensor >= s->geometry->n_tensors)
			continue;
		const kvarc_tensor *t = &s->geometry->tensors[c.tensor];
		add_chunk(&find_layer(s, t->layer)->cells[shape_kind(t)], t, &c);
		add_chunk(&s->total, t, &c);
		s->chunk_bytes += c.frame_bytes;
	}
	if (ret == KVARC_END)
		ret = kvarc_reader_get_info(r, &s->info);
	for (size_t i = 0; i < s->geometry->n_tracks; i++)
		s->track_tokens += kvarc_reader_tokens(r, (uint32_t)i);
	s->tokens = library_tokens(r);
	if (ret == KVARC_OK)
		count_dropped(s);
	if (ret != KVARC_OK)
		shape_free(s);
	return ret;
}

void shape_free(struct shape *s)
{
	free(s->layers);
	s->layers = NULL;
}

bool shape_is_predicted(const struct shape_cell *c)
{
	for (unsigned i = 0; i < SHAPE_CODECS; i++) {
		if (c->codecs[i] && codec_has(i, KVARC_CODEC_PREDICTS) &&
		    !codec_has(i, KVARC_CODEC_LOSSY))
			return true;
	}
	return false;
}

double shape_bits(uint64_t bytes, uint64_t elements)
{
	return elements ? 8.0 * (double)bytes / (double)elements : -1;
}

uint64_t shape_raw_bytes(const struct shape *s)
{
	return s->info.raw_bytes + s->info.literal_bytes;
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

void shape_codecs(char *out, size_t size, const struct shape_cell *c)
{
	uint64_t left[SHAPE_CODECS];

	memcpy(left, c->codecs, sizeof(left));
	put_names(out, size, left);
}

void shape_tiers(char *out, size_t size, const struct shape_cell *c)
{
	uint64_t left[SHAPE_CODECS];

	for (unsigned i = 0; i < SHAPE_CODECS; i++)
		left[i] = codec_has(i, KVARC_CODEC_LOSSY) ? c->codecs[i] : 0;
	put_names(out, size, left);
}

const char *shape_dtype(const kvarc_tensor *t)
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
	const char *name = kvarc_dtype_name(t->dtype);

	for (size_t i = 0; i < sizeof(ggml) / sizeof(ggml[0]); i++) {
		if (t->source_type == 0x100 + ggml[i].type)
			return ggml[i].name;
	}
	return name ? name : "?";
}
