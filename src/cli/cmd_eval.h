/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_eval.h - the parts of kvarc eval: texts, tiers, results and their pictures */
#ifndef KVI_CMD_EVAL_H
#define KVI_CMD_EVAL_H

#include <stdbool.h>
#include <stddef.h>

#include "kvarc/tools.h"
#include "options.h"
#include "tiers.h"

/* One sequence: ids are borrowed, file names their source. */
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
/* o->sequences of o->prefix + o->continuation tokens, fewer if there are no more: of all files
 * alike, and from all over each of them. false: a message was shown. */
bool eval_texts_read(struct eval_texts *t, const struct options *o);
/* Releases sequences and files. */
void eval_texts_free(struct eval_texts *t);

/* The results of one check or tier. Checks come first. */
struct eval_column {
	const char *name;
	kvarc_eval_result *results; /* one a sequence */
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

enum { EVAL_SEED = 1 }; /* of the bootstrap */

/* The table; or, with o->json, an object for each sequence and tier, and for each tier. */
void eval_report(const struct eval_run *r);
/* Draws KL against bits per element into the file o->plot. */
void eval_plot(const struct eval_run *r);

#endif
