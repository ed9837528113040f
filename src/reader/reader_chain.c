/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_chain.c - chain values: tested in order, given to callers (spec 5.3) */
#include "reader_chain.h"
#include "reader_ids.h"
#include "reader_segments.h"
#include "reader_state.h"

static kvarc_ret make_root(kvarc_reader *r, struct kvi_h128 *root, kvarc_error *error)
{
	struct kvi_reader_chains *c = &r->chains;
	kvarc_ret ret = kvi_chain_root(root, &c->scratch, c->geometry, &r->meta.identity);
	return ret ? kvi_fail_alloc(error, &r->alloc) : KVARC_OK;
}

kvarc_ret kvi_reader_check_root(kvarc_reader *r, kvarc_error *error)
{
	struct kvi_h128 now;
	kvarc_ret ret = r->chains.root.known ? make_root(r, &now, error) : KVARC_END;
	if (ret)
		return ret == KVARC_END ? KVARC_OK : ret;
	return kvi_h128_equal(now, r->chains.root.value)
	               ? KVARC_OK
	               : kvi_fail(error, KVARC_DATA,
	                          "an IDENTITY frame changes what chain values before it are of");
}

static kvarc_ret wrong(const struct kvi_segment *segment, kvarc_error *error, const char *what)
{
	return kvi_fail(error, KVARC_DATA, "the chain value of tokens from %llu on of track %u %s",
	                (unsigned long long)segment->t0, (unsigned)segment->track, what);
}

/* The value of the tokens of a segment that were left when another one began behind them. known:
 * false: it has none, or its ids are not known. */
static kvarc_ret cut_value(kvarc_reader *r, const struct kvi_segment_ref *segment, uint32_t left,
                           struct kvi_chain *to, kvarc_error *error)
{
	struct kvi_segment *s = kvi_malloc(&r->alloc, sizeof *s);
	*to = (struct kvi_chain){ false, { 0, 0 } };
	if (!s)
		return kvi_fail_alloc(error, &r->alloc);
	/* A store need not have segments that are replaced. */
	kvarc_ret ret = segment->stored && !segment->left
	                        ? KVARC_END
	                        : kvi_reader_read_segment(r, &r->packer, segment, s, error);
	if (!ret)
		ret = kvi_reader_first_ids(r, kvi_reader_codes_ids(r, segment->sequence), s, left,
		                           error);
	if (!ret && segment->before.known && s->has_ids) {
		to->known = true;
		s->track = kvi_segment_named(r, segment);
		ret = kvi_chain_link(&to->value, &r->chains.scratch, segment->before.value, s,
		                     left);
	}
	kvi_free(&r->alloc, s);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* The chain value before a segment; has: there is one, known or not. */
static kvarc_ret value_before(kvarc_reader *r, const struct kvi_segment *segment,
                              const struct kvi_segment_ref *ref, struct kvi_chain *to, bool *has,
                              kvarc_error *error)
{
	const struct kvi_segment_ref *p = ref ? kvi_index_before(&r->index, ref) : NULL;
	*to = segment->t0 == 0 ? r->chains.root : p ? p->chain : r->chains.last[segment->track];
	*has = to->known;
	if (p && p->t0 + p->n != segment->t0 && *has)
		return cut_value(r, p, (uint32_t)(segment->t0 - p->t0), to, error);
	return KVARC_OK;
}

kvarc_ret kvi_reader_check_chain(kvarc_reader *r, const struct kvi_segment *segment,
                                 struct kvi_segment_ref *ref, kvarc_error *error)
{
	struct kvi_reader_chains *c = &r->chains;
	struct kvi_chain before;
	struct kvi_h128 value;
	bool has;
	kvarc_ret ret = KVARC_OK;
	if (segment->has_chain && !c->root.known)
		ret = make_root(r, &c->root.value, error);
	c->root.known |= segment->has_chain;
	if (!ret)
		ret = value_before(r, segment, ref, &before, &has, error);
	c->last[segment->track] = (struct kvi_chain){ segment->has_chain, segment->chain };
	if (ret || !segment->has_chain)
		return ret;
	if (!has)
		return wrong(segment, error, "follows a segment without one");
	if (ref)
		ref->before = before;
	if (ref && ref->origin)
		return KVARC_OK; /* its value is tested where its SEGMENT passes */
	if (!before.known || !segment->has_ids)
		return KVARC_OK; /* a model has coded the ids, and it is not here */
	if (kvi_chain_link(&value, &c->scratch, before.value, segment, segment->n))
		return kvi_fail_alloc(error, &r->alloc);
	return kvi_h128_equal(value, segment->chain)
	               ? KVARC_OK
	               : wrong(segment, error, "is not that of its ids");
}

kvarc_ret kvarc_reader_chain(kvarc_reader *r, uint32_t track, uint64_t tokens, uint8_t chain[16])
{
	if (!r || !chain)
		return KVARC_PROG;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			r->error, KVARC_REASON_NEEDS_SEEK,
			kvi_reader_fail(r, KVARC_OPTIONS,
		                        "chain values need a source that can seek, not a pipe"));
	if (track >= r->geometry.n_tracks)
		return KVARC_GEOMETRY;
	for (size_t i = 0; i < r->index.segments.n; i++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (s->track != track || s->left != s->n || s->t0 + s->n != tokens ||
		    !s->chain.known)
			continue;
		kvi_store_h128(chain, s->chain.value);
		return KVARC_OK;
	}
	return KVARC_END;
}
