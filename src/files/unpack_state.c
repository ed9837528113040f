/* SPDX-License-Identifier: BSD-3-Clause */
/* unpack_state.c - the files of one state of an archive, past what is damaged elsewhere in it */
#include "literals.h"
#include "unpack_elements.h"
#include "reader/reader_internal.h"

enum { PIECE = 1 << 16 };

/* Files on their way out of an archive that is damaged. */
struct past_damage {
	kvarc_reader *r;
	struct kvi_literals literals;
	struct kvi_token_span *spans;
	uint8_t *buffer;
};

static kvarc_ret no_memory(const struct past_damage *x)
{
	return kvi_reader_fail(x->r, kvi_alloc_error(&x->r->alloc),
	                       "not enough memory to put the files together");
}

/* Literal bytes of an item of the archive, to an offset of a file. */
static kvarc_ret put_bytes(struct past_damage *x, const kvarc_sink *sink, uint64_t at,
                           uint64_t item, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t n = bytes < PIECE ? (size_t)bytes : PIECE;
		ret = kvi_literals_read(&x->literals, item, from, n, x->buffer);
		if (!ret && sink->write(sink->opaque, x->buffer, n, at))
			ret = kvi_reader_fail(x->r, KVARC_IO, "writing a file failed");
		at += n;
		from += n;
		bytes -= n;
	}
	return ret;
}

static void extend(struct kvi_token_span *span, const struct kvi_piece *p)
{
	if (span->begin == span->end)
		*span = (struct kvi_token_span){ p->t0, p->t0 };
	if (p->t0 < span->begin)
		span->begin = p->t0;
	if (p->t0 + p->n_tokens > span->end)
		span->end = p->t0 + p->n_tokens;
}

static kvarc_ret put_item(struct past_damage *x, size_t i, const kvarc_sink *sink)
{
	const struct kvi_restore *plan = kvi_reader_restore(x->r, i);
	const uint64_t number = kvi_reader_earlier_items(x->r) + i;
	uint64_t at = 0, literals = 0;
	kvarc_ret ret = KVARC_OK;
	for (uint32_t t = 0; t < x->r->geometry.n_tracks; t++)
		x->spans[t] = (struct kvi_token_span){ 0, 0 };
	for (size_t k = 0; k < plan->n_pieces && !ret; k++) {
		const struct kvi_piece *p = &plan->pieces[k];
		if (p->type == KVI_PIECE_AREA)
			extend(&x->spans[p->track], p);
		else if (p->type == KVI_PIECE_REFERENCE)
			ret = put_bytes(x, sink, at, p->item, p->from, p->bytes);
		else
			ret = put_bytes(x, sink, at, number, literals, p->bytes);
		literals += p->type == KVI_PIECE_LITERAL ? p->bytes : 0;
		at += p->bytes;
	}
	return ret ? ret : kvi_unpack_elements(x->r, plan, sink, x->spans);
}

static kvarc_ret put_items(struct past_damage *x, kvi_item_sink_fn *sink_of, void *opaque)
{
	const struct kvi_alloc *alloc = &x->r->alloc;
	x->buffer = kvi_malloc(alloc, PIECE);
	x->spans = kvi_array(alloc, x->r->geometry.n_tracks, sizeof *x->spans);
	kvarc_ret ret = x->buffer && x->spans ? kvi_literals_open(&x->literals, x->r)
	                                      : no_memory(x);
	for (size_t i = 0; i < kvi_reader_n_items(x->r) && !ret; i++) {
		const kvarc_sink *sink = sink_of(opaque, i);
		if (sink)
			ret = put_item(x, i, sink);
	}
	kvi_literals_free(&x->literals);
	kvi_free(alloc, x->buffer);
	kvi_free(alloc, x->spans);
	return ret;
}

kvarc_ret kvi_unpack_state(kvarc_reader *r, kvi_item_sink_fn *sink_of, void *opaque)
{
	struct past_damage x = { .r = r };
	kvarc_error first = { 0 };
	if (kvi_reader_is_salvage(r) || !kvi_reader_can_seek(r) || r->state != KVARC_STATE_CLOSED)
		return KVARC_DATA;
	if (r->error)
		first = *r->error;
	kvi_reader_forgive(r);
	kvarc_ret ret = put_items(&x, sink_of, opaque);
	if (ret == KVARC_DATA && r->error)
		*r->error = first;
	return ret;
}
