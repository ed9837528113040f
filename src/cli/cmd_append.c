/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_append.c - kvarc append: what is new in a cache, behind what an archive has */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "engine_files.h"
#include "identities.h"
#include "installed.h"
#include "library.h"
#include "lock.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "report.h"
#include "secrets.h"
#include "times.h"
#include "units.h"
#include "watch.h"
#include "attach.h"
#include "readers.h"

/* Bytes of a local file that pass in the time of a call. The index frames of many checkpoints lie
 * far apart, and are small. */
enum { REQUEST_COST = 8 << 10 };

/* A file on its way into an archive. */
struct append_job {
	const struct options *o;
	const char *archive;
	struct input in, model;
	struct watch watch;
	kvarc_source source, model_source;
	kvarc_import *im;
	kvarc_error error;
	int fd; /* descriptor of the archive; -1: there is none yet */
	kvarc_sink file;
	struct output out; /* output of a new archive */
	kvarc_append_options options;
	kvarc_append_result result;
	kvarc_parity parity;
	uint64_t tensor_bytes;
	double start;
	struct workspace workspace;
};

static void report_failure(const struct append_job *job, kvarc_ret ret)
{
	char what[96];

	if (watch_changed(&job->watch, &job->in, what, sizeof(what)))
		msg_error(job->in.name,
		          "changed while it was appended (%s): nothing was appended; try again "
		          "when it is complete",
		          what);
	else if (job->in.error || job->fd < 0)
		library_error(job->in.name, ret, &job->error, &job->in, &job->out);
	else if (ret == KVARC_GEOMETRY)
		library_error(job->in.name, ret, &job->error, NULL, NULL);
	else
		library_error(job->archive, ret, &job->error, NULL, NULL);
}

/* RoPE of an archive is that of its first file; level 0 has no use for it. */
static const char *rope_of(const struct append_job *job)
{
	bool search = job->fd < 0 && (job->o->coding.level > 0 || job->o->coding.model ||
	                              job->o->coding.profiles.n);

	return job->o->import.rope || search ? job->o->import.rope : "none";
}

static bool import(struct append_job *job)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	const char *name = job->in.is_stdin ? NULL : paths_base(job->in.name);
	struct engine_file pages;
	kvarc_ret ret;

	installed_choose(job->o, &job->in);
	readers_import_options(&job->o->work, &job->o->import, &io, &job->error);
	io.rope = rope_of(job);
	io.profiles = profiles_given(&io.n_profiles);
	io.opaque = job->o->import.opaque;
	if (!engine_file_options(&job->o->import, job->in.name, &pages, &io) ||
	    !engine_file_target(&job->o->import, job->in.name, job->o->files[0]))
		return false;
	if (job->o->coding.model && !models_is_folder(job->o->coding.model)) {
		if (!input_open(&job->model, job->o->coding.model, true))
			return false;
		job->model_source = input_source(&job->model);
		io.model = &job->model_source;
	}
	job->source = input_source(&job->in);
	ret = kvarc_import_open(&job->im, &job->source, name, &io);
	if (ret != KVARC_OK) {
		library_error(job->in.name, ret, &job->error,
		              job->model.error ? &job->model : &job->in, NULL);
		return false;
	}
	if (!workspace_attach(&job->workspace, job->o, job->im,
	                      (const char *[]){ job->in.name, job->archive }, 2))
		return false;
	kvarc_import_sizes(job->im, NULL, &job->tensor_bytes);
	if (!job->o->import.opaque)
		library_warn_import(job->in.name, job->im);
	return identities_record(&job->o->archive.identity, &job->in, job->im, &job->error);
}

/* The checkpoint gets the time of the file, or that of SOURCE_DATE_EPOCH. */
static bool set_options(struct append_job *job)
{
	kvarc_append_options *a = &job->options;
	struct timespec t = job->in.mtime;
	bool set;

	if (job->fd < 0 && keys_given() && !job->o->keys.encrypt) {
		msg_error(job->archive, "is new, and a key was given without --encrypt: add "
		                        "--encrypt, or give no key");
		return false;
	}
	library_common(&job->o->work, &a->writer.common, &job->error);
	library_archive(&job->o->archive, false, &job->parity, &a->writer);
	/* an archive that is there stays as it is: encrypted or not */
	if (job->fd >= 0)
		a->reader.keys = a->writer.keys = keys_given();
	if ((job->fd < 0 && !keys_writer(&job->o->keys, false, &a->writer.keys)) ||
	    !times_of_environment(&t, &set) ||
	    !profiles_writer(&job->o->coding, kvarc_import_geometry(job->im), false, &a->writer))
		return false;
	if ((set || job->in.has_mtime) && t.tv_sec >= 0)
		a->time = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	a->label = job->o->archive.label;
	profiles_reader(&a->reader);
	a->reader.predictor = models_given();
	a->reader.request_cost = REQUEST_COST;
	return true;
}

/* Warns that tokens or bytes that the archive had lost were stored again; earlier checkpoints still
 * lack them. */
static void warn_lost(const struct append_job *job)
{
	const kvarc_append_result *a = &job->result;
	char n[32], bytes[32];

	units_count(n, a->lost_tokens);
	units_bytes(bytes, sizeof(bytes), a->lost_bytes);
	if (a->lost_tokens || a->lost_bytes)
		msg_warning(job->archive,
		            "was damaged: %s%s%s%s%s stored again, and this checkpoint is whole; "
		            "earlier ones may not be: 'kvarc test' names what is damaged",
		            a->lost_tokens ? n : "", a->lost_tokens ? " tokens" : "",
		            a->lost_tokens && a->lost_bytes ? " and " : "",
		            a->lost_bytes ? bytes : "",
		            a->lost_bytes ? " beside them were" : " were");
}

static void report(struct append_job *job)
{
	const kvarc_append_result *a = &job->result;
	struct report r;

	report_start(&r, job->o->json);
	report_string(&r, "file", job->in.name);
	report_string(&r, "archive", job->archive);
	report_u64(&r, "checkpoint", a->checkpoint);
	report_u64(&r, "tokens", a->tokens);
	report_u64(&r, "kept_tokens", a->kept_tokens);
	report_u64(&r, "new_tokens", a->tokens - a->kept_tokens);
	report_u64(&r, "file_bytes", a->file_bytes);
	report_u64(&r, "written_bytes", a->written_bytes);
	report_u64(&r, "archive_bytes", a->archive_bytes);
	report_u64(&r, "lost_tokens", a->lost_tokens);
	report_u64(&r, "lost_bytes", a->lost_bytes);
	report_real(&r, "seconds", units_now() - job->start, 4);
	if (a->written_bytes)
		report_result(&r, job->archive,
		              "{tokens:C} tokens, {kept_tokens:C} kept, {new_tokens:C} new: "
		              "{written_bytes:B} written (file: {file_bytes:B})");
	else
		report_result(&r, job->archive, "nothing is new since checkpoint {checkpoint}");
	report_end(&r);
}

/* ----- a new archive ------------------------------------------------------ */

static bool create(struct append_job *job)
{
	kvarc_sink sink;
	kvarc_ret ret;

	if (!output_open(&job->out, job->archive, OUTPUT_APPENDS,
	                 job->options.writer.keys ? 0600 : job->in.mode))
		return false;
	if (job->out.direct) {
		msg_error(job->archive, "is no regular file, and nothing can be appended to it");
		output_abort(&job->out);
		return false;
	}
	sink = output_sink(&job->out);
	ret = kvarc_append_import(job->im, NULL, &sink, &job->options, &job->result);
	progress_stop();
	if (ret != KVARC_OK || watch_changed(&job->watch, &job->in, NULL, 0)) {
		report_failure(job, ret);
		output_abort(&job->out);
		return false;
	}
	return output_commit(&job->out);
}

/* ----- one that is there -------------------------------------------------- */

/* Opens the archive and locks it. *there false: there is none. */
static bool open_archive(struct append_job *job, bool *there)
{
	struct stat st;

	job->fd = open(job->archive, O_RDWR | O_CLOEXEC | O_NOCTTY);
	*there = job->fd >= 0 || errno != ENOENT;
	if (!*there)
		return true;
	if (job->fd < 0)
		msg_error(job->archive, "cannot open: %s", strerror(errno));
	else if (fstat(job->fd, &st) != 0 || !S_ISREG(st.st_mode))
		msg_error(job->archive, "is no regular file, and nothing can be appended to it");
	else
		return lock_file(job->fd, job->archive);
	return false;
}

/* A kvarc_sink.flush, in front of each checkpoint: what was read must be what is there still. */
static int flush_file(void *opaque)
{
	struct append_job *j = opaque;
	char what[96];

	if (watch_changed(&j->watch, &j->in, what, sizeof(what)))
		return -1;
	return j->file.flush(j->file.opaque);
}

static int write_file(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct append_job *j = opaque;

	return j->file.write(j->file.opaque, buf, bytes, offset);
}

static int truncate_file(void *opaque, uint64_t bytes)
{
	struct append_job *j = opaque;

	return j->file.truncate(j->file.opaque, bytes);
}

static bool extend(struct append_job *job)
{
	const kvarc_sink sink = {
		.write = write_file, .flush = flush_file, .opaque = job, .truncate = truncate_file
	};
	const kvarc_common *common = &job->options.writer.common;
	kvarc_source archive = KVARC_ZERO;
	kvarc_ret ret = kvarc_source_fd(&archive, job->fd, common);

	if (ret == KVARC_OK)
		ret = kvarc_sink_fd(&job->file, job->fd, common);
	if (ret == KVARC_OK)
		ret = kvarc_append_import(job->im, &archive, &sink, &job->options, &job->result);
	progress_stop();
	if (ret != KVARC_OK)
		report_failure(job, ret);
	kvarc_source_close(&archive);
	if (kvarc_sink_close(&job->file, &job->error) != KVARC_OK && ret == KVARC_OK) {
		library_error(job->archive, KVARC_IO, &job->error, NULL, NULL);
		return false;
	}
	return ret == KVARC_OK;
}

static void append(struct append_job *job)
{
	bool there;

	if (!open_archive(job, &there))
		return;
	if (!import(job) || !set_options(job))
		return;
	progress_start(job->in.name, job->tensor_bytes);
	progress_phase("appending");
	if (there ? extend(job) : create(job)) {
		report(job);
		warn_lost(job);
		profiles_check_weights(job->o->coding.model, &job->options.writer);
	}
}

void cmd_append(const struct options *options)
{
	struct append_job j = {
		.o = options, .model = { .fd = -1 }, .fd = -1, .start = units_now()
	};

	if (options->n_files != 2) {
		msg_error(NULL, "append: give the archive and the file: kvarc append ARCHIVE FILE");
		return;
	}
	if (options->coding.level >= LEVEL_MODEL) {
		msg_error(NULL,
		          "append: at level %d a model goes through all tokens again; append at "
		          "levels 0 to 3, and use 'kvarc compact' for a smaller archive",
		          options->coding.level);
		return;
	}
	j.archive = options->files[0];
	if (!profiles_check_level(&options->coding, true) ||
	    !input_open_as(&j.in, options->files[1], true, options->slot_files ? INPUT_SLOT : 0))
		return;
	watch_start(&j.watch, &j.in);
	input_map(&j.in);
	if (!options->import.opaque && input_is_archive(&j.in))
		msg_error(j.in.name, "is a kvarc archive; 'kvarc unpack' restores what to append");
	else
		append(&j);
	kvarc_import_close(&j.im);
	workspace_close(&j.workspace);
	if (j.fd >= 0)
		close(j.fd);
	input_close(&j.model);
	input_close(&j.in);
}
