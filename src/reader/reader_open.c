/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_open.c - the reader's public calls: open, close, what is in the file */
#include <stdio.h>

#include "reader_decode.h"
#include "reader_frames.h"
#include "reader_lists.h"
#include "reader_load.h"
#include "reader_open.h"
#include "reader_salvage.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "format/crypt.h"
#include "util/arguments.h"

const struct kvi_alloc *kvi_reader_alloc(const kvarc_reader *r)
{
	return &r->alloc;
}

bool kvi_reader_can_seek(const kvarc_reader *r)
{
	return kvi_input_seekable(&r->in);
}

bool kvi_reader_started(const kvarc_reader *r)
{
	return r->seq.started;
}

const kvarc_common *kvi_reader_common(const kvarc_reader *r)
{
	return &r->options.common;
}

kvarc_error *kvi_reader_error(const kvarc_reader *r)
{
	return r->error;
}

bool kvi_reader_allows_lossy(const kvarc_reader *r)
{
	return r->allow_lossy;
}

bool kvi_reader_is_salvage(const kvarc_reader *r)
{
	return r->salvage;
}

static kvarc_ret read_superblock(kvarc_reader *r)
{
	uint8_t b[KVI_SUPERBLOCK_BYTES];
	size_t got;
	kvarc_ret ret = kvi_input_read(&r->in, b, sizeof b, 0, &got, r->error);
	if (ret)
		return ret;
	if (!kvi_superblock_magic(b, got))
		return kvi_fail_at(r->error, KVARC_FORMAT, 0, KVARC_UNKNOWN,
		                   "this is not a kvarc file");
	if (got < sizeof b)
		return kvi_fail_at(r->error, KVARC_DATA, got, KVARC_UNKNOWN,
		                   "the file is cut inside its first 64 bytes: nothing can be "
		                   "read");
	ret = kvi_superblock_parse(&r->sb, b);
	r->in.sync = kvi_frame_sync(r->sb.file_id);
	r->in.stored = r->sb.incompat & KVI_INCOMPAT_STORE;
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			r->error, KVARC_REASON_NEWER,
			kvi_fail_at(r->error, ret, 0, KVARC_UNKNOWN,
		                    "format version %u.%u, features %#x: a newer version of kvarc "
		                    "is needed",
		                    (unsigned)r->sb.major, (unsigned)r->sb.minor,
		                    (unsigned)r->sb.incompat));
	if (ret == KVARC_DATA && kvi_superblock_pre_release(b))
		return kvi_fail_at(r->error, KVARC_OPTIONS, 0, KVARC_UNKNOWN,
		                   "the archive was made by a pre-release of kvarc, whose layout "
		                   "version 1.0 does not read: unpack it with that release");
	if (ret == KVARC_DATA && r->salvage)
		return kvi_salvage_superblock(r);
	if (ret)
		return kvi_reason(
			r->error, KVARC_REASON_SALVAGE,
			kvi_fail_at(r->error, ret, 0, KVARC_UNKNOWN,
		                    "the first 64 bytes are damaged; salvage may give the rest"));
	return KVARC_OK;
}

static kvarc_ret open_check(const kvarc_source *source, const kvarc_reader_options *options)
{
	const char *wrong = NULL;
	kvarc_ret ret = kvi_check_source(options->common.error, "kvarc_reader_open", source, true);
	if (!ret)
		ret = KVI_CHECK_RESERVED(options->common.error, "kvarc_reader_open",
		                         "kvarc_reader_options", options);
	if (!ret)
		ret = kvi_crypt_check(options->common.error, "kvarc_reader_open", options->keys,
		                      false);
	if (ret)
		return ret;
	if (options->flags & ~(KVARC_READ_SALVAGE | KVARC_READ_ALLOW_LOSSY))
		wrong = "unknown flags in the reader's options";
	else if (options->n_profiles && !options->profiles)
		wrong = "profiles are counted but not given";
	if (wrong)
		return kvi_fail(options->common.error, KVARC_PROG, "kvarc_reader_open: %s", wrong);
	if ((options->flags & KVARC_READ_SALVAGE) && source->size == KVARC_UNKNOWN)
		return kvi_reason(options->common.error, KVARC_REASON_NEEDS_SEEK,
		                  kvi_fail(options->common.error, KVARC_OPTIONS,
		                           "salvage needs a source that can seek, not a pipe"));
	return KVARC_OK;
}

/* The first bytes, where GEOMETRY and IDENTITY are, and the last ones, with FOOTER, INDEX and the
 * last COMMIT, in one or two requests. They stay. */
static kvarc_ret read_ends(kvarc_reader *r)
{
	enum { SHARE = 4 };
	struct kvi_list ends = { 0 };
	if (!kvi_input_seekable(&r->in) || r->in.source.memory)
		return KVARC_OK;
	if (!kvi_ahead_open(&r->ahead, &r->alloc, r->options.request_cost))
		return kvi_fail_alloc(r->error, &r->alloc);
	r->in.ahead = &r->ahead;
	const uint64_t size = r->in.source.size, first = r->ahead.cost / SHARE;
	const uint64_t last = size < r->ahead.cost ? size : r->ahead.cost;
	const kvarc_byte_range two[] = { { .bytes = size < first ? size : first },
		                         { .offset = size - last, .bytes = last } };
	kvarc_ret ret = KVARC_OK;
	for (int i = 0; i < 2 && !ret; i++) {
		kvarc_byte_range *x = kvi_list_add(&ends, &r->alloc, sizeof *x);
		if (x)
			*x = two[i];
		else
			ret = kvi_fail_alloc(r->error, &r->alloc);
	}
	if (!ret)
		ret = kvi_ahead_read(&r->ahead, &r->in.source, &ends, KVI_AHEAD_KEPT, r->error);
	kvi_free(&r->alloc, ends.p);
	return ret;
}

/* Frames of an encrypted file are opened from here on. */
static kvarc_ret open_crypt(kvarc_reader *r, const struct kvi_crypt *known)
{
	if (!(r->sb.incompat & KVI_INCOMPAT_ENCRYPTED))
		return KVARC_OK;
	return known ? kvi_crypt_open_known(&r->in.crypt, &r->alloc, known, r->error)
	             : kvi_crypt_open(&r->in.crypt, &r->alloc, r->sb.file_id, r->options.keys,
	                              r->error);
}

/* Opens the file. known: the file key of another reader of the file, or NULL. */
static kvarc_ret open_file(kvarc_reader *r, const struct kvi_crypt *known)
{
	r->predictors.has_lock = !pthread_mutex_init(&r->predictors.lock, NULL);
	if (!r->predictors.has_lock || !kvi_params_store_init(&r->workers.store, &r->alloc))
		return kvi_fail(r->error, KVARC_MEM, "out of memory");
	kvarc_ret ret = read_ends(r);
	if (ret == KVARC_OK)
		ret = read_superblock(r);
	if (ret == KVARC_OK)
		ret = open_crypt(r, known);
	r->options.keys = NULL; /* the caller may wipe them */
	if (ret)
		return ret;
	if (!kvi_input_seekable(&r->in))
		return kvi_reader_pipe_open(r);
	ret = r->salvage ? kvi_salvage_load(r) : kvi_reader_load(r);
	r->totals.progress_total = r->totals.raw_bytes;
	kvi_ahead_drop(&r->ahead, KVI_AHEAD_OPENING);
	return ret;
}

kvarc_ret kvi_reader_open_known(kvarc_reader **out, const kvarc_source *source,
                                const kvarc_reader_options *options, const struct kvi_crypt *known)
{
	static const kvarc_reader_options defaults = KVARC_READER_OPTIONS_INIT;
	const kvarc_reader_options *o = options ? options : &defaults;
	if (!out)
		return KVARC_PROG;
	*out = NULL;
	kvarc_ret ret = open_check(source, o);
	if (!ret)
		ret = kvi_handle_new(out, sizeof **out, offsetof(kvarc_reader, alloc), &o->common,
		                     o->common.memlimit);
	if (ret)
		return ret;
	kvarc_reader *r = *out;
	r->options = *o;
	r->error = o->common.error;
	r->salvage = o->flags & KVARC_READ_SALVAGE;
	r->allow_lossy = o->flags & KVARC_READ_ALLOW_LOSSY;
	r->state = KVARC_STATE_UNKNOWN;
	r->in = (struct kvi_input){ .source = *source, .alloc = &r->alloc };
	r->totals.progress_total = KVARC_UNKNOWN;
	r->meta.decode_left = r->alloc.limit;
	kvi_packer_init(&r->packer, &r->alloc);
	kvi_out_init(&r->chains.scratch, &r->alloc);
	ret = open_file(r, known);
	if (ret)
		kvarc_reader_close(out);
	return ret;
}

kvarc_ret kvarc_reader_open(kvarc_reader **out, const kvarc_source *source,
                            const kvarc_reader_options *options)
{
	return kvi_reader_open_known(out, source, options, NULL);
}

void kvarc_reader_close(kvarc_reader **out)
{
	kvarc_reader *r = out ? *out : NULL;
	if (!r)
		return;
	kvi_reader_free_workers(r);
	kvi_reader_free_repeated(r);
	kvi_segment_use_release(r, r->seq.segment);
	kvi_stored_free(r);
	kvi_walk_free(&r->seq.walk);
	kvi_params_store_free(&r->workers.store);
	for (size_t i = 0; i < r->meta.items.n; i++)
		kvi_restore_free(&KVI_LIST(struct kvi_item, r->meta.items, i)->restore, &r->alloc);
	kvi_free(&r->alloc, r->meta.items.p);
	kvi_reader_forget_predictors(r);
	kvi_free(&r->alloc, r->predictors.list.p);
	if (r->predictors.has_lock)
		pthread_mutex_destroy(&r->predictors.lock);
	kvi_free(&r->alloc, r->index.chunks.p);
	kvi_reader_free_lists(r);
	kvi_free(&r->alloc, r->index.segments.p);
	kvi_free(&r->alloc, r->index.params.p);
	kvi_free(&r->alloc, r->losses.regions.p);
	kvi_free(&r->alloc, r->losses.list.p);
	kvi_free(&r->alloc, r->losses.expected);
	kvi_free(&r->alloc, r->losses.sums);
	kvi_free(&r->alloc, r->index.blobs.p);
	kvi_free(&r->alloc, r->index.tokens);
	kvi_free(&r->alloc, r->index.last);
	kvi_free(&r->alloc, r->index.checkpoints.p);
	kvi_free(&r->alloc, r->meta.commit.p);
	kvi_free(&r->alloc, r->chains.last);
	kvi_out_free(&r->chains.scratch);
	kvi_identity_free(&r->meta.identity, &r->alloc);
	kvi_order_free(&r->order, &r->alloc);
	kvi_geometry_free(&r->geometry, &r->alloc);
	kvi_packer_free(&r->packer);
	kvi_free(&r->alloc, r->plan.p);
	kvi_ahead_close(&r->ahead);
	kvi_crypt_close(&r->in.crypt);
	kvi_free(&r->alloc, r);
	*out = NULL;
}

const kvarc_geometry *kvarc_reader_geometry(const kvarc_reader *r)
{
	return r ? &r->geometry : NULL;
}

uint64_t kvarc_reader_tokens(const kvarc_reader *r, uint32_t track)
{
	return r && track < r->geometry.n_tracks ? r->index.tokens[track] : 0;
}

/* The number of tokens that a tier left out, from the identity (spec 5.1); 0: none, or the archive
 * does not have the tokens that the tier left. */
static uint64_t dropped_tokens(const kvarc_reader *r)
{
	const char *note = kvarc_reader_identity(r, "lossy");
	unsigned long long n, all;
	uint64_t tokens = 0;
	int end = 0;
	if (!note)
		return 0;
	const char *last = strrchr(note, ';');
	last = last ? last + 1 : note;
	if (sscanf(last, "%llu of %llu tokens left out%n", &n, &all, &end) < 2 || !end || last[end])
		return 0;
	for (size_t i = 0; i < r->geometry.n_tracks; i++)
		tokens += r->index.tokens[i];
	return n < all && all - n == tokens ? n : 0;
}

kvarc_ret kvarc_reader_get_info(const kvarc_reader *r, kvarc_info *info)
{
	if (!r || !info)
		return KVARC_PROG;
	*info = (kvarc_info){ .format_major = r->sb.major,
		              .format_minor = r->sb.minor,
		              .file_bytes = r->in.source.size,
		              .raw_bytes = r->totals.raw_bytes,
		              .elements = r->totals.elements,
		              .frames = r->totals.frames,
		              .chunks = r->totals.chunks,
		              .segments = r->totals.segments,
		              .dropped_bytes = r->totals.dropped,
		              .state = r->state,
		              .n_items = kvi_reader_n_items(r),
		              .stored_tokens = r->totals.stored_tokens,
		              .codecs = r->totals.codecs,
		              .fallbacks = kvi_reader_fallbacks(r) };
	memcpy(info->file_id, r->sb.file_id, sizeof info->file_id);
	info->dropped_tokens = dropped_tokens(r);
	info->encrypted = r->in.crypt != NULL;
	for (size_t i = r->meta.first_item; i < r->meta.items.n; i++)
		info->literal_bytes += KVI_LIST(struct kvi_item, r->meta.items, i)->literal_bytes;
	return KVARC_OK;
}

bool kvi_reader_is_whole(const kvarc_reader *r)
{
	return r->by_index;
}

const uint8_t *kvi_reader_domain(const kvarc_reader *r)
{
	return r->in.crypt ? r->in.crypt->domain : NULL;
}

/* The generation of the chunk at an offset (spec lossy 1), 0: it is not lossy, or damaged; and, of
 * a REPEAT, where what it repeats is, else the same offset. Returns OK, IO. */
static kvarc_ret generation_at(kvarc_reader *r, uint64_t *offset, uint8_t *generation)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES];
	const uint8_t *payload = head + KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header h;
	struct kvi_frame f;
	kvarc_ret ret = kvi_frame_peek(&r->in, *offset, head, sizeof head - KVI_FRAME_HEAD_BYTES,
	                               &f, r->error);
	if (ret || f.head.type != KVI_FRAME_CHUNK ||
	    f.head.payload_bytes <= KVI_CHUNK_HEADER_BYTES ||
	    !kvi_chunk_header_parse(&h, f.payload, f.head.payload_bytes))
		return ret == KVARC_IO ? ret : KVARC_OK;
	if (kvi_codec_lossy(h.codec))
		*generation = (uint8_t)kvi_lossy_generation(payload, 1);
	if (h.codec == KVI_CODEC_REPEAT &&
	    f.head.payload_bytes == KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES)
		*offset = kvi_load64(payload + 8);
	return KVARC_OK;
}

kvarc_ret kvarc_reader_chunk(kvarc_reader *r, uint64_t i, kvarc_chunk_info *chunk)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES];
	struct kvi_chunk_header h;
	struct kvi_frame f;
	if (!r || !chunk)
		return KVARC_PROG;
	if (r->sticky)
		return r->sticky;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			r->error, KVARC_REASON_NEEDS_SEEK,
			kvi_reader_fail(r, KVARC_OPTIONS,
		                        "listing chunks needs a source that can seek, not a pipe"));
	kvarc_ret ret = kvi_reader_list_all(r);
	if (ret)
		return kvi_reader_set_error(r, ret);
	if (i >= r->index.chunks.n)
		return KVARC_END;
	const struct kvi_chunk_ref *c = KVI_LIST(struct kvi_chunk_ref, r->index.chunks, i);
	ret = kvi_reader_peek_chunk(r, c, head, 0, &h, &f);
	if (ret == KVARC_IO || ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_reader_set_error(r, ret);
	if (ret)
		return kvi_reader_set_error(
			r, kvi_reason(r->error, KVARC_REASON_SALVAGE,
		                      kvi_fail_at(r->error, KVARC_DATA, c->offset, c->sequence,
		                                  "the chunk at offset %llu is not what "
		                                  "the index says; salvage may give the rest",
		                                  (unsigned long long)c->offset)));
	*chunk = (kvarc_chunk_info){ .tensor = h.tensor,
		                     .head = h.head,
		                     .heads = h.heads,
		                     .t0 = h.t0,
		                     .n = h.n,
		                     .codec = h.codec,
		                     .stream_size = h.cut.stream_size,
		                     .offset = c->offset,
		                     .sequence = c->sequence,
		                     .payload_bytes = f.head.payload_bytes,
		                     .frame_bytes = f.bytes,
		                     .predicted_exactly =
		                             kvi_chunk_predicted_exactly(&h, f.head.payload_bytes),
		                     .raw_bytes = f.head.decoded_bytes };
	uint64_t at = c->offset;
	if (kvi_codec_lossy(h.codec) || h.codec == KVI_CODEC_REPEAT)
		ret = generation_at(r, &at, &chunk->generation);
	if (!ret && at < c->offset && at % KVI_FRAME_ALIGN == 0)
		ret = generation_at(r, &at, &chunk->generation);
	return ret ? kvi_reader_set_error(r, ret) : KVARC_OK;
}
