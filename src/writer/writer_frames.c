/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_frames.c - frames into the sink: sealed, listed, covered by parity; failures that stay */
#include "config.h"

#include "writer_frames.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "writer_state.h"
#include "format/crypt.h"
#include "format/params_header.h"
#include "format/parity.h"
#include "format/superblock.h"
#include "util/arguments.h"

/* ==== Failures of a writer that stay, and what it refuses ==== */

kvarc_ret kvi_writer_set_error(kvarc_writer *w, kvarc_ret ret)
{
	if (ret && !w->sticky)
		w->sticky = ret;
	return ret;
}

bool kvi_writer_refuses(kvarc_writer *w)
{
	if (w->process != getpid()) /* the parent process continues to write */
		w->sticky = kvi_fail(w->error, KVARC_PROG,
		                     "the writer belongs to the process that this one was forked "
		                     "from: open another one, on another file");
	return w->sticky != KVARC_OK;
}

const struct kvi_alloc *kvi_writer_alloc(const kvarc_writer *w)
{
	return &w->alloc;
}

/* ==== Encrypted archives: frames that are sealed (frames.md 12.1) ==== */

/* Makes the ENCRYPTED frame of the one in *frame, whose header is head: *frame and *bytes are of
 * that, in memory of the writer, until the next call. Returns OK, MEM, MEMLIMIT, PROG. */
static kvarc_ret seal(struct kvi_writer_output *output, const struct kvi_frame_head *head,
                      uint8_t **frame, uint64_t *bytes)
{
	const uint8_t *payload = *frame + KVI_FRAME_HEAD_BYTES;
	if (head->payload_bytes > KVI_FRAME_MAX - KVI_CRYPT_BYTES)
		return kvi_fail(output->error, KVARC_PROG,
		                "a frame of %u bytes is too large: 2^28, encrypted, is the limit",
		                (unsigned)head->payload_bytes);
	*bytes = kvi_frame_bytes(head->payload_bytes + KVI_CRYPT_BYTES);
	output->sealed.n = 0;
	if (!kvi_out_reserve(&output->sealed, (size_t)*bytes))
		return kvi_fail_alloc(output->error, output->alloc);
	*frame = output->sealed.p;
	kvi_crypt_seal(output->crypt, *frame, head, output->sync, output->offset, payload);
	return KVARC_OK;
}

/* ==== Parity of what a writer writes, in groups that take turns (frames.md 12.2) ==== */

/* Groups that are open at a time; pieces of larger frames. */
enum { TURNS = 4, PIECE_MAX = 4 << 20, PIECES_DEFAULT = 16, PIECES_MOST = KVI_PARITY_MOST - 1 };

/* A group that is not full yet. */
struct parity_group {
	struct kvi_parity_piece pieces[PIECES_MOST];
	unsigned n;
	uint64_t bytes;     /* bytes of all pieces */
	uint32_t row_bytes; /* bytes of the longest piece */
	/* One row: the sum of the pieces so far, in `capacity` bytes. */
	uint8_t *sum;
	size_t capacity;
	/* Several rows: factors depend on the number of pieces, which are stored until then. */
	uint8_t *data[PIECES_MOST];
};

/* The groups of a writer. */
struct kvi_writer_parity {
	unsigned pieces, rows;
	unsigned turn; /* index of the group of the next piece */
	bool emitting; /* rows of a group are being written: no INDEX comes between */
	struct kvi_out frame;
	struct parity_group groups[TURNS];
};

kvarc_ret kvi_writer_parity_check(const kvarc_parity *parity, kvarc_error *error)
{
	if (!parity)
		return KVARC_OK;
	const uint64_t pieces = parity->pieces ? parity->pieces : PIECES_DEFAULT;
	if (parity->reserved[0] || parity->reserved[1] ||
	    pieces + (parity->rows ? parity->rows : 1) > KVI_PARITY_MOST)
		return kvi_fail(error, KVARC_PROG,
		                "kvarc_writer_open: pieces and rows of parity are 256 at most, and "
		                "reserved members zero");
	return KVARC_OK;
}

static kvarc_ret open_parity(struct kvi_writer_output *output, const kvarc_parity *options)
{
	struct kvi_writer_parity *p = kvi_calloc(output->alloc, 1, sizeof *p);
	if (!p)
		return kvi_fail_alloc(output->error, output->alloc);
	output->parity = p;
	p->pieces = options->pieces ? options->pieces : PIECES_DEFAULT;
	p->rows = options->rows ? options->rows : 1;
	kvi_out_init(&p->frame, output->alloc);
	return KVARC_OK;
}

static void forget(const struct kvi_alloc *alloc, struct parity_group *group)
{
	for (unsigned i = 0; i < group->n; i++)
		kvi_free(alloc, group->data[i]);
	kvi_free(alloc, group->sum);
	*group = (struct parity_group){ .n = 0 };
}

static void close_parity(struct kvi_writer_output *output)
{
	for (unsigned i = 0; output->parity && i < TURNS; i++)
		forget(output->alloc, &output->parity->groups[i]);
	if (output->parity)
		kvi_out_free(&output->parity->frame);
	kvi_free(output->alloc, output->parity);
}

/* Whether the next frame is a row of the same group: nothing may come between. */
static bool parity_busy(const struct kvi_writer_output *output)
{
	return output->parity && output->parity->emitting;
}

/* Adds bytes to the one row of a group, which becomes as long as they are. */
static bool add_to_sum(const struct kvi_alloc *alloc, struct parity_group *group,
                       const uint8_t *bytes, size_t n)
{
	if (n > group->capacity) {
		uint8_t *sum = kvi_calloc(alloc, n, 1);
		if (!sum)
			return false;
		if (group->capacity)
			memcpy(sum, group->sum, group->capacity);
		kvi_free(alloc, group->sum);
		group->sum = sum;
		group->capacity = n;
	}
	kvi_parity_add(group->sum, 1, bytes, n);
	return true;
}

static kvarc_ret add_piece(struct kvi_writer_output *output, struct parity_group *group,
                           const uint8_t *bytes, uint32_t n, uint64_t offset)
{
	bool ok;
	if (output->parity->rows == 1) {
		ok = add_to_sum(output->alloc, group, bytes, n);
	} else {
		uint8_t *copy = kvi_malloc(output->alloc, n);
		ok = copy;
		if (copy)
			memcpy(copy, bytes, n);
		group->data[group->n] = copy;
	}
	if (!ok)
		return kvi_fail_alloc(output->error, output->alloc);
	group->pieces[group->n++] = (struct kvi_parity_piece){ offset, n, kvi_h128(bytes, n) };
	group->bytes += n;
	group->row_bytes = n > group->row_bytes ? n : group->row_bytes;
	return KVARC_OK;
}

static void make_row(const struct parity_group *group, unsigned r, uint8_t *to)
{
	memset(to, 0, group->row_bytes);
	if (group->sum)
		memcpy(to, group->sum, group->row_bytes);
	for (unsigned j = 0; j < group->n && !group->sum; j++)
		kvi_parity_add(to, kvi_parity_factor(group->n, r, j), group->data[j],
		               group->pieces[j].bytes);
}

static kvarc_ret emit_row(struct kvi_writer_output *output, const struct parity_group *group,
                          unsigned r)
{
	struct kvi_writer_parity *p = output->parity;
	const struct kvi_parity_head h = { (uint16_t)group->n, (uint16_t)r, (uint16_t)p->rows,
		                           group->row_bytes };
	const size_t table = kvi_parity_table_bytes(group->n), bytes = table + group->row_bytes;
	struct kvi_index_entry entry = { 0 };
	p->frame.n = 0;
	if (!kvi_out_reserve(&p->frame, (size_t)kvi_frame_bytes((uint32_t)bytes)))
		return kvi_fail_alloc(output->error, output->alloc);
	kvi_parity_put(p->frame.p + KVI_FRAME_HEAD_BYTES, &h, group->pieces);
	make_row(group, r, p->frame.p + KVI_FRAME_HEAD_BYTES + table);
	return kvi_writer_emit(output, KVI_FRAME_PARITY, p->frame.p, (uint32_t)bytes,
	                       (uint32_t)bytes, NULL, &entry);
}

static kvarc_ret emit_group(struct kvi_writer_output *output, struct parity_group *group)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned r = 0; r < output->parity->rows && group->n && !ret; r++) {
		output->parity->emitting = r + 1 < output->parity->rows;
		ret = emit_row(output, group, r);
	}
	output->parity->emitting = false;
	forget(output->alloc, group);
	return ret;
}

/* A piece and its data, to be sorted together. */
struct sorted_piece {
	struct kvi_parity_piece piece;
	uint8_t *data;
};

static int by_offset(const void *a, const void *b)
{
	const struct sorted_piece *x = a, *y = b;
	return x->piece.offset < y->piece.offset ? -1 : x->piece.offset > y->piece.offset;
}

/* Whether a group may have that many pieces and bytes. Short pieces add little to the cost of its
 * rows, so a group is full at the bytes of `pieces` long ones. */
static bool fits(const struct kvi_writer_parity *parity, unsigned n, uint64_t bytes,
                 uint64_t row_bytes)
{
	return n + parity->rows <= KVI_PARITY_MOST && bytes <= parity->pieces * row_bytes;
}

/* Joins two short groups, if one group may have their pieces. */
static kvarc_ret join(struct kvi_writer_output *output, struct parity_group *to,
                      struct parity_group *from)
{
	struct sorted_piece all[PIECES_MOST];
	const unsigned n = to->n + from->n;
	const uint64_t longest = from->row_bytes > to->row_bytes ? from->row_bytes : to->row_bytes;
	if (!from->n || !fits(output->parity, n, to->bytes + from->bytes, longest))
		return KVARC_OK;
	if (from->sum && !add_to_sum(output->alloc, to, from->sum, from->row_bytes))
		return kvi_fail_alloc(output->error, output->alloc);
	for (unsigned i = 0; i < n; i++) {
		struct parity_group *g = i < to->n ? to : from;
		const unsigned k = i < to->n ? i : i - to->n;
		all[i] = (struct sorted_piece){ g->pieces[k], g->data[k] };
	}
	qsort(all, n, sizeof *all, by_offset);
	to->bytes += from->bytes;
	to->row_bytes = (uint32_t)longest;
	from->n = 0; /* the other group has the data now */
	forget(output->alloc, from);
	to->n = n;
	for (unsigned i = 0; i < n; i++) {
		to->pieces[i] = all[i].piece;
		to->data[i] = all[i].data;
	}
	return KVARC_OK;
}

/* Writes the rows of all groups that have pieces. */
static kvarc_ret flush_parity(struct kvi_writer_output *output)
{
	struct kvi_writer_parity *p = output->parity;
	kvarc_ret ret = KVARC_OK;
	if (!p)
		return ret;
	/* Neighbours stay apart: what is damaged may lie across the end of a frame. */
	for (unsigned i = 0; i < TURNS / 2 && !ret; i++)
		ret = join(output, &p->groups[i], &p->groups[i + TURNS / 2]);
	for (unsigned i = 0; i < TURNS && !ret; i++)
		ret = emit_group(output, &p->groups[i]);
	p->turn = 0;
	return ret;
}

/* Whether the groups, each of which has had its turn, are full. */
static bool is_full(const struct kvi_writer_parity *parity)
{
	uint64_t bytes = 0, rows = 0;
	unsigned most = 0;
	for (unsigned i = 0; i < TURNS; i++) {
		bytes += parity->groups[i].bytes;
		rows += parity->groups[i].row_bytes;
		most = parity->groups[i].n > most ? parity->groups[i].n : most;
	}
	return !fits(parity, most + 1, bytes + rows / 2, rows);
}

/* Adds written bytes of the superblock (type 0) or of a frame to parity. Rows may follow. */
static kvarc_ret cover(struct kvi_writer_output *output, uint16_t type, const uint8_t *bytes,
                       uint64_t n, uint64_t offset)
{
	struct kvi_writer_parity *p = output->parity;
	kvarc_ret ret = KVARC_OK;
	if (!p || type == KVI_FRAME_PARITY || type == KVI_FRAME_FOOTER)
		return KVARC_OK;
	while (n && !ret) {
		const uint32_t step = n < PIECE_MAX ? (uint32_t)n : PIECE_MAX;
		ret = add_piece(output, &p->groups[p->turn], bytes, step, offset);
		bytes += step;
		offset += step;
		n -= step;
		p->turn = (p->turn + 1) % TURNS;
		if (!ret && p->turn == 0 && is_full(p))
			ret = flush_parity(output);
	}
	return ret;
}

/* ==== Writes frames, commits, index and footer (spec 3, 8, 9) ==== */

/* A PARAMS frame that may be written again, as a copy. */
struct kvi_params_copy {
	uint64_t sequence;
	struct kvi_index_entry entry;
	uint32_t payload_bytes, decoded_bytes;
	size_t at; /* offset of the payload in copies */
};

/* Most bytes of PARAMS payloads that are stored for copies. */
enum { COPIES_MAX = 4 << 20 };
/* Copies are written when they are at most 1/COPIES_SHARE of the file. */
enum { COPIES_SHARE = 200 };

/* Entries of the last INDEX are repeated where they are this many times the new ones, at most. */
enum { RESTATED_MOST = 64 };

static kvarc_ret emit_index(struct kvi_writer_output *output)
{
	struct kvi_out *out = &output->content;
	struct kvi_pending_entries *pending = &output->index.pending;
	/* Where appends are small, so is what each repeats, and few INDEX frames are in force. */
	const bool restates = pending->restated &&
	                      pending->restated <= RESTATED_MOST * (pending->n - pending->restated);
	if (!restates && pending->restated && !kvi_pending_drop_restated(pending))
		return kvi_fail_alloc(output->error, output->alloc);
	out->n = 0;
	const struct kvi_index_head head = {
		restates ? pending->follows : output->index.last,
		restates ? pending->follows_bytes : output->index.last_bytes,
		output->index.codecs,
	};
	kvi_index_put_head(out, &head, pending->n);
	kvi_put_bytes(out, pending->entries.p, pending->entries.n);
	if (out->failed)
		return kvi_fail_alloc(output->error, output->alloc);
	kvi_pending_clear(pending);
	return kvi_writer_emit_content(output, KVI_FRAME_INDEX, out->p, out->n, true, NULL);
}

static kvarc_ret emit_list(struct kvi_writer_output *output)
{
	struct kvi_out *out = &output->content;
	struct kvi_index_entry entry = { .n = (uint32_t)output->index.pending.chunks };
	out->n = 0;
	if (!kvi_pending_take_chunks(&output->index.pending, out))
		return kvi_fail_alloc(output->error, output->alloc);
	return kvi_writer_emit_content(output, KVI_FRAME_LIST, out->p, out->n, true, &entry);
}

/* So few chunks are left to the INDEX. */
enum { FEW_CHUNKS = 256 };

/* Writes LIST and INDEX where they are due. */
static kvarc_ret emit_entries(struct kvi_writer_output *output)
{
	const struct kvi_pending_entries *pending = &output->index.pending;
	if (output->index.in_segment || parity_busy(output))
		return KVARC_OK;
	const bool full = pending->n >= KVI_INDEX_ENTRIES;
	if (pending->chunks >= KVI_LIST_ENTRIES || (full && pending->chunks > FEW_CHUNKS)) {
		kvarc_ret ret = emit_list(output);
		if (ret)
			return ret;
	}
	return pending->n >= KVI_INDEX_ENTRIES ? emit_index(output) : KVARC_OK;
}

/* Writes the last LIST of a file, in front of its last COMMIT: so the end that readers fetch first
 * has COMMIT, INDEX and FOOTER. */
static kvarc_ret emit_last_list(struct kvi_writer_output *output)
{
	if (output->index.in_segment || output->index.pending.chunks <= FEW_CHUNKS)
		return KVARC_OK;
	output->uncommitted = true;
	return emit_list(output);
}

/* Notes what the FOOTER and the next INDEX say of a frame. */
static void note_frame(struct kvi_writer_index *index, uint16_t type, uint64_t offset,
                       uint64_t bytes)
{
	if (type == KVI_FRAME_INDEX) {
		index->last = offset;
		index->last_bytes = (uint32_t)bytes;
	} else if (type == KVI_FRAME_COMMIT) {
		index->last_commit = offset;
		index->last_commit_bytes = (uint32_t)bytes;
		index->in_segment = false;
	} else if (type == KVI_FRAME_SEGMENT || type == KVI_FRAME_STOREREF) {
		index->in_segment = true;
	}
}

kvarc_ret kvi_writer_flush(struct kvi_writer_output *output, bool parity)
{
	kvarc_ret ret = parity ? flush_parity(output) : KVARC_OK;
	if (ret)
		return ret;
	errno = 0;
	if (output->sink.flush && output->sink.flush(output->sink.opaque))
		return kvi_fail_callback(output->error, output->offset, KVARC_UNKNOWN,
		                         "flushing the output failed");
	return KVARC_OK;
}

kvarc_ret kvi_writer_emit(struct kvi_writer_output *output, uint16_t type, uint8_t *frame,
                          uint32_t payload_bytes, uint32_t decoded_bytes,
                          const struct kvi_h128 *rest, struct kvi_index_entry *entry)
{
	struct kvi_frame_head h = { .type = type,
		                    .flags = kvi_frame_flags(type),
		                    .payload_bytes = payload_bytes,
		                    .sequence = output->sequence,
		                    .decoded_bytes = decoded_bytes };
	uint64_t bytes = kvi_frame_bytes(payload_bytes);
	kvarc_ret ret = KVARC_OK;
	kvi_frame_head_write(frame, &h, output->sync, output->offset);
	if (output->crypt && type != KVI_FRAME_KEY && type != KVI_FRAME_FOOTER &&
	    type != KVI_FRAME_PARITY)
		ret = seal(output, &h, &frame, &bytes);
	else
		kvi_frame_close(frame, output->offset, payload_bytes,
		                rest ? *rest : kvi_frame_rest(frame, payload_bytes));
	if (ret)
		return ret;
	errno = 0;
	if (output->sink.write(output->sink.opaque, frame, (size_t)bytes, output->offset))
		return kvi_fail_callback(output->error, output->offset, output->sequence,
		                         "writing %llu bytes at offset %llu failed",
		                         (unsigned long long)bytes,
		                         (unsigned long long)output->offset);
	if (entry) {
		entry->type = type > UINT8_MAX ? 0 : (uint8_t)type;
		entry->offset = output->offset;
		entry->sequence = output->sequence;
		entry->bytes = (uint32_t)bytes;
		if (type == KVI_FRAME_CHUNK)
			output->index.codecs |= kvi_codec_bit(entry->codec);
		if (!kvi_pending_add(&output->index.pending, entry))
			return kvi_fail_alloc(output->error, output->alloc);
		if (kvi_frame_counts(type))
			output->uncommitted = type != KVI_FRAME_COMMIT;
	}
	note_frame(&output->index, type, output->offset, bytes);
	output->offset += bytes;
	output->sequence++;
	output->stats.frames++;
	output->stats.file_bytes = output->offset;
	ret = cover(output, type, frame, bytes, output->offset - bytes);
	return ret ? ret : emit_entries(output);
}

kvarc_ret kvi_writer_emit_content(struct kvi_writer_output *output, uint16_t type,
                                  const void *content, size_t bytes, bool packed,
                                  struct kvi_index_entry *entry)
{
	struct kvi_out *out = &output->scratch;
	out->n = 0;
	/* Payloads are at most the content and a method byte. */
	if (bytes >= KVI_FRAME_MAX)
		return kvi_fail(output->error, KVARC_PROG,
		                "a frame of %zu bytes is too large: 2^28 is the limit", bytes);
	if (!kvi_out_reserve(out, bytes + 1 + KVI_FRAME_HEAD_BYTES + KVI_FRAME_ALIGN +
	                                  KVI_FRAME_CHECK_BYTES))
		return kvi_fail_alloc(output->error, output->alloc);
	out->n = KVI_FRAME_HEAD_BYTES;
	if (packed) {
		enum { GRID_ARRAYS = 5 }; /* sets; scales and means, low and high bytes */
		kvarc_ret ret = kvi_pack(&output->packer, out, content, bytes,
		                         type == KVI_FRAME_PARAMS ? GRID_ARRAYS : 1);
		if (ret)
			return kvi_fail_alloc(output->error, output->alloc);
	} else {
		kvi_put_bytes(out, content, bytes);
	}
	uint32_t payload = (uint32_t)(out->n - KVI_FRAME_HEAD_BYTES);
	if (!kvi_out_reserve(out, KVI_FRAME_ALIGN + KVI_FRAME_CHECK_BYTES))
		return kvi_fail_alloc(output->error, output->alloc);
	return kvi_writer_emit(output, type, out->p, payload, (uint32_t)bytes, NULL, entry);
}

/* Remembers the frame in scratch for a copy, while that is cheap. */
static kvarc_ret keep_params(struct kvi_writer_output *output, const struct kvi_index_entry *entry,
                             uint32_t payload_bytes, uint32_t decoded_bytes)
{
	struct kvi_params_copy c = { entry->sequence, *entry, payload_bytes, decoded_bytes,
		                     output->copies.payloads.n };
	if (output->copies.too_many)
		return KVARC_OK;
	if (output->copies.payloads.n + payload_bytes > COPIES_MAX) {
		output->copies.too_many = true;
		kvi_out_free(&output->copies.payloads);
		kvi_out_free(&output->copies.list);
		return KVARC_OK;
	}
	kvi_put_bytes(&output->copies.payloads, output->scratch.p + KVI_FRAME_HEAD_BYTES,
	              payload_bytes);
	kvi_put_bytes(&output->copies.list, &c, sizeof c);
	return output->copies.payloads.failed || output->copies.list.failed
	               ? kvi_fail_alloc(output->error, output->alloc)
	               : KVARC_OK;
}

kvarc_ret kvi_writer_put_params(kvarc_writer *w, const struct kvi_params_header *header,
                                const uint8_t *content, size_t bytes, uint64_t *sequence)
{
	struct kvi_index_entry entry = { .tensor = header->tensor,
		                         .head = header->head,
		                         .heads = header->heads,
		                         .codec = header->codec };
	struct kvi_writer_output *output = &w->out;
	struct kvi_out *out = &output->content;
	uint8_t head[KVI_PARAMS_HEADER_BYTES];
	kvi_params_header_write(head, header);
	out->n = 0;
	kvi_put_bytes(out, head, sizeof head);
	kvi_put_bytes(out, content, bytes);
	if (out->failed)
		return kvi_fail_alloc(output->error, output->alloc);
	uint32_t decoded = (uint32_t)out->n;
	*sequence = output->sequence;
	kvarc_ret ret = kvi_writer_emit_content(output, KVI_FRAME_PARAMS, out->p, out->n, true,
	                                        &entry);
	/* A LIST or INDEX may have followed and overwritten the scratch buffer. */
	if (ret || output->sequence != *sequence + 1)
		return ret;
	return keep_params(output, &entry, kvi_load32(output->scratch.p + 12), decoded);
}

kvarc_ret kvi_writer_emit_commit(kvarc_writer *w, const struct kvi_checkpoint *checkpoint)
{
	struct kvi_commit c = { .frames = w->out.sequence, .offset = w->out.offset };
	if (checkpoint)
		c.checkpoint = *checkpoint;
	struct kvi_index_entry entry = { .number = c.checkpoint.number };
	struct kvi_out *out = &w->out.content;
	for (size_t i = 0; i < w->geometry.n_tracks; i++)
		w->tokens[i] = w->tracks[i].n_committed;
	out->n = 0;
	kvi_commit_put(out, &c, w->tokens, w->geometry.n_tracks);
	if (out->failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	return kvi_writer_emit_content(&w->out, KVI_FRAME_COMMIT, out->p, out->n, false, &entry);
}

kvarc_ret kvi_writer_use_predictor(kvarc_writer *w, const struct kvi_predictor *predictor,
                                   uint64_t content_bytes)
{
	struct kvi_writer_output *output = &w->out;
	struct kvi_predictor p = *predictor;
	w->predictor.content = p;
	p.embedded = content_bytes > 0;
	p.content_bytes = content_bytes;
	struct kvi_index_entry entry = { 0 };
	output->content.n = 0;
	kvi_predictor_put(&output->content, &p);
	if (output->content.failed)
		return kvi_fail_alloc(output->error, output->alloc);
	w->predictor.sequence = output->sequence;
	w->predictor.written = true;
	return kvi_writer_emit_content(output, KVI_FRAME_PREDICTOR, output->content.p,
	                               output->content.n, true, &entry);
}

/* A PREDICTOR is repeated when the file is larger than this. */
enum { COPY_FILE_MIN = 32 << 10 };

/* Writes PREDICTOR once more, so that a damaged one costs nothing. */
static kvarc_ret emit_predictor_copy(kvarc_writer *w)
{
	uint64_t first = w->predictor.sequence;
	if (!w->predictor.written || w->out.offset < COPY_FILE_MIN)
		return KVARC_OK;
	kvarc_ret ret = kvi_writer_use_predictor(w, &w->predictor.content, 0);
	w->predictor.sequence = first;
	return ret;
}

static kvarc_ret emit_copies(struct kvi_writer_output *output)
{
	size_t n = output->copies.list.n / sizeof(struct kvi_params_copy);
	const struct kvi_params_copy *list = (const void *)output->copies.list.p;
	uint64_t bytes = 0;
	for (size_t i = 0; i < n; i++)
		bytes += kvi_frame_bytes(list[i].payload_bytes);
	if (bytes > output->offset / COPIES_SHARE)
		return KVARC_OK;
	for (size_t i = 0; i < n; i++) {
		struct kvi_out *out = &output->scratch;
		out->n = 0;
		if (!kvi_out_reserve(out, (size_t)kvi_frame_bytes(list[i].payload_bytes)))
			return kvi_fail_alloc(output->error, output->alloc);
		memcpy(out->p + KVI_FRAME_HEAD_BYTES, output->copies.payloads.p + list[i].at,
		       list[i].payload_bytes);
		struct kvi_index_entry entry = list[i].entry;
		entry.params = list[i].sequence;
		kvarc_ret ret = kvi_writer_emit(output, KVI_FRAME_PARAMS, out->p,
		                                list[i].payload_bytes, list[i].decoded_bytes, NULL,
		                                &entry);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

/* Writes the KEY frames of an encrypted archive, or copies of them. */
static kvarc_ret emit_keys(struct kvi_writer_output *output)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; output->crypt && i < output->crypt->n_payloads && !ret; i++) {
		struct kvi_index_entry entry = { 0 };
		ret = kvi_writer_emit_content(output, KVI_FRAME_KEY, output->crypt->payloads[i],
		                              KVI_KEY_PAYLOAD_BYTES, false, &entry);
	}
	return ret;
}

kvarc_ret kvi_writer_finish(kvarc_writer *w)
{
	uint8_t payload[KVI_FOOTER_BYTES];
	if (w->resumed.closed && w->out.sequence == w->resumed.sequence)
		return KVARC_OK; /* no frame was added: the FOOTER is valid still */
	kvarc_ret ret = emit_copies(&w->out);
	if (ret == KVARC_OK)
		ret = emit_predictor_copy(w);
	if (ret == KVARC_OK)
		ret = emit_keys(&w->out);
	if (ret == KVARC_OK)
		ret = emit_last_list(&w->out);
	if (ret == KVARC_OK && (w->out.uncommitted || w->out.crypt))
		ret = kvi_writer_emit_commit(w, NULL);
	if (ret == KVARC_OK)
		ret = flush_parity(&w->out);
	if (ret == KVARC_OK && w->out.index.pending.n)
		ret = emit_index(&w->out);
	/* The frames reach the sink before the FOOTER: a crash must not cost the state before. */
	if (ret == KVARC_OK && (w->archive || w->out.checkpoint))
		ret = kvi_writer_flush(&w->out, false);
	if (ret)
		return ret;
	const struct kvi_footer f = { .index = w->out.index.last,
		                      .commit = w->out.index.last_commit,
		                      .frames = w->out.sequence,
		                      .index_bytes = w->out.index.last_bytes,
		                      .commit_bytes = w->out.index.last_commit_bytes };
	kvi_footer_write(payload, &f);
	return kvi_writer_emit_content(&w->out, KVI_FRAME_FOOTER, payload, sizeof payload, false,
	                               NULL);
}

/* ==== An output, opened; where an archive begins, or is continued (spec 2, 9.3) ==== */

kvarc_ret kvi_writer_open_output(struct kvi_writer_output *output, const kvarc_sink *sink,
                                 const kvarc_parity *parity)
{
	const struct kvi_alloc *alloc = output->alloc;
	output->sink = *sink;
	kvi_packer_init(&output->packer, alloc);
	kvi_out_init(&output->scratch, alloc);
	kvi_out_init(&output->content, alloc);
	kvi_out_init(&output->sealed, alloc);
	kvi_pending_init(&output->index.pending, alloc);
	kvi_out_init(&output->copies.payloads, alloc);
	kvi_out_init(&output->copies.list, alloc);
	return parity ? open_parity(output, parity) : KVARC_OK;
}

static kvarc_ret write_superblock(struct kvi_writer_output *output,
                                  const kvarc_writer_options *options)
{
	struct kvi_superblock sb = { .major = KVARC_FORMAT_MAJOR, .minor = KVARC_FORMAT_MINOR };
	uint8_t b[KVI_SUPERBLOCK_BYTES];
	sb.incompat = options->flags & KVARC_WRITE_STORED ? KVI_INCOMPAT_STORE : 0;
	memcpy(sb.file_id, options->file_id, sizeof sb.file_id);
	if (!(options->flags & KVARC_WRITE_FILE_ID) &&
	    kvi_all_zero(sb.file_id, sizeof sb.file_id) &&
	    getentropy(sb.file_id, sizeof sb.file_id))
		return kvi_fail(output->error, KVARC_IO,
		                "no random bytes for the file id: give one in the options");
	if (options->keys) {
		kvarc_ret ret = kvi_crypt_new(&output->crypt, output->alloc, sb.file_id,
		                              options->keys, output->error);
		if (ret)
			return ret;
		sb.incompat |= KVI_INCOMPAT_ENCRYPTED;
	}
	if (output->parity)
		sb.compat |= KVI_COMPAT_PARITY;
	kvi_superblock_write(b, &sb);
	errno = 0;
	if (output->sink.write(output->sink.opaque, b, sizeof b, 0))
		return kvi_fail_callback(output->error, 0, KVARC_UNKNOWN,
		                         "writing the first %zu bytes failed", sizeof b);
	output->sync = kvi_frame_sync(sb.file_id);
	output->offset = sizeof b;
	output->stats.file_bytes = output->offset;
	return cover(output, 0, b, sizeof b, 0);
}

kvarc_ret kvi_writer_begin_file(struct kvi_writer_output *output,
                                const kvarc_writer_options *options)
{
	kvarc_ret ret = write_superblock(output, options);
	return ret ? ret : emit_keys(output);
}

/* Adopts the file key of the archive that is appended to. */
static kvarc_ret resume_crypt(struct kvi_writer_output *output, const struct kvi_crypt *from,
                              const kvarc_keys *keys)
{
	kvarc_ret ret;
	if (!from)
		return keys ? kvi_fail(output->error, KVARC_OPTIONS,
		                       "the archive is not encrypted: what is appended "
		                       "would not be, either; compact it with a key")
		            : KVARC_OK;
	ret = kvi_crypt_open_known(&output->crypt, output->alloc, from, output->error);
	if (ret)
		return ret;
	output->crypt->n_payloads = from->n_payloads;
	memcpy(output->crypt->payloads, from->payloads, sizeof from->payloads);
	return KVARC_OK;
}

static kvarc_ret take_end(struct kvi_writer_output *output, const struct kvi_resume *end)
{
	output->sync = end->sync;
	output->offset = end->offset;
	output->sequence = end->sequence;
	output->stats.file_bytes = end->offset;
	output->index.last = end->last_index;
	output->index.last_bytes = end->last_index_bytes;
	output->index.codecs = end->codecs;
	output->index.last_commit = end->last_commit;
	output->index.last_commit_bytes = end->last_commit_bytes;
	output->checkpoint = end->checkpoint;
	output->uncommitted = !end->last_commit;
	return kvi_pending_copy(&output->index.pending, &end->pending)
	               ? KVARC_OK
	               : kvi_fail_alloc(output->error, output->alloc);
}

/* Removes what is behind the last commit. */
static kvarc_ret end_file(struct kvi_writer_output *output, uint64_t file_bytes)
{
	const uint64_t behind = file_bytes - output->offset;
	if (!behind)
		return KVARC_OK;
	if (!output->sink.truncate)
		return kvi_fail_at(output->error, KVARC_OPTIONS, output->offset, KVARC_UNKNOWN,
		                   "the archive was cut: %llu bytes behind its last commit must be "
		                   "removed, and the sink has no truncate",
		                   (unsigned long long)behind);
	if (output->sink.truncate(output->sink.opaque, output->offset))
		return kvi_fail_at(output->error, KVARC_IO, output->offset, KVARC_UNKNOWN,
		                   "cutting the archive to %llu bytes failed",
		                   (unsigned long long)output->offset);
	return kvi_writer_flush(output, false);
}

/* Writes a frame of a private type and random size where an encrypted archive was cut, so that
 * later frames have other offsets than the lost ones. */
static kvarc_ret part_from_lost(struct kvi_writer_output *output)
{
	/* A private type, not critical. The size is random, so that what follows does not meet
	 * frames that were lost. */
	enum { TYPE = 0x8000, STEP = KVI_FRAME_ALIGN, STEPS = 256 };
	struct kvi_index_entry entry = { 0 };
	uint8_t content[STEP * STEPS] = { 0 }, n;
	if (!output->crypt)
		return KVARC_OK;
	kvi_aead_random(&n, sizeof n);
	return kvi_writer_emit_content(output, TYPE, content, STEP * (size_t)(n + 1), false,
	                               &entry);
}

kvarc_ret kvi_writer_continue_file(struct kvi_writer_output *output, const struct kvi_resume *end,
                                   const kvarc_keys *keys)
{
	kvarc_ret ret = resume_crypt(output, end->crypt, keys);
	if (!ret)
		ret = take_end(output, end);
	if (!ret)
		ret = end_file(output, end->file_bytes);
	return ret || end->closed ? ret : part_from_lost(output);
}

void kvi_writer_close_output(struct kvi_writer_output *output)
{
	kvi_packer_free(&output->packer);
	kvi_out_free(&output->scratch);
	kvi_out_free(&output->content);
	kvi_out_free(&output->sealed);
	kvi_crypt_close(&output->crypt);
	close_parity(output);
	kvi_out_free(&output->index.pending.entries);
	kvi_out_free(&output->copies.payloads);
	kvi_out_free(&output->copies.list);
}
