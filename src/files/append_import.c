/* SPDX-License-Identifier: BSD-3-Clause */
/* append_import.c - a file becomes the next checkpoint of an archive: what is new of it */
#include "append_compare.h"
#include "append_items.h"
#include "append_match.h"
#include "counted.h"
#include "format/levels.h"
#include "import_internal.h"
#include "pack_files.h"
#include "util/arguments.h"
#include "writer/writer_internal.h"

/* An import on its way into an archive. */
struct appending {
	kvarc_import *im;
	const kvarc_append_options *options;
	kvarc_reader *r;
	kvarc_writer *w;
	struct kvi_append_track *tracks;
	struct kvi_append_items items;
	struct kvi_counted counted;
	bool same;             /* the last checkpoint is this very file */
	bool wants_checkpoint; /* the last state has none yet, and would be lost */
	uint64_t remove_to;    /* the size of a closed archive, 0: of one that is not closed */
	kvarc_append_result result;
};

static kvarc_error *error_of(const struct appending *a)
{
	return a->options->writer.common.error;
}

static kvarc_ret check(const kvarc_append_options *o, const kvarc_sink *sink)
{
	static const char call[] = "kvarc_append_import";
	kvarc_error *e = o->writer.common.error;
	kvarc_ret ret = kvi_check_sink(e, call, sink);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_append_options", o);
	if (ret)
		return ret;
	if (kvi_writer_level(&o->writer) >= KVI_LEVEL_MODEL)
		return kvi_fail(e, KVARC_OPTIONS,
		                "level %d needs a model to go through all tokens again at each "
		                "append: append at levels 0 to 3, then compact",
		                kvi_writer_level(&o->writer));
	if (o->writer.lossy)
		return kvi_fail(e, KVARC_LOSSY,
		                "what is appended must be what was packed: no lossy tier");
	if (o->writer.flags & KVARC_WRITE_STREAMABLE)
		return kvi_fail(e, KVARC_PROG,
		                "%s: an append refers back: not with KVARC_WRITE_STREAMABLE", call);
	return KVARC_OK;
}

/* ----- what is there ------------------------------------------------------ */

static kvarc_ret open_reader(struct appending *a, const kvarc_source *source)
{
	kvarc_reader_options o = a->options->reader;
	o.common = a->options->writer.common;
	o.common.progress = NULL;
	o.checkpoint = 0;
	o.flags = 0;
	kvarc_ret ret = kvarc_reader_open(&a->r, source, &o);
	if (!ret && !kvi_reader_can_seek(a->r))
		ret = kvi_reason(error_of(a), KVARC_REASON_NEEDS_SEEK,
		                 kvi_fail(error_of(a), KVARC_OPTIONS,
		                          "an append needs a source that can seek, not a pipe"));
	return ret;
}

static kvarc_ret compare(struct appending *a)
{
	const bool decode = a->options->writer.flags & KVARC_WRITE_VERIFY;
	kvarc_ret ret = kvi_append_match(a->r, a->im);
	a->tracks = kvi_calloc(&a->im->alloc, a->im->n_tracks + 1, sizeof *a->tracks);
	if (!ret && !a->tracks)
		ret = kvi_fail_alloc(error_of(a), &a->im->alloc);
	for (uint32_t i = 0; i < a->im->n_tracks && !ret; i++) {
		const struct kvi_append_track *t = &a->tracks[i];
		ret = kvi_append_compare(a->r, a->im, i, decode, &a->tracks[i]);
		a->result.lost_tokens += t->lost;
		if (t->n <= a->result.tokens)
			continue;
		a->result.tokens = t->n;
		a->result.kept_tokens = t->kept;
	}
	if (!ret)
		ret = kvi_append_items_make(&a->items, a->r, a->im, a->tracks);
	a->result.lost_bytes = a->items.lost;
	return ret;
}

/* Notes whether the last checkpoint is this very file. */
static void note_same(struct appending *a)
{
	const struct kvi_list *l = &a->r->index.checkpoints;
	a->same = a->items.same && !a->options->label;
	for (uint32_t i = 0; i < a->im->n_tracks; i++)
		a->same = a->same && a->tracks[i].kept >= a->tracks[i].n;
	if (a->same)
		a->result.checkpoint = KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->number;
}

/* Notes what is asked of the reader after the writer has it. */
static void note_end(struct appending *a)
{
	const struct kvarc_reader *r = a->r;
	a->wants_checkpoint = !r->meta.set_closed && r->index.segments.n &&
	                      (kvi_reader_n_items(r) || !r->index.checkpoints.n);
	a->remove_to = r->state == KVARC_STATE_CLOSED ? r->in.source.size : 0;
}

/* ----- what is new --------------------------------------------------------- */

/* The tokens behind those that are kept; they replace those that the archive has there. */
static kvarc_ret put_track(struct appending *a, uint32_t track)
{
	const struct kvi_append_track *t = &a->tracks[track];
	const uint64_t there = kvarc_writer_tokens(a->w, track);
	uint64_t from = t->kept;
	/* A track becomes shorter with a segment alone: the last token is written again. */
	if (from && from == t->n && t->shift + from < there)
		from--;
	if (from == t->n)
		return KVARC_OK;
	kvarc_ret ret = kvarc_writer_rewind(a->w, track, t->shift + from);
	return ret ? ret : kvi_pack_tokens(a->im, a->w, &a->options->writer, track, from, t->shift);
}

static kvarc_ret write_all(struct appending *a)
{
	const kvarc_append_options *o = a->options;
	kvarc_ret ret = a->wants_checkpoint ? kvarc_writer_checkpoint(a->w, NULL, 0, NULL)
	                                    : KVARC_OK;
	for (uint32_t i = 0; i < a->im->n_tracks && !ret; i++)
		ret = put_track(a, i);
	if (!ret)
		ret = kvi_append_items_put(&a->items, a->w, error_of(a));
	return ret ? ret : kvarc_writer_checkpoint(a->w, o->label, o->time, &a->result.checkpoint);
}

/* After a failure the archive has no remains of it, if the sink can do that much. */
static void undo(struct appending *a)
{
	const kvarc_sink *to = &a->counted.to;
	if (a->counted.end && to->truncate && a->remove_to)
		(void)to->truncate(to->opaque, a->remove_to);
}

static kvarc_ret extend(struct appending *a)
{
	kvarc_sink counting = kvi_counted_sink(&a->counted);
	note_end(a);
	kvarc_ret ret = kvi_writer_open_behind(&a->w, &a->r, &counting, &a->options->writer);
	/* Of the same file alone the end of the archive is written again. */
	if (!ret && !a->same)
		ret = write_all(a);
	if (!ret)
		ret = kvarc_writer_close(&a->w);
	kvarc_writer_abort(&a->w);
	if (ret)
		undo(a);
	a->result.written_bytes = a->counted.bytes;
	a->result.archive_bytes = a->counted.end;
	return ret;
}

static kvarc_ret continue_archive(struct appending *a, const kvarc_source *source)
{
	kvarc_ret ret = open_reader(a, source);
	if (!ret)
		ret = compare(a);
	if (!ret)
		note_same(a);
	if (!ret && a->same && a->r->state == KVARC_STATE_CLOSED)
		a->result.archive_bytes = source->size;
	else if (!ret)
		ret = extend(a);
	kvi_append_items_free(&a->items);
	kvi_free(&a->im->alloc, a->tracks);
	kvarc_reader_close(&a->r);
	return ret;
}

static kvarc_ret begin_archive(struct appending *a)
{
	struct kvi_pack_checkpoint c = { a->options->label, a->options->time, 0 };
	kvarc_writer_stats stats;
	kvarc_ret ret = kvi_pack_checkpoint(a->im, &a->counted.to, &a->options->writer, &c, &stats);
	for (uint32_t i = 0; i < a->im->n_tracks; i++)
		if (a->im->tracks[i].n > a->result.tokens)
			a->result.tokens = a->im->tracks[i].n;
	if (ret)
		return ret;
	a->result.checkpoint = c.number;
	a->result.written_bytes = a->result.archive_bytes = stats.file_bytes;
	return ret;
}

kvarc_ret kvarc_append_import(kvarc_import *im, const kvarc_source *source, const kvarc_sink *sink,
                              const kvarc_append_options *options, kvarc_append_result *result)
{
	static const kvarc_append_options defaults = KVARC_APPEND_OPTIONS_INIT;
	struct appending a = { .im = im, .options = options ? options : &defaults };
	if (result)
		*result = a.result;
	if (!im)
		return KVARC_PROG;
	kvarc_ret ret = check(a.options, sink);
	if (ret)
		return ret;
	a.counted.to = *sink;
	kvarc_import_sizes(im, &a.result.file_bytes, NULL);
	ret = source ? continue_archive(&a, source) : begin_archive(&a);
	if (!ret && result)
		*result = a.result;
	return ret;
}
