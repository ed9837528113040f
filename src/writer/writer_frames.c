/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_frames.c - writes frames, commits, index and footer (spec 3, 8, 9) */
#include <errno.h>

#include "format/params_header.h"
#include "writer_state.h"

/* Most bytes of PARAMS payloads that are kept for copies. */
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

kvarc_ret kvi_writer_flush_sink(kvarc_writer *w)
{
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
		ret = kvi_writer_seal(w, &h, &frame, &bytes);
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
	ret = kvi_writer_cover(w, type, frame, bytes, w->offset - bytes);
	return ret || w->index_entries < KVI_INDEX_ENTRIES || kvi_writer_parity_busy(w)
	               ? ret
	               : emit_index(w);
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

kvarc_ret kvi_writer_emit_params(kvarc_writer *w, struct kvi_group *g, uint8_t codec,
                                 const uint8_t *content, size_t bytes)
{
	struct kvi_params_header h = { g->tensor, g->head, g->heads, codec };
	struct kvi_index_entry entry = {
		.tensor = g->tensor, .head = g->head, .heads = g->heads, .codec = codec
	};
	struct kvi_out *out = &w->content;
	uint8_t head[KVI_PARAMS_HEADER_BYTES];
	kvi_params_header_write(head, &h);
	out->n = 0;
	kvi_put_bytes(out, head, sizeof head);
	kvi_put_bytes(out, content, bytes);
	if (out->failed)
		return kvi_fail_alloc(w->error, &w->alloc);
	uint32_t decoded = (uint32_t)out->n;
	g->params_sequence = w->sequence;
	kvarc_ret ret = kvi_writer_emit_content(w, KVI_FRAME_PARAMS, out->p, out->n, true, &entry);
	/* An INDEX may have followed and taken the scratch buffer. */
	if (ret || w->sequence != g->params_sequence + 1)
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

kvarc_ret kvi_writer_emit_predictor(kvarc_writer *w, uint64_t content_bytes)
{
	struct kvi_predictor p = w->predictor;
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

kvarc_ret kvi_writer_emit_predictor_copy(kvarc_writer *w)
{
	uint64_t first = w->predictor_sequence;
	if (!w->predictor_written || w->offset < COPY_FILE_MIN)
		return KVARC_OK;
	kvarc_ret ret = kvi_writer_emit_predictor(w, 0);
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

kvarc_ret kvi_writer_finish(kvarc_writer *w)
{
	uint8_t payload[KVI_FOOTER_BYTES];
	if (w->was_closed && w->sequence == w->was_sequence)
		return KVARC_OK; /* nothing came behind its FOOTER */
	kvarc_ret ret = emit_copies(w);
	if (ret == KVARC_OK)
		ret = kvi_writer_emit_predictor_copy(w);
	if (ret == KVARC_OK)
		ret = kvi_writer_emit_keys(w);
	if (ret == KVARC_OK && (w->uncommitted || w->crypt))
		ret = kvi_writer_emit_commit(w, NULL);
	if (ret == KVARC_OK)
		ret = kvi_writer_parity_flush(w);
	if (ret == KVARC_OK && w->index_entries)
		ret = emit_index(w);
	/* A FOOTER shows the same, where a crash in between must not cost the state before. */
	if (ret == KVARC_OK && (w->archive || w->checkpoint))
		ret = kvi_writer_flush_sink(w);
	if (ret)
		return ret;
	struct kvi_footer f = { w->last_index, w->last_commit, w->sequence };
	kvi_footer_write(payload, &f);
	return kvi_writer_emit_content(w, KVI_FRAME_FOOTER, payload, sizeof payload, false, NULL);
}
