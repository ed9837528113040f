/* SPDX-License-Identifier: BSD-3-Clause */
/* commit.c - parses and writes COMMIT and FOOTER payloads (spec 9.1, 9.3) */
#include "commit.h"

#include "frame.h"
#include "util/string_field.h"

/* Flags of a COMMIT. */
enum { CHECKPOINT = 1u };

void kvi_commit_put(struct kvi_out *out, const struct kvi_commit *c, const uint64_t *tokens,
                    size_t n_tracks)
{
	kvi_put64(out, c->frames);
	kvi_put64(out, c->offset);
	kvi_put_varint(out, n_tracks);
	for (size_t i = 0; i < n_tracks; i++)
		kvi_put_varint(out, tokens[i]);
	kvi_put8(out, c->checkpoint.number ? CHECKPOINT : 0);
	if (!c->checkpoint.number)
		return;
	kvi_put_varint(out, c->checkpoint.number);
	kvi_put_varint(out, c->checkpoint.time);
	kvi_put_varint(out, c->checkpoint.label_bytes);
	kvi_put_bytes(out, c->checkpoint.label, c->checkpoint.label_bytes);
}

static bool get_checkpoint(struct kvi_checkpoint *c, struct kvi_in *in)
{
	c->number = kvi_get_varint(in, KVI_NUMBER_MAX);
	c->time = kvi_get_varint(in, KVI_NUMBER_MAX);
	c->label_bytes = (size_t)kvi_get_varint(in, KVI_STRING_MAX);
	c->label = kvi_get_bytes(in, c->label_bytes);
	return c->label && c->number && !memchr(c->label, 0, c->label_bytes);
}

bool kvi_commit_parse(struct kvi_commit *c, uint64_t *tokens, size_t n_tracks,
                      const uint8_t *payload, size_t bytes)
{
	struct kvi_in in = kvi_in_make(payload, bytes);
	*c = (struct kvi_commit){ 0 };
	c->frames = kvi_get64(&in);
	c->offset = kvi_get64(&in);
	if (kvi_get_varint(&in, UINT32_MAX) != n_tracks || in.bad)
		return false;
	for (size_t i = 0; i < n_tracks; i++)
		tokens[i] = kvi_get_varint(&in, KVI_NUMBER_MAX);
	const unsigned flags = kvi_get8(&in);
	if ((flags & ~CHECKPOINT) || (flags && !get_checkpoint(&c->checkpoint, &in)))
		return false;
	return !in.bad && kvi_in_remaining(&in) == 0;
}

void kvi_footer_write(uint8_t out[KVI_FOOTER_BYTES], const struct kvi_footer *f)
{
	kvi_store64(out, f->index);
	kvi_store64(out + 8, f->commit);
	kvi_store64(out + 16, f->frames);
}

bool kvi_footer_parse(struct kvi_footer *f, const uint8_t *payload, size_t bytes)
{
	if (bytes != KVI_FOOTER_BYTES)
		return false;
	f->index = kvi_load64(payload);
	f->commit = kvi_load64(payload + 8);
	f->frames = kvi_load64(payload + 16);
	return true;
}
