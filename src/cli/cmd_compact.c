/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_compact.c - kvarc compact: one state of an archive, or several, as a new archive */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "infile.h"
#include "library.h"
#include "lock.h"
#include "message.h"
#include "models.h"
#include "outfile.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "secrets.h"
#include "units.h"
#include "watch.h"

/* ==== Several checkpoints of an archive as a new archive ==== */

/* A checkpoint on its way into the new archive. */
struct state_job {
	const struct options *o;
	struct input *in;
	kvarc_reader *r; /* reader at the checkpoint */
	struct output *out;
	kvarc_append_options append;
	kvarc_error error;
	int fd; /* descriptor of its file, which has no name */
	char *name;
	kvarc_writer_stats *stats;
};

/* Whether --keep asks for more than the last state. */
static bool compact_wants_states(const char *keep)
{
	return keep && strcmp(keep, "last") != 0;
}

/* A kvarc_item_open: the file goes to the temporary one. */
static int open_file(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct state_job *j = opaque;

	j->name = strdup(item->name);
	return j->name && kvarc_sink_fd(sink, j->fd, NULL) == KVARC_OK ? 0 : -1;
}

static bool has_one_file(struct state_job *job, uint64_t number)
{
	kvarc_item item;

	if (kvarc_reader_item(job->r, 0, &item) == KVARC_OK &&
	    kvarc_reader_item(job->r, 1, &item) == KVARC_END)
		return true;
	msg_error(job->in->name,
	          "checkpoint %" PRIu64 " does not have one file: '--keep last', or "
	          "'--checkpoint %" PRIu64 "', writes it alone",
	          number, number);
	return false;
}

/* Copies the identity of the model to the new archive. */
static kvarc_ret copy_identity(const struct state_job *job, kvarc_import *im)
{
	static const char *const own[] = { "created_by", "layout", "lossy" };
	const char *key, *value;
	kvarc_ret ret = KVARC_OK;

	for (size_t i = 0;
	     ret == KVARC_OK && kvarc_reader_identity_at(job->r, i, &key, &value) == KVARC_OK;
	     i++) {
		bool skip = false;
		for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
			skip = skip || strcmp(key, own[k]) == 0;
		if (!skip)
			ret = kvarc_import_identity(im, key, value);
	}
	return ret;
}

static kvarc_ret append_file(struct state_job *job)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source file = KVARC_ZERO, archive = KVARC_ZERO;
	kvarc_sink sink = output_sink(job->out);
	bool first = job->stats->file_bytes == 0;
	kvarc_append_result result = { .reserved = { 0 } };
	kvarc_import *im = NULL;
	kvarc_ret ret = kvarc_source_fd(&file, job->fd, &job->append.writer.common);

	readers_import_options(&job->o->work, &job->o->import, &io, &job->error);
	io.rope = first ? NULL : "none";
	if (ret == KVARC_OK)
		ret = kvarc_import_open(&im, &file, job->name, &io);
	if (ret == KVARC_OK)
		ret = copy_identity(job, im);
	if (ret == KVARC_OK && !first)
		ret = kvarc_source_fd(&archive, output_fd(job->out), &job->append.writer.common);
	if (ret == KVARC_OK)
		ret = kvarc_append_import(im, first ? NULL : &archive, &sink, &job->append,
		                          &result);
	job->stats->raw_bytes = result.file_bytes;
	job->stats->file_bytes = result.archive_bytes;
	kvarc_import_close(&im);
	kvarc_source_close(&archive);
	kvarc_source_close(&file);
	return ret;
}

static bool write_state(struct state_job *job, uint64_t number)
{
	struct reading_options at = job->o->reading;
	kvarc_ret ret = KVARC_MEM;
	bool ok;

	at.checkpoint = number;
	job->r = readers_open(&job->o->work, &at, job->in, 0, &job->error);
	ok = job->r && has_one_file(job, number);
	if (ok) {
		job->append.writer.common.error = &job->error;
		ret = kvarc_unpack(job->r, open_file, job);
		if (ret == KVARC_OK)
			ret = append_file(job);
		if (ret != KVARC_OK)
			library_error(job->in->name, ret, &job->error, job->in, job->out);
	}
	free(job->name);
	job->name = NULL;
	kvarc_reader_close(&job->r);
	return ok && ret == KVARC_OK;
}

/* Counts the checkpoints before those that stay; UINT64_MAX: a message was shown. */
static uint64_t first_kept(const char *keep, kvarc_reader *r, bool labels)
{
	kvarc_checkpoint c;
	uint64_t wanted = UINT64_MAX, n = 0;

	if (!labels && (!units_parse_u64(keep, UINT32_MAX, &wanted) || wanted == 0)) {
		msg_usage("'%s' is not a value for --keep; give last, labels, or a number of "
		          "checkpoints",
		          keep);
		return UINT64_MAX;
	}
	while (kvarc_reader_checkpoint(r, (size_t)n, &c) == KVARC_OK)
		n++;
	return n > wanted ? n - wanted : 0;
}

/* Writes the checkpoints that --keep names, of an archive that is open as r, to out: one by one,
 * what is new in each. stats: of the new archive. false: a message was shown. */
static bool compact_states(const struct options *o, struct input *in, kvarc_reader *r,
                           struct output *out, const kvarc_writer_options *options,
                           kvarc_writer_stats *stats)
{
	const bool labels = strcmp(o->keep_states, "labels") == 0;
	const uint64_t first = first_kept(o->keep_states, r, labels);
	struct state_job j = { .o = o, .in = in, .out = out, .stats = stats };
	kvarc_checkpoint c;
	bool ok = first != UINT64_MAX;

	memset(stats, 0, sizeof(*stats));
	j.append.writer = *options;
	for (uint64_t i = first; ok && kvarc_reader_checkpoint(r, (size_t)i, &c) == KVARC_OK; i++) {
		char *label = c.label_bytes ? strndup(c.label, c.label_bytes) : NULL;

		if (!labels || label) {
			j.append.label = label;
			j.append.time = c.time;
			j.fd = input_temporary();
			ok = j.fd >= 0 && write_state(&j, c.number);
			if (j.fd < 0)
				msg_error(NULL, "cannot make a temporary file; set TMPDIR to a "
				                "folder with space");
			else
				close(j.fd);
		}
		free(label);
	}
	if (ok && stats->file_bytes == 0) {
		msg_error(in->name, "has no checkpoint%s to keep; 'kvarc log' lists them",
		          labels ? " with a label" : "");
		ok = false;
	}
	return ok;
}

/* ==== kvarc compact: the last state of an archive as a smaller one ==== */

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
