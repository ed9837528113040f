/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_references.c - the states that later checkpoints may refer to (spec state 3) */
#include "reader/reader_decode.h"
#include "reader/reader_frames.h"
#include "reader/reader_state.h"
#include "writer_state.h"

/* Of the memory limit, what copies of states may take. */
enum { SHARE = 4 };
/* How many groups may lie between a state and that of another track. */
enum { REACH = 4096 };

bool kvi_writer_keeps_states(const kvarc_writer *w, const struct kvi_group *g)
{
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	return w->options.level > 0 && !w->options.lossy &&
	       !(w->options.flags & KVARC_WRITE_STREAMABLE) &&
	       (t->kind == KVARC_CONV_STATE || t->kind == KVARC_RECURRENT_STATE);
}

static struct kvi_kept_state *find(const struct kvi_group *g, const struct kvi_segment *s)
{
	for (size_t i = 0; i < g->states.n; i++) {
		struct kvi_kept_state *k = KVI_LIST(struct kvi_kept_state, g->states, i);
		if (k->t0 == s->t0 && k->n == s->n)
			return k;
	}
	return NULL;
}

/* An entry with memory for elements; NULL in *out where copies may take no more. */
static kvarc_ret add(kvarc_writer *w, struct kvi_group *g, const struct kvi_segment *s,
                     uint32_t bytes, struct kvi_kept_state **out)
{
	struct kvi_kept_state *k = find(g, s);
	*out = NULL;
	if (!k && bytes > w->alloc.limit / SHARE - w->kept_states)
		return KVARC_OK;
	if (!k) {
		uint8_t *elements = kvi_malloc(&w->alloc, bytes);
		k = elements ? kvi_list_add(&g->states, &w->alloc, sizeof *k) : NULL;
		if (!k) {
			kvi_free(&w->alloc, elements);
			return kvi_fail_alloc(w->error, &w->alloc);
		}
		*k = (struct kvi_kept_state){ .t0 = s->t0, .n = s->n, .elements = elements };
		w->kept_states += bytes;
	}
	*out = k;
	return KVARC_OK;
}

/* The last chunk of a group and segment in the archive; NULL: there is none. */
static const struct kvi_chunk_ref *in_archive(const kvarc_reader *r, const struct kvi_group *g,
                                              const struct kvi_segment *s)
{
	for (size_t i = r->index.segments.n; i-- > 0;) {
		const struct kvi_segment_ref *x = KVI_LIST(struct kvi_segment_ref,
		                                           r->index.segments, i);
		if (x->track != s->track || x->t0 != s->t0 || x->n != s->n || x->stored)
			continue;
		for (uint64_t c = x->first; c < x->end; c++) {
			const struct kvi_chunk_ref *ref = KVI_LIST(struct kvi_chunk_ref,
			                                           r->index.chunks, c);
			if (ref->tensor == g->tensor && ref->head == g->head &&
			    ref->heads == g->heads)
				return ref;
		}
		return NULL;
	}
	return NULL;
}

/* A chunk of the archive, or the one that it refers to. Damage is DATA. */
static kvarc_ret read_chunk(kvarc_reader *r, uint64_t offset, uint64_t sequence,
                            struct kvi_buffer *buffer, struct kvi_frame *f,
                            struct kvi_chunk_header *h, kvarc_error *e)
{
	for (int i = 0; i < 2; i++) {
		kvarc_ret ret = kvi_reader_read_frame(r, offset, KVI_FRAME_CHUNK, sequence, buffer,
		                                      f, e);
		if (ret)
			return ret;
		if (!kvi_chunk_header_parse(h, f->payload, f->head.payload_bytes))
			return KVARC_DATA;
		if (h->codec != KVI_CODEC_STATE ||
		    !kvi_state_reference(f->payload + KVI_CHUNK_HEADER_BYTES,
		                         f->head.payload_bytes - KVI_CHUNK_HEADER_BYTES, &sequence,
		                         &offset))
			return KVARC_OK;
	}
	return KVARC_DATA;
}

/* Takes the state of the archive that is appended to; one that cannot be used is left out. */
static kvarc_ret take(kvarc_writer *w, struct kvi_group *g, const struct kvi_segment *s)
{
	kvarc_reader *r = w->archive;
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	const uint32_t bytes = s->n * g->heads * t->channels *
	                       (uint32_t)kvarc_dtype_bytes(t->dtype);
	const struct kvi_chunk_ref *ref = r ? in_archive(r, g, s) : NULL;
	struct kvi_buffer buffer = { NULL, 0 };
	struct kvi_coder *coder = NULL;
	struct kvi_kept_state *k = NULL;
	struct kvi_chunk_header h;
	struct kvi_frame f;
	kvarc_error e;
	if (!ref)
		return KVARC_OK;
	kvarc_ret ret = read_chunk(r, ref->offset, ref->sequence, &buffer, &f, &h, &e);
	if (!ret && (!kvi_state_may_refer(h.codec) || h.n != s->n ||
	             f.head.decoded_bytes != bytes || h.tensor != g->tensor))
		ret = KVARC_DATA;
	if (!ret)
		ret = add(w, g, s, bytes, &k);
	if (!ret && k && kvi_coder_open(&coder, &r->alloc, w->tables, w->options.common.isa_mask))
		ret = kvi_fail_alloc(w->error, &r->alloc);
	if (!ret && k)
		ret = kvi_reader_decode_target(r, coder, &f, k->elements, &e);
	if (!ret && k) {
		k->sequence = f.head.sequence;
		k->offset = f.offset;
	}
	kvi_coder_close(coder);
	kvi_free(&r->alloc, buffer.p);
	return ret == KVARC_MEM || ret == KVARC_MEMLIMIT || ret == KVARC_IO ? ret : KVARC_OK;
}

static bool is_like(const kvarc_geometry *geometry, const struct kvi_group *a,
                    const struct kvi_group *b)
{
	const kvarc_tensor *x = &geometry->tensors[a->tensor], *y = &geometry->tensors[b->tensor];
	return x->track != y->track && x->layer == y->layer && x->kind == y->kind &&
	       x->dtype == y->dtype && x->channels == y->channels && a->head == b->head &&
	       a->heads == b->heads;
}

void kvi_writer_link_states(kvarc_writer *w)
{
	for (size_t i = 0; i < w->n_groups; i++) {
		struct kvi_group *g = &w->groups[i];
		const size_t end = i < REACH ? 0 : i - REACH;
		for (size_t k = i; kvi_writer_keeps_states(w, g) && !g->like && k-- > end;)
			if (is_like(&w->geometry, g, &w->groups[k]))
				g->like = &w->groups[k];
	}
}

kvarc_ret kvi_writer_reference(kvarc_writer *w, struct kvi_group *g, const struct kvi_segment *s,
                               struct kvi_kept_state *state)
{
	*state = (struct kvi_kept_state){ 0 };
	if (!kvi_writer_keeps_states(w, g))
		return KVARC_OK;
	kvarc_ret ret = find(g, s) ? KVARC_OK : take(w, g, s);
	for (; g && !state->elements; g = g->like) {
		const struct kvi_kept_state *k = find(g, s);
		if (k && k->sequence)
			*state = *k;
	}
	return ret;
}

kvarc_ret kvi_writer_keep_state(struct kvi_encode_job *j, uint64_t sequence, uint64_t offset)
{
	kvarc_writer *w = j->w;
	struct kvi_kept_state *k = NULL;
	if (!kvi_writer_keeps_states(w, j->group) || j->coded.refers ||
	    !kvi_state_may_refer(j->coded.codec))
		return KVARC_OK;
	kvarc_ret ret = add(w, j->group, &j->segment->s, j->raw_bytes, &k);
	if (ret || !k)
		return ret;
	memcpy(k->elements, j->raw, j->raw_bytes);
	k->sequence = sequence;
	k->offset = offset;
	return KVARC_OK;
}

void kvi_writer_free_states(kvarc_writer *w)
{
	for (size_t i = 0; w->groups && i < w->n_groups; i++) {
		struct kvi_list *l = &w->groups[i].states;
		for (size_t k = 0; k < l->n; k++)
			kvi_free(&w->alloc, KVI_LIST(struct kvi_kept_state, *l, k)->elements);
		kvi_free(&w->alloc, l->p);
	}
}
