/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c - what list and info both report of an archive */
#include "config.h"

#include "describe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint_fields.h"
#include "library.h"
#include "message.h"

uint32_t describe_channels(const kvarc_tensor *tensor)
{
	/* The scale plane of a ggml type with blocks of 32 has one in 32. */
	if (tensor->source_type >= 0x100 && tensor->role == KVARC_SCALE)
		return tensor->channels * 32;
	return tensor->channels;
}

static double percent(uint64_t part, uint64_t all)
{
	return 100.0 * (double)part / (double)all;
}

/* " 160 12": tokens of the first 8 tracks, where there are several. */
static void list_track_tokens(char *out, size_t size, const kvarc_geometry *geometry,
                              kvarc_reader *r)
{
	size_t n = 0;

	out[0] = '\0';
	for (uint32_t i = 0; geometry->n_tracks > 1 && i < geometry->n_tracks && i < 8; i++)
		n += (size_t)snprintf(out + n, size - n, " %" PRIu64, kvarc_reader_tokens(r, i));
	if (geometry->n_tracks > 8)
		snprintf(out + n, size - n, " ...");
}

static void report_sizes(struct report *report, const struct shape *shape)
{
	uint64_t raw = shape_raw_bytes(shape);

	report_u64(report, "raw_bytes", raw);
	report_u64(report, "tensor_bytes", shape->info.raw_bytes);
	report_u64(report, "file_bytes", shape->info.file_bytes);
	report_real(report, ".ratio", (double)raw / (double)shape->info.file_bytes, 0);
	report_u64(report, "elements", shape->info.elements);
	report_real(report, "bits_per_element",
	            shape->info.elements ? shape_bits(shape->info.file_bytes, shape->info.elements)
	                                 : NAN,
	            4);
}

/* Reports the elements that a predictor had bit for bit, and those that a tier has changed. */
static void report_chunks(struct report *report, const struct shape_cell *cell)
{
	report_u64(report, "predicted_chunks", cell->exact_chunks);
	report_u64(report, "predicted_elements", cell->exact_elements);
	report_real(report, ".predicted", percent(cell->exact_elements, cell->elements), 0);
	report_u64(report, "lossy_chunks", cell->lossy_chunks);
	report_u64(report, "lossy_elements", cell->lossy_elements);
	report_real(report, ".lossy", percent(cell->lossy_elements, cell->elements), 0);
	report_u64(report, "generation", cell->generation);
	report_string(report, ".generations", cell->generation == 255 ? " or more" : "");
}

static uint64_t all_tokens(const kvarc_geometry *geometry, const kvarc_reader *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < geometry->n_tracks; i++)
		n += kvarc_reader_tokens(r, i);
	return n;
}

static void report_cache(struct report *report, const struct shape *shape, kvarc_reader *r)
{
	const kvarc_tensor *t = shape->total.tensor;
	uint64_t ids, bytes;

	report_u64(report, "dropped_tokens", shape->dropped);
	report_u64(report, "stored_tokens", shape->info.stored_tokens);
	report_u64(report, ".all_tokens", all_tokens(shape->geometry, r));
	report_u64(report, "tokens", shape->tokens);
	report_u64(report, "layers", shape->n_layers);
	report_u64(report, "heads", t ? t->heads : 0);
	report_u64(report, "channels", t ? describe_channels(t) : 0);
	report_string(report, "dtype", t ? shape_dtype(t) : NULL);
	report_string(report, ".dtypes", shape->total.mixed ? " and others" : "");
	/* A later read of the archive shows why this failed. */
	if (kvarc_reader_coded_ids(r, &ids, &bytes) != KVARC_OK)
		ids = bytes = 0;
	report_u64(report, "coded_token_ids", ids);
	report_u64(report, "coded_token_id_bytes", bytes);
	report_real(report, ".id_bits", 8.0 * (double)bytes / (double)ids, 0);
}

static void report_tracks(struct report *report, const struct shape *shape, kvarc_reader *r)
{
	static const struct {
		uint8_t kind;
		const char *name;
	} kinds[] = {
		{ KVARC_TRACK_SELF, "self" },
		{ KVARC_TRACK_WINDOW, "window" },
		{ KVARC_TRACK_CROSS, "cross" },
		{ KVARC_TRACK_STATE, "state" },
	};

	report_array(report, "tracks");
	for (size_t i = 0; i < shape->geometry->n_tracks; i++) {
		const kvarc_track *t = &shape->geometry->tracks[i];
		const char *name = "other";
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			if (kinds[k].kind == t->kind)
				name = kinds[k].name;
		}
		report_object(report, NULL);
		report_string(report, "kind", name);
		report_string(report, "label", t->label ? t->label : "");
		report_u64(report, "window", t->window);
		report_u64(report, "tokens", kvarc_reader_tokens(r, (uint32_t)i));
		report_end_object(report);
	}
	report_end_array(report);
}

static void report_checkpoint(struct report *report, const kvarc_checkpoint *checkpoint)
{
	struct checkpoint_texts texts;

	report_object(report, NULL);
	checkpoint_fields(report, checkpoint, "", &texts);
	report_print(report, "  checkpoint  {number}[, {.when}][: {label}]\n");
	report_end_object(report);
	free(texts.label);
}

/* The states that --checkpoint reads. */
static void report_checkpoints(struct report *report, kvarc_reader *r)
{
	kvarc_checkpoint c;

	report_array(report, "checkpoints");
	for (size_t i = 0; kvarc_reader_checkpoint(r, i, &c) == KVARC_OK; i++)
		report_checkpoint(report, &c);
	report_end_array(report);
}

static void report_identity(struct report *report, kvarc_reader *r)
{
	const char *key, *value;

	report_object(report, "identity");
	for (size_t i = 0; kvarc_reader_identity_at(r, i, &key, &value) == KVARC_OK; i++)
		report_string(report, key, value);
	report_end_object(report);
}

static void report_checks(struct report *report, const struct shape *shape)
{
	report_object(report, "checks");
	report_string(report, "frame", "xxh3-128");
	report_string(report, "chunk", "low half of xxh3-128");
	report_u64(report, "frames", shape->info.frames);
	report_u64(report, "chunks", shape->info.chunks);
	report_string(report, "state", library_state_name(shape->info.state));
	report_u64(report, "dropped_bytes", shape->info.dropped_bytes);
	report_end_object(report);
}

static void print_head(const struct report *report, const char *file, const struct shape *shape,
                       kvarc_reader *r)
{
	static const char *const shown[] = { "model", "engine", "engine_version", "quantization",
		                             "layout" };

	if (report->json)
		return;
	msg_put_safe(stdout, msg_name(file));
	report_print(report, ": kvarc archive, format {format_version}\n");
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
		const char *value = kvarc_reader_identity(r, shown[i]);
		if (!value)
			continue;
		printf("  %-11s ", shown[i]);
		msg_put_safe(stdout, value);
		putchar('\n');
	}
	if (shape->total.tensor)
		report_print(report,
		             "  cache       {layers} layer{layers:s}, {heads} head{heads:s} of "
		             "{channels} channels, {dtype}{.dtypes}\n"
		             "  RoPE        {.rope}\n");
	if (shape->geometry->n_tensors)
		report_print(report,
		             "  tokens      {tokens:C}[ in {.tracks} tracks:{.track_tokens}]"
		             "[, {dropped_tokens} left out; sizes are of all]\n"
		             "[  store       {stored_tokens:C} of {.all_tokens:C} tokens lie in "
		             "a store; sizes are of all\n]"
		             "[  token ids   by the model, {.id_bits:.2f} bits each\n]");
	report_print(report, "  size        {raw_bytes:B} -> {file_bytes:B}, {.ratio:.2fx}"
	                     "[, {bits_per_element:.2f} bits per element]\n");
}

static void print_chunks(const struct report *report, const struct shape_cell *cell)
{
	if (cell->exact_chunks)
		report_print(report,
		             "  predicted   bit for bit {predicted_chunks} of {.chunks} chunks, "
		             "{.predicted:.1f} % of the elements\n");
	if (cell->lossy_chunks)
		report_print(report,
		             "  lossy       tier {.tiers}, {lossy_chunks} of {.chunks} chunks, "
		             "{.lossy:.1f} % of the elements, generation "
		             "{generation}{.generations}\n");
	report_print(report, "  state       {state}, {.chunks} chunk{.chunks:s} in {.segments} "
	                     "segment{.segments:s}\n");
}

void describe_archive(struct report *report, const char *file, const struct shape *shape,
                      kvarc_reader *r)
{
	const kvarc_geometry *g = shape->geometry;
	char version[16], rope[96] = "none", tracks[256], tiers[64];

	snprintf(version, sizeof(version), "%u.%u", shape->info.format_major,
	         shape->info.format_minor);
	if (g->n_ropes)
		describe_rope(rope, sizeof(rope), &g->ropes[0]);
	list_track_tokens(tracks, sizeof(tracks), g, r);
	shape_tiers(tiers, sizeof(tiers), &shape->total);
	report_string(report, "file", file);
	report_string(report, "format_version", version);
	report_string(report, "state", library_state_name(shape->info.state));
	report_sizes(report, shape);
	report_chunks(report, &shape->total);
	report_cache(report, shape, r);
	report_u64(report, ".tracks", g->n_tracks);
	report_string(report, ".track_tokens", tracks);
	report_string(report, ".rope", rope);
	report_string(report, ".tiers", tiers);
	report_u64(report, ".chunks", shape->info.chunks);
	report_u64(report, ".segments", shape->info.segments);
	print_head(report, file, shape, r);
	report_tracks(report, shape, r);
	report_identity(report, r);
	describe_predictors(report, r);
	print_chunks(report, &shape->total);
	report_checkpoints(report, r);
	report_checks(report, shape);
}
