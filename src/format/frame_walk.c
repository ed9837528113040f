/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_walk.c - the grammar of a file, frame by frame */
#include "frame_walk.h"

#include "codec_ids.h"
#include "commit.h"
#include "fork.h"
#include "predictor_frame.h"
#include "restore.h"
#include "storeref.h"
#include "superblock.h"

void kvi_walk_init(struct kvi_walk *w, const struct kvi_input *in, struct kvi_packer *packer)
{
	*w = (struct kvi_walk){ .in = *in, .packer = packer, .offset = KVI_SUPERBLOCK_BYTES };
}

void kvi_walk_all(struct kvi_walk *w)
{
	if (kvi_input_seekable(&w->in))
		w->in.window = &w->window;
}

void kvi_walk_free(struct kvi_walk *w)
{
	const struct kvi_alloc *alloc = w->in.alloc;
	if (!alloc)
		return;
	kvi_free(alloc, w->window.buffer.p);
	kvi_free(alloc, w->current.buffer.p);
	kvi_free(alloc, w->current.owned);
	kvi_free(alloc, w->commit.tokens);
	kvi_free(alloc, w->commit.stated);
	kvi_free(alloc, w->segment.stored.p);
	kvi_free(alloc, w->listing.passed.p);
	*w = (struct kvi_walk){ 0 };
}

kvarc_ret kvi_walk_geometry(struct kvi_walk *w, const kvarc_geometry *geometry,
                            const struct kvi_order *order, kvarc_error *error)
{
	const struct kvi_alloc *alloc = w->in.alloc;
	struct kvi_walk_commit *c = &w->commit;
	w->geometry = geometry;
	w->order = order;
	c->tokens = kvi_calloc(alloc, geometry->n_tracks, sizeof(uint64_t));
	c->stated = kvi_calloc(alloc, geometry->n_tracks, sizeof(uint64_t));
	return c->tokens && c->stated ? KVARC_OK : kvi_fail_alloc(error, alloc);
}

static bool is_packed(uint16_t type)
{
	return type != KVI_FRAME_CHUNK && type != KVI_FRAME_COMMIT && type != KVI_FRAME_FOOTER &&
	       type != KVI_FRAME_FORK && kvi_frame_known(type);
}

/* Adds an entry. The number of the frame that a PARAMS frame copies is left out: it is not known
 * when the frame passes. */
static void list(struct kvi_walk_entries *to, const struct kvi_index_entry *entry)
{
	uint8_t b[75];
	b[0] = entry->type;
	b[1] = entry->codec;
	kvi_store32(b + 2, entry->tensor);
	kvi_store32(b + 6, entry->n);
	kvi_store16(b + 10, entry->head);
	kvi_store16(b + 12, entry->heads);
	kvi_store64(b + 14, entry->offset);
	kvi_store64(b + 22, entry->sequence);
	kvi_store64(b + 30, entry->segment);
	kvi_store64(b + 38, entry->type == KVI_FRAME_PARAMS ? 0 : entry->params);
	kvi_store32(b + 46, entry->bytes);
	b[50] = entry->has_chain;
	kvi_store_h128(b + 51, entry->chain);
	kvi_store64(b + 67, entry->number);
	const struct kvi_h128 hash = kvi_h128(b, sizeof b);
	to->n++;
	to->lo += hash.lo;
	to->hi += hash.hi;
}

/* Takes entries off. */
static struct kvi_walk_entries without(struct kvi_walk_entries all,
                                       const struct kvi_walk_entries *entries)
{
	return (struct kvi_walk_entries){ all.n - entries->n, all.lo - entries->lo,
		                          all.hi - entries->hi };
}

static bool same(const struct kvi_walk_entries *a, const struct kvi_walk_entries *b)
{
	return a->n == b->n && a->lo == b->lo && a->hi == b->hi;
}

static kvarc_ret on_params(struct kvi_walk_frame *current, const kvarc_geometry *geometry,
                           kvarc_error *error)
{
	struct kvi_params_header h;
	if (!kvi_params_header_parse(&h, current->content, current->content_bytes))
		return kvi_frame_bad(&current->frame, error, "it is too short");
	current->entry.tensor = h.tensor;
	current->entry.head = h.head;
	current->entry.heads = h.heads;
	current->entry.codec = h.codec;
	return kvi_params_check(geometry, &h, &current->frame, error);
}

/* OPTIONS: a pipe is not enough for what the frame does; `what` also names the whole. */
static kvarc_ret needs_seek(const struct kvi_frame *frame, kvarc_error *error, const char *what)
{
	return kvi_reason(error, KVARC_REASON_NEEDS_SEEK,
	                  kvi_fail_at(error, KVARC_OPTIONS, frame->offset, frame->head.sequence,
	                              "frame %llu %s needs a source that can seek",
	                              (unsigned long long)frame->head.sequence, what));
}

/* The first token of a SEGMENT or STOREREF. */
static kvarc_ret check_t0(const struct kvi_walk *w, uint32_t track, uint64_t t0, kvarc_error *error)
{
	const struct kvi_frame *f = &w->current.frame;
	const uint64_t *tokens = w->commit.tokens;
	if (track >= w->geometry->n_tracks || t0 > tokens[track] || t0 > UINT32_MAX)
		return kvi_frame_bad(f, error, "its track or first token");
	if (t0 != tokens[track] && !kvi_input_seekable(&w->in))
		return needs_seek(f, error, "replaces earlier tokens: the file");
	return KVARC_OK;
}

/* Begins tokens t0 to end - 1 of a track. */
static void begin_segment(struct kvi_walk *w, uint32_t track, uint64_t t0, uint64_t end)
{
	struct kvi_walk_segment *s = &w->segment;
	s->open = true;
	s->track = track;
	s->sequence = w->sequence;
	s->end = end;
	s->predictor = w->predictor;
	w->current.entry.tensor = track;
	w->current.entry.segment = t0;
	w->current.entry.n = (uint32_t)(end - t0);
}

/* A STOREREF stands for all of its segments, as if all but the last had a COMMIT (spec frames
 * 12.3). */
static kvarc_ret on_storeref(struct kvi_walk *w, kvarc_error *error)
{
	const struct kvi_frame *f = &w->current.frame;
	struct kvi_list *stored = &w->segment.stored;
	if (!w->in.stored)
		return kvi_frame_bad(f, error, "the superblock says that there are none");
	if (w->segment.open)
		return kvi_frame_bad(f, error, "the segment before has no COMMIT");
	kvarc_ret ret = kvi_storeref_parse(stored, w->in.alloc, w->geometry, w->order,
	                                   w->current.content, w->current.content_bytes);
	if (ret)
		return ret == KVARC_DATA ? kvi_frame_bad(f, error, "its fields")
		                         : kvi_fail_alloc(error, w->in.alloc);
	const kvarc_stored *first = KVI_LIST(kvarc_stored, *stored, 0);
	const kvarc_stored *last = first + stored->n - 1;
	ret = check_t0(w, first->track, first->t0, error);
	if (ret == KVARC_OK)
		begin_segment(w, first->track, first->t0, last->t0 + last->n);
	return ret;
}

static kvarc_ret on_segment(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_walk_frame *current = &w->current;
	struct kvi_segment *s = &w->segment.content;
	if (w->segment.open)
		return kvi_frame_bad(&current->frame, error, "the segment before has no COMMIT");
	if (!kvi_segment_parse(s, current->content, current->content_bytes))
		return kvi_frame_bad(&current->frame, error, "its fields");
	kvarc_ret ret = check_t0(w, s->track, s->t0, error);
	if (ret)
		return ret;
	if (s->coded && w->predictor.unknown)
		return kvi_frame_newer(&current->frame, error, "has token ids that are coded by");
	if (s->coded && !w->predictor.codes_ids)
		return kvi_frame_bad(&current->frame, error,
		                     "its token ids are coded, and its PREDICTOR does not say so");
	begin_segment(w, s->track, s->t0, s->t0 + s->n);
	kvi_order_begin(&w->segment.chunks, w->order, s->track);
	current->entry.has_chain = s->has_chain;
	current->entry.chain = s->chain;
	return KVARC_OK;
}

/* The tokens of the track are those that the other one has now. */
static kvarc_ret on_fork(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_walk_frame *current = &w->current;
	const struct kvi_frame *f = &current->frame;
	uint64_t *tokens = w->commit.tokens;
	struct kvi_fork fork;
	if (w->segment.open)
		return kvi_frame_bad(f, error, "the segment before has no COMMIT");
	if (!kvi_fork_parse(&fork, current->content, current->content_bytes))
		return kvi_frame_bad(f, error, "its fields");
	if (!kvi_fork_fits(w->geometry, w->order, fork.track, fork.from))
		return kvi_frame_bad(f, error, "its tracks are missing, or their tensors differ");
	if (fork.n > tokens[fork.from])
		return kvi_frame_bad(f, error, "it takes more tokens than there are");
	if (!kvi_input_seekable(&w->in))
		return needs_seek(f, error, "takes tokens of another track: the file");
	tokens[fork.track] = fork.n;
	current->entry.tensor = fork.track;
	current->entry.params = fork.from;
	current->entry.segment = fork.n;
	return KVARC_OK;
}

static kvarc_ret on_chunk(struct kvi_walk_frame *current, struct kvi_walk_segment *segment,
                          const kvarc_geometry *geometry, const struct kvi_order *order,
                          kvarc_error *error)
{
	const struct kvi_frame *f = &current->frame;
	const struct kvi_chunk_header *h = &current->chunk;
	if (!kvi_chunk_header_parse(&current->chunk, current->content, current->content_bytes))
		return kvi_frame_bad(f, error, "its header");
	if (!segment->open || kvi_order_done(&segment->chunks) || h->segment != segment->sequence ||
	    h->n != segment->content.n || h->t0 != segment->content.t0)
		return kvi_frame_bad(f, error, "it does not fit its SEGMENT");
	kvarc_ret ret = kvi_chunk_check(geometry, h, f, error);
	if (ret)
		return ret;
	if (kvi_codec_predicts(h->codec) && segment->predictor.unknown)
		return kvi_frame_newer(f, error, "is predicted by");
	if (kvi_codec_predicts(h->codec) &&
	    (h->params != segment->predictor.sequence ||
	     kvi_codec_uses_prediction(h->codec) != segment->predictor.is_model))
		return kvi_frame_bad(f, error, "it does not name the PREDICTOR of its segment");
	current->order_index = segment->chunks.at;
	if (!kvi_order_next(&segment->chunks, order, geometry, h->tensor, h->head, h->heads))
		return kvi_frame_bad(f, error, "it is not the next chunk of its segment");
	current->entry.tensor = h->tensor;
	current->entry.head = h->head;
	current->entry.heads = h->heads;
	current->entry.segment = h->segment;
	current->entry.params = h->params;
	return KVARC_OK;
}

/* Order alone (spec 3.4); what they say is the reader's. */
static kvarc_ret on_restore(struct kvi_walk *w, kvarc_error *error)
{
	const struct kvi_frame *f = &w->current.frame;
	if (w->segment.open)
		return kvi_frame_bad(f, error, "it stands in a segment");
	if (w->past_items && !kvi_input_seekable(&w->in))
		return needs_seek(f, error, "adds a file behind tokens: the archive");
	w->n_items++;
	return KVARC_OK;
}

static kvarc_ret on_blob(const struct kvi_walk_frame *current, uint64_t n_items, kvarc_error *error)
{
	struct kvi_blob b;
	if (!kvi_blob_parse(&b, current->content, current->content_bytes))
		return kvi_frame_bad(&current->frame, error, "its fields");
	return b.item < n_items
	               ? KVARC_OK
	               : kvi_frame_bad(&current->frame, error, "its item does not come before it");
}

static kvarc_ret on_predictor(const struct kvi_walk_frame *current, const struct kvi_alloc *alloc,
                              struct kvi_walk_predictor *predictor, kvarc_error *error)
{
	const struct kvi_frame *f = &current->frame;
	struct kvi_predictor p;
	kvarc_ret ret = kvi_predictor_parse(&p, alloc, current->content, current->content_bytes);
	if (ret == KVARC_DATA)
		return kvi_frame_bad(f, error, "its fields");
	if (ret)
		return kvi_fail_alloc(error, alloc);
	*predictor = (struct kvi_walk_predictor){ .sequence = p.kind != KVI_PREDICTOR_NONE
		                                                      ? f->head.sequence
		                                                      : 0,
		                                  .is_model = p.kind == KVI_PREDICTOR_MODEL,
		                                  .unknown = p.unknown,
		                                  .codes_ids = p.codes_ids,
		                                  .profile_bytes = p.content_bytes };
	kvi_predictor_free(&p, alloc);
	return KVARC_OK;
}

static kvarc_ret on_profile(const struct kvi_walk_frame *current,
                            struct kvi_walk_predictor *predictor, kvarc_error *error)
{
	struct kvi_profile_part p;
	if (predictor->unknown)
		return KVARC_OK;
	if (!kvi_profile_part_parse(&p, current->content, current->content_bytes))
		return kvi_frame_bad(&current->frame, error, "its fields");
	if (p.offset != predictor->profile_next ||
	    p.bytes > predictor->profile_bytes - predictor->profile_next)
		return kvi_frame_bad(&current->frame, error,
		                     "it is not the next part of a profile");
	predictor->profile_next += p.bytes;
	return KVARC_OK;
}

static kvarc_ret on_commit(struct kvi_walk_frame *current, struct kvi_walk_segment *segment,
                           struct kvi_walk_commit *commit, size_t n_tracks, kvarc_error *error)
{
	const struct kvi_frame *f = &current->frame;
	struct kvi_commit c;
	if (segment->open && !kvi_order_done(&segment->chunks))
		return kvi_frame_bad(f, error, "chunks of its segment are missing");
	if (segment->open)
		commit->tokens[segment->track] = segment->end;
	segment->open = false;
	if (!kvi_commit_parse(&c, commit->stated, n_tracks, current->content,
	                      current->content_bytes) ||
	    c.frames != f->head.sequence || c.offset != f->offset)
		return kvi_frame_bad(f, error, "its fields");
	if (memcmp(commit->stated, commit->tokens, n_tracks * sizeof *commit->tokens))
		return kvi_frame_bad(f, error, "its token counts");
	if (c.checkpoint.number && c.checkpoint.number <= commit->checkpoint)
		return kvi_frame_bad(f, error, "the number of its checkpoint");
	if (c.checkpoint.number)
		commit->checkpoint = c.checkpoint.number;
	current->entry.number = c.checkpoint.number;
	commit->offset = f->offset;
	commit->end = f->offset + f->bytes;
	return KVARC_OK;
}

/* The entries of a LIST or INDEX. False: its fields are not valid. */
static bool all_entries(struct kvi_index_reader *r, struct kvi_walk_entries *entries)
{
	struct kvi_index_entry entry;
	*entries = (struct kvi_walk_entries){ 0 };
	while (kvi_index_next(r, &entry))
		list(entries, &entry);
	return kvi_index_end(r);
}

static kvarc_ret on_list(struct kvi_walk_frame *current, struct kvi_walk_listing *listing,
                         bool in_segment, kvarc_error *error)
{
	struct kvi_index_reader r;
	struct kvi_walk_entries listed;
	if (in_segment)
		return kvi_frame_bad(&current->frame, error, "it stands in a segment");
	if (!kvi_list_begin(&r, current->content, current->content_bytes) ||
	    !all_entries(&r, &listed))
		return kvi_frame_bad(&current->frame, error, "its fields");
	if (!listing->whole || !same(&listed, &listing->chunks))
		return kvi_frame_bad(&current->frame, error,
		                     "it does not list the chunks before it");
	current->entry.n = (uint32_t)listed.n;
	listing->all = without(listing->all, &listed);
	listing->chunks = (struct kvi_walk_entries){ 0 };
	return KVARC_OK;
}

/* The entries that an INDEX must have. False: the one that it names has not passed. */
static bool behind(const struct kvi_walk_listing *listing, const struct kvi_index_reader *index,
                   struct kvi_walk_entries *entries)
{
	*entries = listing->all;
	if (!index->head.follows)
		return true;
	const size_t i = kvi_list_search(&listing->passed, sizeof(struct kvi_walk_index),
	                                 offsetof(struct kvi_walk_index, offset),
	                                 index->head.follows);
	if (i == listing->passed.n)
		return false;
	const struct kvi_walk_index *x = KVI_LIST(struct kvi_walk_index, listing->passed, i);
	if (x->offset != index->head.follows || x->bytes != index->head.follows_bytes)
		return false;
	*entries = without(listing->all, &x->before);
	return true;
}

static kvarc_ret on_index(const struct kvi_walk_frame *current, struct kvi_walk_listing *listing,
                          const struct kvi_alloc *alloc, kvarc_error *error)
{
	struct kvi_index_reader r;
	struct kvi_walk_entries listed, due;
	if (!kvi_index_begin(&r, current->content, current->content_bytes) ||
	    !behind(listing, &r, &due) || !all_entries(&r, &listed))
		return kvi_frame_bad(&current->frame, error, "its fields");
	if (!same(&listed, &due))
		return kvi_frame_bad(&current->frame, error,
		                     "it does not list the frames before it");
	if (r.head.codecs != listing->codecs)
		return kvi_frame_bad(&current->frame, error,
		                     "it does not name the codecs of the chunks before it");
	struct kvi_walk_index *x = kvi_list_add(&listing->passed, alloc, sizeof *x);
	if (!x)
		return kvi_fail_alloc(error, alloc);
	*x = (struct kvi_walk_index){ current->frame.offset, (uint32_t)current->frame.bytes,
		                      listing->all };
	listing->chunks = (struct kvi_walk_entries){ 0 };
	return KVARC_OK;
}

/* Whether a frame of this type ends a file well (spec 3.4). */
static bool ends(uint16_t last_type)
{
	return last_type == KVI_FRAME_FOOTER || last_type == KVI_FRAME_COMMIT;
}

static kvarc_ret on_footer(const struct kvi_walk *w, kvarc_error *error)
{
	const struct kvi_walk_frame *current = &w->current;
	struct kvi_footer f;
	const struct kvi_walk_index *last = kvi_walk_last_index(w);
	if (!kvi_footer_parse(&f, current->content, current->content_bytes))
		return kvi_frame_bad(&current->frame, error, "its size");
	if (!ends(w->last_type) || !last || !same(&w->listing.all, &last->before) ||
	    f.index != last->offset || f.index_bytes != last->bytes ||
	    f.commit != w->commit.offset || f.commit_bytes != w->commit.end - w->commit.offset ||
	    f.frames != w->sequence)
		return kvi_frame_bad(&current->frame, error, "it does not fit the frames before");
	return KVARC_OK;
}

/* Whether a RESTORE may come behind a frame of this type on a pipe (spec 3.5). */
static bool before_items(uint16_t type)
{
	return !kvi_frame_counts(type) || type == KVI_FRAME_GEOMETRY ||
	       type == KVI_FRAME_IDENTITY || type == KVI_FRAME_PREDICTOR ||
	       type == KVI_FRAME_PROFILE || type == KVI_FRAME_RESTORE;
}

static kvarc_ret interpret(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_walk_frame *current = &w->current;
	const uint16_t type = current->frame.head.type;
	if (w->predictor.profile_next < w->predictor.profile_bytes && type != KVI_FRAME_PROFILE &&
	    kvi_frame_counts(type))
		return kvi_frame_bad(&current->frame, error,
		                     "PROFILE frames before it are missing");
	switch (type) {
	case KVI_FRAME_GEOMETRY:
		return w->last_type ? kvi_frame_bad(&current->frame, error, "there is one already")
		                    : KVARC_OK;
	case KVI_FRAME_RESTORE:
		return on_restore(w, error);
	case KVI_FRAME_BLOB:
		return on_blob(current, w->n_items, error);
	case KVI_FRAME_PARAMS:
		return on_params(current, w->geometry, error);
	case KVI_FRAME_SEGMENT:
		return on_segment(w, error);
	case KVI_FRAME_STOREREF:
		return on_storeref(w, error);
	case KVI_FRAME_FORK:
		return on_fork(w, error);
	case KVI_FRAME_CHUNK:
		return on_chunk(current, &w->segment, w->geometry, w->order, error);
	case KVI_FRAME_PREDICTOR:
		return on_predictor(current, w->in.alloc, &w->predictor, error);
	case KVI_FRAME_PROFILE:
		return on_profile(current, &w->predictor, error);
	case KVI_FRAME_COMMIT:
		return on_commit(current, &w->segment, &w->commit, w->geometry->n_tracks, error);
	case KVI_FRAME_LIST:
		return on_list(current, &w->listing, w->segment.open, error);
	case KVI_FRAME_INDEX:
		return on_index(current, &w->listing, w->in.alloc, error);
	case KVI_FRAME_FOOTER:
		return on_footer(w, error);
	default:
		return KVARC_OK;
	}
}

/* Finds the content of the current frame. */
static kvarc_ret get_content(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_walk_frame *current = &w->current;
	const struct kvi_frame *f = &current->frame;
	current->content = f->payload;
	current->content_bytes = f->head.payload_bytes;
	if (is_packed(f->head.type)) {
		bool skims = w->skim && kvi_frame_skims(&f->head);
		current->content_bytes = f->head.decoded_bytes;
		current->content = current->head;
		if (skims)
			return kvi_frame_skim(w->packer, f, current->head, error);
		kvarc_ret ret = kvi_frame_spend_entries(f, 0, w->decode_left, error);
		return ret ? ret
		           : kvi_frame_content(w->packer, f, &current->content, &current->owned,
		                               error);
	}
	if ((f->head.type == KVI_FRAME_COMMIT || f->head.type == KVI_FRAME_FOOTER ||
	     f->head.type == KVI_FRAME_FORK) &&
	    f->head.decoded_bytes != f->head.payload_bytes)
		return kvi_frame_bad(f, error, "decoded_bytes");
	return KVARC_OK;
}

/* The frame at the walk's offset, or what there is of it for one that is passed. */
static kvarc_ret read_frame(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_walk_frame *current = &w->current;
	struct kvi_frame *f = &current->frame;
	if (w->pass_chunks && kvi_input_seekable(&w->in) && !w->in.crypt) {
		kvarc_ret ret = kvi_frame_peek(&w->in, w->offset, current->passed,
		                               KVI_CHUNK_HEADER_BYTES, f, error);
		if (ret ||
		    (f->head.type == KVI_FRAME_CHUNK && f->bytes <= w->in.source.size - w->offset))
			return ret;
	}
	return kvi_frame_read(&w->in, w->offset, &current->buffer, f, error);
}

/* A LIST may have the current CHUNK. */
static void list_chunk(struct kvi_walk *w)
{
	struct kvi_walk_listing *l = &w->listing;
	if (!l->chunks.n)
		l->whole = w->current.chunk.head == 0 &&
		           w->current.order_index == w->order->first[w->segment.track];
	list(&l->chunks, &w->current.entry);
	l->codecs |= kvi_codec_bit(w->current.chunk.codec);
}

kvarc_ret kvi_walk_next(struct kvi_walk *w, kvarc_error *error)
{
	struct kvi_walk_frame *current = &w->current;
	struct kvi_frame *f = &current->frame;
	kvi_free(w->in.alloc, current->owned);
	current->owned = NULL;
	kvarc_ret ret = read_frame(w, error);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(f, error);
	if (ret)
		return ret;
	const uint16_t type = f->head.type;
	if (f->head.sequence != w->sequence)
		return kvi_frame_bad(f, error, "frames are missing or repeated before it");
	if (!w->last_type && type != KVI_FRAME_GEOMETRY && type != KVI_FRAME_KEY)
		return kvi_frame_bad(f, error, "the first frame must be GEOMETRY");
	current->entry = (struct kvi_index_entry){ .type = type > UINT8_MAX ? 0 : (uint8_t)type,
		                                   .offset = w->offset,
		                                   .sequence = w->sequence,
		                                   .bytes = (uint32_t)f->bytes };
	ret = get_content(w, error);
	if (ret == KVARC_OK)
		ret = interpret(w, error);
	if (ret)
		return ret;
	w->past_items = w->past_items || !before_items(type);
	if (type != KVI_FRAME_INDEX && type != KVI_FRAME_FOOTER)
		list(&w->listing.all, &current->entry);
	if (type == KVI_FRAME_CHUNK)
		list_chunk(w);
	if (kvi_frame_counts(type))
		w->last_type = type;
	w->offset += f->bytes;
	w->sequence++;
	return KVARC_OK;
}

kvarc_ret kvi_walk_first(struct kvi_walk *w, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	while (!ret && !w->last_type)
		ret = kvi_walk_next(w, error);
	return ret;
}

kvarc_ret kvi_walk_end(const struct kvi_walk *w, kvarc_error *error)
{
	if (ends(w->last_type))
		return KVARC_OK;
	return kvi_reason(error, KVARC_REASON_SALVAGE,
	                  kvi_fail_at(error, KVARC_DATA, w->offset, w->sequence,
	                              "the file is cut at byte %llu: "
	                              "it ends without a commit; salvage gives what is before",
	                              (unsigned long long)w->offset));
}
