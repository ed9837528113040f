/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_list.c - kvarc list: the layers of an archive, or a table of archives */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "describe.h"
#include "library.h"
#include "list_table.h"
#include "message.h"
#include "paths.h"
#include "readers.h"
#include "report.h"
#include "shape.h"

static const struct shape_cell *first_cell(const struct shape_layer *l)
{
	for (int k = 0; k < SHAPE_KINDS; k++) {
		if (l->cells[k].tensor)
			return &l->cells[k];
	}
	return &l->cells[0];
}

static double bits_of(const struct shape_cell *c)
{
	return c->elements ? shape_bits(c->frame_bytes, c->elements) : NAN;
}

/* The codecs of a layer: one name when key and value have the same. */
static void layer_codecs(char *out, size_t size, const struct shape_layer *l)
{
	char part[64], last[64] = "";
	size_t n = 0;

	out[0] = '\0';
	for (int k = 0; k < SHAPE_KINDS && n < size; k++) {
		if (!l->cells[k].tensor)
			continue;
		shape_codecs(part, sizeof(part), &l->cells[k]);
		if (strcmp(part, last) != 0)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", part);
		strcpy(last, part);
	}
}

static void report_cell(struct report *x, unsigned kind, const struct shape_cell *c)
{
	report_object(x, shape_kind_name(kind));
	report_string(x, "dtype", shape_dtype(c->tensor));
	report_u64(x, "heads", c->tensor->heads);
	report_u64(x, "channels", describe_channels(c->tensor));
	report_u64(x, "elements", c->elements);
	report_u64(x, "raw_bytes", c->raw_bytes);
	report_u64(x, "packed_bytes", c->frame_bytes);
	report_real(x, "bits_per_element", bits_of(c), 4);
	report_object(x, "chunks");
	for (unsigned i = 0; i < SHAPE_CODECS; i++) {
		if (c->codecs[i])
			report_u64(x, library_codec_name(i), c->codecs[i]);
	}
	report_end_object(x);
	report_end_object(x);
}

static void report_layer(struct report *x, const struct shape_layer *l, bool other)
{
	const kvarc_tensor *t = first_cell(l)->tensor;
	char shape[48], codecs[128];
	uint64_t bytes = 0;

	layer_codecs(codecs, sizeof(codecs), l);
	snprintf(shape, sizeof(shape), "%" PRIu32 " x %" PRIu32, t->heads, describe_channels(t));
	report_object(x, NULL);
	report_u64(x, "layer", l->layer);
	for (unsigned k = 0; k < SHAPE_KINDS; k++) {
		if (l->cells[k].tensor)
			report_cell(x, k, &l->cells[k]);
		bytes += l->cells[k].frame_bytes;
	}
	report_string(x, ".shape", shape);
	report_string(x, ".dtype", shape_dtype(t));
	report_real(x, ".key", bits_of(&l->cells[SHAPE_KEY]), 0);
	report_real(x, ".value", bits_of(&l->cells[SHAPE_VALUE]), 0);
	report_real(x, ".other", bits_of(&l->cells[SHAPE_OTHER]), 0);
	report_u64(x, ".packed_bytes", bytes);
	report_string(x, ".codecs", codecs);
	report_print(x, "{layer:5}  {.shape:10}  {.dtype:6}  {.key:6.2f}  {.value:6.2f}");
	report_print(x, other ? "  {.other:6.2f}" : "");
	report_print(x, "  {.packed_bytes:9B}  {.codecs}\n");
	report_end_object(x);
}

static void report_layers(struct report *x, const struct shape *s)
{
	bool other = false;

	for (size_t i = 0; i < s->n_layers; i++)
		other = other || s->layers[i].cells[SHAPE_OTHER].tensor;
	if (s->n_layers && !x->json)
		printf("\n%5s  %10s  %6s  %6s  %6s%s  %9s  %s\n", "layer", "heads", "type", "key",
		       "value", other ? "   other" : "", "packed", "codec");
	report_array(x, "per_layer");
	for (size_t i = 0; i < s->n_layers; i++)
		report_layer(x, &s->layers[i], other);
	report_end_array(x);
	report_string(x, ".rest",
	              other ? "parameters, token ids, headers, index     "
	                    : "parameters, token ids, headers, index");
}

static void report(const struct options *o, const char *file, const struct shape *s,
                   kvarc_reader *r)
{
	/* by the number of describe_reach */
	static const struct {
		const char *name, *text;
	} reaches[] = {
		{ "layer", NULL },
		{ "layer", NULL },
		{ "key of the layer", "to read a value, the key of its layer is decoded, too" },
		{ "lower layers", "to read a layer, the layers below it are decoded, too" },
		{ "tokens before and lower layers",
		  "to read tokens, a model goes through all before them and the layers below" },
	};
	const unsigned reach = describe_reach(s, r);
	const uint64_t rest = s->info.file_bytes - s->chunk_bytes;
	struct report x;

	report_start(&x, o->json);
	describe_archive(&x, file, s, r);
	report_layers(&x, s);
	report_string(&x, "range_read", reaches[reach].name);
	report_string(&x, ".range_read", reaches[reach].text);
	report_u64(&x, "other_bytes", rest);
	report_real(&x, ".other_bytes", 100.0 * (double)rest / (double)s->info.file_bytes, 0);
	if (s->n_layers)
		report_print(&x,
		             " rest  {.rest:-34}  {other_bytes:9B}  {.other_bytes:.1f} % of the "
		             "file\n"
		             "key and value are in bits per element\n"
		             "[{.range_read}\n]");
	report_end(&x);
}

/* Several archives, without -v and --json. */
static bool is_table(const struct options *o)
{
	return (o->n_files > 1 || o->recursive) && !o->json && msg_level() == 0;
}

static void list_one(const struct options *o, struct input *in, kvarc_reader *r, kvarc_error *error,
                     bool first)
{
	struct shape s;
	kvarc_ret ret = shape_make(&s, r);

	if (ret != KVARC_OK) {
		library_error(in->name, ret, error, in, NULL);
		return;
	}
	if (is_table(o)) {
		list_table_add(in, &s, r);
	} else if (o->json || msg_level() >= 0) {
		printf("%s", first || o->json ? "" : "\n");
		report(o, in->name, &s, r);
	}
	msg_flush();
	library_warn_state(in->name, &s.info, s.tokens);
	shape_free(&s);
}

void cmd_list(const struct options *o)
{
	if (paths_check_reading(o))
		readers_each(o, true, 0, list_one);
	if (is_table(o))
		list_table_end();
}
