/* SPDX-License-Identifier: BSD-3-Clause */
/* train_report.c - bits per element with a new profile, layer by layer */
#include "config.h"

#include "train_report.h"

#include <math.h>
#include <stdio.h>

#include "message.h"
#include "models.h"
#include "paths.h"
#include "report.h"
#include "units.h"

enum { FIRST_LEVEL = 1, LEVELS = 8 };

/* Sums over tensors, weighted by their elements. */
struct totals {
	double bits[LEVELS];
	double elements;
	bool measured;
};

static struct totals add_up(const kvarc_trainer *t, bool klt)
{
	struct totals sum = { .measured = true };
	kvarc_trained x;

	for (size_t i = 0; kvarc_trainer_report(t, i, &x) == KVARC_OK; i++) {
		for (int l = 0; l < LEVELS; l++)
			sum.bits[l] += (klt ? x.klt_bits : x.bits)[l] * (double)x.elements;
		sum.elements += (double)x.elements;
		sum.measured = sum.measured && x.measured;
	}
	for (int l = 0; l < LEVELS; l++)
		sum.bits[l] /= sum.elements > 0 ? sum.elements : 1;
	return sum;
}

/* Fields of bits by level, or by rate of transforms; text has all of them. */
static void report_bits(struct report *r, bool klt, const double bits[LEVELS])
{
	static const char *const levels[LEVELS] = { "",        "level_1", "level_2", "level_3",
		                                    "level_4", "level_5", "level_6", "level_7" };
	static const char *const rates[LEVELS] = { "",      "klt_1", "klt_2", "klt_3",
		                                   "klt_4", "klt_5", "klt_6", "klt_7" };

	for (int l = FIRST_LEVEL; l < LEVELS; l++) {
		if (bits[l] > 0 || (klt && !r->json))
			report_real(r, (klt ? rates : levels)[l], bits[l], 4);
		else if (!r->json)
			report_real(r, levels[l], NAN, 0);
	}
}

/* The columns of the table: rates, or levels 2 and 3, or the one that a transformer predicts
 * for. */
static unsigned columns(bool klt, const double all[LEVELS])
{
	unsigned mask = 1u << 1, model = 0;

	if (klt)
		return 1u << 2 | 1u << 3 | 1u << 4;
	for (int l = 2; l < LEVELS; l++) {
		mask |= all[l] > 0 ? 1u << l : 0;
		model |= l >= LEVEL_MODEL ? mask >> l & 1 : 0;
	}
	return model ? mask : mask | 1u << 2 | 1u << 3;
}

static void print_columns(const struct report *r, bool klt, unsigned mask)
{
	char template[32];

	for (int l = FIRST_LEVEL; l < LEVELS; l++) {
		snprintf(template, sizeof(template), "  {%s_%d:7.3f}", klt ? "klt" : "level", l);
		if (mask >> l & 1)
			report_print(r, template);
	}
	report_print(r, "\n");
}

static void report_table(struct report *r, const kvarc_trainer *t, bool klt,
                         const struct totals *sum)
{
	const unsigned mask = columns(klt, sum->bits);
	kvarc_trained x;

	report_print(r, "layer  tensor");
	for (int l = FIRST_LEVEL; l < LEVELS && !r->json; l++) {
		if (mask >> l & 1)
			printf(klt ? "    klt:%d" : "  level %d", l);
	}
	report_print(r, "\n");
	report_array(r, "per_tensor");
	for (size_t i = 0; kvarc_trainer_report(t, i, &x) == KVARC_OK; i++) {
		report_object(r, NULL);
		report_u64(r, "layer", x.layer);
		report_string(r, "kind", kvarc_kind_name(x.kind));
		report_bits(r, klt, klt ? x.klt_bits : x.bits);
		report_print(r, "{layer:5}  {kind:-6}");
		print_columns(r, klt, mask);
		report_end_object(r);
	}
	report_end_array(r);
	report_print(r, "  all        ");
	print_columns(r, klt, mask);
	report_print(r, klt ? "bits per element, expected of caches like those that were fitted\n"
	                : sum->measured
	                        ? "bits per element, estimated on tokens that were held out\n"
	                        : "bits per element, estimated on the tokens that were fitted: "
	                          "others cost more\n");
}

void train_inputs(char *text, size_t capacity, const struct options *o, size_t n)
{
	int at = 0;

	text[0] = '\0';
	if (n || !o->write)
		at = snprintf(text, capacity, "%zu input%s%s", n, n == 1 ? "" : "s",
		              o->write ? " and " : "");
	if (o->write && at >= 0 && (size_t)at < capacity)
		snprintf(text + at, capacity - (size_t)at, "text of its own");
}

/* The command that packs with a profile of these levels. */
static void put_use(char *text, size_t capacity, const struct options *o, unsigned levels)
{
	const char *profile = paths_to_stdout(o) ? "PROFILE" : o->output;
	const char *model = o->model ? o->model : "MODEL";
	int level = LEVEL_MODELS;

	while (level > 1 && !(levels >> level & 1))
		level--;
	if (level >= LEVEL_MODEL)
		snprintf(text, capacity, "kvarc pack -%d --model %s --profile %s FILE", level,
		         model, profile);
	else if (level > 1)
		snprintf(text, capacity, "kvarc pack -%d --profile %s FILE", level, profile);
	else
		snprintf(text, capacity, "kvarc pack --tier klt:RATE --profile %s FILE", profile);
}

/* "level 1 13.35, level 2 11.90": bits per element of all tensors. */
static void report_gain(const struct options *o, const struct totals *sum)
{
	const unsigned mask = columns(o->klt, sum->bits);
	char text[256] = "";
	size_t n = 0;

	for (int l = FIRST_LEVEL; l < LEVELS && n < sizeof(text); l++) {
		if (!(mask >> l & 1) || !(sum->bits[l] > 0))
			continue;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s%d %.2f", n ? ", " : "",
		                      o->klt ? "klt:" : "level ", l, sum->bits[l]);
	}
	if (n)
		msg_result(paths_to_stdout(o) ? "(stdout)" : o->output, "%s bits per element, %s%s",
		           text,
		           o->klt          ? "of caches like those that were fitted"
		           : sum->measured ? "of tokens that were held out"
		                           : "of the tokens that were fitted: others cost more",
		           msg_level() > 0 ? "" : "; -v shows each tensor");
}

void train_report(const struct options *o, const kvarc_trainer *t, size_t n_profiles,
                  const kvarc_profile *p, double seconds)
{
	const size_t n = o->n_files - n_profiles;
	const bool fitted = n || o->write;
	const struct totals sum = add_up(t, o->klt);
	kvarc_profile_info info;
	struct report r;
	char digest[33], inputs[64], use[1024];

	if (kvarc_profile_get_info(p, &info) != KVARC_OK)
		return;
	train_inputs(inputs, sizeof(inputs), o, n);
	put_use(use, sizeof(use), o, info.levels);
	report_start(&r, o->json);
	report_string(&r, "output", o->output);
	report_string(&r, "digest", units_digest(digest, info.digest));
	report_u64(&r, "file_bytes", info.file_bytes);
	report_u64(&r, "coefficients", info.coefficients);
	report_u64(&r, "inputs", o->n_files);
	report_string(&r, ".inputs", inputs);
	report_u64(&r, ".profiles", n_profiles);
	report_u64(&r, "tokens", kvarc_trainer_tokens(t));
	report_bool(&r, "held_out", sum.measured);
	report_bits(&r, o->klt, sum.bits);
	if (o->json || (fitted && msg_level() > 0 && !paths_to_stdout(o)))
		report_table(&r, t, o->klt, &sum);
	report_real(&r, "seconds", seconds, 4);
	report_string(&r, ".use", use);
	msg_flush();
	if (fitted && !o->json)
		report_gain(o, &sum);
	report_result(&r, paths_to_stdout(o) ? "(stdout)" : o->output,
	              fitted ? "{file_bytes:B}, fitted to {tokens:C} tokens of {.inputs} in "
	                       "{seconds:.0f} s[, merged with {.profiles} profile{.profiles:s}]; "
	                       "use it with: {.use}"
	                     : "{file_bytes:B}, merged from {.profiles} profile{.profiles:s}; "
	                       "use it with: {.use}");
	report_end(&r);
}
