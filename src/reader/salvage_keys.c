/* SPDX-License-Identifier: BSD-3-Clause */
/* salvage_keys.c - finds KEY frames and the first encrypted frame of a damaged archive (frames.md
 * 12.1) */
#include "format/crypt.h"
#include "reader_salvage.h"

/* Goes through the headers of a file. */
struct key_scan {
	struct kvi_input in; /* frames as they are in the file */
	struct kvi_window window;
	struct kvi_frame f; /* header alone */
	uint64_t at;
};

/* The next good header. Returns OK, END, MEM, MEMLIMIT, IO. */
static kvarc_ret next_header(struct key_scan *s, kvarc_error *e)
{
	uint8_t head[KVI_FRAME_HEAD_BYTES];
	kvarc_ret ret = kvi_frame_find(&s->in, s->at, &s->window, &s->at, e);
	if (ret)
		return ret;
	if (s->at >= s->in.source.size)
		return KVARC_END;
	ret = kvi_frame_peek(&s->in, s->at, head, 0, &s->f, e);
	s->at += KVI_FRAME_ALIGN;
	return ret == KVARC_DATA ? KVARC_END : ret; /* the source has changed */
}

static struct key_scan begin(const kvarc_reader *r)
{
	struct key_scan s = { .in = r->in, .at = KVI_SUPERBLOCK_BYTES };
	s.in.crypt = NULL;
	return s;
}

kvarc_ret kvi_salvage_file_id(kvarc_reader *r)
{
	enum { AT = 32 };
	struct key_scan s = begin(r);
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	kvarc_ret ret;
	r->sb.incompat = KVI_INCOMPAT_ENCRYPTED;
	if (!kvi_aead_ready())
		return kvi_fail_at(
			r->error, KVARC_OPTIONS, 0, KVARC_UNKNOWN, "the archive %s",
			kvi_superblock_lacks(&(struct kvi_superblock){
				.major = KVARC_FORMAT_MAJOR, .incompat = KVI_INCOMPAT_ENCRYPTED }));
	while ((ret = next_header(&s, r->error)) == KVARC_OK) {
		if (s.f.head.type != KVI_FRAME_KEY ||
		    s.f.head.payload_bytes != KVI_KEY_PAYLOAD_BYTES)
			continue;
		ret = kvi_frame_read(&s.in, s.f.offset, &buf, &f, r->error);
		if (ret == KVARC_OK && kvi_frame_sync(f.payload + AT) == r->in.sync) {
			memcpy(r->sb.file_id, f.payload + AT, sizeof r->sb.file_id);
			break;
		}
		if (ret != KVARC_OK && ret != KVARC_DATA)
			break;
	}
	kvi_free(&r->alloc, buf.p);
	kvi_free(&r->alloc, s.window.buffer.p);
	return ret != KVARC_END ? ret
	                        : kvi_fail_at(r->error, KVARC_DATA, 0, KVARC_UNKNOWN,
	                                      "the first 64 bytes and all KEY frames are damaged: "
	                                      "nothing can be saved");
}

kvarc_ret kvi_salvage_keys(kvarc_reader *r, uint64_t *offset, uint64_t *sequence)
{
	struct key_scan s = begin(r);
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	bool found = false;
	kvarc_ret ret = KVARC_OK;
	while (!(found && r->in.crypt->known) && (ret = next_header(&s, r->error)) == KVARC_OK) {
		if (s.f.head.type == KVI_FRAME_KEY)
			ret = kvi_frame_read(&r->in, s.f.offset, &buf, &f, r->error);
		if (ret != KVARC_OK && ret != KVARC_DATA)
			break;
		if (!found && s.f.head.type == KVI_FRAME_ENCRYPTED) {
			*offset = s.f.offset;
			*sequence = s.f.head.sequence;
			found = true;
		}
	}
	kvi_free(&r->alloc, buf.p);
	kvi_free(&r->alloc, s.window.buffer.p);
	return ret == KVARC_END || ret == KVARC_DATA ? KVARC_OK : ret;
}
