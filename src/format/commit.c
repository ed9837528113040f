/* SPDX-License-Identifier: BSD-3-Clause */
/* commit.c - parses and writes COMMIT and FOOTER payloads (spec 9.1, 9.3) */
#include "commit.h"

#include "frame.h"
#include "util/string_field.h"

/* Flags of a COMMIT. */
enum { CHECKPOINT = 1u };

void kvi_commit_put(struct kvi_out *out, const struct kvi_commit *commit, const uint64_t *tokens,
                    size_t n_tracks)
{
	kvi_put64(out, commit->frames);
	kvi_put64(out, commit->offset);
	kvi_put_varint(out, n_tracks);
	for (size_t i = 0; i < n_tracks; i++)
		kvi_put_varint(out, tokens[i]);
	kvi_put8(out, commit->checkpoint.number ? CHECKPOINT : 0);
	if (!commit->checkpoint.number)
		return;
	kvi_put_varint(out, commit->checkpoint.number);
	kvi_put_varint(out, commit->checkpoint.time);
	kvi_put_varint(out, commit->checkpoint.label_bytes);
	kvi_put_bytes(out, commit->checkpoint.label, commit->checkpoint.label_bytes);
}

static bool get_checkpoint(struct kvi_checkpoint *checkpoint, struct kvi_in *in)
{
	checkpoint->number = kvi_get_varint(in, KVI_NUMBER_MAX);
	checkpoint->time = kvi_get_varint(in, KVI_NUMBER_MAX);
	checkpoint->label_bytes = (size_t)kvi_get_varint(in, KVI_STRING_MAX);
	checkpoint->label = kvi_get_bytes(in, checkpoint->label_bytes);
	return checkpoint->label && checkpoint->number &&
	       !memchr(checkpoint->label, 0, checkpoint->label_bytes);
}

bool kvi_commit_parse(struct kvi_commit *commit, uint64_t *tokens, size_t n_tracks,
                      const uint8_t *payload, size_t bytes)
{
	struct kvi_in in = kvi_in_make(payload, bytes);
	*commit = (struct kvi_commit){ 0 };
	commit->frames = kvi_get64(&in);
	commit->offset = kvi_get64(&in);
	if (kvi_get_varint(&in, UINT32_MAX) != n_tracks || in.bad)
		return false;
	for (size_t i = 0; i < n_tracks; i++)
		tokens[i] = kvi_get_varint(&in, KVI_NUMBER_MAX);
	const unsigned flags = kvi_get8(&in);
	if ((flags & ~CHECKPOINT) || (flags && !get_checkpoint(&commit->checkpoint, &in)))
		return false;
	return kvi_get_extensions(&in);
}

void kvi_footer_write(uint8_t out[KVI_FOOTER_BYTES], const struct kvi_footer *footer)
{
	kvi_store64(out, footer->index);
	kvi_store64(out + 8, footer->commit);
	kvi_store64(out + 16, footer->frames);
	kvi_store32(out + 24, footer->index_bytes);
	kvi_store32(out + 28, footer->commit_bytes);
}

bool kvi_footer_parse(struct kvi_footer *footer, const uint8_t *payload, size_t bytes)
{
	if (bytes != KVI_FOOTER_BYTES)
		return false;
	footer->index = kvi_load64(payload);
	footer->commit = kvi_load64(payload + 8);
	footer->frames = kvi_load64(payload + 16);
	footer->index_bytes = kvi_load32(payload + 24);
	footer->commit_bytes = kvi_load32(payload + 28);
	return true;
}
