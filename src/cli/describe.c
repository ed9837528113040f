/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c - the lines and JSON members that list and info share */
#include "describe.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "library.h"
#include "message.h"
#include "units.h"

uint32_t describe_channels(const kvarc_tensor *t)
{
	/* The scale plane of a ggml type with blocks of 32 has one in 32. */
	if (t->source_type >= 0x100 && t->role == KVARC_SCALE)
		return t->channels * 32;
	return t->channels;
}

/* Human-readable only: decoding uses the frequencies in the file. */
void describe_rope(char *out, size_t size, const kvarc_rope *rope)
{
	const char *pairs = rope->pairing == KVARC_ROPE_HALF ? "half-split" : "interleaved";
	int n = snprintf(out, size, "%s pairs, %" PRIu32 " channels", pairs, rope->rotary);

	if (rope->rotary >= 4 && rope->freq[1] && rope->freq[0] > rope->freq[1]) {
		double step = (double)rope->freq[0] / (double)rope->freq[1];
		double theta = pow(step, rope->rotary / 2.0);
		snprintf(out + n, size - (size_t)n, ", theta %.6g",
		         theta < 1e9 ? round(theta) : theta);
	}
}

static void put_pair(const char *name, const char *value)
{
	printf("  %-11s ", name);
	msg_put_safe(stdout, value);
	putchar('\n');
}

static void put_sizes(const struct shape *s)
{
	char raw[32], packed[32];
	uint64_t raw_bytes = shape_raw_bytes(s);

	units_bytes(raw, sizeof(raw), raw_bytes);
	units_bytes(packed, sizeof(packed), s->info.file_bytes);
	printf("  %-11s %s -> %s, %.2fx", "size", raw, packed,
	       (double)raw_bytes / (double)s->info.file_bytes);
	if (s->info.elements)
		printf(", %.2f bits per element", shape_bits(s->info.file_bytes, s->info.elements));
	putchar('\n');
}

/* What a predictor had bit for bit. */
static void put_exact(const struct shape *s)
{
	const struct shape_cell *c = &s->total;

	if (c->exact_chunks)
		printf("  %-11s bit for bit %" PRIu64 " of %" PRIu64 " chunks, "
		       "%.1f %% of the elements\n",
		       "predicted", c->exact_chunks, s->info.chunks,
		       100.0 * (double)c->exact_elements / (double)c->elements);
}

/* What a tier has changed. */
static void put_lossy(const struct shape *s)
{
	const struct shape_cell *c = &s->total;
	char tiers[64];

	if (!c->lossy_chunks)
		return;
	shape_tiers(tiers, sizeof(tiers), c);
	printf("  %-11s tier %s, %" PRIu64 " of %" PRIu64 " chunks, %.1f %% of the "
	       "elements, generation %u%s\n",
	       "lossy", tiers, c->lossy_chunks, s->info.chunks,
	       100.0 * (double)c->lossy_elements / (double)c->elements, c->generation,
	       c->generation == 255 ? " or more" : "");
}

static void put_coded_ids(kvarc_reader *r)
{
	uint64_t tokens, bytes;

	/* A later read of the archive shows why this failed. */
	if (kvarc_reader_coded_ids(r, &tokens, &bytes) == KVARC_OK && tokens)
		printf("  %-11s by the model, %.2f bits each\n", "token ids",
		       8.0 * (double)bytes / (double)tokens);
}

static void put_tokens(const struct shape *s, kvarc_reader *r)
{
	const kvarc_geometry *g = s->geometry;
	char n[32];

	if (g->n_tensors == 0)
		return;
	printf("  %-11s %s", "tokens", units_count(n, s->tokens));
	if (g->n_tracks > 1) {
		printf(" in %zu tracks:", g->n_tracks);
		for (size_t i = 0; i < g->n_tracks && i < 8; i++)
			printf(" %" PRIu64, kvarc_reader_tokens(r, (uint32_t)i));
		if (g->n_tracks > 8)
			printf(" ...");
	}
	if (s->dropped)
		printf(", %" PRIu64 " left out; sizes are of all", s->dropped);
	putchar('\n');
	put_coded_ids(r);
}

static void put_cache(const struct shape *s)
{
	const kvarc_tensor *t = s->total.tensor;
	char rope[96] = "none";

	if (!t)
		return;
	printf("  %-11s %zu layer%s, %" PRIu32 " head%s of %" PRIu32 " channels, "
	       "%s%s\n",
	       "cache", s->n_layers, s->n_layers == 1 ? "" : "s", t->heads,
	       t->heads == 1 ? "" : "s", describe_channels(t), shape_dtype(t),
	       s->total.mixed ? " and others" : "");
	if (s->geometry->n_ropes)
		describe_rope(rope, sizeof(rope), &s->geometry->ropes[0]);
	put_pair("RoPE", rope);
}

void describe_head(const char *file, const struct shape *s, kvarc_reader *r)
{
	static const char *const shown[] = { "model", "engine", "engine_version", "quantization",
		                             "layout" };
	const char *value;
	char state[96];

	msg_put_safe(stdout, msg_name(file));
	printf(": kvarc archive, format %u.%u\n", s->info.format_major, s->info.format_minor);
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
		value = kvarc_reader_identity(r, shown[i]);
		if (value)
			put_pair(shown[i], value);
	}
	put_cache(s);
	put_tokens(s, r);
	put_sizes(s);
	describe_predictors(r);
	put_exact(s);
	put_lossy(s);
	snprintf(state, sizeof(state), "%s, %" PRIu64 " chunk%s in %" PRIu64 " segment%s",
	         library_state_name(s->info.state), s->info.chunks, s->info.chunks == 1 ? "" : "s",
	         s->info.segments, s->info.segments == 1 ? "" : "s");
	put_pair("state", state);
}

static void json_checks(struct json *j, const struct shape *s)
{
	json_object(j, "checks");
	json_string(j, "frame", "xxh3-128");
	json_string(j, "chunk", "xxh3-64");
	json_string(j, "chain", "xxh3-128");
	json_u64(j, "frames", s->info.frames);
	json_u64(j, "chunks", s->info.chunks);
	json_string(j, "state", library_state_name(s->info.state));
	json_u64(j, "dropped_bytes", s->info.dropped_bytes);
	json_end_object(j);
}

static void json_tracks(struct json *j, const struct shape *s, kvarc_reader *r)
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

	json_array(j, "tracks");
	for (size_t i = 0; i < s->geometry->n_tracks; i++) {
		const kvarc_track *t = &s->geometry->tracks[i];
		const char *name = "other";
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			if (kinds[k].kind == t->kind)
				name = kinds[k].name;
		}
		json_object(j, NULL);
		json_string(j, "kind", name);
		json_string(j, "label", t->label ? t->label : "");
		json_u64(j, "window", t->window);
		json_u64(j, "tokens", kvarc_reader_tokens(r, (uint32_t)i));
		json_end_object(j);
	}
	json_end_array(j);
}

static void json_coded_ids(struct json *j, kvarc_reader *r)
{
	uint64_t tokens, bytes;

	if (kvarc_reader_coded_ids(r, &tokens, &bytes) != KVARC_OK)
		tokens = bytes = 0; /* a later read shows why */
	json_u64(j, "coded_token_ids", tokens);
	json_u64(j, "coded_token_id_bytes", bytes);
}

void describe_json(struct json *j, const char *file, const struct shape *s, kvarc_reader *r)
{
	const kvarc_tensor *t = s->total.tensor;
	const char *key, *value;
	char version[16];

	snprintf(version, sizeof(version), "%u.%u", s->info.format_major, s->info.format_minor);
	json_string(j, "file", file);
	json_string(j, "format_version", version);
	json_string(j, "state", library_state_name(s->info.state));
	json_u64(j, "raw_bytes", shape_raw_bytes(s));
	json_u64(j, "tensor_bytes", s->info.raw_bytes);
	json_u64(j, "file_bytes", s->info.file_bytes);
	json_u64(j, "elements", s->info.elements);
	if (s->info.elements)
		json_number(j, "bits_per_element", shape_bits(s->info.file_bytes, s->info.elements),
		            4);
	else
		json_null(j, "bits_per_element");
	json_u64(j, "predicted_chunks", s->total.exact_chunks);
	json_u64(j, "predicted_elements", s->total.exact_elements);
	json_u64(j, "lossy_chunks", s->total.lossy_chunks);
	json_u64(j, "lossy_elements", s->total.lossy_elements);
	json_u64(j, "generation", s->total.generation);
	json_u64(j, "dropped_tokens", s->dropped);
	json_u64(j, "tokens", s->tokens);
	json_u64(j, "layers", s->n_layers);
	json_u64(j, "heads", t ? t->heads : 0);
	json_u64(j, "channels", t ? describe_channels(t) : 0);
	json_string(j, "dtype", t ? shape_dtype(t) : NULL);
	json_coded_ids(j, r);
	json_tracks(j, s, r);
	json_object(j, "identity");
	for (size_t i = 0; kvarc_reader_identity_at(r, i, &key, &value) == KVARC_OK; i++)
		json_string(j, key, value);
	json_end_object(j);
	describe_predictors_json(j, r);
	json_checks(j, s);
}
