/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_eval.h - kvarc eval: what lossy caches do to what their model says next */
#ifndef KVARC_CLI_CMD_EVAL_H
#define KVARC_CLI_CMD_EVAL_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "cli/options.h"
#include "cli/tiers.h"
#include "kvarc/tools.h"

struct eval_file;

/* A sequence: ids are borrowed, file names their source. */
struct eval_text {
	const int32_t *ids;
	const char *file;
};
/* The sequences and the files that own their ids. */
struct eval_texts {
	struct eval_text *list;
	size_t n;
	struct eval_file *files; /* own the ids */
	size_t n_files;
	unsigned dtype; /* kvarc_dtype of the first cache among the files; 0: there is none */
};

/* The results of one check or tier. Checks come first. */
struct eval_column {
	const char *name;
	kvarc_eval_result *results; /* one per sequence */
	kvarc_eval_summary summary;
	size_t failed; /* sequences that do not pass --max-kl */
};
/* Settings and results of one evaluation; cmd_eval.c owns them. */
struct eval_run {
	const struct options *o;
	struct eval_texts texts;
	unsigned dtype; /* kvarc_dtype of the caches that the model makes */
	struct tiers tiers;
	struct eval_column *columns;
	size_t n_columns;
	kvarc_predictor_model model;
	double seconds;
};

/* Draws KL against bits per element into the file o->plot. */
void eval_plot(const struct eval_run *r);

#endif
