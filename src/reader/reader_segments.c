/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_segments.c - segments, of the file or of a store (spec frames 12.3) */
#include <errno.h>

#include "reader_frames.h"
#include "reader_segments.h"
#include "reader_state.h"
#include "format/content_digest.h"
#include "format/storeref.h"
#include "util/ckd.h"
#include "util/string_field.h"

/* Elements of a tensor begin at multiples of this. */
enum { DATA_ALIGN = 64 };

/* ----- the index -------------------------------------------------------- */

/* The namespace of the identity so far, as one of the list; *at: its index. */
static kvarc_ret namespace_now(kvarc_reader *r, size_t *at)
{
	struct kvi_list *l = &r->index.namespaces;
	const char *now = kvi_identity_get(&r->meta.identity, "namespace");
	now = now ? now : "";
	*at = l->n - 1;
	if (l->n && !strcmp(*KVI_LIST(char *, *l, *at), now))
		return KVARC_OK;
	char *copy = kvi_string_copy(&r->alloc, now);
	char **entry = copy ? kvi_list_add(l, &r->alloc, sizeof *entry) : NULL;
	if (!entry) {
		kvi_free(&r->alloc, copy);
		return kvi_fail_alloc(r->error, &r->alloc);
	}
	*entry = copy;
	*at = l->n - 1;
	return KVARC_OK;
}

/* Adds one segment of a STOREREF. */
static kvarc_ret add_part(kvarc_reader *r, const struct kvi_frame *frame, const kvarc_stored *part,
                          uint32_t number, size_t ns)
{
	struct kvi_stored_ref *x = kvi_list_add(&r->index.stored, &r->alloc, sizeof *x);
	struct kvi_segment_ref *s = x ? kvi_list_add(&r->index.segments, &r->alloc, sizeof *s)
	                              : NULL;
	if (!s)
		return kvi_fail_alloc(r->error, &r->alloc);
	*x = (struct kvi_stored_ref){ *part, ns };
	*s = (struct kvi_segment_ref){ .offset = frame->offset,
		                       .sequence = frame->head.sequence,
		                       .t0 = part->t0,
		                       .listed = frame->head.sequence,
		                       .first = r->index.chunks.n,
		                       .end = r->index.chunks.n,
		                       .track = part->track,
		                       .n = part->n,
		                       .most = part->n,
		                       .part = number,
		                       .stored = r->index.stored.n,
		                       .chain.known = part->has_chain };
	if (part->has_chain)
		s->chain.value = kvi_load_h128(part->chain);
	kvi_index_link(&r->index);
	return KVARC_OK;
}

kvarc_ret kvi_reader_add_storeref(kvarc_reader *r, const struct kvi_frame *frame,
                                  const uint8_t *content, const struct kvi_index_entry *entry)
{
	struct kvi_list parts = { 0 };
	size_t ns;
	kvarc_ret ret = r->in.stored
	                        ? kvi_storeref_parse(&parts, &r->alloc, &r->geometry, &r->order,
	                                             content, frame->head.decoded_bytes)
	                        : KVARC_DATA;
	const kvarc_stored *p = parts.p;
	if (!ret && entry &&
	    (p->track != entry->tensor || p->t0 != entry->segment ||
	     p->t0 > r->index.tokens[p->track] ||
	     p[parts.n - 1].t0 + p[parts.n - 1].n != entry->segment + entry->n))
		ret = KVARC_DATA;
	if (ret == KVARC_DATA)
		kvi_reader_not_valid(frame, r->error);
	else if (ret)
		kvi_fail_alloc(r->error, &r->alloc);
	else
		ret = namespace_now(r, &ns);
	for (size_t i = 0; i < parts.n && !ret; i++)
		ret = add_part(r, frame, &p[i], (uint32_t)i, ns);
	if (!ret)
		kvi_reader_begin_set(r);
	kvi_free(&r->alloc, parts.p);
	return ret;
}

/* ----- copies ----------------------------------------------------------- */

/* Forgets all but the newest `most` copies. */
static void forget_copies(kvarc_reader *r, unsigned most)
{
	for (unsigned i = most; i < KVI_STORED_COPIES; i++) {
		kvi_stored_release(r, r->stored[i]);
		r->stored[i] = NULL;
	}
}

void kvi_stored_free(kvarc_reader *r)
{
	forget_copies(r, 0);
	for (size_t i = 0; i < r->index.namespaces.n; i++)
		kvi_free(&r->alloc, *KVI_LIST(char *, r->index.namespaces, i));
	kvi_free(&r->alloc, r->index.namespaces.p);
	kvi_free(&r->alloc, r->index.stored.p);
}

/* Makes a copy the newest one, with the reader as one of its users. More than LEAST stay where they
 * take a SHARE-th of the memory limit. */
static void keep_copy(kvarc_reader *r, struct kvi_stored_copy *copy)
{
	enum { LEAST = 2, SHARE = 4 };
	uint64_t bytes = 0;
	forget_copies(r, KVI_STORED_COPIES - 1);
	memmove(r->stored + 1, r->stored, (KVI_STORED_COPIES - 1) * sizeof *r->stored);
	r->stored[0] = copy;
	copy->users++;
	for (unsigned i = 0; i < KVI_STORED_COPIES && r->stored[i]; i++) {
		bytes += r->stored[i]->key.bytes;
		if (i >= LEAST && bytes > r->alloc.limit / SHARE)
			forget_copies(r, i);
	}
}

static struct kvi_stored_copy *find_copy(kvarc_reader *r, const kvarc_stored *key)
{
	for (unsigned i = 0; i < KVI_STORED_COPIES; i++) {
		struct kvi_stored_copy *c = r->stored[i];
		if (!c || memcmp(&c->key, key, sizeof *key))
			continue;
		memmove(r->stored + 1, r->stored, i * sizeof *r->stored);
		r->stored[0] = c;
		return c;
	}
	return NULL;
}

/* Makes the memory for a segment. NULL: out of memory. */
static struct kvi_stored_copy *new_copy(kvarc_reader *r, const kvarc_stored *key)
{
	struct kvi_stored_copy *c = kvi_calloc(&r->alloc, 1, sizeof *c);
	const uint32_t first = r->order.first[key->track], end = r->order.first[key->track + 1];
	size_t bytes = (size_t)key->bytes, at = 0;
	if (!c)
		return NULL;
	c->users = 1;
	c->key = *key;
	c->views = kvi_calloc(&r->alloc, r->geometry.n_tensors + 1, sizeof *c->views);
	bool fits = key->bytes <= SIZE_MAX &&
	            !kvi_add(bytes, (size_t)(end - first) * DATA_ALIGN, &bytes);
	c->data = c->views && fits && first < end ? kvi_calloc(&r->alloc, bytes, 1) : NULL;
	if (!c->views || !fits || (first < end && !c->data)) {
		kvi_stored_release(r, c);
		return NULL;
	}
	for (uint32_t i = first; i < end; i++) {
		const kvarc_tensor *t = &r->geometry.tensors[r->order.tensors[i]];
		c->views[r->order.tensors[i]] =
			(kvarc_view){ .data = c->data + at,
			              .token_stride = kvi_tensor_bytes(t),
			              .block_elems = kvi_tensor_width(t),
			              .elem_stride = (uint32_t)kvarc_dtype_bytes(t->dtype) };
		at += (size_t)key->n * kvi_tensor_bytes(t);
		at = (at + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
	}
	return c;
}

/* As new_copy; where memory is short, frees older copies and waits for jobs. */
static kvarc_ret make_copy(kvarc_reader *r, const kvarc_stored *key, struct kvi_stored_copy **copy,
                           kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	*copy = key->bytes <= r->alloc.limit ? new_copy(r, key) : NULL;
	if (!*copy) {
		forget_copies(r, 0);
		ret = kvi_reader_drain(r, KVARC_OK);
		*copy = ret ? NULL : new_copy(r, key);
	}
	return ret || *copy ? ret : kvi_fail_alloc(error, &r->alloc);
}

static kvarc_ret missing(const kvarc_stored *key, kvarc_reason reason, const char *what,
                         kvarc_error *error)
{
	const uint8_t *d = key->has_chain ? key->chain : key->digest;
	char hex[2 * sizeof key->digest + 1];
	for (size_t i = 0; i < sizeof key->digest; i++) {
		hex[2 * i] = "0123456789abcdef"[d[i] >> 4];
		hex[2 * i + 1] = "0123456789abcdef"[d[i] & 15];
	}
	hex[sizeof hex - 1] = 0;
	kvi_fail(error, KVARC_STORE, "tokens %llu to %llu of track %u lie in a store%s %s",
	         (unsigned long long)key->t0, (unsigned long long)(key->t0 + key->n - 1),
	         (unsigned)key->track, what, hex);
	if (error) {
		memcpy(error->digest, d, sizeof error->digest);
		error->track = key->track;
	}
	return kvi_reason(error, reason, KVARC_STORE);
}

/* The content digest says whether there are ids. */
static kvarc_ret check_copy(kvarc_reader *r, struct kvi_stored_copy *copy, kvarc_error *error)
{
	struct kvi_segment *s = &copy->segment;
	const struct kvi_content content = { s->track, s->n, s->ids, s->positions, copy->views };
	const struct kvi_h128 digest = kvi_load_h128(copy->key.digest);
	struct kvi_h128 with, without;
	kvi_content_digest(&r->geometry, &r->order, &content, &with, &without);
	s->has_ids = kvi_h128_equal(with, digest);
	if (s->has_ids)
		return KVARC_OK;
	if (!kvi_h128_equal(without, digest))
		return missing(&copy->key, KVARC_REASON_STORE_DIFFERS,
		               ", which has something else under", error);
	return s->has_chain ? kvi_fail(error, KVARC_DATA,
	                               "tokens from %llu on of track %u have a chain value, and no "
	                               "token ids",
	                               (unsigned long long)s->t0, (unsigned)s->track)
	                    : KVARC_OK;
}

static kvarc_ret ask(kvarc_reader *r, const char *ns, struct kvi_stored_copy *copy,
                     kvarc_error *error)
{
	const kvarc_reader_options *o = &r->options;
	struct kvi_segment *s = &copy->segment;
	s->track = copy->key.track;
	s->n = s->left = copy->key.n;
	s->t0 = copy->key.t0;
	s->has_chain = copy->key.has_chain;
	if (s->has_chain)
		s->chain = kvi_load_h128(copy->key.chain);
	errno = 0;
	const int got = o->stored_read(o->stored_opaque, &copy->key, ns, s->ids, s->positions,
	                               copy->views);
	if (got == 1)
		return missing(&copy->key, KVARC_REASON_STORE_LACKS, ", which has nothing under",
		               error);
	if (got)
		return kvi_fail_callback(error, KVARC_UNKNOWN, KVARC_UNKNOWN,
		                         "the store failed to give tokens from %llu on of track %u",
		                         (unsigned long long)s->t0, (unsigned)s->track);
	return check_copy(r, copy, error);
}

kvarc_ret kvi_stored_get(kvarc_reader *r, const kvarc_stored *key, const char *ns,
                         struct kvi_stored_copy **copy, kvarc_error *error)
{
	*copy = find_copy(r, key);
	if (*copy) {
		(*copy)->users++;
		return KVARC_OK;
	}
	if (!r->options.stored_read)
		return missing(key, KVARC_REASON_NO_STORE, ", and no store is given; the key is",
		               error);
	kvarc_ret ret = make_copy(r, key, copy, error);
	if (!ret)
		ret = ask(r, ns, *copy, error);
	if (!ret)
		keep_copy(r, *copy);
	if (ret) {
		kvi_stored_release(r, *copy);
		*copy = NULL;
	}
	return ret;
}

kvarc_ret kvi_stored_get_ref(kvarc_reader *r, const struct kvi_segment_ref *segment,
                             struct kvi_stored_copy **copy, kvarc_error *error)
{
	const struct kvi_stored_ref *x = KVI_LIST(struct kvi_stored_ref, r->index.stored,
	                                          segment->stored - 1);
	return kvi_stored_get(r, &x->segment, *KVI_LIST(char *, r->index.namespaces, x->ns), copy,
	                      error);
}

/* Sets the members of a segment that depend on its position in the file. */
static void place(struct kvi_segment *segment, const struct kvi_segment_ref *ref)
{
	segment->track = ref->track;
	segment->left = ref->left;
	segment->sequence = ref->listed;
	segment->part = ref->part;
}

/* A segment of the index that lies in a store. Returns as kvi_stored_get. */
static kvarc_ret stored_segment(kvarc_reader *r, const struct kvi_segment_ref *ref,
                                struct kvi_segment *segment, kvarc_error *error)
{
	struct kvi_stored_copy *c;
	kvarc_ret ret = kvi_stored_get_ref(r, ref, &c, error);
	if (ret)
		return ret;
	*segment = c->segment;
	place(segment, ref);
	kvi_stored_release(r, c);
	return KVARC_OK;
}

/* As stored_segment, with the elements, into use->segment and use->stored. */
static kvarc_ret stored_use(kvarc_reader *r, const struct kvi_segment_ref *ref,
                            struct kvi_segment_use *use, kvarc_error *error)
{
	kvarc_ret ret = kvi_stored_get_ref(r, ref, &use->stored, error);
	if (ret)
		return ret;
	use->segment = use->stored->segment;
	place(&use->segment, ref);
	return KVARC_OK;
}

const uint8_t *kvi_stored_elements(const struct kvi_segment_use *use, uint32_t tensor)
{
	return use && use->stored ? use->stored->views[tensor].const_data : NULL;
}

/* ----- the list --------------------------------------------------------- */

/* Segment i of those that have tokens left. NULL: there are not as many. */
static const struct kvi_segment_ref *segment_at(kvarc_reader *r, uint64_t i)
{
	struct kvi_reader_index *x = &r->index;
	if (i < x->listed || !x->listed_at)
		x->listed = x->listed_at = 0;
	for (; x->listed_at < x->segments.n; x->listed_at++) {
		const struct kvi_segment_ref *s = KVI_LIST(struct kvi_segment_ref, x->segments,
		                                           x->listed_at);
		if (!s->left)
			continue;
		if (x->listed == i)
			return s;
		x->listed++;
	}
	return NULL;
}

kvarc_ret kvarc_reader_segment_at(kvarc_reader *r, uint64_t i, kvarc_stored *segment,
                                  unsigned *flags)
{
	if (!r || !segment)
		return KVARC_PROG;
	if (r->sticky)
		return r->sticky;
	if (!kvi_input_seekable(&r->in))
		return kvi_reason(
			r->error, KVARC_REASON_NEEDS_SEEK,
			kvi_reader_fail(
				r, KVARC_OPTIONS,
				"listing segments needs a source that can seek, not a pipe"));
	const struct kvi_segment_ref *s = segment_at(r, i);
	if (!s)
		return KVARC_END;
	*segment =
		(kvarc_stored){ .track = s->track,
		                .n = s->n,
		                .t0 = s->t0,
		                .bytes = s->n * kvi_track_bytes(&r->geometry, &r->order, s->track),
		                .has_chain = s->chain.known };
	if (s->chain.known)
		kvi_store_h128(segment->chain, s->chain.value);
	if (s->stored)
		*segment = KVI_LIST(struct kvi_stored_ref, r->index.stored, s->stored - 1)->segment;
	segment->track = s->track;
	segment->left = s->left;
	if (flags)
		*flags = (s->stored ? KVARC_SEGMENT_STORED : 0) |
		         (s->left < s->n ? KVARC_SEGMENT_CUT : 0) |
		         (s->origin ? KVARC_SEGMENT_FORKED : 0);
	return KVARC_OK;
}

kvarc_ret kvi_reader_read_segment(kvarc_reader *r, struct kvi_packer *packer,
                                  const struct kvi_segment_ref *ref, struct kvi_segment *segment,
                                  kvarc_error *error)
{
	struct kvi_loaded x = { 0 };
	if (ref->stored)
		return stored_segment(r, ref, segment, error);
	kvarc_ret ret = kvi_reader_load_frame(r, packer, ref->offset, KVI_FRAME_SEGMENT,
	                                      ref->sequence, &x, error);
	if (ret == KVARC_OK &&
	    (!kvi_segment_parse(segment, x.content, x.frame.head.decoded_bytes) ||
	     segment->track != kvi_segment_named(r, ref) || segment->t0 != ref->t0 ||
	     segment->n != ref->n || segment->has_chain != ref->chain.known ||
	     !kvi_h128_equal(segment->chain, ref->chain.value)))
		ret = kvi_reader_bad(&x.frame, error,
		                     "it is not valid, or not what the index says");
	place(segment, ref);
	kvi_loaded_free(&x, &r->alloc);
	return ret;
}

kvarc_ret kvi_reader_segment(kvarc_reader *r, const struct kvi_segment_ref *ref,
                             struct kvi_segment *segment)
{
	return kvi_reader_read_segment(r, &r->packer, ref, segment, r->error);
}

kvarc_ret kvi_segment_use_load(kvarc_reader *r, struct kvi_packer *packer,
                               const struct kvi_segment_ref *ref, struct kvi_segment_use **use,
                               kvarc_error *error)
{
	*use = kvi_segment_use_new(r);
	if (!*use)
		return kvi_fail_alloc(error, &r->alloc);
	(*use)->known = ref->offset != 0;
	if (ref->stored)
		return stored_use(r, ref, *use, error);
	return ref->offset ? kvi_reader_read_segment(r, packer, ref, &(*use)->segment, error)
	                   : KVARC_OK;
}
