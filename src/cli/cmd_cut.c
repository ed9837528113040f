/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_cut.c - kvarc cut: some layers and tokens into a new archive */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "secrets.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "profiles.h"
#include "ranges.h"
#include "readers.h"
#include "report.h"
#include "units.h"

static void report(const struct options *options, const char *file, kvarc_reader *r,
                   const kvarc_writer_stats *stats, double seconds)
{
	kvarc_info info;
	struct report x;

	if (kvarc_reader_get_info(r, &info) == KVARC_OK)
		library_warn_state(file, &info, library_tokens(r));
	report_start(&x, options->json);
	report_string(&x, "file", file);
	report_string(&x, "output", options->output);
	report_u64(&x, "raw_bytes", stats->raw_bytes);
	report_u64(&x, "file_bytes", stats->file_bytes);
	report_u64(&x, "elements", stats->elements);
	report_real(&x, "seconds", seconds, 4);
	report_note(&x, file, "{raw_bytes:B} of tensors -> {file_bytes:B}");
	report_end(&x);
}

/* Options for the tensors of the range: a profile may have needs among them. */
static bool writer_options(const struct coding_options *coding, const kvarc_geometry *from,
                           const kvarc_range *range, kvarc_writer_options *wo)
{
	kvarc_geometry g = *from;
	kvarc_tensor *tensors = malloc((g.n_tensors + 1) * sizeof(*tensors));
	bool done;

	if (!tensors) {
		msg_error(NULL, "out of memory");
		return false;
	}
	g.n_tensors = 0;
	g.tensors = tensors;
	for (size_t i = 0; i < from->n_tensors; i++) {
		const kvarc_tensor *t = &from->tensors[i];
		if (t->track == range->track && t->layer >= range->layer0 &&
		    t->layer - range->layer0 < range->n_layers)
			tensors[g.n_tensors++] = *t;
	}
	done = profiles_writer(coding, &g, false, wo);
	free(tensors);
	return done;
}

static void cut(const struct options *options, struct input *in, kvarc_reader *r,
                kvarc_error *error, bool first)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_parity parity;
	kvarc_writer_stats stats;
	double start = units_now();
	struct output out;
	kvarc_range range;
	kvarc_info info;
	kvarc_sink sink;
	kvarc_ret ret;

	(void)first;
	if (!ranges_from_options(&options->extract, in->name, r, &range))
		return;
	if (kvarc_reader_get_info(r, &info) != KVARC_OK ||
	    !keys_writer(&options->keys, info.encrypted, &wo.keys) ||
	    !output_open(&out, options->output, options->force ? OUTPUT_FORCE : 0,
	                 wo.keys ? 0600 : in->mode))
		return;
	/* Both handles share one error: only one of them fails. */
	library_common(&options->work, &wo.common, error);
	if (!writer_options(&options->coding, kvarc_reader_geometry(r), &range, &wo)) {
		output_abort(&out);
		return;
	}
	library_archive(&options->archive, out.direct, &parity, &wo);
	sink = output_sink(&out);
	progress_start(in->name, KVARC_UNKNOWN);
	ret = kvarc_cut(r, &range, &sink, &wo, &stats);
	progress_stop();
	if (ret != KVARC_OK) {
		library_error(in->name, ret, error, in, &out);
		output_abort(&out);
	} else if (output_commit(&out)) {
		report(options, in->name, r, &stats, units_now() - start);
		profiles_check_weights(options->coding.model, &wo);
	}
}

void cmd_cut(const struct options *options)
{
	if (options->n_files > 1) {
		msg_usage("give one archive");
		return;
	}
	if (options->extract.to) {
		cmd_unpack_to(options);
		return;
	}
	if (!paths_check_operands(options) || !profiles_check_level(&options->coding, false))
		return;
	if (paths_is_folder(options->output)) {
		msg_error(options->output, "is a folder; give a file name with -o");
		return;
	}
	readers_each(options, true, 0, cut);
}
