/* SPDX-License-Identifier: BSD-3-Clause */
/* compact_states.c - several checkpoints of an archive as a new archive */
#include "config.h"

#include "compact_states.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"
#include "message.h"
#include "readers.h"
#include "units.h"

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

bool compact_wants_states(const char *keep)
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

bool compact_states(const struct options *o, struct input *in, kvarc_reader *r, struct output *out,
                    const kvarc_writer_options *options, kvarc_writer_stats *stats)
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
