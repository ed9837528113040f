/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_resume.c - a writer that continues an archive (spec 9.3) */
#include "reader/reader_frames.h"
#include "reader/reader_resume.h"
#include "util/arguments.h"
#include "writer_state.h"

static kvarc_ret open_archive(kvarc_writer *w, const kvarc_source *source)
{
	kvarc_reader_options o = { .common = w->options.common, .keys = w->options.keys };
	uint64_t used = atomic_load(&w->alloc.used);
	o.common.progress = NULL;
	o.stored_read = w->options.stored_read;
	o.stored_opaque = w->options.stored_opaque;
	o.common.memlimit = w->alloc.limit > used ? w->alloc.limit - used : 1;
	kvarc_ret ret = kvi_check_source(w->error, "kvarc_writer_open_append", source, true);
	if (ret)
		return ret;
	if (source->size == KVARC_UNKNOWN)
		return kvi_reason(w->error, KVARC_REASON_NEEDS_SEEK,
		                  kvi_fail(w->error, KVARC_OPTIONS,
		                           "kvarc_writer_open_append needs a source that can seek, "
		                           "not a pipe"));
	return kvarc_reader_open(&w->archive, source, &o);
}

/* What the reader of the archive leaves to the writer, and whether it may be appended to. */
static kvarc_ret take_archive(kvarc_writer *w)
{
	/* Both together stay below the limit. */
	uint64_t used = atomic_load(&w->archive->alloc.used);
	w->alloc.limit = w->alloc.limit > used ? w->alloc.limit - used : 1;
	if (w->archive->sb.ro_compat)
		return kvi_reason(w->error, KVARC_REASON_NEWER,
		                  kvi_fail_at(w->error, KVARC_OPTIONS, 0, KVARC_UNKNOWN,
		                              "the archive has features (%#x) of a newer version "
		                              "of kvarc that forbid an append",
		                              (unsigned)w->archive->sb.ro_compat));
	return KVARC_OK;
}

/* What the options ask for, and the archive does not allow. */
static kvarc_ret check_options(kvarc_writer *w)
{
	const kvarc_writer_options *o = &w->options;
	const kvarc_reader *r = w->archive;
	static const uint8_t none[sizeof o->file_id];
	bool id = o->flags & KVARC_WRITE_FILE_ID || memcmp(o->file_id, none, sizeof none);
	if (id && memcmp(o->file_id, r->sb.file_id, sizeof o->file_id))
		return kvi_fail(w->error, KVARC_PROG,
		                "kvarc_writer_open_append: file_id is not that of the archive");
	if (o->level >= KVI_LEVEL_MODEL)
		return kvi_fail(w->error, KVARC_OPTIONS,
		                "kvarc_writer_open_append: level %d needs a model to go through "
		                "all tokens again; append at levels 0 to 3, then compact",
		                o->level);
	if (o->lossy && r->index.segments.n && !kvi_identity_get(&r->meta.identity, "lossy"))
		return kvi_fail(w->error, KVARC_LOSSY,
		                "a lossy tier is asked for, but the archive holds tokens without "
		                "one and says so: write another archive");
	return KVARC_OK;
}

static kvarc_ret take_identity(kvarc_writer *w)
{
	const struct kvi_identity *id = &w->archive->meta.identity;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < id->n && !ret; i++)
		ret = kvi_identity_set(&w->identity, &w->alloc, id->pairs[i].key,
		                       id->pairs[i].value);
	return ret ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* Whether positions of tokens that were left out may come last (spec 5.1). */
static bool leaves_out(const char *lossy)
{
	static const char end[] = " tokens left out";
	size_t n = lossy ? strlen(lossy) : 0;
	return n >= sizeof end - 1 && !strcmp(lossy + n - (sizeof end - 1), end);
}

/* lenient: a damaged last segment may be there, which a rewind replaces before anything follows. */
static kvarc_ret take_tracks(kvarc_writer *w, bool lenient)
{
	const kvarc_reader *r = w->archive;
	const bool unknown = leaves_out(kvi_identity_get(&r->meta.identity, "lossy"));
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < w->geometry.n_tracks && !ret; i++) {
		struct kvi_writer_track *t = &w->tracks[i];
		struct kvi_track_end end;
		ret = kvi_reader_track_end(w->archive, i, r->index.tokens[i], &end);
		if (ret == KVARC_DATA && lenient) {
			end = (struct kvi_track_end){ .no_position = true };
			ret = KVARC_OK;
		}
		t->n_written = t->n_committed = t->n_submitted = r->index.tokens[i];
		t->n_appended = t->n_total = t->n_written;
		t->next_position = end.position;
		t->chain = end.chain;
		t->wants_positions = (unknown && t->n_written) || end.no_position;
		t->item_tokens = r->meta.set_closed ? 0 : kvi_reader_item_tokens(r, i);
	}
	return ret;
}

static kvarc_ret take_end(kvarc_writer *w, const struct kvi_resume *end)
{
	const struct kvi_list *l = &w->archive->index.checkpoints;
	w->sync = w->archive->in.sync;
	w->offset = end->offset;
	w->sequence = w->was_sequence = end->sequence;
	w->was_closed = w->archive->state == KVARC_STATE_CLOSED;
	w->stats.file_bytes = end->offset;
	w->last_index = end->last_index;
	w->last_commit = end->last_commit;
	w->index_delta = end->delta;
	w->index_entries = end->index_entries;
	kvi_put_bytes(&w->index, end->index.p, end->index.n);
	if (l->n)
		w->checkpoint = KVI_LIST(struct kvi_checkpoint_ref, *l, l->n - 1)->number;
	w->uncommitted = !end->last_commit;
	return w->index.failed ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* The last PREDICTOR of the archive serves where it says what a new one would say. */
static void take_predictor(kvarc_writer *w)
{
	kvarc_reader *r = w->archive;
	struct kvi_predictor_ref *x = kvi_reader_predictor_before(&r->predictors, w->sequence);
	if (!w->plan || !x || x->p.kind != w->predictor.kind || x->p.level != w->predictor.level ||
	    !kvi_h128_equal(x->p.digest, w->predictor.digest))
		return;
	if (!(w->options.flags & KVARC_WRITE_EMBED_PROFILE) ||
	    kvi_reader_embedding(&r->predictors, x))
		w->predictor_sequence = x->sequence;
}

/* The group of a PARAMS frame that has none yet; NULL: there is none. */
static struct kvi_group *group_of(kvarc_writer *w, const struct kvi_params_ref *p)
{
	const struct kvi_writer_track *t;
	if (p->copy_of || p->tensor >= w->geometry.n_tensors)
		return NULL;
	t = &w->tracks[w->geometry.tensors[p->tensor].track];
	for (uint32_t i = t->first_group; i < t->end_group; i++) {
		struct kvi_group *g = &w->groups[i];
		if (g->tensor == p->tensor && g->head == p->head && g->heads == p->heads)
			return g->params_sequence ? NULL : g;
	}
	return NULL;
}

/* Takes the parameters of a group; what cannot be used is left out. */
static kvarc_ret take_params(kvarc_writer *w, struct kvi_group *g, const struct kvi_params_ref *p)
{
	kvarc_reader *r = w->archive;
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	struct kvi_out content;
	struct kvi_params_header h;
	kvi_out_init(&content, &r->alloc);
	g->params_sequence = p->sequence;
	kvarc_ret ret = kvi_reader_content(r, p->offset, KVI_FRAME_PARAMS, p->sequence, &content);
	if (!ret && kvi_params_header_parse(&h, content.p, content.n) && h.tensor == g->tensor &&
	    h.head == g->head && h.heads == g->heads) {
		ret = kvi_params_parse(&g->params, &w->alloc, h.codec, t->dtype, h.heads,
		                       t->channels, kvi_tensor_rope(&w->geometry, t),
		                       content.p + KVI_PARAMS_HEADER_BYTES,
		                       content.n - KVI_PARAMS_HEADER_BYTES);
		if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
			kvi_fail_alloc(w->error, &w->alloc);
		/* Another encoder may have left out symbols that come now. */
		if (!ret && !kvi_params_may_encode(g->params)) {
			kvi_params_free(g->params);
			g->params = NULL;
		}
	}
	kvi_out_free(&content);
	return ret == KVARC_DATA || ret == KVARC_OPTIONS ? KVARC_OK : ret;
}

/* The last PARAMS of each group: short segments have none of their own. */
static kvarc_ret take_all_params(kvarc_writer *w)
{
	const struct kvi_list *l = &w->archive->index.params;
	kvarc_ret ret = KVARC_OK;
	size_t left = w->options.flags & KVARC_WRITE_STREAMABLE ? 0 : w->n_groups;
	for (size_t i = l->n; i-- > 0 && left && !ret;) {
		const struct kvi_params_ref *p = KVI_LIST(struct kvi_params_ref, *l, i);
		struct kvi_group *g = group_of(w, p);
		if (!g)
			continue;
		ret = take_params(w, g, p);
		left--;
	}
	return ret;
}

/* Removes what is behind the last commit. */
static kvarc_ret end_file(kvarc_writer *w)
{
	const uint64_t behind = w->archive->in.source.size - w->offset;
	if (!behind)
		return KVARC_OK;
	if (!w->sink.truncate)
		return kvi_fail_at(w->error, KVARC_OPTIONS, w->offset, KVARC_UNKNOWN,
		                   "the archive was cut: %llu bytes behind its last commit must be "
		                   "removed, and the sink has no truncate",
		                   (unsigned long long)behind);
	if (w->sink.truncate(w->sink.opaque, w->offset))
		return kvi_fail_at(w->error, KVARC_IO, w->offset, KVARC_UNKNOWN,
		                   "cutting the archive to %llu bytes failed",
		                   (unsigned long long)w->offset);
	return kvi_writer_flush_sink(w);
}

/* Continues the archive that w->archive reads. */
static kvarc_ret resume(kvarc_writer *w, bool lenient)
{
	struct kvi_resume end;
	kvarc_ret ret = take_archive(w);
	if (!ret)
		ret = kvi_reader_resume(w->archive, lenient, &end);
	else
		return ret;
	if (!ret)
		ret = check_options(w);
	if (!ret)
		ret = kvi_writer_take_geometry(w, &w->archive->geometry);
	if (!ret)
		ret = take_end(w, &end);
	kvi_out_free(&end.index);
	if (!ret)
		ret = take_identity(w);
	if (!ret)
		ret = take_tracks(w, lenient);
	if (!ret)
		ret = take_all_params(w);
	if (ret)
		return ret;
	take_predictor(w);
	ret = kvi_writer_resume_crypt(w);
	if (ret)
		return ret;
	w->options.keys = NULL; /* the caller may wipe them */
	w->geometry_hash = w->archive->chains.geometry;
	w->has_geometry = true;
	ret = end_file(w);
	return ret ? ret : kvi_writer_part_from_lost(w);
}

kvarc_ret kvi_writer_open_behind(kvarc_writer **w, kvarc_reader **archive, const kvarc_sink *sink,
                                 const kvarc_writer_options *options)
{
	kvarc_ret ret = kvarc_writer_open(w, sink, options);
	if (!ret) {
		(*w)->archive = *archive;
		*archive = NULL;
		ret = resume(*w, true);
	}
	if (ret && w)
		kvarc_writer_abort(w);
	return ret;
}

kvarc_ret kvarc_writer_open_append(kvarc_writer **w, const kvarc_source *source,
                                   const kvarc_sink *sink, const kvarc_writer_options *options)
{
	kvarc_ret ret = kvarc_writer_open(w, sink, options);
	if (!ret)
		ret = open_archive(*w, source);
	if (!ret)
		ret = resume(*w, false);
	if (ret && w)
		kvarc_writer_abort(w);
	return ret;
}
