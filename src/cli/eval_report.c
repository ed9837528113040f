/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_report.c - what tiers cost and save, as a table or as JSON */
#include <inttypes.h>
#include <stdio.h>

#include "cmd_eval.h"
#include "json_out.h"
#include "message.h"
#include "models.h"
#include "units.h"

enum { DIGITS = 12 }; /* of a KL */

static double bits_of(uint64_t bytes, uint64_t elements)
{
	return 8 * (double)bytes / (double)elements;
}

static double ratio_of(const struct options *o, double bits)
{
	return 8 * (double)kvarc_dtype_bytes(o->dtype) / bits;
}

/* ---- JSON ---- */

static void json_sequence(const struct eval_run *r, const struct eval_column *c, size_t i)
{
	const kvarc_eval_result *x = &c->results[i];
	struct json j;

	json_init(&j, stdout);
	json_object(&j, NULL);
	json_string(&j, "type", "sequence");
	json_string(&j, "tier", c->name);
	json_u64(&j, "sequence", i + 1);
	json_string(&j, "file", r->texts.list[i].file);
	json_number(&j, "mean_kl", x->mean_kl, DIGITS);
	json_number(&j, "p99_kl", x->p99_kl, DIGITS);
	json_number(&j, "p999_kl", x->p999_kl, DIGITS);
	json_number(&j, "max_kl", x->max_kl, DIGITS);
	json_number(&j, "agreement", x->agreement, 6);
	json_number(&j, "delta_nll", x->delta_nll, DIGITS);
	if (x->first_diverging == KVARC_UNKNOWN)
		json_null(&j, "first_diverging");
	else
		json_u64(&j, "first_diverging", x->first_diverging);
	json_u64(&j, "kept_tokens", x->kept_tokens);
	json_u64(&j, "archive_bytes", x->archive_bytes);
	json_number(&j, "bits_per_element", bits_of(x->archive_bytes, x->elements), 4);
	if (r->o->max_kl > 0)
		json_bool(&j, "passes", kvarc_eval_passes(x, r->o->max_kl));
	json_end_object(&j);
	json_line(&j);
}

static void json_tier(const struct eval_run *r, const struct eval_column *c)
{
	const kvarc_eval_summary *s = &c->summary;
	struct json j;

	json_init(&j, stdout);
	json_object(&j, NULL);
	json_string(&j, "type", "tier");
	json_string(&j, "tier", c->name);
	json_u64(&j, "sequences", s->sequences);
	json_u64(&j, "prefix", r->o->prefix);
	json_u64(&j, "continuation", r->o->continuation);
	json_string(&j, "dtype", kvarc_dtype_name(r->o->dtype));
	json_number(&j, "bits_per_element", s->bits_per_element, 4);
	json_number(&j, "ratio", ratio_of(r->o, s->bits_per_element), 4);
	json_number(&j, "kept", s->kept, 6);
	json_number(&j, "mean_kl", s->mean_kl, DIGITS);
	json_number(&j, "low_kl", s->low_kl, DIGITS);
	json_number(&j, "high_kl", s->high_kl, DIGITS);
	json_number(&j, "deviation_kl", s->deviation_kl, DIGITS);
	json_number(&j, "p95_kl", s->p95_kl, DIGITS);
	json_number(&j, "worst_kl", s->worst_kl, DIGITS);
	json_u64(&j, "worst", s->worst + 1);
	json_number(&j, "p99_kl", s->p99_kl, DIGITS);
	json_number(&j, "p999_kl", s->p999_kl, DIGITS);
	json_number(&j, "max_kl", s->max_kl, DIGITS);
	json_number(&j, "agreement", s->agreement, 6);
	json_number(&j, "delta_nll", s->delta_nll, DIGITS);
	json_u64(&j, "diverging", s->diverging);
	if (r->o->max_kl > 0)
		json_u64(&j, "failed", c->failed);
	json_u64(&j, "seed", EVAL_SEED);
	json_end_object(&j);
	json_line(&j);
}

/* ---- the table ---- */

static void print_title(const struct eval_run *r)
{
	const kvarc_predictor_model *m = &r->model;

	msg_put_safe(stdout, models_name());
	printf(" (%s, %" PRIu32 " layers of %" PRIu32 " x %" PRIu32 "): %zu "
	       "sequence%s of %" PRIu64 " + %" PRIu64 " tokens, caches of %s\n",
	       m->arch, m->layers, m->heads, m->channels, r->texts.n, r->texts.n == 1 ? "" : "s",
	       r->o->prefix, r->o->continuation, kvarc_dtype_name(r->o->dtype));
	printf("%-16s %8s %7s  %9s %19s %9s %5s %9s %9s %6s %8s %8s\n", "tier", "bits/el.", "ratio",
	       "mean KL", "95 % interval", "worst", "no.", "p99", "max", "top-1", "+NLL",
	       "diverge");
}

static void print_row(const struct eval_run *r, const struct eval_column *c)
{
	const kvarc_eval_summary *s = &c->summary;
	char bits[16] = "-", ratio[16] = "-", interval[32], diverge[32];

	if (s->bits_per_element > 0) {
		snprintf(bits, sizeof(bits), "%.3f", s->bits_per_element);
		snprintf(ratio, sizeof(ratio), "%.2fx", ratio_of(r->o, s->bits_per_element));
	}
	snprintf(interval, sizeof(interval), "%.3g-%.3g", s->low_kl, s->high_kl);
	snprintf(diverge, sizeof(diverge), "%" PRIu64 "/%" PRIu64, s->diverging, s->sequences);
	printf("%-16s %8s %7s  %9.3g %19s %9.3g %5" PRIu64 " %9.3g %9.3g %5.1f%% "
	       "%8.4f %8s\n",
	       c->name, bits, ratio, s->mean_kl, interval, s->worst_kl, s->worst + 1, s->p99_kl,
	       s->max_kl, 100 * s->agreement, s->delta_nll, diverge);
}

static void print_notes(const struct eval_run *r)
{
	printf("KL of the exact distribution to the tier's, nats a token, each "
	       "sequence counting once; 95 %% of 2000\nmeans of sequences drawn "
	       "again (seed %d); p99 and max of all tokens. diverge: sequences "
	       "with another likeliest\ntoken somewhere. Bits of all bytes of the "
	       "archives, for all elements. %.0f s\n",
	       EVAL_SEED, r->seconds);
}

void eval_report(const struct eval_run *r)
{
	if (!r->o->json)
		print_title(r);
	for (size_t c = 0; c < r->n_columns; c++) {
		for (size_t i = 0; i < r->texts.n && r->o->json; i++)
			json_sequence(r, &r->columns[c], i);
		if (r->o->json)
			json_tier(r, &r->columns[c]);
		else
			print_row(r, &r->columns[c]);
	}
	if (!r->o->json && msg_level() >= 0)
		print_notes(r);
}
