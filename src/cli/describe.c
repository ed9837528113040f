/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c - what list and info report of archives, profiles and encrypted archives */
#include "config.h"

#include "describe.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint_fields.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "profiles.h"
#include "report.h"
#include "units.h"

/* ==== What shows of an encrypted archive without its key ==== */

void describe_envelope(const char *file, const kvarc_envelope *envelope, bool json)
{
	struct report x;
	char version[16], id[33];

	snprintf(version, sizeof(version), "%u.%u", envelope->format_major, envelope->format_minor);
	report_start(&x, json);
	report_string(&x, "file", file);
	report_string(&x, ".file", msg_name(file));
	report_string(&x, "format_version", version);
	report_bool(&x, "encrypted", envelope->encrypted);
	report_u64(&x, "file_bytes", envelope->file_bytes);
	report_u64(&x, "frames", envelope->frames);
	report_u64(&x, "parity_frames", envelope->parity_frames);
	report_u64(&x, "keys", envelope->keys);
	report_u64(&x, "passphrases", envelope->passphrases);
	report_u64(&x, "argon2_passes", envelope->passes);
	report_u64(&x, "argon2_bytes", (uint64_t)envelope->memory_kib << 10);
	report_string(&x, "file_id", units_digest(id, envelope->file_id));
	report_print(&x, "{.file}: kvarc archive, format {format_version}, encrypted\n"
	                 "  opened by   {keys} key{keys:s} and {passphrases} "
	                 "passphrase{passphrases:s}"
	                 "[ (Argon2id: {argon2_passes} passes, {argon2_bytes:B})]\n"
	                 "  size        {file_bytes:B} in {frames:C} frames\n"
	                 "[  parity      {parity_frames} frames\n]"
	                 "  file id     {file_id}\n");
	report_end(&x);
}

/* ==== What a profile says of itself, and the predictors of an archive ==== */

/* Writes a RoPE description to out (size bytes): "half-split pairs, 64 channels, theta 100000" */
/* Human-readable only: decoding uses the frequencies in the file. */
static void describe_rope(char *out, size_t size, const kvarc_rope *rope)
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

/* Prints the settings of the models of one kind and level, or that they differ. */
static void print_kind(struct report *report, const kvarc_profile *profile, unsigned level,
                       unsigned kind)
{
	kvarc_model_info m, first = { 0 };
	uint64_t coefficients = 0, rows = 0;
	uint32_t from = UINT32_MAX, to = 0, corrects = 0;
	size_t n = 0;
	bool alike = true;

	for (size_t i = 0; kvarc_profile_model(profile, i, &m) == KVARC_OK; i++) {
		if (m.level != level || m.kind != kind)
			continue;
		if (n++ == 0)
			first = m;
		alike = alike && m.heads == first.heads && m.channels == first.channels &&
		        m.rotary == first.rotary;
		coefficients += m.coefficients;
		rows += m.table_rows;
		corrects += m.corrects != 0;
		from = m.layer < from ? m.layer : from;
		to = m.layer > to ? m.layer : to;
	}
	if (n == 0)
		return;
	report_object(report, NULL);
	report_u64(report, "level", level);
	report_string(report, "kind", kvarc_kind_name(kind));
	report_u64(report, "from", from);
	report_u64(report, "to", to);
	report_u64(report, "heads", first.heads);
	report_u64(report, "channels", first.channels);
	report_u64(report, "rotary", first.rotary);
	report_u64(report, "coefficients", coefficients);
	report_u64(report, "token_ids", rows);
	report_u64(report, "corrects", corrects % n);
	report_u64(report, "models", n);
	report_print(report, "  level {level:-5} {kind} of layers {from} to {to}: ");
	report_print(report,
	             alike ? "{heads} head{heads:s} of {channels} channels[, RoPE on {rotary}]"
	                   : "of several shapes");
	report_print(report, "; {coefficients:C} coefficients[, {token_ids:C} token ids]");
	report_print(report,
	             corrects ? ", corrects the model[ in {corrects} of {models} layers]\n" : "\n");
	report_end_object(report);
}

static void print_profile(struct report *report, const kvarc_profile *profile)
{
	const char *key, *value;
	kvarc_rope rope;
	char text[96];

	for (size_t i = 0; kvarc_profile_identity_at(profile, i, &key, &value) == KVARC_OK; i++) {
		printf("  ");
		msg_put_safe(stdout, key);
		printf("%*s ", strlen(key) < 11 ? (int)(11 - strlen(key)) : 0, "");
		msg_put_safe(stdout, value);
		putchar('\n');
	}
	for (unsigned level = 2; level <= LEVEL_MODELS; level++) {
		for (unsigned kind = 0; kind <= KVARC_OPAQUE; kind++)
			print_kind(report, profile, level, kind);
	}
	for (size_t i = 0; kvarc_profile_rope(profile, i, &rope) == KVARC_OK; i++) {
		describe_rope(text, sizeof(text), &rope);
		/* A profile numbers channels so that the pairing does not matter. */
		printf("  %-11s %s\n", i ? "" : "RoPE", strchr(text, ',') + 2);
	}
	report_print(report,
	             "  size        {file_bytes:B}, {coefficients:C} coefficients in {.models} "
	             "models\n"
	             "  digest      {digest}\n");
}

static void report_models(struct report *report, const kvarc_profile *profile)
{
	kvarc_model_info m;

	report_array(report, "models");
	for (size_t i = 0; kvarc_profile_model(profile, i, &m) == KVARC_OK; i++) {
		report_object(report, NULL);
		report_u64(report, "level", m.level);
		report_u64(report, "layer", m.layer);
		report_string(report, "kind", kvarc_kind_name(m.kind));
		report_u64(report, "heads", m.heads);
		report_u64(report, "channels", m.channels);
		report_u64(report, "rotary", m.rotary);
		report_u64(report, "coefficients", m.coefficients);
		report_u64(report, "token_ids", m.table_rows);
		report_u64(report, "corrects", m.corrects);
		report_end_object(report);
	}
	report_end_array(report);
}

void describe_profile(const char *file, const kvarc_profile *profile, bool json)
{
	const char *key, *value;
	kvarc_profile_info info;
	struct report x;
	char hex[33];

	if (kvarc_profile_get_info(profile, &info) != KVARC_OK)
		return;
	report_start(&x, json);
	report_string(&x, "file", file);
	report_string(&x, ".file", msg_name(file));
	report_string(&x, "digest", units_digest(hex, info.digest));
	report_u64(&x, "file_bytes", info.file_bytes);
	report_u64(&x, "coefficients", info.coefficients);
	report_u64(&x, ".models", info.n_models);
	report_print(&x, "{.file}: kvarc profile\n");
	if (!json)
		print_profile(&x, profile);
	report_object(&x, "identity");
	for (size_t i = 0; kvarc_profile_identity_at(profile, i, &key, &value) == KVARC_OK; i++)
		report_string(&x, key, value);
	report_end_object(&x);
	report_models(&x, profile);
	report_end(&x);
}

static void report_predictor(struct report *report, const kvarc_predictor_info *info, bool first)
{
	const char *where = info->embedded ? "in the archive" : profiles_where(info->digest);
	char digest[33], weights[33];

	report_object(report, NULL);
	report_string(report, ".label", first ? "predictor" : "");
	report_string(report, ".name", info->name[0] ? info->name : "(no name)");
	report_string(report, ".model", info->model_name[0] ? info->model_name : "(no name)");
	report_string(report, ".where", where[0] ? where : "not at hand");
	report_string(report, "name", info->name);
	report_string(report, "digest", units_digest(digest, info->digest));
	report_u64(report, "level", info->level);
	report_string(report, "model", info->model ? info->model_name : NULL);
	report_string(report, "weights", info->model ? units_digest(weights, info->weights) : NULL);
	report_string(report, "arithmetic", info->model ? info->arithmetic : NULL);
	report_bool(report, "embedded", info->embedded);
	report_bool(report, "present", where[0]);
	report_print(report, "  {.label:-11} ");
	if (!info->level) {
		report_print(report, "of a kind that a later version has\n");
		report_end_object(report);
		return;
	}
	if (info->model)
		report_print(report, "model {.model}\n"
		                     "              weights {weights}, {arithmetic}\n"
		                     "              ");
	report_print(report, "profile {.name}, level {level}, {.where}\n"
	                     "              digest {digest}\n");
	report_end_object(report);
}

/* Adds or prints the predictors, or "none". */
static void describe_predictors(struct report *report, kvarc_reader *r)
{
	kvarc_predictor_info p;
	bool any = kvarc_reader_predictor(r, 0, &p) == KVARC_OK;

	report_string(report, "predictor",
	              !any      ? "none"
	              : p.model ? "model"
	              : p.level ? "profile"
	                        : "unknown");
	if (!any)
		report_print(report, "  predictor   none\n");
	report_array(report, "predictors");
	for (size_t i = 0; kvarc_reader_predictor(r, i, &p) == KVARC_OK; i++)
		report_predictor(report, &p, i == 0);
	report_end_array(report);
}

unsigned describe_reach(const struct shape *shape, kvarc_reader *r)
{
	kvarc_predictor_info x;
	unsigned level = 0;

	if (!shape_is_predicted(&shape->total))
		return 0;
	for (size_t i = 0; kvarc_reader_predictor(r, i, &x) == KVARC_OK; i++)
		level = x.level > level ? x.level : level;
	return level < LEVEL_MODEL ? level : LEVEL_MODEL;
}

/* ==== What list and info both report of an archive ==== */

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
	static const char *const shown[] = { "model",        "engine",       "engine_version",
		                             "engine_model", "quantization", "layout" };
	kvarc_item item;

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
	else if (!shape->geometry->n_tensors && kvarc_reader_item(r, 0, &item) == KVARC_OK)
		puts("  cache       none: its files are kept whole");
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
