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

uint32_t describe_channels(const kvarc_tensor *t)
{
	/* The scale plane of a ggml type with blocks of 32 has one in 32. */
	if (t->source_type >= 0x100 && t->role == KVARC_SCALE)
		return t->channels * 32;
	return t->channels;
}

static double percent(uint64_t part, uint64_t all)
{
	return 100.0 * (double)part / (double)all;
}

/* " 160 12": tokens of the first 8 tracks, where there are several. */
static void list_track_tokens(char *out, size_t size, const kvarc_geometry *g, kvarc_reader *r)
{
	size_t n = 0;

	out[0] = '\0';
	for (uint32_t i = 0; g->n_tracks > 1 && i < g->n_tracks && i < 8; i++)
		n += (size_t)snprintf(out + n, size - n, " %" PRIu64, kvarc_reader_tokens(r, i));
	if (g->n_tracks > 8)
		snprintf(out + n, size - n, " ...");
}

static void report_sizes(struct report *x, const struct shape *s)
{
	uint64_t raw = shape_raw_bytes(s);

	report_u64(x, "raw_bytes", raw);
	report_u64(x, "tensor_bytes", s->info.raw_bytes);
	report_u64(x, "file_bytes", s->info.file_bytes);
	report_real(x, ".ratio", (double)raw / (double)s->info.file_bytes, 0);
	report_u64(x, "elements", s->info.elements);
	report_real(x, "bits_per_element",
	            s->info.elements ? shape_bits(s->info.file_bytes, s->info.elements) : NAN, 4);
}

/* What a predictor had bit for bit, and what a tier has changed. */
static void report_chunks(struct report *x, const struct shape_cell *c)
{
	report_u64(x, "predicted_chunks", c->exact_chunks);
	report_u64(x, "predicted_elements", c->exact_elements);
	report_real(x, ".predicted", percent(c->exact_elements, c->elements), 0);
	report_u64(x, "lossy_chunks", c->lossy_chunks);
	report_u64(x, "lossy_elements", c->lossy_elements);
	report_real(x, ".lossy", percent(c->lossy_elements, c->elements), 0);
	report_u64(x, "generation", c->generation);
	report_string(x, ".generations", c->generation == 255 ? " or more" : "");
}

static uint64_t all_tokens(const kvarc_geometry *g, const kvarc_reader *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < g->n_tracks; i++)
		n += kvarc_reader_tokens(r, i);
	return n;
}

static void report_cache(struct report *x, const struct shape *s, kvarc_reader *r)
{
	const kvarc_tensor *t = s->total.tensor;
	uint64_t ids, bytes;

	report_u64(x, "dropped_tokens", s->dropped);
	report_u64(x, "stored_tokens", s->info.stored_tokens);
	report_u64(x, ".all_tokens", all_tokens(s->geometry, r));
	report_u64(x, "tokens", s->tokens);
	report_u64(x, "layers", s->n_layers);
	report_u64(x, "heads", t ? t->heads : 0);
	report_u64(x, "channels", t ? describe_channels(t) : 0);
	report_string(x, "dtype", t ? shape_dtype(t) : NULL);
	report_string(x, ".dtypes", s->total.mixed ? " and others" : "");
	/* A later read of the archive shows why this failed. */
	if (kvarc_reader_coded_ids(r, &ids, &bytes) != KVARC_OK)
		ids = bytes = 0;
	report_u64(x, "coded_token_ids", ids);
	report_u64(x, "coded_token_id_bytes", bytes);
	report_real(x, ".id_bits", 8.0 * (double)bytes / (double)ids, 0);
}

static void report_tracks(struct report *x, const struct shape *s, kvarc_reader *r)
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

	report_array(x, "tracks");
	for (size_t i = 0; i < s->geometry->n_tracks; i++) {
		const kvarc_track *t = &s->geometry->tracks[i];
		const char *name = "other";
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			if (kinds[k].kind == t->kind)
				name = kinds[k].name;
		}
		report_object(x, NULL);
		report_string(x, "kind", name);
		report_string(x, "label", t->label ? t->label : "");
		report_u64(x, "window", t->window);
		report_u64(x, "tokens", kvarc_reader_tokens(r, (uint32_t)i));
		report_end_object(x);
	}
	report_end_array(x);
}

static void report_checkpoint(struct report *x, const kvarc_checkpoint *c)
{
	struct checkpoint_texts texts;

	report_object(x, NULL);
	checkpoint_fields(x, c, "", &texts);
	report_print(x, "  checkpoint  {number}[, {.when}][: {label}]\n");
	report_end_object(x);
	free(texts.label);
}

/* The states that --checkpoint reads. */
static void report_checkpoints(struct report *x, kvarc_reader *r)
{
	kvarc_checkpoint c;

	report_array(x, "checkpoints");
	for (size_t i = 0; kvarc_reader_checkpoint(r, i, &c) == KVARC_OK; i++)
		report_checkpoint(x, &c);
	report_end_array(x);
}

static void report_identity(struct report *x, kvarc_reader *r)
{
	const char *key, *value;

	report_object(x, "identity");
	for (size_t i = 0; kvarc_reader_identity_at(r, i, &key, &value) == KVARC_OK; i++)
		report_string(x, key, value);
	report_end_object(x);
}

static void report_checks(struct report *x, const struct shape *s)
{
	report_object(x, "checks");
	report_string(x, "frame", "xxh3-128");
	report_string(x, "chunk", "low half of xxh3-128");
	report_u64(x, "frames", s->info.frames);
	report_u64(x, "chunks", s->info.chunks);
	report_string(x, "state", library_state_name(s->info.state));
	report_u64(x, "dropped_bytes", s->info.dropped_bytes);
	report_end_object(x);
}

static void print_head(const struct report *x, const char *file, const struct shape *s,
                       kvarc_reader *r)
{
	static const char *const shown[] = { "model", "engine", "engine_version", "quantization",
		                             "layout" };

	if (x->json)
		return;
	msg_put_safe(stdout, msg_name(file));
	report_print(x, ": kvarc archive, format {format_version}\n");
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
		const char *value = kvarc_reader_identity(r, shown[i]);
		if (!value)
			continue;
		printf("  %-11s ", shown[i]);
		msg_put_safe(stdout, value);
		putchar('\n');
	}
	if (s->total.tensor)
		report_print(x, "  cache       {layers} layer{layers:s}, {heads} head{heads:s} of "
		                "{channels} channels, {dtype}{.dtypes}\n"
		                "  RoPE        {.rope}\n");
	if (s->geometry->n_tensors)
		report_print(x, "  tokens      {tokens:C}[ in {.tracks} tracks:{.track_tokens}]"
		                "[, {dropped_tokens} left out; sizes are of all]\n"
		                "[  store       {stored_tokens:C} of {.all_tokens:C} tokens lie in "
		                "a store; sizes are of all\n]"
		                "[  token ids   by the model, {.id_bits:.2f} bits each\n]");
	report_print(x, "  size        {raw_bytes:B} -> {file_bytes:B}, {.ratio:.2fx}"
	                "[, {bits_per_element:.2f} bits per element]\n");
}

static void print_chunks(const struct report *x, const struct shape_cell *c)
{
	if (c->exact_chunks)
		report_print(x, "  predicted   bit for bit {predicted_chunks} of {.chunks} chunks, "
		                "{.predicted:.1f} % of the elements\n");
	if (c->lossy_chunks)
		report_print(x, "  lossy       tier {.tiers}, {lossy_chunks} of {.chunks} chunks, "
		                "{.lossy:.1f} % of the elements, generation "
		                "{generation}{.generations}\n");
	report_print(x, "  state       {state}, {.chunks} chunk{.chunks:s} in {.segments} "
	                "segment{.segments:s}\n");
}

void describe_archive(struct report *x, const char *file, const struct shape *s, kvarc_reader *r)
{
	const kvarc_geometry *g = s->geometry;
	char version[16], rope[96] = "none", tracks[256], tiers[64];

	snprintf(version, sizeof(version), "%u.%u", s->info.format_major, s->info.format_minor);
	if (g->n_ropes)
		describe_rope(rope, sizeof(rope), &g->ropes[0]);
	list_track_tokens(tracks, sizeof(tracks), g, r);
	shape_tiers(tiers, sizeof(tiers), &s->total);
	report_string(x, "file", file);
	report_string(x, "format_version", version);
	report_string(x, "state", library_state_name(s->info.state));
	report_sizes(x, s);
	report_chunks(x, &s->total);
	report_cache(x, s, r);
	report_u64(x, ".tracks", g->n_tracks);
	report_string(x, ".track_tokens", tracks);
	report_string(x, ".rope", rope);
	report_string(x, ".tiers", tiers);
	report_u64(x, ".chunks", s->info.chunks);
	report_u64(x, ".segments", s->info.segments);
	print_head(x, file, s, r);
	report_tracks(x, s, r);
	report_identity(x, r);
	describe_predictors(x, r);
	print_chunks(x, &s->total);
	report_checkpoints(x, r);
	report_checks(x, s);
}
