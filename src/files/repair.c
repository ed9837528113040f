/* SPDX-License-Identifier: BSD-3-Clause */
/* repair.c - writes an archive once more, with what its parity restores (frames.md 12.2) */
#include <errno.h>
#include <string.h>

#include "format/commit.h"
#include "format/superblock.h"
#include "repair_groups.h"
#include "util/arguments.h"

/* What the frames of the result are like. */
struct repair_end {
	uint64_t end, sequence;   /* behind the good frames from the first one on */
	uint64_t lost_at, lost;   /* the last range that is no good frame */
	uint64_t ranges;          /* the number of them */
	uint16_t last, lost_type; /* types: of the last good frame before it; 0: not known */
	bool others_behind;       /* frames but INDEX and FOOTER come behind it */
	bool footer, footer_fits; /* a FOOTER comes; it counts one frame between */
	bool encrypted;
};

static kvarc_ret copy(struct kvi_repair *x, const kvarc_sink *sink, uint64_t size)
{
	enum { STEP = 1 << 20 };
	uint8_t *p = kvi_malloc(&x->alloc, STEP);
	kvarc_ret ret = p ? KVARC_OK : kvi_fail_alloc(x->error, &x->alloc);
	for (uint64_t at = 0; at < size && !ret;) {
		size_t want = size - at < STEP ? (size_t)(size - at) : STEP, got;
		ret = kvi_view_read(&x->view, p, want, at, &got);
		errno = 0;
		if (!ret && sink->write(sink->opaque, p, got, at))
			ret = kvi_fail_callback(x->error, at, KVARC_UNKNOWN,
			                        "writing %zu bytes at offset %llu failed", got,
			                        (unsigned long long)at);
		at += got;
	}
	kvi_free(&x->alloc, p);
	return ret;
}

/* The sync mark: of the superblock, or of the first frame where that is damaged; else FORMAT. */
static kvarc_ret find_sync(struct kvi_repair *x, uint64_t *sync, bool *superblock, bool *encrypted)
{
	uint8_t b[KVI_SUPERBLOCK_BYTES + KVI_FRAME_HEAD_BYTES];
	struct kvi_superblock sb;
	struct kvi_frame_head h;
	size_t got;
	kvarc_ret ret = kvi_view_read(&x->view, b, sizeof b, 0, &got);
	if (ret)
		return ret;
	ret = got < KVI_SUPERBLOCK_BYTES ? KVARC_FORMAT : kvi_superblock_parse(&sb, b);
	*superblock = ret == KVARC_OK || ret == KVARC_OPTIONS;
	*encrypted = *superblock && sb.incompat & KVI_INCOMPAT_ENCRYPTED;
	*sync = *superblock ? kvi_frame_sync(sb.file_id) : 0;
	if (*superblock)
		return KVARC_OK;
	*sync = got < sizeof b ? 0 : kvi_load64(b + KVI_SUPERBLOCK_BYTES);
	if (got == sizeof b &&
	    kvi_frame_head_parse(&h, b + KVI_SUPERBLOCK_BYTES, *sync, KVI_SUPERBLOCK_BYTES))
		return KVARC_OK;
	return kvi_fail_at(x->error, KVARC_FORMAT, 0, KVARC_UNKNOWN,
	                   "this is not a kvarc file, or its start is lost and nothing in it "
	                   "restores that");
}

/* A range without a good frame. */
static void add_lost(struct kvi_repair *x, struct repair_end *w, uint64_t at, uint64_t next)
{
	if (w->ranges && w->lost_at + w->lost == at) {
		w->lost = next - w->lost_at;
		return;
	}
	if (w->ranges++)
		kvi_repair_found(x, w->lost_at, w->lost, false);
	w->lost_at = at;
	w->lost = next - at;
	w->others_behind = w->footer = w->footer_fits = false;
	w->lost_type = 0;
}

static void good_frame(struct repair_end *w, const struct kvi_frame *f)
{
	struct kvi_footer foot;
	const uint16_t type = f->head.type;
	if (!w->ranges) {
		w->end = f->offset + f->bytes;
		w->sequence = f->head.sequence + 1;
		w->last = type;
	} else if (type == KVI_FRAME_FOOTER &&
	           kvi_footer_parse(&foot, f->payload, f->head.payload_bytes)) {
		w->footer = true;
		w->footer_fits = foot.frames == w->sequence + 1;
	} else if (type != KVI_FRAME_INDEX) {
		w->others_behind = true;
	}
}

/* A PARITY frame whose row is lost: without a row it is no fault (rule R12.11). */
static kvarc_ret empty_row(struct kvi_repair *x, struct kvi_frame *f, uint64_t sync)
{
	uint8_t *frame = kvi_calloc(&x->alloc, (size_t)f->bytes, 1);
	if (!frame)
		return kvi_fail_alloc(x->error, &x->alloc);
	kvi_frame_head_write(frame, &f->head, sync, f->offset);
	kvi_frame_close(frame, f->offset, f->head.payload_bytes);
	x->report->emptied_rows++;
	return kvi_view_patch(&x->view, f->offset, f->bytes, frame);
}

/* Goes through the frames of the result, whatever is in them. */
static kvarc_ret walk(struct kvi_repair *x, struct repair_end *w, uint64_t sync)
{
	const struct kvi_input in = { .source = kvi_view_source(&x->view, x->view.size),
		                      .alloc = &x->alloc,
		                      .sync = sync };
	struct kvi_window window = { .bytes = 0 };
	struct kvi_buffer buf = { 0 };
	kvarc_ret ret = KVARC_OK;
	w->end = KVI_SUPERBLOCK_BYTES;
	for (uint64_t at = w->end; at < x->view.size && !ret;) {
		struct kvi_frame f;
		uint64_t next;
		ret = kvi_frame_read(&in, at, &buf, &f, x->error);
		next = at + f.bytes;
		if (ret == KVARC_DATA && f.head_good && !f.cut && !f.head.flags &&
		    f.head.type == KVI_FRAME_PARITY)
			ret = empty_row(x, &f, sync);
		if (ret == KVARC_OK)
			good_frame(w, &f);
		else if (ret == KVARC_DATA) {
			ret = f.head_good && !f.cut ? KVARC_OK
			                            : kvi_frame_find(&in, at + KVI_FRAME_ALIGN,
			                                             &window, &next, x->error);
			const bool is_new = !w->ranges || w->lost_at + w->lost != at;
			if (!ret)
				add_lost(x, w, at, next);
			if (is_new && f.head_good)
				w->lost_type = f.head.type;
		}
		at = next;
	}
	kvi_free(&x->alloc, window.buffer.p);
	kvi_free(&x->alloc, buf.p);
	return ret;
}

/* Whether what is good ends in front of what is lost, so that an end can be put there. */
static bool has_end(const struct repair_end *w)
{
	return w->ranges ? w->ranges == 1 && !w->others_behind : w->last != KVI_FRAME_FOOTER;
}

/* Whether nothing but INDEX and FOOTER is lost, or missing. */
static bool end_alone(const struct repair_end *w)
{
	if (!w->ranges)
		return w->last != KVI_FRAME_FOOTER;
	return w->lost_type == KVI_FRAME_INDEX || w->lost_type == KVI_FRAME_FOOTER ||
	       (w->footer && w->footer_fits) ||
	       (w->last == KVI_FRAME_INDEX && w->lost <= KVI_FOOTER_FRAME_BYTES);
}

/* INDEX and FOOTER behind the good frames, which were written. Returns OK; END: they cannot be
 * made; IO. */
static kvarc_ret make_end(struct kvi_repair *x, const kvarc_sink *sink, const struct repair_end *w)
{
	kvarc_source source = kvi_view_source(&x->view, w->end);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	const kvarc_sink behind = { .write = sink->write, .opaque = sink->opaque };
	kvarc_writer *writer;
	uint64_t used = atomic_load(&x->alloc.used);
	o.common = x->options.common;
	o.common.progress = NULL;
	o.common.error = NULL;
	o.common.memlimit = x->alloc.limit > used ? x->alloc.limit - used : 1;
	o.keys = w->encrypted ? x->options.keys : NULL;
	kvarc_ret ret = kvarc_writer_open_append(&writer, &source, &behind, &o);
	if (!ret)
		ret = kvarc_writer_close(&writer);
	if (ret == KVARC_IO)
		return kvi_fail(x->error, ret, "writing the end of the archive failed");
	return ret ? KVARC_END : KVARC_OK;
}

/* A sink that counts; to: NULL, or where its bytes go. */
struct counting_sink {
	const kvarc_sink *to;
	uint64_t size;
};

static int count_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct counting_sink *c = opaque;
	c->size = offset + bytes;
	return c->to ? c->to->write(c->to->opaque, buf, bytes, offset) : 0;
}

static kvarc_ret write_result(struct kvi_repair *x, const kvarc_sink *sink, struct repair_end *w)
{
	struct counting_sink counted = { .size = 0 };
	const kvarc_sink count = { .write = count_write, .opaque = &counted };
	/* On trial first: a sink takes each byte once. */
	bool end = x->options.flags & KVARC_REPAIR_END && has_end(w) &&
	           make_end(x, &count, w) == KVARC_OK;
	if (w->ranges && !(end && end_alone(w)))
		kvi_repair_found(x, w->lost_at, w->lost, false);
	counted.to = sink;
	kvarc_ret ret = copy(x, &count, end ? w->end : x->view.size);
	if (!ret && end)
		ret = make_end(x, &count, w);
	x->report->end_made = end;
	x->report->file_bytes = counted.size;
	errno = 0;
	if (!ret && sink->flush && sink->flush(sink->opaque))
		ret = kvi_fail_callback(x->error, counted.size, KVARC_UNKNOWN,
		                        "flushing the output failed");
	return ret;
}

static kvarc_ret repair(struct kvi_repair *x, const kvarc_source *source, const kvarc_sink *sink)
{
	struct repair_end w = { .ranges = 0 };
	uint64_t sync;
	bool superblock;
	x->view = (struct kvi_repair_view){
		.source = source, .alloc = &x->alloc, .size = source->size, .error = x->error
	};
	kvarc_ret ret = kvi_repair_groups(x);
	if (!ret)
		ret = find_sync(x, &sync, &superblock, &w.encrypted);
	if (!ret && !superblock)
		kvi_repair_found(x, 0, KVI_SUPERBLOCK_BYTES, false);
	if (!ret)
		ret = walk(x, &w, sync);
	if (!ret)
		ret = write_result(x, sink, &w);
	kvi_view_free(&x->view);
	kvi_free(&x->alloc, x->rows.p);
	return ret;
}

static kvarc_ret check(const kvarc_source *source, const kvarc_sink *sink,
                       const kvarc_repair_options *o)
{
	static const char call[] = "kvarc_repair";
	kvarc_error *e = o->common.error;
	kvarc_ret ret = kvi_check_common(&o->common);
	if (!ret)
		ret = kvi_check_source(e, call, source, true);
	if (!ret)
		ret = kvi_check_sink(e, call, sink);
	if (!ret)
		ret = KVI_CHECK_RESERVED(e, call, "kvarc_repair_options", o);
	if (!ret && o->flags & ~KVARC_REPAIR_END)
		ret = kvi_fail(e, KVARC_PROG, "%s: unknown flags in the options", call);
	if (!ret && source->size == KVARC_UNKNOWN)
		ret = kvi_reason(e, KVARC_REASON_NEEDS_SEEK,
		                 kvi_fail(e, KVARC_OPTIONS,
		                          "%s needs a source that can seek, not a pipe", call));
	return ret;
}

kvarc_ret kvarc_repair(const kvarc_source *source, const kvarc_sink *sink,
                       const kvarc_repair_options *options, kvarc_repair_report *report)
{
	static const kvarc_repair_options defaults = KVARC_REPAIR_OPTIONS_INIT;
	const kvarc_repair_options *o = options ? options : &defaults;
	kvarc_repair_report none;
	kvarc_ret ret = check(source, sink, o);
	if (ret)
		return ret;
	struct kvi_repair x = { .options = *o,
		                .error = o->common.error,
		                .report = report ? report : &none };
	*x.report = (kvarc_repair_report){ 0 };
	kvi_alloc_init(&x.alloc, o->common.allocator, o->common.memlimit);
	return repair(&x, source, sink);
}
