/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_chain.c - chain values: tested in order, given to callers (spec 5.3) */
#include "reader_chain.h"
#include "reader_ids.h"
#include "reader_segments.h"
#include "reader_state.h"

static kvarc_ret make_root(kvarc_reader *r, struct kvi_h128 *root, kvarc_error *e)
{
	struct kvi_reader_chains *c = &r->chains;
	kvarc_ret ret = kvi_chain_root(root, &c->scratch, c->geometry, &r->meta.identity);
	return ret ? kvi_fail_alloc(e, &r->alloc) : KVARC_OK;
}

kvarc_ret kvi_reader_check_root(kvarc_reader *r, kvarc_error *e)
{
	struct kvi_h128 now;
	kvarc_ret ret = r->chains.root.known ? make_root(r, &now, e) : KVARC_END;
	if (ret)
		return ret == KVARC_END ? KVARC_OK : ret;
	return kvi_h128_equal(now, r->chains.root.value)
	               ? KVARC_OK
	               : kvi_fail(e, KVARC_DATA,
	                          "an IDENTITY frame changes what chain values before it are of");
}

static kvarc_ret wrong(const struct kvi_segment *s, kvarc_error *e, const char *what)
{
	return kvi_fail(e, KVARC_DATA, "the chain value of tokens from %llu on of track %u %s",
	                (unsigned long long)s->t0, (unsigned)s->track, what);
}

/* The value of the tokens of a segment that were left when another one began behind them. known:
 * false: it has none, or its ids are not known. */
static kvarc_ret cut_value(kvarc_reader *r, const struct kvi_segment_ref *p, uint32_t left,
                           struct kvi_chain *to, kvarc_error *e)
{
	struct kvi_segment *s = kvi_malloc(&r->alloc, sizeof *s);
	*to = (struct kvi_chain){ false, { 0, 0 } };
	if (!s)
		return kvi_fail_alloc(e, &r->alloc);
	/* A store need not have what is replaced. */
	kvarc_ret ret = p->stored && !p->left ? KVARC_END
	                                      : kvi_reader_read_segment(r, &r->packer, p, s, e);
	if (!ret)
		ret = kvi_reader_first_ids(r, kvi_reader_codes_ids(r, p->sequence), s, left, e);
	if (!ret && p->before.known && s->has_ids) {
		to->known = true;
		ret = kvi_chain_link(&to->value, &r->chains.scratch, p->before.value, s, left);
	}
	kvi_free(&r->alloc, s);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* The value that a segment's begins with; has: there is one, known or not. */
static kvarc_ret value_before(kvarc_reader *r, const struct kvi_segment *s,
                              const struct kvi_segment_ref *ref, struct kvi_chain *to, bool *has,
                              kvarc_error *e)
{
	const struct kvi_segment_ref *p = ref ? kvi_index_before(&r->index, ref) : NULL;
	*to = s->t0 == 0 ? r->chains.root : p ? p->chain : r->chains.last[s->track];
	*has = to->known;
	if (p && p->t0 + p->n != s->t0 && *has)
		return cut_value(r, p, (uint32_t)(s->t0 - p->t0), to, e);
	return KVARC_OK;
}

kvarc_ret kvi_reader_check_chain(kvarc_reader *r, const struct kvi_segment *s,
                                 struct kvi_segment_ref *ref, kvarc_error *e)
{
	struct kvi_reader_chains *c = &r->chains;
	struct kvi_chain before;
	struct kvi_h128 value;
	bool has;
	kvarc_ret ret = KVARC_OK;
	if (s->has_chain && !c->root.known)
		ret = make_root(r, &c->root.value, e);
	c->root.known |= s->has_chain;
	if (!ret)
		ret = value_before(r, s, ref, &before, &has, e);
	c->last[s->track] = (struct kvi_chain){ s->has_chain, s->chain };
	if (ret || !s->has_chain)
		return ret;
	if (!has)
		return wrong(s, e, "follows a segment without one");
	if (ref)
		ref->before = before;
	if (!before.known || !s->has_ids)
		return KVARC_OK; /* a model has coded them, and it is not here */
	if (kvi_chain_link(&value, &c->scratch, before.value, s, s->n))
		return kvi_fail_alloc(e, &r->alloc);
	return kvi_h128_equal(value, s->chain) ? KVARC_OK : wrong(s, e, "is not that of its ids");
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
