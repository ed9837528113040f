/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_list.c - kvarc list: a table of layers */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "describe.h"
#include "json_out.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "shape.h"
#include "units.h"

static const struct shape_cell *first_cell(const struct shape_layer *l)
{
	for (int k = 0; k < SHAPE_KINDS; k++) {
		if (l->cells[k].tensor)
			return &l->cells[k];
	}
	return &l->cells[0];
}

static void bits_text(char out[16], uint64_t bytes, uint64_t elements)
{
	if (elements)
		snprintf(out, 16, "%.2f", shape_bits(bytes, elements));
	else
		strcpy(out, "-");
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

static void print_layer(const struct shape_layer *l, bool other)
{
	char bits[SHAPE_KINDS][16], codecs[128], shape[48], packed[32];
	const kvarc_tensor *t = first_cell(l)->tensor;
	uint64_t bytes = 0;

	for (int k = 0; k < SHAPE_KINDS; k++) {
		bits_text(bits[k], l->cells[k].frame_bytes, l->cells[k].elements);
		bytes += l->cells[k].frame_bytes;
	}
	layer_codecs(codecs, sizeof(codecs), l);
	snprintf(shape, sizeof(shape), "%" PRIu32 " x %" PRIu32, t->heads, describe_channels(t));
	units_bytes(packed, sizeof(packed), bytes);
	printf("%5" PRIu32 "  %10s  %6s  %6s  %6s", l->layer, shape, shape_dtype(t),
	       bits[SHAPE_KEY], bits[SHAPE_VALUE]);
	if (other)
		printf("  %6s", bits[SHAPE_OTHER]);
	printf("  %9s  %s\n", packed, codecs);
}

static void print_rest(const struct shape *s, bool other)
{
	char bytes[32];
	uint64_t rest = s->info.file_bytes - s->chunk_bytes;

	units_bytes(bytes, sizeof(bytes), rest);
	printf("%5s  %-*s  %9s  %.1f %% of the file\n", "rest", other ? 42 : 34,
	       "parameters, token ids, headers, index", bytes,
	       100.0 * (double)rest / (double)s->info.file_bytes);
}

static void print_table(const char *file, const struct shape *s, kvarc_reader *r)
{
	bool other = false;

	describe_head(file, s, r);
	for (size_t i = 0; i < s->n_layers; i++)
		other = other || s->layers[i].cells[SHAPE_OTHER].tensor;
	if (s->n_layers == 0)
		return;
	printf("\n%5s  %10s  %6s  %6s  %6s", "layer", "heads", "type", "key", "value");
	if (other)
		printf("  %6s", "other");
	printf("  %9s  %s\n", "packed", "codec");
	for (size_t i = 0; i < s->n_layers; i++)
		print_layer(&s->layers[i], other);
	print_rest(s, other);
	printf("key and value are in bits per element\n");
	switch (describe_reach(s, r)) {
	case 2:
		printf("to read a value, the key of its layer is decoded, too\n");
		break;
	case 3:
		printf("to read a layer, the layers below it are decoded, too\n");
		break;
	case 4:
		printf("to read tokens, a model goes through all before them and "
		       "the layers below\n");
		break;
	default:
		break;
	}
}

static void json_cell(struct json *j, const char *key, const struct shape_cell *c)
{
	json_object(j, key);
	json_string(j, "dtype", shape_dtype(c->tensor));
	json_u64(j, "heads", c->tensor->heads);
	json_u64(j, "channels", describe_channels(c->tensor));
	json_u64(j, "elements", c->elements);
	json_u64(j, "raw_bytes", c->raw_bytes);
	json_u64(j, "packed_bytes", c->frame_bytes);
	if (c->elements)
		json_number(j, "bits_per_element", shape_bits(c->frame_bytes, c->elements), 4);
	else
		json_null(j, "bits_per_element");
	json_object(j, "chunks");
	for (unsigned i = 0; i < SHAPE_CODECS; i++) {
		if (c->codecs[i])
			json_u64(j, library_codec_name(i), c->codecs[i]);
	}
	json_end_object(j);
	json_end_object(j);
}

static void print_json(const char *file, const struct shape *s, kvarc_reader *r)
{
	static const char *const reaches[] = { "layer", "layer", "key of the layer", "lower layers",
		                               "tokens before and lower layers" };
	struct json j;

	json_init(&j, stdout);
	json_object(&j, NULL);
	describe_json(&j, file, s, r);
	json_array(&j, "per_layer");
	for (size_t i = 0; i < s->n_layers; i++) {
		const struct shape_layer *l = &s->layers[i];
		json_object(&j, NULL);
		json_u64(&j, "layer", l->layer);
		for (unsigned k = 0; k < SHAPE_KINDS; k++) {
			if (l->cells[k].tensor)
				json_cell(&j, shape_kind_name(k), &l->cells[k]);
		}
		json_end_object(&j);
	}
	json_end_array(&j);
	json_string(&j, "range_read", reaches[describe_reach(s, r)]);
	json_u64(&j, "other_bytes", s->info.file_bytes - s->chunk_bytes);
	json_end_object(&j);
	json_line(&j);
}

static void list_one(const struct options *o, const char *file, bool first)
{
	struct input in;
	struct shape s;
	kvarc_error error;
	kvarc_reader *r;
	kvarc_ret ret;

	if (!input_open(&in, file, true))
		return;
	r = library_open(o, &in, 0, &error);
	if (r) {
		ret = shape_make(&s, r);
		if (ret != KVARC_OK) {
			library_error(file, ret, &error, &in, NULL);
		} else {
			if (o->json) {
				print_json(file, &s, r);
			} else {
				printf("%s", first ? "" : "\n");
				print_table(file, &s, r);
			}
			msg_flush();
			library_warn_state(file, &s.info, s.tokens);
			shape_free(&s);
		}
	}
	kvarc_reader_close(&r);
	input_close(&in);
}

void cmd_list(const struct options *o)
{
	if (!paths_check_reading(o))
		return;
	for (size_t i = 0; i < o->n_files; i++)
		list_one(o, o->files[i], i == 0);
}
