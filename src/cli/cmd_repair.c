/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_repair.c - kvarc repair: damaged bytes of an archive from its parity */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "commands.h"
#include "library.h"
#include "message.h"
#include "outfile.h"
#include "paths.h"
#include "report.h"
#include "secrets.h"
#include "units.h"
#include "watch.h"

/* A kvarc_repair_fn: what is lost is named, what was restored with -v. */
static void found(void *opaque, uint64_t offset, uint64_t bytes, int restored)
{
	const struct input *in = opaque;

	if (!restored)
		msg_error(in->name, "byte %" PRIu64 ": %" PRIu64 " bytes are damaged or missing",
		          offset, bytes);
	else if (msg_level() > 0)
		msg_result(in->name, "byte %" PRIu64 ": %" PRIu64 " bytes were restored", offset,
		           bytes);
}

static void show(const struct options *options, const struct input *in,
                 const kvarc_repair_report *r, double seconds)
{
	struct report x;
	char restored[32], lost[32];

	report_start(&x, options->json);
	report_string(&x, "file", in->name);
	report_string(&x, "output", options->output);
	report_u64(&x, "file_bytes", r->file_bytes);
	report_u64(&x, "parity_groups", r->groups);
	report_u64(&x, "parity_rows", r->rows);
	report_u64(&x, "restored_pieces", r->restored_pieces);
	report_u64(&x, "restored_bytes", r->restored_bytes);
	report_u64(&x, "lost_places", r->lost_places);
	report_u64(&x, "lost_bytes", r->lost_bytes);
	report_u64(&x, "emptied_rows", r->emptied_rows);
	report_bool(&x, "end_made", r->end_made);
	report_real(&x, "seconds", seconds, 4);
	report_end(&x);
	units_bytes(restored, sizeof(restored), r->restored_bytes);
	units_bytes(lost, sizeof(lost), r->lost_bytes);
	if (!r->groups)
		msg_warning(in->name, "has no parity: 'kvarc pack --parity 6' adds it");
	if (r->lost_places && r->end_made)
		msg_error(in->name, "%s of it are lost; the output ends at the last commit before",
		          lost);
	else if (r->lost_places)
		msg_error(in->name,
		          "still damaged: %s in %" PRIu64
		          " place%s; 'kvarc unpack --salvage' of the "
		          "output saves the rest",
		          lost, r->lost_places, r->lost_places == 1 ? "" : "s");
	if (r->emptied_rows)
		msg_warning(in->name,
		            "%" PRIu64 " damaged parity frame%s restore%s nothing any more; 'kvarc "
		            "compact --parity' makes new ones",
		            r->emptied_rows, r->emptied_rows == 1 ? "" : "s",
		            r->emptied_rows == 1 ? "s" : "");
	if (r->restored_pieces)
		msg_result(in->name, "restored %s in %" PRIu64 " piece%s%s", restored,
		           r->restored_pieces, r->restored_pieces == 1 ? "" : "s",
		           r->end_made ? ", and the index was made again" : "");
	else if (r->end_made)
		msg_result(in->name, "the index was made again");
	else if (!r->lost_places && !r->emptied_rows)
		msg_note(in->name, "nothing is damaged");
}

static void repair(const struct options *options, struct input *in)
{
	kvarc_repair_options ro = KVARC_REPAIR_OPTIONS_INIT;
	kvarc_repair_report report;
	kvarc_source source = input_source(in);
	double start = units_now();
	struct output out;
	kvarc_error error;
	kvarc_sink sink;
	kvarc_ret ret;

	library_common(&options->work, &ro.common, &error);
	ro.common.progress = NULL;
	ro.flags = KVARC_REPAIR_END;
	ro.keys = keys_given();
	ro.found = found;
	ro.opaque = in;
	if (!output_open(&out, options->output, options->force ? OUTPUT_FORCE : 0, in->mode))
		return;
	sink = output_sink(&out);
	progress_start(in->name, KVARC_UNKNOWN);
	progress_phase("repairing");
	ret = kvarc_repair(&source, &sink, &ro, &report);
	progress_stop();
	if (ret == KVARC_OK && watch_input_changed(in, NULL, 0))
		ret = KVARC_IO;
	if (ret != KVARC_OK) {
		library_error(in->name, ret, &error, in, &out);
		output_abort(&out);
	} else if (output_commit(&out)) {
		show(options, in, &report, units_now() - start);
	}
}

void cmd_repair(const struct options *options)
{
	struct input in;

	if (options->n_files > 1) {
		msg_usage("give one archive");
		return;
	}
	if (!paths_check_reading(options))
		return;
	if (paths_is_folder(options->output)) {
		msg_error(options->output, "is a folder; give a file name with -o");
		return;
	}
	if (!input_open(&in, options->files[0], true))
		return;
	/* Never over the damaged archive, by whatever name, nor over what has its name by now. */
	if (!in.is_stdin &&
	    (paths_is_open(options->output, in.fd) || !strcmp(options->output, in.name)))
		msg_error(options->output, "is the damaged archive; give another name with -o");
	else
		repair(options, &in);
	input_close(&in);
}
