/* SPDX-License-Identifier: BSD-3-Clause */
/* commit.c - parses and writes COMMIT and FOOTER payloads (spec 9.1, 9.3) */
#include "commit.h"

#include "frame.h"

void kvi_commit_put(struct kvi_out *out, const struct kvi_commit *c, const uint64_t *tokens,
                    size_t n_tracks)
{
	uint8_t chain[16];
	kvi_put64(out, c->frames);
	kvi_put64(out, c->offset);
	kvi_store_h128(chain, c->chain);
	kvi_put_bytes(out, chain, sizeof chain);
	kvi_put_varint(out, n_tracks);
	for (size_t i = 0; i < n_tracks; i++)
		kvi_put_varint(out, tokens[i]);
}

bool kvi_commit_parse(struct kvi_commit *c, uint64_t *tokens, size_t n_tracks,
                      const uint8_t *payload, size_t bytes)
{
	struct kvi_in in = kvi_in_make(payload, bytes);
	c->frames = kvi_get64(&in);
	c->offset = kvi_get64(&in);
	const uint8_t *chain = kvi_get_bytes(&in, 16);
	if (!chain || kvi_get_varint(&in, UINT32_MAX) != n_tracks || in.bad)
		return false;
	c->chain = kvi_load_h128(chain);
	for (size_t i = 0; i < n_tracks; i++)
		tokens[i] = kvi_get_varint(&in, UINT64_MAX);
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
