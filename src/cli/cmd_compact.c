/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_compact.c - kvarc compact: one state of an archive as a new archive */
#include "config.h"

#include "commands.h"
#include "compact_states.h"
#include "secrets.h"
#include "library.h"
#include "lock.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "units.h"
#include "watch.h"

static void report(const struct options *options, const char *file, const kvarc_info *info,
                   const kvarc_writer_stats *stats, double seconds)
{
	struct report x;

	report_start(&x, options->json);
	report_string(&x, "file", file);
	report_string(&x, "output", options->output);
	report_u64(&x, "archive_bytes", info->file_bytes);
	report_u64(&x, "segments", info->segments);
	report_u64(&x, "raw_bytes", stats->raw_bytes);
	report_u64(&x, "file_bytes", stats->file_bytes);
	report_u64(&x, "elements", stats->elements);
	report_real(&x, "seconds", seconds, 4);
	report_note(&x, file, "{archive_bytes:B} -> {file_bytes:B}");
	report_end(&x);
}

/* Whether nobody has appended meanwhile: that would be lost when the output replaces the
 * archive. */
static bool is_unchanged(const struct watch *w, const struct input *in)
{
	char what[96];

	if (!watch_changed(w, in, what, sizeof(what)))
		return true;
	msg_error(in->name, "changed while it was compacted (%s): nothing was replaced; try again",
	          what);
	return false;
}

static void compact(const struct options *options, struct input *in, kvarc_reader *r,
                    kvarc_error *error, const struct watch *watch)
{
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_parity parity;
	kvarc_writer_stats stats;
	double start = units_now();
	struct output out;
	kvarc_info info;
	kvarc_sink sink;
	kvarc_ret ret = KVARC_OK;
	bool ok = true;

	/* Both handles share one error: only one of them fails. */
	library_common(&options->work, &wo.common, error);
	if (kvarc_reader_get_info(r, &info) != KVARC_OK ||
	    !keys_writer(&options->keys, info.encrypted, &wo.keys) ||
	    !profiles_writer(&options->coding, kvarc_reader_geometry(r), false, &wo) ||
	    !output_open(&out, options->output, options->force ? OUTPUT_FORCE : 0,
	                 wo.keys ? 0600 : in->mode))
		return;
	library_archive(&options->archive, out.direct, &parity, &wo);
	sink = output_sink(&out);
	progress_start(in->name, KVARC_UNKNOWN);
	if (compact_wants_states(options->keep_states))
		ok = compact_states(options, in, r, &out, &wo, &stats);
	else
		ret = kvarc_compact(r, &sink, &wo, &stats);
	progress_stop();
	if (ret != KVARC_OK || !ok || !is_unchanged(watch, in)) {
		if (ret != KVARC_OK)
			library_error(in->name, ret, error, in, &out);
		output_abort(&out);
	} else if (output_commit(&out)) {
		library_warn_state(in->name, &info, library_tokens(r));
		report(options, in->name, &info, &stats, units_now() - start);
		profiles_check_weights(options->coding.model, &wo);
	}
}

void cmd_compact(const struct options *options)
{
	if (options->n_files > 1) {
		msg_usage("give one archive");
		return;
	}
	if (!paths_check_operands(options) || !profiles_check_level(&options->coding, false))
		return;
	if (compact_wants_states(options->keep_states) &&
	    (options->coding.level >= LEVEL_MODEL || paths_to_stdout(options))) {
		msg_usage("several checkpoints are written at levels 0 to 3 to a file; --keep last "
		          "is for levels 4 to 8 and for standard output");
		return;
	}
	if (paths_is_folder(options->output)) {
		msg_error(options->output, "is a folder; give a file name with -o");
		return;
	}
	struct input in;
	struct watch watch;
	kvarc_error error;

	if (!input_open(&in, options->files[0], true))
		return;
	/* Nobody appends to what is replaced. */
	if (paths_is_open(options->output, in.fd) && !lock_file(in.fd, in.name)) {
		input_close(&in);
		return;
	}
	watch_start(&watch, &in);
	kvarc_reader *r = readers_open(&options->work, &options->reading, &in, 0, &error);
	if (r)
		compact(options, &in, r, &error, &watch);
	kvarc_reader_close(&r);
	input_close(&in);
}
