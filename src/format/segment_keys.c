/* SPDX-License-Identifier: BSD-3-Clause */
/* segment_keys.c - the public calls that compute keys of segments (spec 5.3, frames 12.3) */
#include "chain_value.h"
#include "content_digest.h"
#include "geometry_check.h"
#include "util/arguments.h"
#include "util/key_hash.h"

/* B128 of the content of GEOMETRY. */
static kvarc_ret hash_geometry(const kvarc_geometry *geometry, struct kvi_out *scratch,
                               struct kvi_h128 *hash)
{
	kvarc_geometry copy; /* total_heads is set */
	kvarc_ret ret = kvi_geometry_copy(&copy, scratch->alloc, geometry);
	if (ret)
		return ret;
	scratch->n = 0;
	kvi_geometry_put(scratch, &copy);
	kvi_geometry_free(&copy, scratch->alloc);
	if (scratch->failed)
		return kvi_alloc_error(scratch->alloc);
	*hash = kvi_b128(scratch->p, scratch->n);
	return KVARC_OK;
}

kvarc_ret kvarc_chain_root(const kvarc_geometry *geometry, size_t n, const char *const keys[],
                           const char *const values[], uint8_t root[16])
{
	struct kvi_identity id = { 0 };
	struct kvi_alloc alloc;
	struct kvi_out scratch;
	struct kvi_h128 hash, value;
	if (!geometry || !root || (n && (!keys || !values)))
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_geometry(geometry, "kvarc_chain_root", NULL);
	if (ret)
		return ret;
	kvi_alloc_init(&alloc, NULL, 0);
	kvi_out_init(&scratch, &alloc);
	for (size_t i = 0; i < n && !ret; i++)
		ret = kvi_identity_set(&id, &alloc, keys[i], values[i]);
	if (!ret)
		ret = hash_geometry(geometry, &scratch, &hash);
	if (!ret)
		ret = kvi_chain_root(&value, &scratch, hash, &id);
	if (!ret)
		kvi_store_h128(root, value);
	kvi_out_free(&scratch);
	kvi_identity_free(&id, &alloc);
	return ret;
}

kvarc_ret kvarc_chain_next(const uint8_t before[16], uint32_t track, uint32_t n, const int32_t *ids,
                           const int32_t *positions, uint8_t chain[16])
{
	struct kvi_segment s = { .track = track, .n = n, .has_ids = true };
	struct kvi_alloc alloc;
	struct kvi_out scratch;
	struct kvi_h128 value;
	if (!before || !n || n > KVI_SEGMENT_TOKENS || !ids || !positions || !chain)
		return KVARC_PROG;
	memcpy(s.ids, ids, n * sizeof *ids);
	memcpy(s.positions, positions, n * sizeof *positions);
	kvi_alloc_init(&alloc, NULL, 0);
	kvi_out_init(&scratch, &alloc);
	kvarc_ret ret = kvi_chain_link(&value, &scratch, kvi_load_h128(before), &s, n);
	if (!ret)
		kvi_store_h128(chain, value);
	kvi_out_free(&scratch);
	return ret;
}

kvarc_ret kvarc_content_digest(const kvarc_geometry *geometry, uint32_t track, uint32_t n,
                               const int32_t *ids, const int32_t *positions,
                               const kvarc_view *views, uint8_t digest[16])
{
	static const char call[] = "kvarc_content_digest";
	const struct kvi_content c = { track, n, ids, positions, views };
	struct kvi_order order = { 0 };
	struct kvi_alloc alloc;
	struct kvi_h128 with, without;
	if (!geometry || !n || n > KVI_SEGMENT_TOKENS || !positions || !views || !digest)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_geometry(geometry, call, NULL);
	if (ret)
		return ret;
	if (track >= geometry->n_tracks)
		return KVARC_GEOMETRY;
	kvi_alloc_init(&alloc, NULL, 0);
	ret = kvi_order_make(&order, &alloc, geometry);
	for (uint32_t i = ret ? 0 : order.first[track]; !ret && i < order.first[track + 1]; i++) {
		const size_t tensor = order.tensors[i];
		ret = views[tensor].data ? kvi_check_view(NULL, call, &views[tensor], tensor,
		                                          &geometry->tensors[tensor], n)
		                         : KVARC_PROG;
	}
	if (!ret) {
		kvi_content_digest(geometry, &order, &c, &with, &without);
		kvi_store_h128(digest, with);
	}
	kvi_order_free(&order, &alloc);
	return ret;
}
