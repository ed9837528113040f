/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slot_reading_body.h - the streams of a block of tokens while its slots are decoded
 *
 * Included after step_body.h or ops_avx512.h, by slots_body.h. Uses INLINE and token_tables (in
 * ops.h).
 */
#ifndef KVI_SLOT_READING_BODY_H
#define KVI_SLOT_READING_BODY_H

#include "slots.h"

/* The streams while slots are decoded from them: members that struct kvi_slot_reader lacks. */
struct slot_reading {
	struct kvi_feed feed[KVI_SLOT_PARTS];
	const uint8_t *p[KVI_SLOT_PARTS];
	unsigned opened; /* a bit for each stream */
	token_tables tokens;
};

/* Begins with the words that are left of stream i. */
INLINE void reading_begin(struct slot_reading *r, const struct kvi_slot_reader *in, size_t i)
{
	size_t n = (size_t)(in->words.end - in->words.p) / 2;
	const struct kvi_stream s = { .words = in->words.p, .n_words = n };
	r->p[i] = kvi_feed_open(&r->feed[i], &s);
	r->opened |= 1u << i;
}

/* The words that are left of all streams; false when some were missing. */
INLINE bool reading_end(const struct slot_reading *r, struct kvi_slot_reader *in)
{
	bool ok = true;
	for (size_t i = 0; r->opened >> i; i++, in++) {
		const struct kvi_feed *feed = &r->feed[i];
		if (!feed->last)
			in->words.p = r->p[i];
		else if (r->p[i] <= feed->end)
			in->words.p = in->words.end - (feed->end - r->p[i]);
		else
			in->words.missing = true;
		ok = ok && !in->words.missing;
	}
	return ok;
}

/* Checks the words before a step of stream i; false when they do not suffice. */
INLINE bool reading_ready(struct slot_reading *r, struct kvi_slot_reader *in, size_t i)
{
	if (__builtin_expect(!(r->opened >> i & 1), 0))
		reading_begin(r, in, i);
	if (__builtin_expect(r->p[i] > r->feed[i].safe, 0)) {
		const uint8_t *p = kvi_feed_move(&r->feed[i], r->p[i]);
		in->words.missing = !p;
		if (p)
			r->p[i] = p;
		return p;
	}
	return true;
}

/* The order of a block's steps: one of each part, then the next of each, so that steps that follow
 * each other do not wait for each other. `more`: more are left. */
struct step_order {
	size_t step, first, end, part, steps; /* first: of the first part, which ends before end */
};

/* The order of steps from the part on that begins with step `from`. */
INLINE struct step_order steps_from(const struct kvi_slot_block *block, size_t from)
{
	const size_t part = (size_t)1 << block->part_shift;
	struct step_order o = { from, from, from + part, part, kvi_slot_steps(block) };
	return o;
}

INLINE bool more_steps(const struct step_order *order)
{
	return order->step < order->steps;
}

INLINE void next_step(struct step_order *order)
{
	order->step += order->part;
	if (order->step >= order->steps) {
		order->first++;
		order->step = order->first < order->end ? order->first : order->steps;
	}
}

#endif
