/* SPDX-License-Identifier: BSD-3-Clause */
/* score_files.c - --scores: the weight of each token, for tiers with token rates */
#include "config.h"

#include "score_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infile.h"
#include "library.h"
#include "message.h"
#include "models.h"

enum { DIGITS = 63 }; /* digits of a number in a file */

bool scores_wanted(const kvarc_lossy *lossy)
{
	return lossy->select.keep || lossy->select.top || lossy->select.spread;
}

/* Numbers of a file, with white space between; n of them, no more. */
static bool read_numbers(FILE *file, const char *name, uint64_t n, float *score)
{
	char word[DIGITS + 1], *end;
	uint64_t i = 0;

	while (fscanf(file, "%63s", word) == 1) {
		if (i < n)
			score[i] = strtof(word, &end);
		else
			strtof(word, &end);
		i++;
		if (*end || strlen(word) == DIGITS) {
			msg_error(name,
			          "number %" PRIu64 " is none: decimal numbers, "
			          "with blanks or lines between",
			          i);
			return false;
		}
	}
	if (ferror(file))
		msg_error(name, "cannot read: %s", strerror(errno));
	else if (i != n)
		msg_error(name, "%" PRIu64 " scores for %" PRIu64 " tokens", i, n);
	return !ferror(file) && i == n;
}

static bool from_file(const char *name, uint64_t n, float *score)
{
	FILE *f = input_fopen(name);
	bool ok;

	if (!f)
		return false;
	ok = read_numbers(f, name, n, score);
	fclose(f);
	return ok;
}

static bool from_model(const struct options *options, const char *file, kvarc_import *im,
                       const kvarc_common *common, uint64_t n, float *score)
{
	kvarc_scores_options so = KVARC_SCORES_OPTIONS_INIT;
	unsigned dtype = kvarc_import_geometry(im)->tensors[0].dtype;
	int32_t *ids = calloc(n + 1, sizeof(*ids));
	kvarc_ret ret;

	if (!ids) {
		msg_error(NULL, "out of memory");
		return false;
	}
	so.common = *common;
	so.predictor = models_given();
	so.arithmetic = (kvarc_arithmetic)options->coding.arithmetic;
	if (dtype == KVARC_F32 || dtype == KVARC_F16)
		so.dtype = dtype;
	so.kind = scores_kind(options->lossy.scores);
	ret = kvarc_import_read_tokens(im, 0, 0, n, ids, NULL);
	if (ret == KVARC_OPTIONS) {
		msg_error(file, "no scores: it has no token ids");
		free(ids);
		return false;
	}
	progress_start(file, n);
	progress_unit("tokens");
	if (ret == KVARC_OK)
		ret = kvarc_scores_make(&so, ids, n, score);
	progress_stop();
	free(ids);
	if (ret != KVARC_OK)
		library_error(file, ret, common->error, NULL, NULL);
	return ret == KVARC_OK;
}

bool scores_rate(const struct options *options, const char *file, kvarc_import *im,
                 const kvarc_common *common, kvarc_lossy *lossy, int16_t **rates)
{
	const kvarc_geometry *g = kvarc_import_geometry(im);
	uint64_t n = g->n_tensors ? kvarc_import_tokens(im, 0) : 0;
	float *score = calloc(n + 1, sizeof(*score));
	bool ok = score && (*rates = calloc(n + 1, sizeof(**rates)));

	if (!ok)
		msg_error(NULL, "out of memory");
	if (ok && g->n_tensors && g->n_tracks != 1) {
		msg_error(file, "no scores: it has several tracks of tokens");
		ok = false;
	}
	/* A file without a cache has no tokens to drop. */
	if (ok && n)
		ok = scores_kind(options->lossy.scores)
		             ? from_model(options, file, im, common, n, score)
		             : from_file(options->lossy.scores, n, score);
	if (ok && kvarc_lossy_rates(lossy, score, n, *rates) != KVARC_OK) {
		msg_error(file, "a score is not a number");
		ok = false;
	}
	lossy->token_rate = *rates;
	lossy->n_token_rates = n;
	free(score);
	return ok;
}
