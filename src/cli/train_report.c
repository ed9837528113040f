/* SPDX-License-Identifier: BSD-3-Clause */
/* train_report.c - bits per element with a new profile, layer by layer */
#include "train_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "json_out.h"
#include "message.h"
#include "paths.h"
#include "units.h"

enum {
	FIRST_LEVEL = 1,
	LEVELS = 8,
	FIRST_RATE = 2,
	LAST_RATE = 4 /* of transforms, in the table */
};

/* Sums over tensors, weighted by their elements. */
struct totals {
	double bits[LEVELS];
	double elements;
	bool measured;
};

static struct totals add_up(const kvarc_trainer *t)
{
	struct totals sum = { .measured = true };
	kvarc_trained x;

	for (size_t i = 0; kvarc_trainer_report(t, i, &x) == KVARC_OK; i++) {
		for (int l = 0; l < LEVELS; l++)
			sum.bits[l] += x.bits[l] * (double)x.elements;
		sum.elements += (double)x.elements;
		sum.measured = sum.measured && x.measured;
	}
	for (int l = 0; l < LEVELS; l++)
		sum.bits[l] /= sum.elements > 0 ? sum.elements : 1;
	return sum;
}

static const char *level_key(int level)
{
	static const char *const names[LEVELS] = { "",        "level_1", "level_2", "level_3",
		                                   "level_4", "level_5", "level_6", "level_7" };

	return names[level];
}

static const char *rate_key(int rate)
{
	static const char *const names[LEVELS] = { "",      "klt_1", "klt_2", "klt_3",
		                                   "klt_4", "klt_5", "klt_6", "klt_7" };

	return names[rate];
}

static void put_bits(struct json *j, bool klt, const double bits[LEVELS])
{
	for (int l = FIRST_LEVEL; l < LEVELS; l++) {
		if (bits[l] > 0)
			json_number(j, klt ? rate_key(l) : level_key(l), bits[l], 4);
	}
}

static void report_json(const struct options *o, const kvarc_trainer *t,
                        const kvarc_profile_info *info, double seconds)
{
	struct totals sum = add_up(t);
	char digest[33];
	kvarc_trained x;
	struct json j;

	for (int i = 0; i < 16; i++)
		snprintf(digest + 2 * i, 3, "%02x", info->digest[i]);
	json_init(&j, stdout);
	json_object(&j, NULL);
	json_string(&j, "output", o->output);
	json_string(&j, "digest", digest);
	json_u64(&j, "file_bytes", info->file_bytes);
	json_u64(&j, "coefficients", info->coefficients);
	json_u64(&j, "inputs", o->n_files);
	json_u64(&j, "tokens", kvarc_trainer_tokens(t));
	json_bool(&j, "held_out", sum.measured);
	put_bits(&j, o->klt, sum.bits);
	json_array(&j, "per_tensor");
	for (size_t i = 0; kvarc_trainer_report(t, i, &x) == KVARC_OK; i++) {
		json_object(&j, NULL);
		json_u64(&j, "layer", x.layer);
		json_string(&j, "kind", kvarc_kind_name(x.kind));
		put_bits(&j, o->klt, x.bits);
		json_end_object(&j);
	}
	json_end_array(&j);
	json_number(&j, "seconds", seconds, 4);
	json_end_object(&j);
	json_line(&j);
}

/* Levels 2 and 3, or the one that a transformer predicts for. */
static bool has_column(const double all[LEVELS], int level)
{
	return level <= 1 || all[level] > 0 ||
	       (level <= 3 && !(all[4] > 0 || all[5] > 0 || all[6] > 0 || all[7] > 0));
}

static void print_row(const char *layer, const char *kind, const double bits[LEVELS],
                      const double all[LEVELS])
{
	printf("%5s  %-6s", layer, kind);
	for (int l = FIRST_LEVEL; l < LEVELS; l++) {
		if (!has_column(all, l))
			continue;
		if (bits[l] > 0)
			printf("  %7.3f", bits[l]);
		else
			printf("  %7s", "-");
	}
	printf("\n");
}

static void print_table(const kvarc_trainer *t)
{
	struct totals sum = add_up(t);
	kvarc_trained x;
	char layer[16];

	printf("%5s  %-6s", "layer", "tensor");
	for (int l = FIRST_LEVEL; l < LEVELS; l++) {
		if (has_column(sum.bits, l))
			printf("  level %d", l);
	}
	printf("\n");
	for (size_t i = 0; kvarc_trainer_report(t, i, &x) == KVARC_OK; i++) {
		const char *kind = kvarc_kind_name(x.kind);
		snprintf(layer, sizeof(layer), "%" PRIu32, x.layer);
		print_row(layer, kind, x.bits, sum.bits);
	}
	print_row("all", "", sum.bits, sum.bits);
	printf("bits per element, %s\n",
	       sum.measured ? "estimated on tokens that were held out"
	                    : "estimated on the tokens that were fitted: others cost more");
}

/* Of transforms: what tier klt takes at rates, which data that vary in all directions alike take.
 * */
static void print_rates(const kvarc_trainer *t)
{
	struct totals sum = add_up(t);
	kvarc_trained x;

	printf("%5s  %-6s", "layer", "tensor");
	for (int rate = FIRST_RATE; rate <= LAST_RATE; rate++)
		printf("  %5s:%d", "klt", rate);
	printf("\n");
	for (size_t i = 0; kvarc_trainer_report(t, i, &x) == KVARC_OK; i++) {
		printf("%5" PRIu32 "  %-6s", x.layer, kvarc_kind_name(x.kind));
		for (int rate = FIRST_RATE; rate <= LAST_RATE; rate++)
			printf("  %7.3f", x.bits[rate]);
		printf("\n");
	}
	printf("%5s  %-6s", "all", "");
	for (int rate = FIRST_RATE; rate <= LAST_RATE; rate++)
		printf("  %7.3f", sum.bits[rate]);
	printf("\nbits per element, expected of caches like those that were fitted\n");
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

void train_report(const struct options *o, const kvarc_trainer *t, size_t n_profiles,
                  const kvarc_profile *p, double seconds)
{
	const size_t n = o->n_files - n_profiles;
	kvarc_profile_info info;
	char size[32], tokens[32], inputs[64], merged[64] = "";

	if (kvarc_profile_get_info(p, &info) != KVARC_OK)
		return;
	if (o->json) {
		report_json(o, t, &info, seconds);
		return;
	}
	if (n && o->klt && msg_level() >= 0 && !paths_to_stdout(o))
		print_rates(t);
	else if ((n || o->write) && msg_level() >= 0 && !paths_to_stdout(o))
		print_table(t);
	units_bytes(size, sizeof(size), info.file_bytes);
	if (n == 0 && !o->write) {
		msg_note(o->output, "%s, merged from %zu profile%s", size, n_profiles,
		         n_profiles == 1 ? "" : "s");
		return;
	}
	units_count(tokens, kvarc_trainer_tokens(t));
	if (n_profiles)
		snprintf(merged, sizeof(merged), ", merged with %zu profile%s", n_profiles,
		         n_profiles == 1 ? "" : "s");
	train_inputs(inputs, sizeof(inputs), o, n);
	msg_note(o->output, "%s, fitted to %s tokens of %s in %.0f s%s", size, tokens, inputs,
	         seconds, merged);
}
