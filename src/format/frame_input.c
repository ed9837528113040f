/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_input.c - bounded reads and verified frames (spec 3.1, 3.2) */
#include "frame_input.h"

#include <errno.h>
#include <string.h>

#include "crypt.h"
#include "util/bytes.h"

/* A frame is read from a pipe in pieces of growing size, so that a length that is only announced
 * costs no memory. */
enum { PIPE_STEP = 1 << 20 };

/* Reads from the source itself. */
static kvarc_ret read_source(const struct kvi_input *in, uint8_t *buf, size_t bytes,
                             uint64_t offset, size_t *got, kvarc_error *error)
{
	const kvarc_source *s = &in->source;
	*got = 0;
	while (*got < bytes) {
		errno = 0;
		int64_t n = s->read(s->opaque, buf + *got, bytes - *got, offset + *got);
		if (n == 0)
			break;
		if (n < 0 || (uint64_t)n > bytes - *got)
			return kvi_fail_callback(error, offset + *got, KVARC_UNKNOWN,
			                         "reading at offset %llu failed",
			                         (unsigned long long)(offset + *got));
		*got += (size_t)n;
	}
	return KVARC_OK;
}

/* Copies the bytes that were read ahead, and reads the rest from the source. */
static kvarc_ret read_stored(const struct kvi_input *in, uint8_t *buf, size_t bytes,
                             uint64_t offset, size_t *got, kvarc_error *error)
{
	if (!in->ahead)
		return read_source(in, buf, bytes, offset, got, error);
	for (*got = 0; *got < bytes;) {
		uint64_t at = offset + *got, until;
		size_t n = kvi_ahead_copy(in->ahead, buf + *got, bytes - *got, at, &until);
		size_t want = n ? n : (size_t)(until - at);
		kvarc_ret ret = n ? KVARC_OK : read_source(in, buf + *got, want, at, &n, error);
		*got += n;
		if (ret || n < want)
			return ret;
	}
	return KVARC_OK;
}

/* The next step of a read through a window: *n bytes. 0: the source ends. */
static kvarc_ret read_window(const struct kvi_input *in, uint8_t *buf, size_t bytes,
                             uint64_t offset, size_t *n, kvarc_error *error)
{
	enum { WINDOW = 1 << 20, SHARE = 64, SMALLEST = 4096 };
	struct kvi_window *w = in->window;
	const struct kvi_alloc *alloc = in->alloc->counted;
	uint64_t until, used = atomic_load(&alloc->used);
	*n = in->ahead ? kvi_ahead_copy(in->ahead, buf, bytes, offset, &until) : 0;
	if (*n)
		return KVARC_OK;
	if (offset < w->offset || offset - w->offset >= w->bytes) {
		uint64_t size = used < alloc->limit ? (alloc->limit - used) / SHARE : 0;
		size = w->buffer.bytes ? w->buffer.bytes : size < WINDOW ? size : WINDOW;
		w->bytes = 0;
		if (bytes >= size || size < SMALLEST)
			return read_stored(in, buf, bytes, offset, n, error);
		if (!kvi_buffer_grow(&w->buffer, in->alloc, (size_t)size, 0))
			return kvi_fail_alloc(error, in->alloc);
		if (size > in->source.size - offset)
			size = in->source.size - offset;
		w->offset = offset;
		kvarc_ret ret = read_stored(in, w->buffer.p, (size_t)size, offset, &w->bytes,
		                            error);
		if (ret)
			return ret;
	}
	*n = w->bytes - (size_t)(offset - w->offset);
	*n = *n < bytes ? *n : bytes;
	memcpy(buf, w->buffer.p + (offset - w->offset), *n);
	return KVARC_OK;
}

kvarc_ret kvi_input_read(const struct kvi_input *in, void *buf, size_t bytes, uint64_t offset,
                         size_t *got, kvarc_error *error)
{
	const kvarc_source *s = &in->source;
	*got = 0;
	if (kvi_input_seekable(in)) {
		if (offset >= s->size)
			return KVARC_OK;
		if (bytes > s->size - offset)
			bytes = (size_t)(s->size - offset);
	}
	if (s->memory) {
		memcpy(buf, (const uint8_t *)s->memory + offset, bytes);
		*got = bytes;
		return KVARC_OK;
	}
	if (!in->window)
		return read_stored(in, buf, bytes, offset, got, error);
	while (*got < bytes) {
		size_t n;
		kvarc_ret ret = read_window(in, (uint8_t *)buf + *got, bytes - *got, offset + *got,
		                            &n, error);
		*got += n;
		if (ret || n == 0)
			return ret;
	}
	return KVARC_OK;
}

bool kvi_buffer_grow(struct kvi_buffer *buffer, const struct kvi_alloc *alloc, size_t bytes,
                     size_t keep)
{
	if (buffer->bytes >= bytes)
		return true;
	if (!keep) {
		kvi_free(alloc, buffer->p);
		*buffer = (struct kvi_buffer){ 0 };
	}
	uint8_t *p = kvi_malloc(alloc, bytes);
	if (!p)
		return false;
	if (keep)
		memcpy(p, buffer->p, keep);
	kvi_free(alloc, buffer->p);
	*buffer = (struct kvi_buffer){ p, bytes };
	return true;
}

static kvarc_ret fail_cut(struct kvi_frame *frame, kvarc_error *error)
{
	frame->cut = true;
	return kvi_reason(
		error, KVARC_REASON_SALVAGE,
		kvi_fail_at(error, KVARC_DATA, frame->offset, KVARC_UNKNOWN,
	                    "the file is cut: it ends "
	                    "inside the frame at offset %llu; salvage gives what is before",
	                    (unsigned long long)frame->offset));
}

static kvarc_ret read_head(const struct kvi_input *in, uint8_t *head, size_t bytes,
                           struct kvi_frame *frame, size_t *got, kvarc_error *error)
{
	kvarc_ret ret = kvi_input_read(in, head, bytes, frame->offset, got, error);
	if (ret)
		return ret;
	if (*got == 0)
		return KVARC_END;
	if (*got < KVI_FRAME_HEAD_BYTES)
		return fail_cut(frame, error);
	if (!kvi_frame_head_parse(&frame->head, head, in->sync, frame->offset))
		return kvi_reason(
			error, KVARC_REASON_SALVAGE,
			kvi_fail_at(
				error, KVARC_DATA, frame->offset, KVARC_UNKNOWN,
				"no valid frame at offset %llu: the header is damaged, or bytes "
				"are missing or were added; salvage may give the rest",
				(unsigned long long)frame->offset));
	frame->head_good = true;
	frame->bytes = kvi_frame_bytes(frame->head.payload_bytes);
	if (frame->head.payload_bytes > KVI_FRAME_MAX || frame->head.decoded_bytes > KVI_FRAME_MAX)
		return kvi_fail_at(error, KVARC_DATA, frame->offset, frame->head.sequence,
		                   "the frame at offset %llu announces more than 2^28 bytes",
		                   (unsigned long long)frame->offset);
	return KVARC_OK;
}

/* The rest of a frame of which buf has the first bytes; *frame: all of it,
 * there or in the source's memory. */
static kvarc_ret read_rest(const struct kvi_input *in, struct kvi_buffer *buf, struct kvi_frame *f,
                           size_t have, size_t total, const uint8_t **frame, kvarc_error *error)
{
	bool seekable = kvi_input_seekable(in);
	if (seekable && total > in->source.size - f->offset)
		return fail_cut(f, error);
	/* ENCRYPTED frames are copied, because they are decrypted in place. */
	if (in->source.memory && f->head.type != KVI_FRAME_ENCRYPTED) {
		*frame = (const uint8_t *)in->source.memory + f->offset;
		return KVARC_OK;
	}
	while (have < total) {
		size_t step = total - have, got;
		if (!seekable && step > PIPE_STEP)
			step = have > PIPE_STEP && have < step ? have : PIPE_STEP;
		if (!kvi_buffer_grow(buf, in->alloc, have + step, have))
			return kvi_fail_alloc(error, in->alloc);
		kvarc_ret ret = kvi_input_read(in, buf->p + have, step, f->offset + have, &got,
		                               error);
		if (ret)
			return ret;
		if (got < step)
			return fail_cut(f, error);
		have += step;
	}
	*frame = buf->p;
	return KVARC_OK;
}

/* The first bytes of a frame into buf: all that are expected, where that is not too much. */
static kvarc_ret read_first(const struct kvi_input *in, struct kvi_buffer *buf,
                            struct kvi_frame *frame, uint64_t expected, size_t *got,
                            kvarc_error *error)
{
	const struct kvi_alloc *alloc = in->alloc->counted;
	uint64_t used = atomic_load(&alloc->used), size = in->source.size;
	uint64_t left = used < alloc->limit ? alloc->limit - used : 0;
	size_t bytes = KVI_FRAME_HEAD_BYTES;
	if (kvi_input_seekable(in) && !in->source.memory && frame->offset < size) {
		expected = expected < size - frame->offset ? expected : size - frame->offset;
		/* An index may say anything: a buffer that large must be affordable. */
		if (expected > bytes && (expected <= buf->bytes || expected <= left / 2) &&
		    expected <= KVI_FRAME_MAX)
			bytes = (size_t)expected;
	}
	if (!kvi_buffer_grow(buf, in->alloc, bytes, 0))
		return kvi_fail_alloc(error, in->alloc);
	return read_head(in, buf->p, bytes, frame, got, error);
}

/* Takes the extension fields of a CHUNK off its payload, of which `bytes` are there (spec 7). */
static kvarc_ret take_extensions(struct kvi_frame *frame, size_t bytes, kvarc_error *error)
{
	enum { AT = 44 };
	if (frame->head.type != KVI_FRAME_CHUNK || bytes < AT + 4)
		return KVARC_OK;
	const uint32_t n = kvi_load32(frame->payload + AT), all = frame->head.payload_bytes;
	bool good = n <= all - (AT + 4);
	if (n && good && bytes == all) {
		struct kvi_in in = kvi_in_make(frame->payload + (all - n), n);
		good = kvi_get_extensions(&in);
	}
	if (!good)
		return kvi_fail_at(error, KVARC_DATA, frame->offset, frame->head.sequence,
		                   "CHUNK frame %llu at offset %llu is not valid: its extension "
		                   "fields",
		                   (unsigned long long)frame->head.sequence,
		                   (unsigned long long)frame->offset);
	frame->head.payload_bytes -= n;
	return KVARC_OK;
}

kvarc_ret kvi_frame_read(const struct kvi_input *in, uint64_t offset, struct kvi_buffer *buf,
                         struct kvi_frame *frame, kvarc_error *error)
{
	return kvi_frame_read_expected(in, offset, 0, buf, frame, error);
}

kvarc_ret kvi_frame_read_expected(const struct kvi_input *in, uint64_t offset, uint64_t expected,
                                  struct kvi_buffer *buf, struct kvi_frame *f, kvarc_error *error)
{
	size_t got;
	const uint8_t *frame = NULL;
	*f = (struct kvi_frame){ .offset = offset };
	kvarc_ret ret = read_first(in, buf, f, expected, &got, error);
	if (ret)
		return ret;
	size_t total = (size_t)f->bytes;
	ret = read_rest(in, buf, f, got, total, &frame, error);
	if (ret)
		return ret;
	size_t padded = kvi_frame_padded(f->head.payload_bytes);
	f->payload = frame + KVI_FRAME_HEAD_BYTES;
	static const uint8_t zero[KVI_FRAME_ALIGN];
	if (!kvi_h128_equal(kvi_load_h128(f->payload + padded),
	                    kvi_frame_check(frame, offset, f->payload, padded)) ||
	    memcmp(f->payload + f->head.payload_bytes, zero, padded - f->head.payload_bytes))
		return kvi_reason(
			error, KVARC_REASON_SALVAGE,
			kvi_fail_at(error, KVARC_DATA, offset, f->head.sequence,
		                    "%s frame %llu at offset %llu is damaged; salvage may give "
		                    "the rest",
		                    kvi_frame_name(f->head.type),
		                    (unsigned long long)f->head.sequence,
		                    (unsigned long long)offset));
	f->check_good = true;
	if (in->crypt)
		ret = kvi_crypt_frame(
			in->crypt, f, frame,
			f->head.type == KVI_FRAME_ENCRYPTED ? buf->p + KVI_FRAME_HEAD_BYTES : NULL,
			error);
	return ret ? ret : take_extensions(f, f->head.payload_bytes, error);
}

/* Reads the whole frame: no byte of an encrypted frame is used before its tag is verified. */
static kvarc_ret peek_whole(const struct kvi_input *in, uint64_t offset, uint8_t *head,
                            size_t extra, struct kvi_frame *frame, kvarc_error *error)
{
	struct kvi_buffer buf = { 0 };
	kvarc_ret ret = kvi_frame_read(in, offset, &buf, frame, error);
	if (ret == KVARC_OK) {
		if (frame->head.payload_bytes < extra)
			extra = frame->head.payload_bytes;
		memcpy(head + KVI_FRAME_HEAD_BYTES, frame->payload, extra);
		frame->payload = head + KVI_FRAME_HEAD_BYTES;
	}
	kvi_free(in->alloc, buf.p);
	return ret;
}

kvarc_ret kvi_frame_peek(const struct kvi_input *in, uint64_t offset, uint8_t *head, size_t extra,
                         struct kvi_frame *frame, kvarc_error *error)
{
	size_t got;
	if (in->crypt)
		return peek_whole(in, offset, head, extra, frame, error);
	*frame = (struct kvi_frame){ .offset = offset };
	kvarc_ret ret = read_head(in, head, KVI_FRAME_HEAD_BYTES + extra, frame, &got, error);
	if (ret)
		return ret;
	if (frame->head.payload_bytes < extra)
		extra = frame->head.payload_bytes;
	if (got < KVI_FRAME_HEAD_BYTES + extra)
		return fail_cut(frame, error);
	frame->payload = head + KVI_FRAME_HEAD_BYTES;
	return take_extensions(frame, extra, error);
}

/* Makes the window begin at an offset, if its bytes end before the header there. */
static kvarc_ret move_window(const struct kvi_input *in, struct kvi_window *w, uint64_t at,
                             kvarc_error *error)
{
	enum { WINDOW = 64 << 10 };
	if (w->bytes && at >= w->offset && at - w->offset + KVI_FRAME_HEAD_BYTES <= w->bytes)
		return KVARC_OK;
	if (!kvi_buffer_grow(&w->buffer, in->alloc, WINDOW, 0))
		return kvi_fail_alloc(error, in->alloc);
	w->offset = at;
	return kvi_input_read(in, w->buffer.p, WINDOW, at, &w->bytes, error);
}

kvarc_ret kvi_frame_find(const struct kvi_input *in, uint64_t from, struct kvi_window *w,
                         uint64_t *found, kvarc_error *error)
{
	const uint64_t size = in->source.size;
	struct kvi_frame_head h;
	*found = size;
	for (uint64_t at = from; at < size && size - at >= KVI_FRAME_HEAD_BYTES;
	     at += KVI_FRAME_ALIGN) {
		kvarc_ret ret = move_window(in, w, at, error);
		if (ret)
			return ret;
		const uint8_t *head = w->buffer.p + (at - w->offset);
		if (w->bytes < KVI_FRAME_HEAD_BYTES)
			return KVARC_OK; /* the source has become shorter */
		if (!kvi_frame_head_parse(&h, head, in->sync, at) ||
		    h.payload_bytes > KVI_FRAME_MAX || kvi_frame_bytes(h.payload_bytes) > size - at)
			continue;
		*found = at;
		break;
	}
	return KVARC_OK;
}
