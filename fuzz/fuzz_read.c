/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_read.c - ways to read an archive, for the targets that have a reader */
#include "fuzz_common.h"

int fuzz_deliver(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, const void *src)
{
	struct fuzz_sum *s = opaque;
	const uint8_t *p = src;
	FUZZ_CHECK(tensor < s->geometry->n_tensors);
	const kvarc_tensor *t = &s->geometry->tensors[tensor];
	FUZZ_CHECK(heads && head < t->heads && heads <= t->heads - head);
	size_t bytes = (size_t)n * heads * t->channels * kvarc_dtype_bytes(t->dtype);
	uint64_t sum = t0;
	for (size_t i = 0; i < bytes; i++)
		sum += p[i];
	s->sum += sum;
	return 0;
}

kvarc_ret fuzz_read_all(kvarc_reader *r)
{
	struct fuzz_sum s = { kvarc_reader_geometry(r), 0 };
	kvarc_segment seg;
	for (unsigned i = 0;; i++) {
		kvarc_ret ret = kvarc_reader_next_segment(r, &seg);
		if (ret != KVARC_OK)
			return ret;
		FUZZ_CHECK(seg.n >= 1 && seg.n <= 256);
		/* lost only in salvage, which then reports damage */
		FUZZ_CHECK(seg.positions || kvarc_reader_damage(r, NULL, NULL));
		for (uint32_t t = 0; t < seg.n && seg.positions; t++)
			s.sum += (uint64_t)seg.positions[t] + (uint64_t)(seg.ids ? seg.ids[t] : 0);
		if (i % 4 == 3)
			continue; /* skipping is allowed too */
		ret = kvarc_reader_segment_deliver(r, fuzz_deliver, &s);
		if (ret != KVARC_OK)
			return ret;
	}
}

/* Sizes of the first items; the others are skipped. */
struct sizes {
	uint64_t bytes[16];
};

static int drop_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	const uint64_t *size = opaque;
	(void)buf;
	FUZZ_CHECK(offset <= *size && bytes <= *size - offset);
	return 0;
}

static int item_open(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct sizes *s = opaque;
	if (item->index % 8 == 7 || item->index >= 16)
		return 1;
	s->bytes[item->index] = item->bytes;
	*sink = (kvarc_sink){ .write = drop_write, .opaque = &s->bytes[item->index] };
	return 0;
}

kvarc_ret fuzz_unpack_all(kvarc_reader *r)
{
	struct sizes s = { { 0 } };
	return kvarc_unpack(r, item_open, &s);
}

void fuzz_ask_all(kvarc_reader *r)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	kvarc_info info;
	kvarc_item item;
	kvarc_chunk_info chunk;
	const char *key, *value;
	uint64_t sum = 0;
	FUZZ_CHECK(g);
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		FUZZ_CHECK(t->track < g->n_tracks && t->rope <= g->n_ropes);
		FUZZ_CHECK(t->heads && t->channels);
		sum += kvarc_dtype_bytes(t->dtype);
	}
	for (size_t i = 0; i < g->n_tracks; i++)
		sum += kvarc_reader_tokens(r, (uint32_t)i);
	sum += kvarc_reader_tokens(r, (uint32_t)g->n_tracks);
	if (kvarc_reader_get_info(r, &info) == KVARC_OK)
		sum += info.elements;
	for (size_t i = 0; kvarc_reader_item(r, i, &item) == KVARC_OK; i++)
		sum += strlen(item.name);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++)
		FUZZ_CHECK(chunk.tensor < g->n_tensors);
	for (size_t i = 0; kvarc_reader_identity_at(r, i, &key, &value) == KVARC_OK; i++) {
		const char *again = kvarc_reader_identity(r, key);
		FUZZ_CHECK(again && strcmp(again, value) == 0);
	}
	(void)sum;
}
