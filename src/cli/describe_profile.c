/* SPDX-License-Identifier: BSD-3-Clause */
/* describe_profile.c - what a profile says of itself, and the predictors of an archive */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "describe.h"
#include "message.h"
#include "models.h"
#include "profiles.h"
#include "units.h"

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
		for (unsigned kind = 0; kvarc_kind_name(kind); kind++)
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
	if (info->model)
		report_print(report, "model {.model}\n"
		                     "              weights {weights}, {arithmetic}\n"
		                     "              ");
	report_print(report, "profile {.name}, level {level}, {.where}\n"
	                     "              digest {digest}\n");
	report_end_object(report);
}

void describe_predictors(struct report *report, kvarc_reader *r)
{
	kvarc_predictor_info p;
	bool any = kvarc_reader_predictor(r, 0, &p) == KVARC_OK;

	report_string(report, "predictor", !any ? "none" : p.model ? "model" : "profile");
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
