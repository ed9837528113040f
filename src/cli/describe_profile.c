/* SPDX-License-Identifier: BSD-3-Clause */
/* describe_profile.c - what a profile says of itself, and the predictors of an archive */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "describe.h"
#include "library.h"
#include "message.h"
#include "profiles.h"
#include "units.h"

/* How the models of one kind and level look: all are alike, or it says so. */
static void put_kind(const kvarc_profile *p, unsigned level, unsigned kind)
{
	kvarc_model_info m, first = { 0 };
	uint64_t coefficients = 0, rows = 0;
	uint32_t from = UINT32_MAX, to = 0, corrects = 0;
	size_t n = 0;
	bool alike = true;
	char count[32];

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
	printf("  level %-5u %s of layers %" PRIu32 " to %" PRIu32 ": ", level,
	       kvarc_kind_name(kind), from, to);
	if (alike) {
		printf("%" PRIu32 " head%s of %" PRIu32 " channels", first.heads,
		       first.heads == 1 ? "" : "s", first.channels);
		if (first.rotary)
			printf(", RoPE on %" PRIu32, first.rotary);
	} else {
		printf("of several shapes");
	}
	printf("; %s coefficients", units_count(count, coefficients));
	if (rows)
		printf(", %s token ids", units_count(count, rows));
	if (corrects)
		printf(", corrects the model");
	if (corrects && corrects < n)
		printf(" in %" PRIu32 " of %zu layers", corrects, n);
	putchar('\n');
}

void describe_profile(const char *file, const kvarc_profile *p)
{
	const char *key, *value;
	kvarc_profile_info info;
	kvarc_rope rope;
	char text[96], count[32], hex[33];

	if (kvarc_profile_get_info(p, &info) != KVARC_OK)
		return;
	msg_put_safe(stdout, msg_name(file));
	printf(": kvarc profile\n");
	for (size_t i = 0; kvarc_profile_identity_at(p, i, &key, &value) == KVARC_OK; i++) {
		printf("  ");
		msg_put_safe(stdout, key);
		printf("%*s ", strlen(key) < 11 ? (int)(11 - strlen(key)) : 0, "");
		msg_put_safe(stdout, value);
		putchar('\n');
	}
	for (unsigned level = 2; level <= 7; level++) {
		for (unsigned kind = 0; kvarc_kind_name(kind); kind++)
			put_kind(p, level, kind);
	}
	for (size_t i = 0; kvarc_profile_rope(p, i, &rope) == KVARC_OK; i++) {
		describe_rope(text, sizeof(text), &rope);
		/* A profile numbers channels so that the pairing does not matter. */
		printf("  %-11s %s\n", i ? "" : "RoPE", strchr(text, ',') + 2);
	}
	units_bytes(text, sizeof(text), info.file_bytes);
	printf("  %-11s %s, %s coefficients in %zu models\n", "size", text,
	       units_count(count, info.coefficients), info.n_models);
	profiles_hex(hex, info.digest);
	printf("  %-11s %s\n", "digest", hex);
}

void describe_profile_json(const char *file, const kvarc_profile *p)
{
	const char *key, *value;
	kvarc_profile_info info;
	kvarc_model_info m;
	struct json j;
	char hex[33];

	if (kvarc_profile_get_info(p, &info) != KVARC_OK)
		return;
	profiles_hex(hex, info.digest);
	json_init(&j, stdout);
	json_object(&j, NULL);
	json_string(&j, "file", file);
	json_string(&j, "digest", hex);
	json_u64(&j, "file_bytes", info.file_bytes);
	json_u64(&j, "coefficients", info.coefficients);
	json_object(&j, "identity");
	for (size_t i = 0; kvarc_profile_identity_at(p, i, &key, &value) == KVARC_OK; i++)
		json_string(&j, key, value);
	json_end_object(&j);
	json_array(&j, "models");
	for (size_t i = 0; kvarc_profile_model(p, i, &m) == KVARC_OK; i++) {
		json_object(&j, NULL);
		json_u64(&j, "level", m.level);
		json_u64(&j, "layer", m.layer);
		json_string(&j, "kind", kvarc_kind_name(m.kind));
		json_u64(&j, "heads", m.heads);
		json_u64(&j, "channels", m.channels);
		json_u64(&j, "rotary", m.rotary);
		json_u64(&j, "coefficients", m.coefficients);
		json_u64(&j, "token_ids", m.table_rows);
		json_u64(&j, "corrects", m.corrects);
		json_end_object(&j);
	}
	json_end_array(&j);
	json_end_object(&j);
	json_line(&j);
}

/* "in the archive", where it is, or that it is not at hand */
static const char *place(const kvarc_predictor_info *x)
{
	const char *where = x->embedded ? "" : profiles_where(x->digest);

	if (x->embedded)
		return "in the archive";
	return where[0] ? where : "not at hand";
}

void describe_predictors(kvarc_reader *r)
{
	kvarc_predictor_info x;
	size_t i = 0;
	char hex[33];

	for (; kvarc_reader_predictor(r, i, &x) == KVARC_OK; i++) {
		printf("  %-11s ", i ? "" : "predictor");
		if (x.model) {
			printf("model ");
			msg_put_safe(stdout, x.model_name[0] ? x.model_name : "(no name)");
			profiles_hex(hex, x.weights);
			printf("\n  %-11s weights %s, %s\n  %-11s ", "", hex, x.arithmetic, "");
		}
		printf("profile ");
		msg_put_safe(stdout, x.name[0] ? x.name : "(no name)");
		printf(", level %u, ", x.level);
		msg_put_safe(stdout, place(&x));
		profiles_hex(hex, x.digest);
		printf("\n  %-11s digest %s\n", "", hex);
	}
	if (i == 0)
		printf("  %-11s none\n", "predictor");
}

void describe_predictors_json(struct json *j, kvarc_reader *r)
{
	kvarc_predictor_info x;
	char hex[33];

	json_string(j, "predictor",
	            kvarc_reader_predictor(r, 0, &x) != KVARC_OK ? "none"
	            : x.model                                    ? "model"
	                                                         : "profile");
	json_array(j, "predictors");
	for (size_t i = 0; kvarc_reader_predictor(r, i, &x) == KVARC_OK; i++) {
		profiles_hex(hex, x.digest);
		json_object(j, NULL);
		json_string(j, "name", x.name);
		json_string(j, "digest", hex);
		json_u64(j, "level", x.level);
		profiles_hex(hex, x.weights);
		json_string(j, "model", x.model ? x.model_name : NULL);
		json_string(j, "weights", x.model ? hex : NULL);
		json_string(j, "arithmetic", x.model ? x.arithmetic : NULL);
		json_bool(j, "embedded", x.embedded);
		json_bool(j, "present", x.embedded || profiles_where(x.digest)[0]);
		json_end_object(j);
	}
	json_end_array(j);
}

unsigned describe_reach(const struct shape *s, kvarc_reader *r)
{
	enum { LINEAR = 7, MODEL = 8, PREDICTED = 9 }; /* spec 7 */
	kvarc_predictor_info x;
	unsigned level = 0;

	if (s->total.codecs[LINEAR] + s->total.codecs[MODEL] + s->total.codecs[PREDICTED] == 0)
		return 0;
	for (size_t i = 0; kvarc_reader_predictor(r, i, &x) == KVARC_OK; i++)
		level = x.level > level ? x.level : level;
	return level < 4 ? level : 4;
}
