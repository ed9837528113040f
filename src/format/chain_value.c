/* SPDX-License-Identifier: BSD-3-Clause */
/* chain_value.c - chain values of segments (spec 5.3) */
#include "chain_value.h"

#include "util/key_hash.h"
#include "util/string_field.h"

enum { LABEL = 16 };

static void put_h128(struct kvi_out *out, struct kvi_h128 hash)
{
	uint8_t b[16];
	kvi_store_h128(b, hash);
	kvi_put_bytes(out, b, sizeof b);
}

static kvarc_ret hash_all(struct kvi_h128 *to, const struct kvi_out *scratch)
{
	if (scratch->failed)
		return kvi_alloc_error(scratch->alloc);
	*to = kvi_b128(scratch->p, scratch->n);
	return KVARC_OK;
}

kvarc_ret kvi_chain_root(struct kvi_h128 *root, struct kvi_out *scratch, struct kvi_h128 geometry,
                         const struct kvi_identity *id)
{
	static const char *const keys[] = { "adapter",   "layout",       "lossy",     "model",
		                            "namespace", "quantization", "tokenizer", "weights" };
	const size_t n = sizeof keys / sizeof *keys;
	scratch->n = 0;
	kvi_put_bytes(scratch, "kvarc chain root", LABEL);
	put_h128(scratch, geometry);
	kvi_put_varint(scratch, n);
	for (size_t i = 0; i < n; i++) {
		const char *value = kvi_identity_get(id, keys[i]);
		kvi_put_string(scratch, keys[i]);
		kvi_put_string(scratch, value ? value : "");
	}
	return hash_all(root, scratch);
}

kvarc_ret kvi_chain_link(struct kvi_h128 *value, struct kvi_out *scratch, struct kvi_h128 before,
                         const struct kvi_segment *segment, uint32_t n)
{
	scratch->n = 0;
	kvi_put_bytes(scratch, "kvarc chain link", LABEL);
	put_h128(scratch, before);
	kvi_put64(scratch, segment->track);
	kvi_segment_put_positions(scratch, segment, n);
	for (uint32_t i = 0; i < n; i++)
		kvi_put32(scratch, (uint32_t)segment->ids[i]);
	return hash_all(value, scratch);
}
