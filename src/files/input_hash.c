/* SPDX-License-Identifier: BSD-3-Clause */
/* input_hash.c - hashes the files of an import, in pieces that stay in the nearest caches */
#include "input_hash.h"

#include "format/frame.h"
#include "util/source.h"

/* Larger pieces would be in memory that is farther away when they are hashed. */
enum { PIECE_BYTES = 64 << 10 };

/* H128( hash || bytes ). */
static struct kvi_h128 fold(struct kvi_h128 hash, const uint8_t *bytes, size_t n)
{
	uint8_t head[16];
	kvi_store_h128(head, hash);
	return kvi_h128_2(head, sizeof head, bytes, n);
}

/* Folds the bytes of one item into hash. */
static kvarc_ret hash_item(const kvarc_source *src, uint8_t *piece, struct kvi_h128 *hash)
{
	kvarc_ret ret = KVARC_OK;
	for (uint64_t at = 0; at < src->size && !ret;) {
		const uint64_t left = src->size - at;
		const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
		const uint8_t *memory = src->memory;
		ret = memory ? KVARC_OK : kvi_source_read(src, piece, n, at);
		if (!ret)
			*hash = fold(*hash, memory ? memory + at : piece, n);
		at += n;
	}
	return ret;
}

kvarc_ret kvi_input_hash(const kvarc_import *im, struct kvi_h128 *hash)
{
	uint8_t *piece = kvi_malloc(&im->alloc, PIECE_BYTES);
	kvarc_ret ret = piece ? KVARC_OK : kvi_alloc_error(&im->alloc);
	for (size_t i = 0; i < im->n_items && !ret; i++)
		ret = hash_item(&im->items[i].src, piece, hash);
	kvi_free(&im->alloc, piece);
	return ret;
}
