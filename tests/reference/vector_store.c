/* SPDX-License-Identifier: BSD-3-Clause */
/* vector_store.c - finds a segment in an archive of the vectors' store */
#include "vector_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is asked for, and where it goes. */
struct search {
	const struct vector_store *store;
	const kvarc_stored *segment;
	int32_t *ids, *positions;
	const kvarc_view *views;
	const kvarc_geometry *there; /* of the object */
	uint32_t track;
	uint32_t to[64]; /* tensor i of the object is this one, or UINT32_MAX */
	uint64_t t0;
	uint64_t filled;
};

static int same_shape(const kvarc_tensor *a, const kvarc_tensor *b)
{
	return a->layer == b->layer && a->kind == b->kind && a->role == b->role &&
	       a->dtype == b->dtype && a->heads == b->heads && a->channels == b->channels;
}

/* The tensor of a track behind another one, in the order of chunks; UINT32_MAX: none. */
static uint32_t next_tensor(const kvarc_geometry *g, uint32_t track, uint32_t after)
{
	uint32_t best = UINT32_MAX;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i], *a, *b;
		a = after == UINT32_MAX ? NULL : &g->tensors[after];
		b = best == UINT32_MAX ? NULL : &g->tensors[best];
		uint64_t key = (uint64_t)t->layer << 32 | (uint64_t)t->kind << 24 | i;
		uint64_t low = a ? (uint64_t)a->layer << 32 | (uint64_t)a->kind << 24 | after : 0;
		uint64_t high = b ? (uint64_t)b->layer << 32 | (uint64_t)b->kind << 24 | best
		                  : UINT64_MAX;
		if (t->track == track && (!a || key > low) && key < high)
			best = i;
	}
	return best;
}

/* Pairs the tensors of both archives. 0: their shapes differ. */
static int pair(struct search *s)
{
	const kvarc_geometry *here = s->store->geometry;
	uint32_t a = UINT32_MAX, b = UINT32_MAX;
	if (s->there->n_tensors > 64)
		return 0;
	memset(s->to, 0xff, sizeof s->to);
	do {
		a = next_tensor(s->there, s->track, a);
		b = next_tensor(here, s->segment->track, b);
		if ((a == UINT32_MAX) != (b == UINT32_MAX))
			return 0;
		if (a != UINT32_MAX && !same_shape(&s->there->tensors[a], &here->tensors[b]))
			return 0;
		if (a != UINT32_MAX)
			s->to[a] = b;
	} while (a != UINT32_MAX);
	return 1;
}

static int take(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, const void *src)
{
	struct search *s = opaque;
	const kvarc_tensor *t = &s->there->tensors[tensor];
	const kvarc_view *v = &s->views[s->to[tensor]];
	const size_t one = t->channels * kvarc_dtype_bytes(t->dtype);
	for (uint32_t i = 0; i < n; i++)
		memcpy((char *)v->data + (t0 - s->t0 + i) * v->token_stride + head * one,
		       (const char *)src + i * heads * one, heads * one);
	return 0;
}

/* Whether what was taken is what is asked for. */
static int is_right(const struct search *s, const int32_t *ids)
{
	uint8_t digest[16];
	return kvarc_content_digest(s->store->geometry, s->segment->track, s->segment->n, ids,
	                            s->positions, s->views, digest) == KVARC_OK &&
	       !memcmp(digest, s->segment->digest, sizeof digest);
}

/* Looks into the first bytes of an object, up to a commit. 1: the segment; any: or one like it. */
static int look(struct search *s, const void *object, size_t bytes, int any)
{
	kvarc_source source = { .memory = object, .size = bytes };
	kvarc_reader_options options = { .flags = KVARC_READ_ALLOW_LOSSY };
	kvarc_segment segment;
	kvarc_reader *r;
	int found = 0;
	if (kvarc_reader_open(&r, &source, &options))
		return 0;
	s->there = kvarc_reader_geometry(r);
	while (!found && kvarc_reader_next_segment(r, &segment) == KVARC_OK) {
		s->track = segment.track;
		s->t0 = segment.t0;
		if (segment.n != s->segment->n || !pair(s))
			continue;
		if (kvarc_reader_segment_deliver(r, take, s))
			break;
		if (segment.ids)
			memcpy(s->ids, segment.ids, segment.n * sizeof *s->ids);
		memcpy(s->positions, segment.positions, segment.n * sizeof *s->positions);
		found = any || is_right(s, segment.ids ? s->ids : NULL);
	}
	kvarc_reader_close(&r);
	return found;
}

static void *read_object(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	long size = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
	char *p = size >= 0 ? malloc((size_t)size + 1) : NULL;
	if (p) {
		rewind(file);
		*bytes = fread(p, 1, (size_t)size, file);
	}
	if (file)
		fclose(file);
	return p;
}

int vector_store_read(void *opaque, const kvarc_stored *segment, const char *ns, int32_t *ids,
                      int32_t *positions, const kvarc_view *views)
{
	enum { STEP = 16, SMALLEST = 64 };
	struct vector_store *store = opaque;
	struct search s = { .store = store,
		            .segment = segment,
		            .ids = ids,
		            .positions = positions,
		            .views = views };
	const uint8_t *key = segment->has_chain ? segment->chain : segment->digest;
	char path[4096], hex[33];
	size_t bytes = 0;
	int found = 0;
	store->asked++;
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", key[i]);
	if (snprintf(path, sizeof path, "%s/object-%s-%s.kva", store->folder, ns, hex) >=
	    (int)sizeof path)
		return 2;
	char *object = read_object(path, &bytes);
	/* Segments that rewinds have cut are whole in front of the rewind. */
	for (size_t n = bytes; object && !found && n >= SMALLEST; n -= STEP)
		found = look(&s, object, n, 0);
	if (object && !found)
		found = look(&s, object, bytes, 1);
	free(object);
	return found ? 0 : 1;
}
