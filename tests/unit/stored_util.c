/* SPDX-License-Identifier: BSD-3-Clause */
/* stored_util.c - a store that holds the segments of a cache, for the tests of stored segments */
#include "stored_util.h"

static const char *const keys[] = { "model", "namespace" };

static void damage(struct shelf *s, const kvarc_stored *x, int32_t *ids, int32_t *positions,
                   const kvarc_view *views)
{
	if (s->wrong_of == OF_IDS)
		ids[x->n - 1] ^= 1;
	else if (s->wrong_of == OF_POSITIONS)
		positions[0] ^= 1 << 20;
	for (size_t i = s->c->g.n_tensors; s->wrong_of == OF_ELEMENTS && i-- > 0;) {
		const kvarc_tensor *t = &s->c->tensors[i];
		if (t->track != x->track)
			continue;
		((uint8_t *)views[i].data)[(size_t)(x->n - 1) * views[i].token_stride] ^= 1;
		return;
	}
}

int shelf_read(void *opaque, const kvarc_stored *x, const char *ns, int32_t *ids,
               int32_t *positions, const kvarc_view *views)
{
	struct shelf *s = opaque;
	const struct cache *c = s->c;
	assert_false(s->busy); /* one thread at a time */
	s->busy = true;
	if (s->ns)
		assert_string_equal(ns, s->ns);
	assert_true(s->asked < 256);
	s->asked_t0[s->asked++] = x->t0;
	assert_true(x->t0 + x->n <= c->n[x->track]);
	if (!s->no_ids)
		memcpy(ids, c->ids[x->track] + x->t0, x->n * sizeof *ids);
	memcpy(positions, c->positions[x->track] + x->t0, x->n * sizeof *positions);
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		const size_t row = (size_t)c->views[i].token_stride;
		if (c->tensors[i].track != x->track) {
			assert_null(views[i].data);
			continue;
		}
		assert_int_equal(views[i].token_stride, row);
		memcpy(views[i].data, c->data[i] + x->t0 * row, x->n * row);
	}
	if (s->wrong == x->t0)
		damage(s, x, ids, positions, views);
	s->busy = false;
	return s->fails ? -1 : s->gone == x->t0;
}

kvarc_reader_options shelf_options(struct shelf *s, unsigned threads)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	o.stored_read = shelf_read;
	o.stored_opaque = s;
	o.common.threads = threads;
	return o;
}

size_t stored_segments(const struct cache *c, uint32_t track, uint64_t t0, uint64_t n,
                       uint32_t most, bool text, uint8_t chain[16], kvarc_stored *to)
{
	size_t k = 0;
	uint64_t row = 0;
	for (size_t i = 0; i < c->g.n_tensors; i++)
		row += c->tensors[i].track == track ? c->views[i].token_stride : 0;
	for (uint64_t end = t0 + n; t0 < end; k++) {
		const uint32_t part = end - t0 < most ? (uint32_t)(end - t0) : most;
		const int32_t *ids = c->ids[track] + t0, *positions = c->positions[track] + t0;
		kvarc_view views[16];
		cache_views_at(c, t0, views);
		to[k] = (kvarc_stored){
			.track = track, .n = part, .t0 = t0, .bytes = part * row, .has_chain = text
		};
		assert_int_equal(kvarc_content_digest(&c->g, track, part, ids, positions, views,
		                                      to[k].digest),
		                 KVARC_OK);
		if (text) {
			assert_int_equal(
				kvarc_chain_next(chain, track, part, ids, positions, to[k].chain),
				KVARC_OK);
			memcpy(chain, to[k].chain, 16);
		}
		t0 += part;
	}
	return k;
}

void stored_root(const struct cache *c, const char *ns, uint8_t root[16])
{
	const char *values[] = { "a model", ns };
	assert_int_equal(kvarc_chain_root(&c->g, 2, keys, values, root), KVARC_OK);
}

kvarc_writer *stored_writer(struct torn *t, const struct cache *c, const char *ns,
                            kvarc_writer_options o)
{
	const char *values[] = { "a model", ns };
	kvarc_sink sink = torn_sink(t);
	kvarc_writer *w;
	o.flags |= KVARC_WRITE_STORED;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c->g), KVARC_OK);
	assert_int_equal(kvarc_writer_identity(w, *ns ? 2 : 1, keys, values), KVARC_OK);
	return w;
}

void put_stored(kvarc_writer *w, const struct cache *c, uint32_t track, uint64_t t0, uint64_t n,
                uint32_t most, bool text, uint8_t chain[16])
{
	kvarc_stored segments[64];
	const size_t k = stored_segments(c, track, t0, n, most, text, chain, segments);
	assert_int_equal(kvarc_writer_append_stored(w, k, segments, c->ids[track] + t0,
	                                            c->positions[track] + t0),
	                 KVARC_OK);
}
