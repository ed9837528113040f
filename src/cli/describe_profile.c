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

/* How the models of one kind and level look: all are alike, or it says so. */
static void print_kind(struct report *x, const kvarc_profile *p, unsigned level, unsigned kind)
{
	kvarc_model_info m, first = { 0 };
	uint64_t coefficients = 0, rows = 0;
	uint32_t from = UINT32_MAX, to = 0, corrects = 0;
	size_t n = 0;
	bool alike = true;

	for (size_t i = 0; kvarc_profile_model(p, i, &m) == KVARC_OK; i++) {
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
	report_object(x, NULL);
	report_u64(x, "level", level);
	report_string(x, "kind", kvarc_kind_name(kind));
	report_u64(x, "from", from);
	report_u64(x, "to", to);
	report_u64(x, "heads", first.heads);
	report_u64(x, "channels", first.channels);
	report_u64(x, "rotary", first.rotary);
	report_u64(x, "coefficients", coefficients);
	report_u64(x, "token_ids", rows);
	report_u64(x, "corrects", corrects % n);
	report_u64(x, "models", n);
	report_print(x, "  level {level:-5} {kind} of layers {from} to {to}: ");
	report_print(x, alike ? "{heads} head{heads:s} of {channels} channels[, RoPE on {rotary}]"
	                      : "of several shapes");
	report_print(x, "; {coefficients:C} coefficients[, {token_ids:C} token ids]");
	report_print(x,
	             corrects ? ", corrects the model[ in {corrects} of {models} layers]\n" : "\n");
	report_end_object(x);
}

static void print_profile(struct report *x, const kvarc_profile *p)
{
	const char *key, *value;
	kvarc_rope rope;
	char text[96];

	for (size_t i = 0; kvarc_profile_identity_at(p, i, &key, &value) == KVARC_OK; i++) {
		printf("  ");
		msg_put_safe(stdout, key);
		printf("%*s ", strlen(key) < 11 ? (int)(11 - strlen(key)) : 0, "");
		msg_put_safe(stdout, value);
		putchar('\n');
	}
	for (unsigned level = 2; level <= LEVEL_MODELS; level++) {
		for (unsigned kind = 0; kvarc_kind_name(kind); kind++)
			print_kind(x, p, level, kind);
	}
	for (size_t i = 0; kvarc_profile_rope(p, i, &rope) == KVARC_OK; i++) {
		describe_rope(text, sizeof(text), &rope);
		/* A profile numbers channels so that the pairing does not matter. */
		printf("  %-11s %s\n", i ? "" : "RoPE", strchr(text, ',') + 2);
	}
	report_print(x, "  size        {file_bytes:B}, {coefficients:C} coefficients in {.models} "
	                "models\n"
	                "  digest      {digest}\n");
}

static void report_models(struct report *x, const kvarc_profile *p)
{
	kvarc_model_info m;

	report_array(x, "models");
	for (size_t i = 0; kvarc_profile_model(p, i, &m) == KVARC_OK; i++) {
		report_object(x, NULL);
		report_u64(x, "level", m.level);
		report_u64(x, "layer", m.layer);
		report_string(x, "kind", kvarc_kind_name(m.kind));
		report_u64(x, "heads", m.heads);
		report_u64(x, "channels", m.channels);
		report_u64(x, "rotary", m.rotary);
		report_u64(x, "coefficients", m.coefficients);
		report_u64(x, "token_ids", m.table_rows);
		report_u64(x, "corrects", m.corrects);
		report_end_object(x);
	}
	report_end_array(x);
}

void describe_profile(const char *file, const kvarc_profile *p, bool json)
{
	const char *key, *value;
	kvarc_profile_info info;
	struct report x;
	char hex[33];

	if (kvarc_profile_get_info(p, &info) != KVARC_OK)
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
		print_profile(&x, p);
	report_object(&x, "identity");
	for (size_t i = 0; kvarc_profile_identity_at(p, i, &key, &value) == KVARC_OK; i++)
		report_string(&x, key, value);
	report_end_object(&x);
	report_models(&x, p);
	report_end(&x);
}

static void report_predictor(struct report *x, const kvarc_predictor_info *p, bool first)
{
	const char *where = p->embedded ? "in the archive" : profiles_where(p->digest);
	char digest[33], weights[33];

	report_object(x, NULL);
	report_string(x, ".label", first ? "predictor" : "");
	report_string(x, ".name", p->name[0] ? p->name : "(no name)");
	report_string(x, ".model", p->model_name[0] ? p->model_name : "(no name)");
	report_string(x, ".where", where[0] ? where : "not at hand");
	report_string(x, "name", p->name);
	report_string(x, "digest", units_digest(digest, p->digest));
	report_u64(x, "level", p->level);
	report_string(x, "model", p->model ? p->model_name : NULL);
	report_string(x, "weights", p->model ? units_digest(weights, p->weights) : NULL);
	report_string(x, "arithmetic", p->model ? p->arithmetic : NULL);
	report_bool(x, "embedded", p->embedded);
	report_bool(x, "present", where[0]);
	report_print(x, "  {.label:-11} ");
	if (p->model)
		report_print(x, "model {.model}\n"
		                "              weights {weights}, {arithmetic}\n"
		                "              ");
	report_print(x, "profile {.name}, level {level}, {.where}\n"
	                "              digest {digest}\n");
	report_end_object(x);
}

void describe_predictors(struct report *x, kvarc_reader *r)
{
	kvarc_predictor_info p;
	bool any = kvarc_reader_predictor(r, 0, &p) == KVARC_OK;

	report_string(x, "predictor", !any ? "none" : p.model ? "model" : "profile");
	if (!any)
		report_print(x, "  predictor   none\n");
	report_array(x, "predictors");
	for (size_t i = 0; kvarc_reader_predictor(r, i, &p) == KVARC_OK; i++)
		report_predictor(x, &p, i == 0);
	report_end_array(x);
}

unsigned describe_reach(const struct shape *s, kvarc_reader *r)
{
	kvarc_predictor_info x;
	unsigned level = 0;

	if (!shape_is_predicted(&s->total))
		return 0;
	for (size_t i = 0; kvarc_reader_predictor(r, i, &x) == KVARC_OK; i++)
		level = x.level > level ? x.level : level;
	return level < LEVEL_MODEL ? level : LEVEL_MODEL;
}
