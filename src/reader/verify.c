/* SPDX-License-Identifier: BSD-3-Clause */
/* verify.c - reads and decodes everything, checks every check */
#include "reader_ids.h"
#include "reader_open.h"
#include "reader_state.h"

static int take_nothing(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                        uint32_t n, const void *src)
{
	(void)opaque, (void)tensor, (void)head, (void)heads;
	(void)t0, (void)n, (void)src;
	return 0;
}

/* Reports ids of a segment that cannot be decoded without the model. */
static kvarc_ret unknown_ids(kvarc_reader *r)
{
	struct kvi_segment *s = &r->seq.segment->segment;
	const struct kvi_segment_ref *ref = kvi_index_segment_of(&r->index, s);
	struct kvi_predictor_ref *x = kvi_reader_codes_ids(r, ref ? ref->sequence : s->sequence);
	kvarc_ret ret = kvi_reader_ids(r, x, s, r->error);
	return ret == KVARC_END ? x->ids_ret : ret;
}

/* Reads and checks all frames to the end; fails at the first error. */
static kvarc_ret walk_all(kvarc_reader *r)
{
	kvarc_segment segment;
	kvarc_ret ret = KVARC_OK;
	while (ret == KVARC_OK) {
		ret = kvarc_reader_next_segment(r, &segment);
		if (!ret && segment.ids_coded && !segment.ids && !r->salvage)
			ret = unknown_ids(r);
		if (ret == KVARC_OK)
			ret = kvarc_reader_segment_deliver(r, take_nothing, NULL);
	}
	return ret == KVARC_END ? KVARC_OK : ret;
}

kvarc_ret kvi_reader_open_again(kvarc_reader *r, unsigned flags, kvarc_reader **to)
{
	kvarc_reader_options o = r->options;
	o.flags = flags | KVARC_READ_ALLOW_LOSSY; /* no caller gets the elements */
	/* Both readers together stay below the limit. */
	uint64_t used = atomic_load(&r->alloc.used);
	o.common.memlimit = r->alloc.limit > used ? r->alloc.limit - used : 1;
	return kvi_reader_open_known(to, &r->in.source, &o, r->in.crypt);
}

/* Says each damaged place; returns how many. */
static kvarc_ret salvage_all(kvarc_reader *r, kvarc_damage_fn damage, void *opaque,
                             uint64_t *n_damaged)
{
	kvarc_reader *again;
	*n_damaged = 0;
	kvarc_ret ret = kvi_reader_open_again(r, KVARC_READ_SALVAGE, &again);
	if (ret)
		return ret;
	ret = walk_all(again);
	if (ret == KVARC_OK)
		*n_damaged = kvarc_reader_damage(again, damage, opaque);
	if (ret == KVARC_OK) {
		kvi_free(&r->alloc, r->losses.sums);
		ret = kvi_salvage_sums(again, &r->alloc, &r->losses.sums);
		r->losses.final = ret == KVARC_OK;
	}
	kvarc_reader_close(&again);
	return ret;
}

static kvarc_ret verify_file(kvarc_reader *r, kvarc_damage_fn damage, void *opaque)
{
	kvarc_reader *again = NULL;
	kvarc_error first = { 0 };
	uint64_t n_damaged = 0;
	kvarc_ret ret = kvi_reader_open_again(r, 0, &again);
	if (ret == KVARC_OK) {
		kvi_index_take_all(&again->index);
		ret = walk_all(again);
	}
	kvarc_reader_close(&again);
	if (ret != KVARC_DATA || !damage)
		return ret;
	if (r->error)
		first = *r->error;
	kvarc_ret salvaged = salvage_all(r, damage, opaque, &n_damaged);
	if (salvaged == KVARC_OK || salvaged == KVARC_DATA) {
		/* Wrong as a whole, or so wrong that salvage cannot begin. */
		kvarc_damage d = { .offset = r->error ? first.offset : KVARC_UNKNOWN,
			           .track = UINT32_MAX,
			           .tensor = UINT32_MAX,
			           .what = "the file does not fit together" };
		if (n_damaged == 0)
			damage(opaque, &d);
		if (r->error)
			*r->error = first;
		return KVARC_DATA;
	}
	return salvaged;
}

kvarc_ret kvarc_reader_verify(kvarc_reader *r, kvarc_damage_fn damage, void *opaque)
{
	if (!r)
		return KVARC_PROG;
	if (r->sticky)
		return r->sticky;
	if (kvi_input_seekable(&r->in))
		return kvi_reader_set_error(r, verify_file(r, damage, opaque));
	if (r->seq.started)
		return kvi_reader_fail(r, KVARC_PROG,
		                       "a pipe can be verified only before segments are read");
	r->allow_lossy = true; /* a pipe cannot be read after it */
	kvarc_ret ret = walk_all(r);
	if (ret == KVARC_DATA && damage) {
		kvarc_damage d = { .offset = r->error ? r->error->offset : KVARC_UNKNOWN,
			           .track = UINT32_MAX,
			           .tensor = UINT32_MAX,
			           .what = "damaged; what follows was not looked at" };
		damage(opaque, &d);
	}
	return ret;
}
