/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_eval.c - kvarc eval: what lossy caches do to what their model says next */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "cmd_eval.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "outfile.h"
#include "paths.h"
#include "progress.h"
#include "score_files.h"
#include "units.h"

/* A run in progress. */
struct running {
	struct eval_run r;
	kvarc_eval *eval;
	kvarc_error error;
	kvarc_writer_options *writers;
	kvarc_eval_result *results; /* of all columns */
	double *token_kl;
	size_t sequence;
};

/* A kvarc_progress of one sequence, as one of all. */
static int update(void *opaque, uint64_t done, uint64_t total)
{
	const struct running *x = opaque;

	return progress_update(NULL, x->sequence * total + done, x->r.texts.n * total);
}

/* The scores that the tiers need: H2O's unless others are asked for; none if no tier uses
 * scores. */
static kvarc_score kind_of(const struct eval_run *r)
{
	for (size_t i = 0; i < r->tiers.n; i++) {
		if (scores_wanted(&r->tiers.list[i].lossy))
			return r->o->scores ? scores_kind(r->o) : KVARC_SCORE_H2O;
	}
	return KVARC_SCORE_NONE;
}

static bool open_eval(struct running *x)
{
	const struct options *o = x->r.o;
	kvarc_eval_options eo = KVARC_EVAL_OPTIONS_INIT;
	kvarc_ret ret;

	library_common(o, &eo.common, &x->error);
	eo.common.progress = update;
	eo.common.progress_opaque = x;
	eo.predictor = models_given();
	eo.arithmetic = (kvarc_arithmetic)o->arithmetic;
	eo.dtype = x->r.dtype;
	eo.prefix = (uint32_t)o->prefix;
	eo.continuation = (uint32_t)o->continuation;
	eo.scores = kind_of(&x->r);
	ret = kvarc_eval_open(&x->eval, &eo);
	if (ret != KVARC_OK)
		library_error(o->model, ret, &x->error, NULL, NULL);
	return ret == KVARC_OK;
}

/* Allocates results: one per column and sequence, each with an array for its tokens. */
static bool open_columns(struct running *x)
{
	struct eval_run *r = &x->r;
	size_t n = r->texts.n, tokens = (size_t)r->o->continuation;

	r->n_columns = KVARC_EVAL_CHECKS + r->tiers.n;
	r->columns = calloc(r->n_columns, sizeof(*r->columns));
	x->results = calloc(r->n_columns * n, sizeof(*x->results));
	x->token_kl = calloc(r->n_columns * n, tokens * sizeof(*x->token_kl));
	x->writers = calloc(r->tiers.n + 1, sizeof(*x->writers));
	if (!r->columns || !x->results || !x->token_kl || !x->writers) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < r->n_columns * n; i++)
		x->results[i].token_kl = x->token_kl + i * tokens;
	for (size_t i = 0; i < r->n_columns; i++)
		r->columns[i].results = x->results + i * n;
	r->columns[KVARC_EVAL_FLOOR].name = "(lossless)";
	r->columns[KVARC_EVAL_ZEROED].name = "(zeroed)";
	for (size_t i = 0; i < r->tiers.n; i++) {
		r->columns[KVARC_EVAL_CHECKS + i].name = r->tiers.list[i].name;
		x->writers[i] = r->tiers.list[i].writer;
		if (r->tiers.list[i].lossy.tier)
			x->writers[i].lossy = &r->tiers.list[i].lossy;
	}
	return true;
}

/* Results of a sequence, one a column, are where those of columns begin. */
static bool run_sequence(struct running *x, size_t i, kvarc_eval_result *row)
{
	struct eval_run *r = &x->r;
	kvarc_ret ret;

	x->sequence = i;
	for (size_t c = 0; c < r->n_columns; c++)
		row[c] = r->columns[c].results[i];
	ret = kvarc_eval_sequence(x->eval, r->texts.list[i].ids, r->tiers.n, x->writers,
	                          row + KVARC_EVAL_CHECKS, row);
	for (size_t c = 0; c < r->n_columns; c++)
		r->columns[c].results[i] = row[c];
	if (ret != KVARC_OK)
		library_error(r->texts.list[i].file, ret, &x->error, NULL, NULL);
	return ret == KVARC_OK;
}

static bool run_all(struct running *x)
{
	struct eval_run *r = &x->r;
	kvarc_eval_result *row = calloc(r->n_columns, sizeof(*row));
	double start = units_now();
	bool ok = row != NULL;

	if (!ok)
		msg_error(NULL, "out of memory");
	progress_start(r->o->model, KVARC_UNKNOWN);
	progress_unit("tokens");
	for (size_t i = 0; i < r->texts.n && ok; i++)
		ok = run_sequence(x, i, row);
	progress_stop();
	free(row);
	r->seconds = units_now() - start;
	return ok;
}

static bool summarise(struct running *x)
{
	struct eval_run *r = &x->r;

	for (size_t c = 0; c < r->n_columns; c++) {
		struct eval_column *k = &r->columns[c];
		if (kvarc_eval_summarise(&k->summary, k->results, r->texts.n, EVAL_SEED) !=
		    KVARC_OK) {
			msg_error(NULL, "out of memory");
			return false;
		}
		for (size_t i = 0; i < r->texts.n && r->o->max_kl > 0; i++)
			k->failed += !kvarc_eval_passes(&k->results[i], r->o->max_kl);
	}
	return true;
}

/* Messages after the table, which shows by how much. */
static void judge(struct running *x)
{
	const struct eval_run *r = &x->r;
	kvarc_ret ret = kvarc_eval_trusted(x->eval, r->o->max_kl);

	msg_flush();
	if (ret != KVARC_OK)
		library_error(NULL, ret, &x->error, NULL, NULL);
	for (size_t c = KVARC_EVAL_CHECKS; c < r->n_columns; c++) {
		if (r->columns[c].failed)
			msg_error(r->columns[c].name,
			          "%zu of %zu sequences do not pass --max-kl %g",
			          r->columns[c].failed, r->texts.n, r->o->max_kl);
	}
}

static void run(struct running *x)
{
	struct eval_run *r = &x->r;

	if (!tiers_parse(&r->tiers, r->o) || !eval_texts_read(&r->texts, r->o))
		return;
	r->dtype = r->o->dtype_given || !r->texts.dtype ? r->o->dtype : r->texts.dtype;
	if (!open_columns(x) || !open_eval(x) || !run_all(x) || !summarise(x))
		return;
	if (kvarc_predictor_get_model(models_given(), &r->model) != KVARC_OK)
		return;
	eval_report(r);
	if (r->o->plot)
		eval_plot(r);
	judge(x);
}

static bool check(const struct options *o)
{
	if (!paths_check_reading(o))
		return false;
	if (o->scores && !scores_kind(o)) {
		msg_error(NULL, "eval: --scores is h2o or surprisal");
		return false;
	}
	return !o->plot || output_check(o->plot, o->force);
}

void cmd_eval(const struct options *o)
{
	struct running x = { .r = { .o = o } };

	if (!check(o))
		return;
	run(&x);
	kvarc_eval_close(&x.eval);
	tiers_free(&x.r.tiers);
	eval_texts_free(&x.r.texts);
	free(x.r.columns);
	free(x.results);
	free(x.token_kl);
	free(x.writers);
}
