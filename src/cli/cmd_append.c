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
	int fd; /* of the archive; -1: there is none yet */
	kvarc_sink file;
	struct output out; /* of a new archive */
	kvarc_append_options options;
	kvarc_append_result result;
	kvarc_parity parity;
	uint64_t tensor_bytes;
	double start;
	struct workspace workspace;
};

static void report_failure(const struct append_job *j, kvarc_ret ret)
{
	char what[96];

	if (watch_changed(&j->watch, &j->in, what, sizeof(what)))
		msg_error(j->in.name,
		          "changed while it was appended (%s): nothing was appended; try again "
		          "when it is complete",
		          what);
	else if (j->in.error || j->fd < 0)
		library_error(j->in.name, ret, &j->error, &j->in, &j->out);
	else if (ret == KVARC_GEOMETRY)
		library_error(j->in.name, ret, &j->error, NULL, NULL);
	else
		library_error(j->archive, ret, &j->error, NULL, NULL);
}

/* RoPE of an archive is that of its first file; level 0 has no use for it. */
static const char *rope_of(const struct append_job *j)
{
	bool search = j->fd < 0 && (j->o->level > 0 || j->o->model || j->o->profiles.n);

	return j->o->rope || search ? j->o->rope : "none";
}

static bool import(struct append_job *j)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	const char *name = j->in.is_stdin ? NULL : paths_base(j->in.name);
	struct engine_file pages;
	kvarc_ret ret;

	readers_import_options(j->o, &io, &j->error);
	io.rope = rope_of(j);
	io.profiles = profiles_given(&io.n_profiles);
	io.opaque = j->o->opaque;
	if (!engine_file_options(j->o, j->in.name, &pages, &io) ||
	    !engine_file_target(j->o, j->in.name, j->o->files[0]))
		return false;
	if (j->o->model && !models_is_folder(j->o)) {
		if (!input_open(&j->model, j->o->model, true))
			return false;
		j->model_source = input_source(&j->model);
		io.model = &j->model_source;
	}
	j->source = input_source(&j->in);
	ret = kvarc_import_open(&j->im, &j->source, name, &io);
	if (ret != KVARC_OK) {
		library_error(j->in.name, ret, &j->error, j->model.error ? &j->model : &j->in,
		              NULL);
		return false;
	}
	if (!workspace_attach(&j->workspace, j->o, j->im,
	                      (const char *[]){ j->in.name, j->archive }, 2))
		return false;
	kvarc_import_sizes(j->im, NULL, &j->tensor_bytes);
	if (!j->o->opaque)
		library_warn_import(j->in.name, j->im);
	return identities_record(j->o, &j->in, j->im, &j->error);
}

/* The checkpoint gets the time of the file, or that of SOURCE_DATE_EPOCH. */
static bool set_options(struct append_job *j)
{
	kvarc_append_options *a = &j->options;
	struct timespec t = j->in.mtime;
	bool set;

	if (j->fd < 0 && keys_given() && !j->o->encrypt) {
		msg_error(j->archive, "is new, and a key was given without --encrypt: add "
		                      "--encrypt, or give no key");
		return false;
	}
	library_common(j->o, &a->writer.common, &j->error);
	library_parity(j->o, &j->parity, &a->writer);
	/* an archive that is there stays as it is: encrypted or not */
	if (j->fd >= 0)
		a->reader.keys = a->writer.keys = keys_given();
	if ((j->fd < 0 && !keys_writer(j->o, false, &a->writer.keys)) ||
	    !times_of_environment(&t, &set) ||
	    !profiles_writer(j->o, kvarc_import_geometry(j->im), &a->writer))
		return false;
	if ((set || j->in.has_mtime) && t.tv_sec >= 0)
		a->time = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	a->label = j->o->label;
	profiles_reader(&a->reader);
	a->reader.predictor = models_given();
	a->reader.request_cost = REQUEST_COST;
	if (j->o->verify)
		a->writer.flags |= KVARC_WRITE_VERIFY;
	return true;
}

/* What was damaged in the archive is in it again; earlier checkpoints have lost it. */
static void warn_lost(const struct append_job *j)
{
	const kvarc_append_result *a = &j->result;
	char n[32], bytes[32];

	units_count(n, a->lost_tokens);
	units_bytes(bytes, sizeof(bytes), a->lost_bytes);
	if (a->lost_tokens || a->lost_bytes)
		msg_warning(j->archive,
		            "was damaged: %s%s%s%s%s stored again, and this checkpoint is whole; "
		            "earlier ones may not be: 'kvarc test' names what is damaged",
		            a->lost_tokens ? n : "", a->lost_tokens ? " tokens" : "",
		            a->lost_tokens && a->lost_bytes ? " and " : "",
		            a->lost_bytes ? bytes : "",
		            a->lost_bytes ? " beside them were" : " were");
}

static void report(struct append_job *j)
{
	const kvarc_append_result *a = &j->result;
	uint64_t saved = a->file_bytes > a->written_bytes ? a->file_bytes - a->written_bytes : 0;
	struct report r;

	report_start(&r, j->o->json);
	report_string(&r, "file", j->in.name);
	report_string(&r, "archive", j->archive);
	report_u64(&r, "checkpoint", a->checkpoint);
	report_u64(&r, "tokens", a->tokens);
	report_u64(&r, "kept_tokens", a->kept_tokens);
	report_u64(&r, "new_tokens", a->tokens - a->kept_tokens);
	report_u64(&r, "file_bytes", a->file_bytes);
	report_u64(&r, "written_bytes", a->written_bytes);
	report_u64(&r, "archive_bytes", a->archive_bytes);
	report_u64(&r, "lost_tokens", a->lost_tokens);
	report_u64(&r, "lost_bytes", a->lost_bytes);
	report_real(&r, "seconds", units_now() - j->start, 4);
	report_u64(&r, ".saved", saved);
	if (a->written_bytes)
		report_result(&r, j->archive,
		              "{tokens:C} tokens, {kept_tokens:C} kept, {new_tokens:C} new: "
		              "{written_bytes:B} written, {.saved:B} not written");
	else
		report_result(&r, j->archive, "nothing is new since checkpoint {checkpoint}");
	report_end(&r);
}

/* ----- a new archive ------------------------------------------------------ */

static bool create(struct append_job *j)
{
	kvarc_sink sink;
	kvarc_ret ret;

	if (!output_open(&j->out, j->archive, OUTPUT_APPENDS,
	                 j->options.writer.keys ? 0600 : j->in.mode))
		return false;
	if (j->out.direct) {
		msg_error(j->archive, "is no regular file, and nothing can be appended to it");
		output_abort(&j->out);
		return false;
	}
	sink = output_sink(&j->out);
	ret = kvarc_append_import(j->im, NULL, &sink, &j->options, &j->result);
	progress_stop();
	if (ret != KVARC_OK || watch_changed(&j->watch, &j->in, (char[96]){ 0 }, 96)) {
		report_failure(j, ret);
		output_abort(&j->out);
		return false;
	}
	return output_commit(&j->out);
}

/* ----- one that is there -------------------------------------------------- */

/* Opens the archive and locks it. *there false: there is none. */
static bool open_archive(struct append_job *j, bool *there)
{
	struct stat st;

	j->fd = open(j->archive, O_RDWR | O_CLOEXEC | O_NOCTTY);
	*there = j->fd >= 0 || errno != ENOENT;
	if (!*there)
		return true;
	if (j->fd < 0)
		msg_error(j->archive, "cannot open: %s", strerror(errno));
	else if (fstat(j->fd, &st) != 0 || !S_ISREG(st.st_mode))
		msg_error(j->archive, "is no regular file, and nothing can be appended to it");
	else
		return lock_file(j->fd, j->archive);
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

static bool extend(struct append_job *j)
{
	const kvarc_sink sink = {
		.write = write_file, .flush = flush_file, .opaque = j, .truncate = truncate_file
	};
	const kvarc_common *common = &j->options.writer.common;
	kvarc_source archive = KVARC_ZERO;
	kvarc_ret ret = kvarc_source_fd(&archive, j->fd, common);

	if (ret == KVARC_OK)
		ret = kvarc_sink_fd(&j->file, j->fd, common);
	if (ret == KVARC_OK)
		ret = kvarc_append_import(j->im, &archive, &sink, &j->options, &j->result);
	progress_stop();
	if (ret != KVARC_OK)
		report_failure(j, ret);
	kvarc_source_close(&archive);
	if (kvarc_sink_close(&j->file, &j->error) != KVARC_OK && ret == KVARC_OK) {
		library_error(j->archive, KVARC_IO, &j->error, NULL, NULL);
		return false;
	}
	return ret == KVARC_OK;
}

static void append(struct append_job *j)
{
	bool there;

	if (!open_archive(j, &there))
		return;
	if (!import(j) || !set_options(j))
		return;
	progress_start(j->in.name, j->tensor_bytes);
	progress_phase("appending");
	if (there ? extend(j) : create(j)) {
		report(j);
		warn_lost(j);
		profiles_check_weights(j->o, &j->options.writer);
	}
}

void cmd_append(const struct options *o)
{
	struct append_job j = {
		.o = o, .model = { .fd = -1 }, .fd = -1, .start = units_now()
	};

	if (o->n_files != 2) {
		msg_error(NULL, "append: give the archive and the file: kvarc append ARCHIVE FILE");
		return;
	}
	if (o->level >= LEVEL_MODEL) {
		msg_error(NULL,
		          "append: at level %d a model goes through all tokens again; append at "
		          "levels 0 to 3, and use 'kvarc compact' for a smaller archive",
		          o->level);
		return;
	}
	j.archive = o->files[0];
	if (!profiles_check_level(o, false) ||
	    !input_open_as(&j.in, o->files[1], true, o->slot_files ? INPUT_SLOT : 0))
		return;
	watch_start(&j.watch, &j.in);
	input_map(&j.in);
	if (!o->opaque && input_is_archive(&j.in))
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
