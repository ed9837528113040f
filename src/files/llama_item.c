/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_item.c - a llama.cpp file in an archive, without its elements */
#include "llama_item.h"

#include <string.h>

#include "references.h"
#include "reader/reader_internal.h"
#include "reader/reader_open.h"

/* ----- as a source ---------------------------------------------------- */

/* The piece that holds byte `at`. */
static size_t piece_at(const struct kvi_llama_item *it, uint64_t at)
{
	size_t lo = 0, hi = it->plan->n_pieces;
	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;
		if (it->starts[mid] <= at)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static int64_t read_item(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct kvi_llama_item *it = opaque;
	const uint64_t end = it->plan->file_bytes;
	uint8_t *to = buf;
	if (offset >= end)
		return 0;
	if (bytes > end - offset)
		bytes = (size_t)(end - offset);
	size_t left = bytes;
	for (size_t i = piece_at(it, offset); left; i++) {
		uint64_t skip = offset - it->starts[i];
		uint64_t here = it->starts[i + 1] - offset;
		size_t n = here < left ? (size_t)here : left;
		if (it->plan->pieces[i].type == KVI_PIECE_AREA)
			memset(to, 0, n);
		else
			memcpy(to, it->kept + it->kept_at[i] + skip, n);
		to += n;
		offset += n;
		left -= n;
	}
	return (int64_t)bytes;
}

/* Fills starts and kept_at, and counts the literal bytes. */
static kvarc_ret lay_out(struct kvi_llama_item *it)
{
	const struct kvi_restore *plan = it->plan;
	uint64_t at = 0;
	it->starts = kvi_array(it->alloc, plan->n_pieces + 1, sizeof *it->starts);
	it->kept_at = kvi_array(it->alloc, plan->n_pieces + 1, sizeof *it->kept_at);
	if (!it->starts || !it->kept_at)
		return kvi_alloc_error(it->alloc);
	for (size_t i = 0; i < plan->n_pieces; i++) {
		it->starts[i] = at;
		it->kept_at[i] = it->n_kept;
		at += plan->pieces[i].bytes;
		if (plan->pieces[i].type != KVI_PIECE_AREA)
			it->n_kept += plan->pieces[i].bytes;
	}
	it->starts[plan->n_pieces] = at;
	it->source = (kvarc_source){ .read = read_item, .opaque = it, .size = plan->file_bytes };
	it->kept = it->n_kept <= SIZE_MAX - 1 ? kvi_calloc(it->alloc, (size_t)it->n_kept + 1, 1)
	                                      : NULL;
	return it->kept ? KVARC_OK : kvi_alloc_error(it->alloc);
}

/* ----- reading -------------------------------------------------------- */

struct literals {
	struct kvi_llama_item *it;
	struct kvi_references references;
	uint64_t number; /* number of the item in the whole archive */
	size_t index;    /* index of the item in its state */
	size_t piece;    /* piece of the next literal byte */
	uint64_t blob_at;
};

/* Stores literal bytes of a piece. */
static void keep(struct kvi_llama_item *it, size_t piece, uint64_t skip, const uint8_t *data,
                 size_t n)
{
	memcpy(it->kept + it->kept_at[piece] + skip, data, n);
	it->got += n;
}

/* A kvi_reference_fn. */
static int keep_referred(void *opaque, size_t item, uint64_t at, const uint8_t *data, size_t bytes)
{
	struct literals *x = opaque;
	if (item != x->index)
		return 0;
	size_t i = piece_at(x->it, at);
	keep(x->it, i, at - x->it->starts[i], data, bytes);
	return 0;
}

/* A kvi_blob_fn. */
static int take_blob(void *opaque, uint64_t item, uint64_t offset, const uint8_t *data,
                     size_t bytes)
{
	struct literals *x = opaque;
	const struct kvi_restore *plan = x->it->plan;
	const struct kvi_literal_bytes b = { item, offset, data, bytes };
	if (kvi_references_give(&x->references, &b, keep_referred, x))
		return 1;
	if (item != x->number)
		return 0;
	for (; bytes && x->piece < plan->n_pieces; x->piece++) {
		const struct kvi_piece *p = &plan->pieces[x->piece];
		if (p->type != KVI_PIECE_LITERAL)
			continue;
		uint64_t skip = offset - x->blob_at;
		if (skip < p->bytes) {
			size_t n = bytes < p->bytes - skip ? bytes : (size_t)(p->bytes - skip);
			keep(x->it, x->piece, skip, data, n);
			data += n;
			offset += n;
			bytes -= n;
			if (skip + n < p->bytes)
				return 0;
		}
		x->blob_at += p->bytes;
	}
	return bytes != 0;
}

static int take_nothing(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                        uint32_t n, const void *src)
{
	(void)opaque, (void)tensor, (void)head, (void)heads, (void)t0, (void)n, (void)src;
	return 0;
}

/* Reads until all literal bytes have come; in salvage to the end, with all elements. */
static kvarc_ret walk(const struct kvi_llama_item *it, kvarc_reader *again, bool salvage)
{
	kvarc_ret ret = KVARC_OK;
	while (!ret && (salvage || it->got < it->n_kept)) {
		kvarc_segment segment;
		ret = kvarc_reader_next_segment(again, &segment);
		if (!ret && salvage)
			ret = kvarc_reader_segment_deliver(again, take_nothing, NULL);
	}
	return ret == KVARC_END ? KVARC_OK : ret;
}

static kvarc_ret find_whole(struct kvi_llama_item *it, kvarc_reader *again, bool salvage)
{
	const kvarc_geometry *g = kvarc_reader_geometry(again);
	it->whole = kvi_calloc(it->alloc, g->n_tracks + 1, sizeof *it->whole);
	if (!it->whole)
		return kvi_alloc_error(it->alloc);
	for (uint32_t i = 0; i < g->n_tracks; i++) {
		kvarc_loss loss;
		it->whole[i] = kvarc_reader_tokens(again, i);
		kvarc_ret ret = salvage ? kvarc_reader_loss(again, i, &loss) : KVARC_OK;
		if (ret)
			return ret;
		if (salvage && loss.whole_tokens < it->whole[i])
			it->whole[i] = loss.whole_tokens;
	}
	return KVARC_OK;
}

kvarc_ret kvi_llama_item_open(struct kvi_llama_item *it, kvarc_reader *r, size_t i)
{
	const bool salvage = kvi_reader_is_salvage(r);
	kvarc_reader *again = NULL;
	*it = (struct kvi_llama_item){ .alloc = kvi_reader_alloc(r),
		                       .plan = kvi_reader_restore(r, i) };
	struct literals x = { .it = it, .number = kvi_reader_earlier_items(r) + i, .index = i };
	kvarc_ret ret = lay_out(it);
	if (!ret)
		ret = kvi_references_open(&x.references, r);
	if (!ret)
		ret = kvi_reader_open_again(r, salvage ? KVARC_READ_SALVAGE : 0, &again);
	if (!ret) {
		kvi_reader_set_blob_handler(again, take_blob, &x);
		ret = walk(it, again, salvage);
	}
	if (!ret)
		ret = find_whole(it, again, salvage);
	if (!ret && it->got < it->n_kept)
		ret = KVARC_END;
	kvi_references_free(&x.references, it->alloc);
	kvarc_reader_close(&again);
	return ret;
}

kvarc_ret kvi_llama_item_make(struct kvi_llama_item *it, kvarc_reader *r, struct kvi_restore *made,
                              const uint8_t *kept, size_t n_kept)
{
	const bool salvage = kvi_reader_is_salvage(r);
	kvarc_reader *again = NULL;
	*it = (struct kvi_llama_item){ .alloc = kvi_reader_alloc(r), .made = *made };
	*made = (struct kvi_restore){ 0 };
	it->plan = &it->made;
	kvarc_ret ret = lay_out(it);
	if (!ret && it->n_kept != n_kept)
		ret = KVARC_PROG;
	if (!ret)
		memcpy(it->kept, kept, n_kept);
	it->got = n_kept;
	if (!ret && salvage)
		ret = kvi_reader_open_again(r, KVARC_READ_SALVAGE, &again);
	if (!ret && salvage)
		ret = walk(it, again, true);
	if (!ret)
		ret = find_whole(it, again ? again : r, salvage);
	kvarc_reader_close(&again);
	return ret;
}

void kvi_llama_item_free(struct kvi_llama_item *it)
{
	if (!it->alloc)
		return;
	kvi_restore_free(&it->made, it->alloc);
	kvi_free(it->alloc, it->starts);
	kvi_free(it->alloc, it->kept_at);
	kvi_free(it->alloc, it->kept);
	kvi_free(it->alloc, it->whole);
	*it = (struct kvi_llama_item){ 0 };
}

/* ----- finding -------------------------------------------------------- */

size_t kvi_llama_item_find(const kvarc_reader *r, uint32_t track, bool *first)
{
	const size_t n = kvi_reader_n_items(r);
	*first = false;
	for (size_t i = 0; i < n; i++) {
		const struct kvi_restore *plan = kvi_reader_restore(r, i);
		bool one = true;
		if (plan->kind != KVI_ITEM_LLAMA_SEQ && plan->kind != KVI_ITEM_LLAMA_SESSION)
			continue;
		for (size_t k = 0; k < plan->n_pieces; k++) {
			if (plan->pieces[k].type != KVI_PIECE_AREA)
				continue;
			if (plan->pieces[k].track == track) {
				*first = one;
				return i;
			}
			one = false;
		}
	}
	return n;
}
