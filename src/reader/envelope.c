/* SPDX-License-Identifier: BSD-3-Clause */
/* envelope.c - what shows of an archive without its keys (frames.md 12.1) */
#include <string.h>

#include "reader_internal.h"
#include "format/crypt.h"
#include "format/superblock.h"
#include "util/arguments.h"
#include "util/bytes.h"

/* Offsets of a KEY payload: kind, passes, memory. */
enum { KEY_PASSES = 8, KEY_MEMORY = 12, KEY_SEEN = 16 };

static void count_frame(kvarc_envelope *to, const struct kvi_frame *frame)
{
	const uint8_t *p = frame->payload;
	to->frames++;
	to->encrypted_frames += frame->head.type == KVI_FRAME_ENCRYPTED;
	to->parity_frames += frame->head.type == KVI_FRAME_PARITY;
	/* Copies behind the first encrypted frame are of the same keys. */
	if (frame->head.type != KVI_FRAME_KEY || to->encrypted_frames ||
	    frame->head.payload_bytes != KVI_KEY_PAYLOAD_BYTES)
		return;
	to->keys += p[0] == KVARC_KEY_GIVEN;
	if (p[0] != KVARC_KEY_PASSPHRASE)
		return;
	if (!to->passphrases++) {
		to->passes = kvi_load32(p + KEY_PASSES);
		to->memory_kib = kvi_load32(p + KEY_MEMORY);
	}
}

static kvarc_ret read_superblock(struct kvi_input *in, kvarc_envelope *to, kvarc_error *error)
{
	uint8_t b[KVI_SUPERBLOCK_BYTES];
	struct kvi_superblock sb;
	size_t got;
	kvarc_ret ret = kvi_input_read(in, b, sizeof b, 0, &got, error);
	if (ret)
		return ret;
	ret = got < sizeof b ? KVARC_FORMAT : kvi_superblock_parse(&sb, b);
	if (ret == KVARC_FORMAT)
		return kvi_fail_at(error, ret, 0, KVARC_UNKNOWN, "this is not a kvarc file");
	/* A superblock too new to be read has the same fields. */
	if (ret == KVARC_DATA)
		return kvi_fail_at(error, ret, 0, KVARC_UNKNOWN, "the first 64 bytes are damaged");
	to->format_major = sb.major;
	to->format_minor = sb.minor;
	memcpy(to->file_id, sb.file_id, sizeof to->file_id);
	to->encrypted = sb.incompat & KVI_INCOMPAT_ENCRYPTED ? 1 : 0;
	in->sync = kvi_frame_sync(sb.file_id);
	return KVARC_OK;
}

kvarc_ret kvi_envelope_id(const kvarc_source *source, const kvarc_common *common,
                          uint8_t file_id[16])
{
	kvarc_envelope envelope = { 0 };
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, common->allocator, common->memlimit);
	struct kvi_input in = { .source = *source, .alloc = &alloc };
	kvarc_ret ret = read_superblock(&in, &envelope, common->error);
	memcpy(file_id, envelope.file_id, sizeof envelope.file_id);
	return ret;
}

kvarc_ret kvi_envelope_check(const kvarc_source *source, const kvarc_common *common,
                             uint8_t file_id[16])
{
	kvarc_envelope envelope = { 0 };
	struct kvi_buffer buffer = { 0 };
	struct kvi_frame f;
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, common->allocator, common->memlimit);
	struct kvi_input in = { .source = *source, .alloc = &alloc, .stored = true };
	kvarc_ret ret = read_superblock(&in, &envelope, common->error);
	for (uint64_t at = KVI_SUPERBLOCK_BYTES; ret == KVARC_OK; at += f.bytes)
		ret = kvi_frame_read(&in, at, &buffer, &f, common->error);
	kvi_free(&alloc, buffer.p);
	memcpy(file_id, envelope.file_id, sizeof envelope.file_id);
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvarc_read_envelope(const kvarc_source *source, const kvarc_common *common,
                              kvarc_envelope *to)
{
	static const kvarc_common defaults = KVARC_COMMON_INIT;
	const kvarc_common *c = common ? common : &defaults;
	struct kvi_alloc alloc;
	uint8_t head[KVI_FRAME_HEAD_BYTES + KEY_SEEN];
	struct kvi_frame f;
	if (!to)
		return KVARC_PROG;
	*to = (kvarc_envelope){ 0 };
	kvarc_ret ret = kvi_check_common(c);
	if (!ret)
		ret = kvi_check_source(c->error, "kvarc_read_envelope", source, true);
	if (!ret && source->size == KVARC_UNKNOWN)
		ret = kvi_reason(c->error, KVARC_REASON_NEEDS_SEEK,
		                 kvi_fail(c->error, KVARC_OPTIONS,
		                          "kvarc_read_envelope needs a source that can seek, not a "
		                          "pipe"));
	if (ret)
		return ret;
	kvi_alloc_init(&alloc, c->allocator, c->memlimit);
	struct kvi_input in = { .source = *source, .alloc = &alloc };
	ret = read_superblock(&in, to, c->error);
	to->file_bytes = source->size;
	for (uint64_t at = KVI_SUPERBLOCK_BYTES; ret == KVARC_OK; at += f.bytes) {
		ret = kvi_frame_peek(&in, at, head, KEY_SEEN, &f, c->error);
		if (ret == KVARC_OK)
			count_frame(to, &f);
	}
	/* Up to damage, or the end. */
	return ret == KVARC_END || (ret == KVARC_DATA && to->frames) ? KVARC_OK : ret;
}
