/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_log.c - kvarc log: a line for each checkpoint of an archive */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint_fields.h"
#include "commands.h"
#include "library.h"
#include "log_plot.h"
#include "message.h"
#include "outfile.h"
#include "paths.h"
#include "readers.h"
#include "report.h"

/* A checkpoint; before: bytes of the archive up to the one before. */
static void report_one(struct report *report, const kvarc_checkpoint *checkpoint, uint64_t before)
{
	struct checkpoint_texts texts;

	report_object(report, NULL);
	checkpoint_fields(report, checkpoint, "-", &texts);
	report_u64(report, "tokens", checkpoint->tokens);
	report_u64(report, "new_tokens", checkpoint->new_tokens);
	report_u64(report, "bytes", checkpoint->end - before);
	report_print(report, "{number:5}  {.when:-16}  {tokens:9C} tokens  {new_tokens:9C} new  "
	                     "{bytes:9B}[  {label}]\n");
	report_end_object(report);
	free(texts.label);
}

/* Reports all checkpoints of an archive. */
static void report_all(const struct options *options, struct input *in, kvarc_reader *r,
                       kvarc_error *error, bool first)
{
	kvarc_checkpoint c;
	kvarc_info info;
	struct report x;
	uint64_t before = 0;
	kvarc_ret ret;

	report_start(&x, options->json);
	report_string(&x, "file", in->name);
	if (options->n_files > 1) {
		report_string(&x, ".before", first ? "" : "\n");
		report_print(&x, "{.before}{file}\n");
	}
	report_array(&x, "checkpoints");
	for (size_t i = 0; (ret = kvarc_reader_checkpoint(r, i, &c)) == KVARC_OK; i++) {
		report_one(&x, &c, before);
		before = c.end;
	}
	report_end_array(&x);
	report_end(&x);
	if (ret != KVARC_END)
		library_error(in->name, ret, error, in, NULL);
	else if (before == 0)
		msg_note(in->name, "has no checkpoint; 'kvarc append' makes them");
	if (ret == KVARC_END && kvarc_reader_get_info(r, &info) == KVARC_OK)
		library_warn_state(in->name, &info, library_tokens(r));
}

static void log_one(const struct options *options, struct input *in, kvarc_reader *r,
                    kvarc_error *error, bool first)
{
	if (options->json || msg_level() >= 0)
		report_all(options, in, r, error, first);
	if (options->plot) {
		msg_flush();
		log_plot(options, in, r, error);
	}
}

void cmd_log(const struct options *options)
{
	if (!paths_check_operands(options))
		return;
	if (options->plot && options->n_files > 1)
		msg_usage("--plot draws one archive");
	else if (!options->plot ||
	         output_check(options->plot, options->force)) /* done before the work */
		readers_each(options, true, 0, log_one);
}
