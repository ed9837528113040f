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
static kvarc_ret seal(kvarc_writer *w, const struct kvi_frame_head *head, uint8_t **frame,
                      uint64_t *bytes)
{
	const uint8_t *payload = *frame + KVI_FRAME_HEAD_BYTES;
	if (head->payload_bytes > KVI_FRAME_MAX - KVI_CRYPT_BYTES)
		return kvi_fail(w->error, KVARC_PROG,
		                "a frame of %u bytes is too large: 2^28, encrypted, is the limit",
		                (unsigned)head->payload_bytes);
	*bytes = kvi_frame_bytes(head->payload_bytes + KVI_CRYPT_BYTES);
	w->sealed.n = 0;
	if (!kvi_out_reserve(&w->sealed, (size_t)*bytes))
		return kvi_fail_alloc(w->error, &w->alloc);
	*frame = w->sealed.p;
	kvi_crypt_seal(w->crypt, *frame, head, w->sync, w->offset, payload);
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

kvarc_ret kvi_writer_parity_open(kvarc_writer *w)
{
	const kvarc_parity *o = w->options.parity;
	if (!o)
		return KVARC_OK;
	struct kvi_writer_parity *p = kvi_calloc(&w->alloc, 1, sizeof *p);
	if (!p)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->parity = p;
	w->options.parity = NULL;
	p->pieces = o->pieces ? o->pieces : PIECES_DEFAULT;
	p->rows = o->rows ? o->rows : 1;
	kvi_out_init(&p->frame, &w->alloc);
	return KVARC_OK;
}

static void forget(kvarc_writer *w, struct parity_group *group)
{
	for (unsigned i = 0; i < group->n; i++)
		kvi_free(&w->alloc, group->data[i]);
	kvi_free(&w->alloc, group->sum);
	*group = (struct parity_group){ .n = 0 };
}

void kvi_writer_parity_close(kvarc_writer *w)
{
	if (!w->parity)
		return;
	for (unsigned i = 0; i < TURNS; i++)
		forget(w, &w->parity->groups[i]);
	kvi_out_free(&w->parity->frame);
	kvi_free(&w->alloc, w->parity);
	w->parity = NULL;
}

/* Whether the next frame is a row of the same group: nothing may come between. */
static bool parity_busy(const kvarc_writer *w)
{
	return w->parity && w->parity->emitting;
}

/* Adds bytes to the one row of a group, which becomes as long as they are. */
static bool add_to_sum(kvarc_writer *w, struct parity_group *group, const uint8_t *bytes, size_t n)
{
	if (n > group->capacity) {
		uint8_t *sum = kvi_calloc(&w->alloc, n, 1);
		if (!sum)
			return false;
		if (group->capacity)
			memcpy(sum, group->sum, group->capacity);
		kvi_free(&w->alloc, group->sum);
		group->sum = sum;
		group->capacity = n;
	}
	kvi_parity_add(group->sum, 1, bytes, n);
	return true;
}

static kvarc_ret add_piece(kvarc_writer *w, struct parity_group *group, const uint8_t *bytes,
                           uint32_t n, uint64_t offset)
{
	bool ok;
	if (w->parity->rows == 1) {
		ok = add_to_sum(w, group, bytes, n);
	} else {
		uint8_t *copy = kvi_malloc(&w->alloc, n);
		ok = copy;
		if (copy)
			memcpy(copy, bytes, n);
		group->data[group->n] = copy;
	}
	if (!ok)
		return kvi_fail_alloc(w->error, &w->alloc);
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

static kvarc_ret emit_row(kvarc_writer *w, const struct parity_group *group, unsigned r)
{
	struct kvi_writer_parity *p = w->parity;
	const struct kvi_parity_head h = { (uint16_t)group->n, (uint16_t)r, (uint16_t)p->rows,
		                           group->row_bytes };
	const size_t table = kvi_parity_table_bytes(group->n), bytes = table + group->row_bytes;
	struct kvi_index_entry entry = { 0 };
	p->frame.n = 0;
	if (!kvi_out_reserve(&p->frame, (size_t)kvi_frame_bytes((uint32_t)bytes)))
		return kvi_fail_alloc(w->error, &w->alloc);
	kvi_parity_put(p->frame.p + KVI_FRAME_HEAD_BYTES, &h, group->pieces);
	make_row(group, r, p->frame.p + KVI_FRAME_HEAD_BYTES + table);
	return kvi_writer_emit(w, KVI_FRAME_PARITY, p->frame.p, (uint32_t)bytes, (uint32_t)bytes,
	                       &entry);
}

static kvarc_ret emit_group(kvarc_writer *w, struct parity_group *group)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned r = 0; r < w->parity->rows && group->n && !ret; r++) {
		w->parity->emitting = r + 1 < w->parity->rows;
		ret = emit_row(w, group, r);
	}
	w->parity->emitting = false;
	forget(w, group);
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
static kvarc_ret join(kvarc_writer *w, struct parity_group *to, struct parity_group *from)
{
	struct sorted_piece all[PIECES_MOST];
	const unsigned n = to->n + from->n;
	const uint64_t longest = from->row_bytes > to->row_bytes ? from->row_bytes : to->row_bytes;
	if (!from->n || !fits(w->parity, n, to->bytes + from->bytes, longest))
		return KVARC_OK;
	if (from->sum && !add_to_sum(w, to, from->sum, from->row_bytes))
		return kvi_fail_alloc(w->error, &w->alloc);
	for (unsigned i = 0; i < n; i++) {
		struct parity_group *g = i < to->n ? to : from;
		const unsigned k = i < to->n ? i : i - to->n;
		all[i] = (struct sorted_piece){ g->pieces[k], g->data[k] };
	}
	qsort(all, n, sizeof *all, by_offset);
	to->bytes += from->bytes;
	to->row_bytes = (uint32_t)longest;
	from->n = 0; /* the other group has the data now */
	forget(w, from);
	to->n = n;
	for (unsigned i = 0; i < n; i++) {
		to->pieces[i] = all[i].piece;
		to->data[i] = all[i].data;
	}
	return KVARC_OK;
}

/* Writes the rows of all groups that have pieces. */
static kvarc_ret flush_parity(kvarc_writer *w)
{
	struct kvi_writer_parity *p = w->parity;
	kvarc_ret ret = KVARC_OK;
	if (!p)
		return ret;
	/* Neighbours stay apart: what is damaged may lie across the end of a frame. */
	for (unsigned i = 0; i < TURNS / 2 && !ret; i++)
		ret = join(w, &p->groups[i], &p->groups[i + TURNS / 2]);
	for (unsigned i = 0; i < TURNS && !ret; i++)
		ret = emit_group(w, &p->groups[i]);
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
static kvarc_ret cover(kvarc_writer *w, uint16_t type, const uint8_t *bytes, uint64_t n,
                       uint64_t offset)
{
	struct kvi_writer_parity *p = w->parity;
	kvarc_ret ret = KVARC_OK;
	if (!p || type == KVI_FRAME_PARITY || type == KVI_FRAME_FOOTER)
		return KVARC_OK;
	while (n && !ret) {
		const uint32_t step = n < PIECE_MAX ? (uint32_t)n : PIECE_MAX;
		ret = add_piece(w, &p->groups[p->turn], bytes, step, offset);
		bytes += step;
		offset += step;
		n -= step;
		p->turn = (p->turn + 1) % TURNS;
		if (!ret && p->turn == 0 && is_full(p))
			ret = flush_parity(w);
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

static kvarc_ret emit_index(kvarc_writer *w)
{
	struct kvi_out *out = &w->content;
	out->n = 0;
	kvi_put64(out, w->last_index);
	kvi_put_varint(out, w->index_entries);
	kvi_put_bytes(out, w->index.p, w->index.n);
	if (out->failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->index.n = 0;
	w->index_entries = 0;
	w->index_delta = (struct kvi_index_delta){ 0 };
	w->last_index = w->offset;
	return kvi_writer_emit_content(w, KVI_FRAME_INDEX, out->p, out->n, true, NULL);
}

kvarc_ret kvi_writer_flush(kvarc_writer *w, bool parity)
{
	kvarc_ret ret = parity ? flush_parity(w) : KVARC_OK;
	if (ret)
		return ret;
	errno = 0;
	if (w->sink.flush && w->sink.flush(w->sink.opaque))
		return kvi_fail_callback(w->error, w->offset, KVARC_UNKNOWN,
		                         "flushing the output failed");
	return KVARC_OK;
}

kvarc_ret kvi_writer_emit(kvarc_writer *w, uint16_t type, uint8_t *frame, uint32_t payload_bytes,
                          uint32_t decoded_bytes, struct kvi_index_entry *entry)
{
	struct kvi_frame_head h = { .type = type,
		                    .flags = kvi_frame_flags(type),
		                    .payload_bytes = payload_bytes,
		                    .sequence = w->sequence,
		                    .decoded_bytes = decoded_bytes };
	uint64_t bytes = kvi_frame_bytes(payload_bytes);
	kvarc_ret ret = KVARC_OK;
	kvi_frame_head_write(frame, &h, w->sync, w->offset);
	if (w->crypt && type != KVI_FRAME_KEY && type != KVI_FRAME_FOOTER &&
	    type != KVI_FRAME_PARITY)
		ret = seal(w, &h, &frame, &bytes);
	else
		kvi_frame_close(frame, w->offset, payload_bytes);
	if (ret)
		return ret;
	errno = 0;
	if (w->sink.write(w->sink.opaque, frame, (size_t)bytes, w->offset))
		return kvi_fail_callback(w->error, w->offset, w->sequence,
		                         "writing %llu bytes at offset %llu failed",
		                         (unsigned long long)bytes, (unsigned long long)w->offset);
	if (entry) {
		entry->type = type > UINT8_MAX ? 0 : (uint8_t)type;
		entry->offset = w->offset;
		entry->sequence = w->sequence;
		kvi_index_put(&w->index, &w->index_delta, entry);
		if (w->index.failed)
			return kvi_fail_alloc(w->error, &w->alloc);
		w->index_entries++;
		if (kvi_frame_counts(type))
			w->uncommitted = type != KVI_FRAME_COMMIT;
	}
	w->offset += bytes;
	w->sequence++;
	w->stats.frames++;
	w->stats.file_bytes = w->offset;
	ret = cover(w, type, frame, bytes, w->offset - bytes);
	return ret || w->index_entries < KVI_INDEX_ENTRIES || parity_busy(w) ? ret : emit_index(w);
}

kvarc_ret kvi_writer_emit_content(kvarc_writer *w, uint16_t type, const void *content, size_t bytes,
                                  bool packed, struct kvi_index_entry *entry)
{
	struct kvi_out *out = &w->scratch;
	out->n = 0;
	/* Payloads are at most the content and a method byte. */
	if (bytes >= KVI_FRAME_MAX)
		return kvi_fail(w->error, KVARC_PROG,
		                "a frame of %zu bytes is too large: 2^28 is the limit", bytes);
	if (!kvi_out_reserve(out, bytes + 1 + KVI_FRAME_HEAD_BYTES + KVI_FRAME_ALIGN +
	                                  KVI_FRAME_CHECK_BYTES))
		return kvi_fail_alloc(w->error, &w->alloc);
	out->n = KVI_FRAME_HEAD_BYTES;
	if (packed) {
		kvarc_ret ret = kvi_pack(&w->packer, out, content, bytes);
		if (ret)
			return kvi_fail_alloc(w->error, &w->alloc);
	} else {
		kvi_put_bytes(out, content, bytes);
	}
	uint32_t payload = (uint32_t)(out->n - KVI_FRAME_HEAD_BYTES);
	if (!kvi_out_reserve(out, KVI_FRAME_ALIGN + KVI_FRAME_CHECK_BYTES))
		return kvi_fail_alloc(w->error, &w->alloc);
	return kvi_writer_emit(w, type, out->p, payload, (uint32_t)bytes, entry);
}

/* Remembers the frame in scratch for a copy, while that is cheap. */
static kvarc_ret keep_params(kvarc_writer *w, const struct kvi_index_entry *entry,
                             uint32_t payload_bytes, uint32_t decoded_bytes)
{
	struct kvi_params_copy c = { entry->sequence, *entry, payload_bytes, decoded_bytes,
		                     w->copies.n };
	if (w->too_many_copies)
		return KVARC_OK;
	if (w->copies.n + payload_bytes > COPIES_MAX) {
		w->too_many_copies = true;
		kvi_out_free(&w->copies);
		kvi_out_free(&w->copy_list);
		return KVARC_OK;
	}
	kvi_put_bytes(&w->copies, w->scratch.p + KVI_FRAME_HEAD_BYTES, payload_bytes);
	kvi_put_bytes(&w->copy_list, &c, sizeof c);
	return w->copies.failed || w->copy_list.failed ? kvi_fail_alloc(w->error, &w->alloc)
	                                               : KVARC_OK;
}

kvarc_ret kvi_writer_put_params(kvarc_writer *w, const struct kvi_params_header *header,
                                const uint8_t *content, size_t bytes, uint64_t *sequence)
{
	struct kvi_index_entry entry = { .tensor = header->tensor,
		                         .head = header->head,
		                         .heads = header->heads,
		                         .codec = header->codec };
	struct kvi_out *out = &w->content;
	uint8_t head[KVI_PARAMS_HEADER_BYTES];
	kvi_params_header_write(head, header);
	out->n = 0;
	kvi_put_bytes(out, head, sizeof head);
	kvi_put_bytes(out, content, bytes);
	if (out->failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	uint32_t decoded = (uint32_t)out->n;
	*sequence = w->sequence;
	kvarc_ret ret = kvi_writer_emit_content(w, KVI_FRAME_PARAMS, out->p, out->n, true, &entry);
	/* An INDEX may have followed and overwritten the scratch buffer. */
	if (ret || w->sequence != *sequence + 1)
		return ret;
	return keep_params(w, &entry, kvi_load32(w->scratch.p + 12), decoded);
}

kvarc_ret kvi_writer_emit_commit(kvarc_writer *w, const struct kvi_checkpoint *checkpoint)
{
	struct kvi_commit c = { .frames = w->sequence, .offset = w->offset };
	if (checkpoint)
		c.checkpoint = *checkpoint;
	struct kvi_index_entry entry = { .number = c.checkpoint.number };
	struct kvi_out *out = &w->content;
	for (size_t i = 0; i < w->geometry.n_tracks; i++)
		w->tokens[i] = w->tracks[i].n_committed;
	out->n = 0;
	kvi_commit_put(out, &c, w->tokens, w->geometry.n_tracks);
	if (out->failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->last_commit = w->offset;
	return kvi_writer_emit_content(w, KVI_FRAME_COMMIT, out->p, out->n, false, &entry);
}

kvarc_ret kvi_writer_use_predictor(kvarc_writer *w, const struct kvi_predictor *predictor,
                                   uint64_t content_bytes)
{
	struct kvi_predictor p = *predictor;
	w->predictor = p;
	p.embedded = content_bytes > 0;
	p.content_bytes = content_bytes;
	struct kvi_index_entry entry = { 0 };
	w->content.n = 0;
	kvi_predictor_put(&w->content, &p);
	if (w->content.failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	w->predictor_sequence = w->sequence;
	w->predictor_written = true;
	return kvi_writer_emit_content(w, KVI_FRAME_PREDICTOR, w->content.p, w->content.n, true,
	                               &entry);
}

/* A PREDICTOR is repeated when the file is larger than this. */
enum { COPY_FILE_MIN = 32 << 10 };

/* Writes PREDICTOR once more, so that a damaged one costs nothing. */
static kvarc_ret emit_predictor_copy(kvarc_writer *w)
{
	uint64_t first = w->predictor_sequence;
	if (!w->predictor_written || w->offset < COPY_FILE_MIN)
		return KVARC_OK;
	kvarc_ret ret = kvi_writer_use_predictor(w, &w->predictor, 0);
	w->predictor_sequence = first;
	return ret;
}

static kvarc_ret emit_copies(kvarc_writer *w)
{
	size_t n = w->copy_list.n / sizeof(struct kvi_params_copy);
	const struct kvi_params_copy *list = (const void *)w->copy_list.p;
	uint64_t bytes = 0;
	for (size_t i = 0; i < n; i++)
		bytes += kvi_frame_bytes(list[i].payload_bytes);
	if (bytes > w->offset / COPIES_SHARE)
		return KVARC_OK;
	for (size_t i = 0; i < n; i++) {
		struct kvi_out *out = &w->scratch;
		out->n = 0;
		if (!kvi_out_reserve(out, (size_t)kvi_frame_bytes(list[i].payload_bytes)))
			return kvi_fail_alloc(w->error, &w->alloc);
		memcpy(out->p + KVI_FRAME_HEAD_BYTES, w->copies.p + list[i].at,
		       list[i].payload_bytes);
		struct kvi_index_entry entry = list[i].entry;
		entry.params = list[i].sequence;
		kvarc_ret ret = kvi_writer_emit(w, KVI_FRAME_PARAMS, out->p, list[i].payload_bytes,
		                                list[i].decoded_bytes, &entry);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

/* Writes the KEY frames of an encrypted archive, or copies of them. */
static kvarc_ret emit_keys(kvarc_writer *w)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; w->crypt && i < w->crypt->n_payloads && !ret; i++) {
		struct kvi_index_entry entry = { 0 };
		ret = kvi_writer_emit_content(w, KVI_FRAME_KEY, w->crypt->payloads[i],
		                              KVI_KEY_PAYLOAD_BYTES, false, &entry);
	}
	return ret;
}

kvarc_ret kvi_writer_finish(kvarc_writer *w)
{
	uint8_t payload[KVI_FOOTER_BYTES];
	if (w->was_closed && w->sequence == w->was_sequence)
		return KVARC_OK; /* no frame was added: the FOOTER is valid still */
	kvarc_ret ret = emit_copies(w);
	if (ret == KVARC_OK)
		ret = emit_predictor_copy(w);
	if (ret == KVARC_OK)
		ret = emit_keys(w);
	if (ret == KVARC_OK && (w->uncommitted || w->crypt))
		ret = kvi_writer_emit_commit(w, NULL);
	if (ret == KVARC_OK)
		ret = flush_parity(w);
	if (ret == KVARC_OK && w->index_entries)
		ret = emit_index(w);
	/* The frames reach the sink before the FOOTER: a crash must not cost the state before. */
	if (ret == KVARC_OK && (w->archive || w->checkpoint))
		ret = kvi_writer_flush(w, false);
	if (ret)
		return ret;
	struct kvi_footer f = { w->last_index, w->last_commit, w->sequence };
	kvi_footer_write(payload, &f);
	return kvi_writer_emit_content(w, KVI_FRAME_FOOTER, payload, sizeof payload, false, NULL);
}

/* ==== Where an archive begins, and where one is continued (spec 2, 9.3) ==== */

static kvarc_ret write_superblock(kvarc_writer *w)
{
	struct kvi_superblock sb = { .major = KVARC_FORMAT_MAJOR, .minor = KVARC_FORMAT_MINOR };
	uint8_t b[KVI_SUPERBLOCK_BYTES];
	sb.incompat = w->options.flags & KVARC_WRITE_STORED ? KVI_INCOMPAT_STORE : 0;
	memcpy(sb.file_id, w->options.file_id, sizeof sb.file_id);
	if (!(w->options.flags & KVARC_WRITE_FILE_ID) &&
	    kvi_all_zero(sb.file_id, sizeof sb.file_id) &&
	    getentropy(sb.file_id, sizeof sb.file_id))
		return kvi_fail(w->error, KVARC_IO,
		                "no random bytes for the file id: give one in the options");
	if (w->options.keys) {
		kvarc_ret ret = kvi_crypt_new(&w->crypt, &w->alloc, sb.file_id, w->options.keys,
		                              w->error);
		if (ret)
			return ret;
		sb.incompat |= KVI_INCOMPAT_ENCRYPTED;
	}
	if (w->parity)
		sb.compat |= KVI_COMPAT_PARITY;
	kvi_superblock_write(b, &sb);
	errno = 0;
	if (w->sink.write(w->sink.opaque, b, sizeof b, 0))
		return kvi_fail_callback(w->error, 0, KVARC_UNKNOWN,
		                         "writing the first %zu bytes failed", sizeof b);
	w->sync = kvi_frame_sync(sb.file_id);
	w->offset = sizeof b;
	w->stats.file_bytes = w->offset;
	return cover(w, 0, b, sizeof b, 0);
}

kvarc_ret kvi_writer_begin_file(kvarc_writer *w)
{
	kvarc_ret ret = write_superblock(w);
	return ret ? ret : emit_keys(w);
}

/* Adopts the file key of the archive that is appended to. */
static kvarc_ret resume_crypt(kvarc_writer *w)
{
	const struct kvi_crypt *from = w->resumed.crypt;
	kvarc_ret ret;
	if (!from)
		return w->options.keys ? kvi_fail(w->error, KVARC_OPTIONS,
		                                  "the archive is not encrypted: what is appended "
		                                  "would not be, either; compact it with a key")
		                       : KVARC_OK;
	ret = kvi_crypt_open_known(&w->crypt, &w->alloc, from, w->error);
	if (ret)
		return ret;
	w->crypt->n_payloads = from->n_payloads;
	memcpy(w->crypt->payloads, from->payloads, sizeof from->payloads);
	return KVARC_OK;
}

static kvarc_ret take_end(kvarc_writer *w, const struct kvi_resume *end)
{
	w->sync = end->sync;
	w->offset = end->offset;
	w->sequence = w->was_sequence = end->sequence;
	w->was_closed = end->closed;
	w->stats.file_bytes = end->offset;
	w->last_index = end->last_index;
	w->last_commit = end->last_commit;
	w->index_delta = end->delta;
	w->index_entries = end->index_entries;
	kvi_put_bytes(&w->index, end->index.p, end->index.n);
	w->checkpoint = end->checkpoint;
	w->uncommitted = !end->last_commit;
	return w->index.failed ? kvi_fail_alloc(w->error, &w->alloc) : KVARC_OK;
}

/* Removes what is behind the last commit. */
static kvarc_ret end_file(kvarc_writer *w)
{
	const uint64_t behind = w->resumed.file_bytes - w->offset;
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
	return kvi_writer_flush(w, false);
}

/* Writes a frame of a private type and random size where an encrypted archive was cut, so that
 * later frames have other offsets than the lost ones. */
static kvarc_ret part_from_lost(kvarc_writer *w)
{
	/* A private type, not critical. The size is random, so that what follows does not meet
	 * frames that were lost. */
	enum { TYPE = 0x8000, STEP = KVI_FRAME_ALIGN, STEPS = 256 };
	struct kvi_index_entry entry = { 0 };
	uint8_t content[STEP * STEPS] = { 0 }, n;
	if (!w->crypt || w->was_closed)
		return KVARC_OK;
	kvi_aead_random(&n, sizeof n);
	return kvi_writer_emit_content(w, TYPE, content, STEP * (size_t)(n + 1), false, &entry);
}

kvarc_ret kvi_writer_continue_file(kvarc_writer *w)
{
	kvarc_ret ret = resume_crypt(w);
	if (!ret)
		ret = take_end(w, &w->resumed);
	if (!ret)
		ret = end_file(w);
	return ret ? ret : part_from_lost(w);
}
