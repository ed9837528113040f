/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_report.c - what tiers cost and save, as a table or as JSON */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cmd_eval.h"
#include "message.h"
#include "models.h"
#include "report.h"

enum { DIGITS = 12 }; /* of a KL */

static void report_sequence(struct report *r, const struct eval_run *run,
                            const struct eval_column *c, size_t i)
{
	const kvarc_eval_result *x = &c->results[i];

	report_start(r, true);
	report_string(r, "type", "sequence");
	report_string(r, "tier", c->name);
	report_u64(r, "sequence", i + 1);
	report_string(r, "file", run->texts.list[i].file);
	report_real(r, "mean_kl", x->mean_kl, DIGITS);
	report_real(r, "p99_kl", x->p99_kl, DIGITS);
	report_real(r, "p999_kl", x->p999_kl, DIGITS);
	report_real(r, "max_kl", x->max_kl, DIGITS);
	report_real(r, "agreement", x->agreement, 6);
	report_real(r, "delta_nll", x->delta_nll, DIGITS);
	report_u64(r, "first_diverging", x->first_diverging);
	report_u64(r, "kept_tokens", x->kept_tokens);
	report_u64(r, "archive_bytes", x->archive_bytes);
	report_real(r, "bits_per_element", 8 * (double)x->archive_bytes / (double)x->elements, 4);
	if (run->o->max_kl > 0)
		report_bool(r, "passes", kvarc_eval_passes(x, run->o->max_kl));
	report_end(r);
}

static void report_tier(struct report *r, const struct eval_run *run, const struct eval_column *c)
{
	const kvarc_eval_summary *s = &c->summary;
	const struct options *o = run->o;
	double bits = s->bits_per_element;
	char interval[32], diverging[48];

	snprintf(interval, sizeof(interval), "%.3g-%.3g", s->low_kl, s->high_kl);
	snprintf(diverging, sizeof(diverging), "%" PRIu64 "/%" PRIu64, s->diverging, s->sequences);
	report_start(r, o->json);
	report_string(r, "type", "tier");
	report_string(r, "tier", c->name);
	report_u64(r, "sequences", s->sequences);
	report_u64(r, "prefix", o->prefix);
	report_u64(r, "continuation", o->continuation);
	report_string(r, "dtype", kvarc_dtype_name(run->dtype));
	report_real(r, "bits_per_element", bits, 4);
	report_real(r, ".bits", bits > 0 ? bits : NAN, 0);
	report_real(r, "ratio", 8 * (double)kvarc_dtype_bytes(run->dtype) / bits, 4);
	report_real(r, "kept", s->kept, 6);
	report_real(r, "mean_kl", s->mean_kl, DIGITS);
	report_real(r, "low_kl", s->low_kl, DIGITS);
	report_real(r, "high_kl", s->high_kl, DIGITS);
	report_string(r, ".interval", interval);
	report_real(r, "deviation_kl", s->deviation_kl, DIGITS);
	report_real(r, "p95_kl", s->p95_kl, DIGITS);
	report_real(r, "worst_kl", s->worst_kl, DIGITS);
	report_u64(r, "worst", s->worst + 1);
	report_real(r, "p99_kl", s->p99_kl, DIGITS);
	report_real(r, "p999_kl", s->p999_kl, DIGITS);
	report_real(r, "max_kl", s->max_kl, DIGITS);
	report_real(r, "agreement", s->agreement, 6);
	report_real(r, ".agreement", 100 * s->agreement, 0);
	report_real(r, "delta_nll", s->delta_nll, DIGITS);
	report_u64(r, "diverging", s->diverging);
	report_string(r, ".diverging", diverging);
	if (o->max_kl > 0)
		report_u64(r, "failed", c->failed);
	report_u64(r, "seed", EVAL_SEED);
	report_print(r, "{tier:-16} {.bits:8.3f} {ratio:7.2fx}  {mean_kl:9.3g} {.interval:19} "
	                "{worst_kl:9.3g} {worst:5} {p99_kl:9.3g} {max_kl:9.3g} {.agreement:5.1f}% "
	                "{delta_nll:8.4f} {.diverging:8}\n");
	report_end(r);
}

static void print_title(const struct eval_run *r)
{
	const kvarc_predictor_model *m = &r->model;

	msg_put_safe(stdout, models_name());
	printf(" (%s, %" PRIu32 " layers of %" PRIu32 " x %" PRIu32 "): %zu "
	       "sequence%s of %" PRIu64 " + %" PRIu64 " tokens, caches of %s\n",
	       m->arch, m->layers, m->heads, m->channels, r->texts.n, r->texts.n == 1 ? "" : "s",
	       r->o->prefix, r->o->continuation, kvarc_dtype_name(r->dtype));
	printf("%-16s %8s %7s  %9s %19s %9s %5s %9s %9s %6s %8s %8s\n", "tier", "bits/el.", "ratio",
	       "mean KL", "95 % interval", "worst", "no.", "p99", "max", "top-1", "+NLL",
	       "diverge");
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
	struct report report;

	if (!r->o->json)
		print_title(r);
	for (size_t c = 0; c < r->n_columns; c++) {
		for (size_t i = 0; i < r->texts.n && r->o->json; i++)
			report_sequence(&report, r, &r->columns[c], i);
		report_tier(&report, r, &r->columns[c]);
	}
	if (!r->o->json && msg_level() >= 0)
		print_notes(r);
}
