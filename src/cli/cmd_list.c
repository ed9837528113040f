/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_list.c - kvarc list: one archive in full, or several as a table */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "describe.h"
#include "identities.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "readers.h"
#include "report.h"
#include "shape.h"
#include "times.h"

/* ==== Several archives as a table, a line for each one and a line of sums ==== */

enum { MODEL_COLUMNS = 20 };

static struct {
	uint64_t n, raw_bytes, file_bytes, tokens;
} sum;

/* The time that the archive records, else that of its file. */
static void date_of(char *out, size_t size, const struct input *in, kvarc_reader *r)
{
	const struct timespec t = identities_time(in, r);

	if (t.tv_sec || t.tv_nsec)
		times_local(out, size, t);
	else
		snprintf(out, size, "-");
}

/* The name of the model, cut to the width of its column at a character of UTF-8. */
static void model_of(char out[MODEL_COLUMNS + 1], kvarc_reader *r)
{
	const char *name = kvarc_reader_identity(r, "model");
	size_t n = name ? strlen(name) : 0;

	if (n > MODEL_COLUMNS) {
		n = MODEL_COLUMNS;
		while (n && ((unsigned char)name[n] & 0xc0) == 0x80)
			n--;
	}
	snprintf(out, MODEL_COLUMNS + 1, "%.*s", (int)n, n ? name : "-");
	if (n == 0)
		strcpy(out, "-");
}

static void report_row(struct report *report, uint64_t raw, uint64_t file, uint64_t tokens)
{
	report_start(report, false);
	report_u64(report, "file_bytes", file);
	report_real(report, ".ratio", (double)raw / (double)file, 0);
	report_u64(report, "tokens", tokens);
}

/* Prints the line of an archive, the first time below a heading. */
static void list_table_add(const struct input *in, const struct shape *shape, kvarc_reader *r)
{
	const uint64_t raw = shape_raw_bytes(shape);
	char date[24], model[MODEL_COLUMNS + 1];
	struct report x;

	if (sum.n == 0)
		printf("%9s  %7s  %9s  %-16s  %-*s  %s\n", "size", "ratio", "tokens", "date",
		       MODEL_COLUMNS, "model", "archive");
	sum.n++;
	sum.raw_bytes += raw;
	sum.file_bytes += shape->info.file_bytes;
	sum.tokens += shape->tokens;
	date_of(date, sizeof(date), in, r);
	model_of(model, r);
	report_row(&x, raw, shape->info.file_bytes, shape->tokens);
	report_string(&x, ".date", date);
	report_string(&x, ".model", model);
	report_string(&x, ".name", msg_name(in->name));
	report_print(&x, "{file_bytes:9B}  {.ratio:7.2fx}  {tokens:9C}  {.date:-16}  {.model:-20}  "
	                 "{.name}\n");
	report_end(&x);
}

/* Prints the sums of all lines, if there are several. */
static void list_table_end(void)
{
	struct report x;

	if (sum.n < 2)
		return;
	report_row(&x, sum.raw_bytes, sum.file_bytes, sum.tokens);
	report_u64(&x, ".n", sum.n);
	report_u64(&x, ".raw_bytes", sum.raw_bytes);
	report_string(&x, ".none", "");
	report_print(&x, "{file_bytes:9B}  {.ratio:7.2fx}  {tokens:9C}  {.none:-16}  {.none:-20}  "
	                 "{.n} archives, {.raw_bytes:B} unpacked\n");
	report_end(&x);
}

/* ==== Kvarc list: the layers of an archive, or a table of archives ==== */

static const struct shape_cell *first_cell(const struct shape_layer *layer)
{
	for (int k = 0; k < SHAPE_KINDS; k++) {
		if (layer->cells[k].tensor)
			return &layer->cells[k];
	}
	return &layer->cells[0];
}

static double bits_of(const struct shape_cell *cell)
{
	return cell->elements ? shape_bits(cell->frame_bytes, cell->elements) : NAN;
}

/* The codecs of a layer: one name when key and value have the same. */
static void layer_codecs(char *out, size_t size, const struct shape_layer *layer)
{
	char part[64], last[64] = "";
	size_t n = 0;

	out[0] = '\0';
	for (int k = 0; k < SHAPE_KINDS && n < size; k++) {
		if (!layer->cells[k].tensor)
			continue;
		shape_codecs(part, sizeof(part), &layer->cells[k]);
		if (strcmp(part, last) != 0)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", part);
		strcpy(last, part);
	}
}

static void report_cell(struct report *report_archive, unsigned kind, const struct shape_cell *cell)
{
	report_object(report_archive, shape_kind_name(kind));
	report_string(report_archive, "dtype", shape_dtype(cell->tensor));
	report_u64(report_archive, "heads", cell->tensor->heads);
	report_u64(report_archive, "channels", describe_channels(cell->tensor));
	report_u64(report_archive, "elements", cell->elements);
	report_u64(report_archive, "raw_bytes", cell->raw_bytes);
	report_u64(report_archive, "packed_bytes", cell->frame_bytes);
	report_real(report_archive, "bits_per_element", bits_of(cell), 4);
	report_object(report_archive, "chunks");
	for (unsigned i = 0; i < SHAPE_CODECS; i++) {
		if (cell->codecs[i])
			report_u64(report_archive, library_codec_name(i), cell->codecs[i]);
	}
	report_end_object(report_archive);
	report_end_object(report_archive);
}

static void report_layer(struct report *report_archive, const struct shape_layer *layer, bool other)
{
	const kvarc_tensor *t = first_cell(layer)->tensor;
	char shape[48], codecs[128];
	uint64_t bytes = 0;

	layer_codecs(codecs, sizeof(codecs), layer);
	snprintf(shape, sizeof(shape), "%" PRIu32 " x %" PRIu32, t->heads, describe_channels(t));
	report_object(report_archive, NULL);
	report_u64(report_archive, "layer", layer->layer);
	for (unsigned k = 0; k < SHAPE_KINDS; k++) {
		if (layer->cells[k].tensor)
			report_cell(report_archive, k, &layer->cells[k]);
		bytes += layer->cells[k].frame_bytes;
	}
	report_string(report_archive, ".shape", shape);
	report_string(report_archive, ".dtype", shape_dtype(t));
	report_real(report_archive, ".key", bits_of(&layer->cells[SHAPE_KEY]), 0);
	report_real(report_archive, ".value", bits_of(&layer->cells[SHAPE_VALUE]), 0);
	report_real(report_archive, ".other", bits_of(&layer->cells[SHAPE_OTHER]), 0);
	report_u64(report_archive, ".packed_bytes", bytes);
	report_string(report_archive, ".codecs", codecs);
	report_print(report_archive,
	             "{layer:5}  {.shape:10}  {.dtype:6}  {.key:6.2f}  {.value:6.2f}");
	report_print(report_archive, other ? "  {.other:6.2f}" : "");
	report_print(report_archive, "  {.packed_bytes:9B}  {.codecs}\n");
	report_end_object(report_archive);
}

static void report_layers(struct report *report_archive, const struct shape *shape)
{
	bool other = false;

	for (size_t i = 0; i < shape->n_layers; i++)
		other = other || shape->layers[i].cells[SHAPE_OTHER].tensor;
	if (shape->n_layers && !report_archive->json)
		printf("\n%5s  %10s  %6s  %6s  %6s%s  %9s  %s\n", "layer", "heads", "type", "key",
		       "value", other ? "   other" : "", "packed", "codec");
	report_array(report_archive, "per_layer");
	for (size_t i = 0; i < shape->n_layers; i++)
		report_layer(report_archive, &shape->layers[i], other);
	report_end_array(report_archive);
	report_string(report_archive, ".rest",
	              other ? "parameters, token ids, headers, index     "
	                    : "parameters, token ids, headers, index");
}

static void report_archive(bool json, const char *file, const struct shape *shape, kvarc_reader *r)
{
	/* Texts by the number of describe_reach. */
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
	const unsigned reach = describe_reach(shape, r);
	const uint64_t rest = shape->info.file_bytes - shape->chunk_bytes;
	struct report x;

	report_start(&x, json);
	describe_archive(&x, file, shape, r);
	report_layers(&x, shape);
	report_string(&x, "range_read", reaches[reach].name);
	report_string(&x, ".range_read", reaches[reach].text);
	report_u64(&x, "other_bytes", rest);
	report_real(&x, ".other_bytes", 100.0 * (double)rest / (double)shape->info.file_bytes, 0);
	if (shape->n_layers)
		report_print(&x,
		             " rest  {.rest:-34}  {other_bytes:9B}  {.other_bytes:.1f} % of the "
		             "file\n"
		             "key and value are in bits per element\n"
		             "[{.range_read}\n]");
	report_end(&x);
}

/* Several archives, without -v and --json. */
static bool is_table(const struct options *options)
{
	return (options->n_files > 1 || options->recursive) && !options->json && msg_level() == 0;
}

static void list_one(const struct options *options, struct input *in, kvarc_reader *r,
                     kvarc_error *error, bool first)
{
	struct shape s;
	kvarc_ret ret = shape_make(&s, r);

	if (ret != KVARC_OK) {
		library_error(in->name, ret, error, in, NULL);
		return;
	}
	if (is_table(options)) {
		list_table_add(in, &s, r);
	} else if (options->json || msg_level() >= 0) {
		printf("%s", first || options->json ? "" : "\n");
		report_archive(options->json, in->name, &s, r);
	}
	msg_flush();
	library_warn_state(in->name, &s.info, s.tokens);
	shape_free(&s);
}

void cmd_list(const struct options *options)
{
	if (paths_check_reading(options))
		readers_each(options, true, 0, list_one);
	if (is_table(options))
		list_table_end();
}
