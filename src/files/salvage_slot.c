/* SPDX-License-Identifier: BSD-3-Clause */
/* salvage_slot.c - a salvaged llama.cpp slot with only the leading tokens that are whole */
#include "format/restore.h"
#include "llama_shorten.h"
#include "reader/reader_internal.h"

/* Leading whole tokens of each track; *literals: all bytes outside tensors are there. */
static kvarc_ret read_losses(const struct kvi_alloc *alloc, kvarc_reader *r, uint64_t **whole,
                             bool *literals)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	kvarc_loss loss;
	uint64_t lost = 0;
	*whole = kvi_calloc(alloc, g->n_tracks, sizeof **whole);
	if (!*whole)
		return kvi_alloc_error(alloc);
	for (uint32_t i = 0; i < g->n_tracks; i++) {
		kvarc_ret ret = kvarc_reader_loss(r, i, &loss);
		if (ret)
			return ret;
		lost += loss.lost_bytes;
		(*whole)[i] = loss.whole_tokens;
	}
	kvarc_ret ret = kvarc_reader_loss(r, UINT32_MAX, &loss);
	*literals = loss.lost_bytes == lost;
	return ret;
}

static kvarc_ret shorten(struct kvi_llama_short *x, kvarc_slot_prefix *prefix)
{
	prefix->why = kvi_llama_obstacle(x);
	prefix->tokens = x->f.n_tokens;
	if (prefix->why)
		return KVARC_OPTIONS;
	if (kvi_llama_all_whole(x, true))
		return KVARC_END;
	kvarc_ret ret = kvi_llama_choose(x);
	if (ret)
		return ret;
	if (x->tokens == 0) {
		prefix->why = x->base ? "the sliding window or the recurrent state "
		                        "that goes with its whole tokens is lost"
		                      : "not one token is whole in all layers";
		return KVARC_OPTIONS;
	}
	prefix->whole_tokens = x->tokens;
	ret = kvi_llama_put(x);
	prefix->bytes = x->at;
	return ret;
}

static kvarc_ret parse_and_shorten(struct kvi_llama_short *x, const kvarc_source *source,
                                   kvarc_slot_prefix *prefix)
{
	const char *why;
	x->s = kvi_scan_open(x->alloc, source);
	x->buffer = kvi_malloc(x->alloc, KVI_LLAMA_COPY_BYTES);
	if (!x->s || !x->buffer)
		return kvi_alloc_error(x->alloc);
	kvarc_ret ret = kvi_llama_parse(&x->f, x->alloc, x->s, &why);
	if (ret == KVARC_END) {
		prefix->why = "it cannot be parsed";
		return KVARC_OPTIONS;
	}
	if (ret)
		return ret;
	ret = shorten(x, prefix);
	kvi_llama_free(&x->f, x->alloc);
	return ret;
}

kvarc_ret kvarc_salvage_slot(kvarc_reader *r, size_t item, const kvarc_source *source,
                             const kvarc_sink *sink, kvarc_slot_prefix *prefix)
{
	bool literals = false;
	if (!r || !source || !source->read || !sink || !sink->write || !prefix ||
	    item >= kvi_reader_n_items(r))
		return KVARC_PROG;
	*prefix = (kvarc_slot_prefix){ .why = "it is not a llama.cpp slot" };
	struct kvi_llama_short x = { .alloc = kvi_reader_alloc(r),
		                     .sink = sink,
		                     .limit = UINT64_MAX,
		                     .plan = kvi_reader_restore(r, item) };
	if (x.plan->kind != KVI_ITEM_LLAMA_SEQ)
		return KVARC_OPTIONS;
	uint64_t *whole = NULL;
	kvarc_ret ret = read_losses(x.alloc, r, &whole, &literals);
	x.whole = whole;
	if (!ret && !literals) {
		prefix->why = "bytes outside its tensors are lost";
		ret = KVARC_OPTIONS;
	} else if (!ret) {
		ret = parse_and_shorten(&x, source, prefix);
	}
	kvi_free(x.alloc, whole);
	kvi_free(x.alloc, x.buffer);
	kvi_free(x.alloc, x.s);
	return ret;
}
