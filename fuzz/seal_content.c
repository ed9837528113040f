/* SPDX-License-Identifier: BSD-3-Clause */
/* seal_content.c - give mutated SEGMENT, INDEX and LIST frames right chain values and offsets */
#include "seal_content.h"

#include "format/chain_value.h"
#include "format/chunk_header.h"
#include "format/fork.h"
#include "format/frame.h"
#include "format/frame_index.h"
#include "format/packed.h"
#include "util/key_hash.h"
#include "fuzz_common.h"

enum { DECODED_MAX = 1 << 20 };

/* A segment of the state (spec 6.2). track: the one that has it, also where a fork took it (spec
 * 6.3): its frame names another one then. before: the value that its chain value continues. */
struct live_segment {
	struct kvi_segment s;
	uint32_t track;
	struct kvi_chain before;
};

struct fuzz_contents {
	struct kvi_alloc alloc;
	struct kvi_packer packer;
	struct kvi_out scratch;
	struct kvi_identity identity;
	struct kvi_h128 geometry;
	struct live_segment **parts;
	size_t n_parts;
	/* Frames that an INDEX may list; of SEGMENT with its chain value. */
	struct kvi_index_entry *frames;
	size_t n_frames, behind; /* behind: the first one behind the last INDEX */
	size_t unlisted;         /* the first one behind the last INDEX or LIST */
	struct kvi_index_entry index;
	uint64_t codecs;              /* kvi_codec_bit of the chunks */
	struct kvi_index_entry *last; /* the frame that was taken last; NULL: a FOOTER */
};

struct fuzz_contents *fuzz_contents_new(void)
{
	struct fuzz_contents *c = calloc(1, sizeof *c);
	FUZZ_CHECK(c);
	kvi_alloc_init(&c->alloc, NULL, (uint64_t)1 << 30);
	kvi_packer_init(&c->packer, &c->alloc);
	kvi_out_init(&c->scratch, &c->alloc);
	return c;
}

void fuzz_contents_free(struct fuzz_contents *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_parts; i++)
		free(c->parts[i]);
	free(c->parts);
	free(c->frames);
	kvi_identity_free(&c->identity, &c->alloc);
	kvi_out_free(&c->scratch);
	kvi_packer_free(&c->packer);
	free(c);
}

/* spec 6.2: drops what a rewind replaces. Returns the segment that holds token t0 - 1, or NULL. */
static struct live_segment *rewind_to(struct fuzz_contents *c, uint32_t track, uint64_t t0)
{
	struct live_segment *last = NULL;
	size_t kept = 0;
	for (size_t i = 0; i < c->n_parts; i++) {
		struct live_segment *p = c->parts[i];
		if (p->track == track && p->s.t0 >= t0) {
			free(p);
			continue;
		}
		if (p->track == track)
			last = p;
		c->parts[kept++] = p;
	}
	c->n_parts = kept;
	if (last && t0 - last->s.t0 < last->s.left)
		last->s.left = (uint32_t)(t0 - last->s.t0);
	return last;
}

/* The value that the next segment continues (spec 5.3). */
static struct kvi_chain chain_before(struct fuzz_contents *c, const struct live_segment *last)
{
	struct kvi_chain chain = { .known = true };
	kvarc_ret ret = KVARC_OK;
	if (!last)
		ret = kvi_chain_root(&chain.value, &c->scratch, c->geometry, &c->identity);
	else if (last->s.left == last->s.n)
		chain = (struct kvi_chain){ last->s.has_chain, last->s.chain };
	else if (last->s.has_chain && last->before.known && !last->s.coded)
		ret = kvi_chain_link(&chain.value, &c->scratch, last->before.value, &last->s,
		                     last->s.left);
	else
		chain.known = false;
	FUZZ_CHECK(ret == KVARC_OK);
	return chain;
}

/* Ids that are coded are not known here: their chain value stays. */
static bool repair_segment(struct fuzz_contents *c, const uint8_t *content, size_t bytes,
                           struct kvi_out *out)
{
	struct live_segment *p = malloc(sizeof *p);
	FUZZ_CHECK(p);
	if (!kvi_segment_parse(&p->s, content, bytes)) {
		free(p);
		return false;
	}
	p->s.left = p->s.n;
	p->track = p->s.track;
	p->before = chain_before(c, rewind_to(c, p->s.track, p->s.t0));
	bool right = p->s.has_chain && !p->s.coded && p->before.known;
	if (right)
		FUZZ_CHECK(kvi_chain_link(&p->s.chain, &c->scratch, p->before.value, &p->s,
		                          p->s.n) == KVARC_OK);
	c->parts = realloc(c->parts, (c->n_parts + 1) * sizeof *c->parts);
	FUZZ_CHECK(c->parts);
	c->parts[c->n_parts++] = p;
	struct kvi_index_entry *e = &c->frames[c->n_frames - 1];
	e->has_chain = p->s.has_chain;
	e->chain = p->s.chain;
	if (right)
		kvi_segment_put(out, &p->s);
	return right;
}

static struct live_segment *add_part(struct fuzz_contents *c)
{
	struct live_segment *p = calloc(1, sizeof *p);
	c->parts = realloc(c->parts, (c->n_parts + 1) * sizeof *c->parts);
	FUZZ_CHECK(p && c->parts);
	return c->parts[c->n_parts++] = p;
}

/* Segments in a store: their ids are not known here, and their chain values stay. */
static void pass_storeref(struct fuzz_contents *c, const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	const uint32_t track = (uint32_t)kvi_get_varint(&in, UINT32_MAX);
	uint64_t t0 = kvi_get_varint(&in, UINT32_MAX);
	const uint64_t n = kvi_get_varint(&in, 4096);
	if (!in.bad)
		rewind_to(c, track, t0);
	for (uint64_t i = 0; i < n && !in.bad; i++) {
		const uint32_t tokens = (uint32_t)kvi_get_varint(&in, KVI_SEGMENT_TOKENS);
		const bool has_chain = kvi_get8(&in) & 1;
		kvi_get_varint(&in, UINT64_MAX);
		kvi_get_bytes(&in, 16);
		const uint8_t *chain = has_chain ? kvi_get_bytes(&in, 16) : NULL;
		if (in.bad)
			return;
		struct live_segment *p = add_part(c);
		p->s.track = p->track = track;
		p->s.t0 = t0;
		p->s.n = p->s.left = tokens;
		p->s.coded = true;
		p->s.has_chain = has_chain;
		p->s.chain = chain ? kvi_load_h128(chain) : (struct kvi_h128){ 0, 0 };
		t0 += tokens;
	}
}

static void pass_fork(struct fuzz_contents *c, const uint8_t *content, size_t bytes)
{
	enum { PARTS = 1 << 12 };
	struct kvi_fork f;
	if (!kvi_fork_parse(&f, content, bytes) || f.track == f.from)
		return;
	rewind_to(c, f.track, 0);
	const size_t n = c->n_parts;
	for (size_t i = 0; i < n && c->n_parts < PARTS; i++) {
		const struct live_segment *from = c->parts[i];
		if (from->track != f.from || from->s.t0 >= f.n)
			continue;
		struct live_segment *p = add_part(c);
		*p = *from;
		p->track = f.track;
		if (f.n - p->s.t0 < p->s.left)
			p->s.left = (uint32_t)(f.n - p->s.t0);
	}
}

/* Rewrites the entries of an INDEX or LIST for the frames from one on that it may have. Entry i
 * is taken to be of frame i: mutations move frames more often than they add any. */
static bool repair_entries(const struct fuzz_contents *c, struct kvi_index_reader *r, size_t first,
                           struct kvi_out *out)
{
	struct kvi_index_delta d = { 0, 0 };
	struct kvi_index_entry e;
	size_t i = first;
	for (; kvi_index_next(r, &e); i++) {
		while (i < c->n_frames &&
		       (r->chunks ? c->frames[i].type != KVI_FRAME_CHUNK : c->frames[i].codec))
			i++;
		if (i >= c->n_frames || c->frames[i].type != e.type)
			return false;
		const struct kvi_index_entry *f = &c->frames[i];
		if (e.type == KVI_FRAME_CHUNK)
			e.segment += f->sequence - e.sequence;
		if (e.has_chain && f->has_chain)
			e.chain = f->chain;
		e.offset = f->offset;
		e.sequence = f->sequence;
		e.bytes = f->bytes;
		kvi_index_put(out, &d, &e);
	}
	return kvi_index_end(r);
}

static bool repair_list(struct fuzz_contents *c, const uint8_t *content, size_t bytes,
                        struct kvi_out *out)
{
	struct kvi_index_reader r;
	if (!kvi_list_begin(&r, content, bytes))
		return false;
	kvi_put_varint(out, r.left);
	return repair_entries(c, &r, c->unlisted, out);
}

/* An INDEX follows the last one, or none. */
static bool repair_index(struct fuzz_contents *c, const uint8_t *content, size_t bytes,
                         struct kvi_out *out)
{
	struct kvi_index_reader r;
	if (!kvi_index_begin(&r, content, bytes))
		return false;
	const bool all = !r.head.follows;
	const struct kvi_index_head head = { all ? 0 : c->index.offset, all ? 0 : c->index.bytes,
		                             c->codecs };
	kvi_index_put_head(out, &head, r.left);
	return repair_entries(c, &r, all ? 0 : c->behind, out);
}

static void list_frame(struct fuzz_contents *c, unsigned type, uint64_t offset, uint64_t sequence)
{
	const struct kvi_index_entry e = { .type = type < 256 ? (uint8_t)type : 0,
		                           .offset = offset,
		                           .sequence = sequence };
	c->last = NULL;
	if (type == KVI_FRAME_INDEX) {
		c->index = e;
		c->last = &c->index;
	}
	if (type == KVI_FRAME_INDEX || type == KVI_FRAME_FOOTER)
		return;
	c->frames = realloc(c->frames, (c->n_frames + 1) * sizeof *c->frames);
	FUZZ_CHECK(c->frames);
	c->frames[c->n_frames++] = e;
	c->last = &c->frames[c->n_frames - 1];
}

/* An INDEX or LIST has passed; what a LIST has is marked in `codec`, for no INDEX to have it. */
static void pass_entries(struct fuzz_contents *c, unsigned type)
{
	for (size_t i = c->unlisted; i < c->n_frames && type == KVI_FRAME_LIST; i++)
		c->frames[i].codec = c->frames[i].type == KVI_FRAME_CHUNK;
	c->unlisted = c->n_frames;
	if (type == KVI_FRAME_INDEX)
		c->behind = c->n_frames;
}

void fuzz_contents_placed(struct fuzz_contents *c, uint64_t bytes)
{
	if (c->last)
		c->last->bytes = (uint32_t)bytes;
}

bool fuzz_contents_repair(struct fuzz_contents *c, unsigned type, uint64_t offset,
                          uint64_t sequence, const uint8_t *payload, size_t bytes,
                          uint32_t *decoded, struct kvi_out *out)
{
	const uint8_t *content;
	uint8_t *owned = NULL;
	bool other = false;
	struct kvi_chunk_header chunk;
	if (type != KVI_FRAME_INDEX)
		list_frame(c, type, offset, sequence);
	out->n = 0;
	if (type == KVI_FRAME_FORK)
		pass_fork(c, payload, bytes);
	if (type == KVI_FRAME_CHUNK && kvi_chunk_header_parse(&chunk, payload, bytes))
		c->codecs |= kvi_codec_bit(chunk.codec);
	kvi_put8(out, 0); /* method 0 */
	if ((type == KVI_FRAME_GEOMETRY || type == KVI_FRAME_IDENTITY ||
	     type == KVI_FRAME_SEGMENT || type == KVI_FRAME_INDEX || type == KVI_FRAME_LIST ||
	     type == KVI_FRAME_STOREREF) &&
	    *decoded <= DECODED_MAX &&
	    kvi_unpack(&c->packer, payload, bytes, *decoded, &content, &owned) == KVARC_OK) {
		if (type == KVI_FRAME_GEOMETRY)
			c->geometry = kvi_b128(content, *decoded);
		else if (type == KVI_FRAME_IDENTITY)
			kvi_identity_parse(&c->identity, &c->alloc, content, *decoded);
		else if (type == KVI_FRAME_STOREREF)
			pass_storeref(c, content, *decoded);
		else if (type == KVI_FRAME_SEGMENT)
			other = repair_segment(c, content, *decoded, out);
		else if (type == KVI_FRAME_LIST)
			other = repair_list(c, content, *decoded, out);
		else
			other = repair_index(c, content, *decoded, out);
	}
	kvi_free(&c->alloc, owned);
	if (type == KVI_FRAME_INDEX)
		list_frame(c, type, offset, sequence);
	if (type == KVI_FRAME_INDEX || type == KVI_FRAME_LIST)
		pass_entries(c, type);
	FUZZ_CHECK(!out->failed);
	if (other)
		*decoded = (uint32_t)(out->n - 1);
	return other;
}
