/* SPDX-License-Identifier: BSD-3-Clause */
/* content_digest.c - hashes ids, positions and elements of a segment (spec frames 12.3) */
#include "content_digest.h"

#include "util/key_hash.h"
#include "util/view.h"

/* Elements of a head are hashed in parts of this size where they are not packed in memory. */
enum { PART_BYTES = 16 << 10 };

/* The hash with ids, and the one without. */
struct digest_pair {
	struct kvi_key_hasher with, without;
};

static void add_both(struct digest_pair *pair, const void *p, size_t bytes)
{
	kvi_key_hasher_add(&pair->with, p, bytes);
	kvi_key_hasher_add(&pair->without, p, bytes);
}

static void add_numbers(struct kvi_key_hasher *hasher, const int32_t *p, uint32_t n)
{
	uint8_t b[4];
	for (uint32_t i = 0; i < n; i++) {
		kvi_store32(b, (uint32_t)p[i]);
		kvi_key_hasher_add(hasher, b, sizeof b);
	}
}

static void begin(struct digest_pair *pair, const struct kvi_content *content)
{
	uint8_t head[24] = "kvarc content 10";
	kvi_store32(head + 16, content->n);
	kvi_key_hasher_begin(&pair->with);
	kvi_key_hasher_begin(&pair->without);
	kvi_store32(head + 20, 0);
	kvi_key_hasher_add(&pair->without, head, sizeof head);
	add_numbers(&pair->without, content->positions, content->n);
	kvi_store32(head + 20, content->ids ? 1 : 0);
	kvi_key_hasher_add(&pair->with, head, sizeof head);
	add_numbers(&pair->with, content->positions, content->n);
	if (content->ids)
		add_numbers(&pair->with, content->ids, content->n);
}

/* H128 of the elements of one head, token by token; head: of it, all tokens. They are nearly all
 * that is hashed, for which B128 is too slow. */
static struct kvi_h128 hash_head(const kvarc_view *view, const struct kvi_view_block *head)
{
	uint8_t part[PART_BYTES];
	struct kvi_hasher h;
	const size_t row = (size_t)head->nc * head->elem;
	const void *packed = kvi_view_packed(view, head);
	const uint32_t rows = row < PART_BYTES ? (uint32_t)(PART_BYTES / row) : 1;
	const uint32_t most = row < PART_BYTES ? head->nc : PART_BYTES / head->elem;
	if (packed)
		return kvi_h128(packed, row * head->n);
	kvi_hasher_begin(&h);
	for (uint32_t t = 0; t < head->n; t += rows)
		for (uint32_t c = 0; c < head->nc; c += most) {
			struct kvi_view_block b = *head;
			b.row = head->row + t;
			b.n = head->n - t < rows ? head->n - t : rows;
			b.c0 = head->c0 + c;
			b.nc = head->nc - c < most ? head->nc - c : most;
			kvi_view_gather(view, &b, part);
			kvi_hasher_add(&h, part, (size_t)b.n * b.nc * b.elem);
		}
	return kvi_hasher_end(&h);
}

static void add_tensor(struct digest_pair *pair, const kvarc_tensor *tensor, const kvarc_view *view,
                       uint32_t n)
{
	uint8_t head[16] = { 0 }, hash[16];
	kvi_store32(head, tensor->layer);
	head[4] = tensor->kind;
	head[5] = tensor->role;
	head[6] = tensor->dtype;
	kvi_store32(head + 8, tensor->heads);
	kvi_store32(head + 12, tensor->channels);
	add_both(pair, head, sizeof head);
	for (uint32_t i = 0; i < tensor->heads; i++) {
		const struct kvi_view_block block = { 0, n, i * tensor->channels, tensor->channels,
			                              (uint32_t)kvarc_dtype_bytes(tensor->dtype) };
		kvi_store_h128(hash, hash_head(view, &block));
		add_both(pair, hash, sizeof hash);
	}
}

void kvi_content_digest(const kvarc_geometry *geometry, const struct kvi_order *order,
                        const struct kvi_content *content, struct kvi_h128 *with,
                        struct kvi_h128 *without)
{
	struct digest_pair b;
	begin(&b, content);
	for (uint32_t i = order->first[content->track]; i < order->first[content->track + 1]; i++) {
		const uint32_t tensor = order->tensors[i];
		add_tensor(&b, &geometry->tensors[tensor], &content->views[tensor], content->n);
	}
	*with = kvi_key_hasher_end(&b.with);
	*without = kvi_key_hasher_end(&b.without);
}
