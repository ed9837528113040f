/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_coded.c - appends of whose chunks some were encoded elsewhere */
#include "writer_coded.h"

#include "codecs/coder.h"
#include "writer_state.h"

/* Fewer bytes than HASHED_BYTES have another hash than kernels make. */
enum { HASHED_BYTES = 241 };

const kvarc_geometry *kvi_writer_geometry(const kvarc_writer *w)
{
	return w->has_geometry ? &w->geometry : NULL;
}

/* ----- what an append will have ------------------------------------------------ */

/* Whether another encoder makes the same of a chunk at this level. */
static bool may_be_coded(const kvarc_writer *w, const struct kvi_group *g,
                         const struct kvi_append_chunk *c)
{
	const uint8_t kind = c->shape.kind;
	return w->options.level < KVI_LEVEL_PROFILE && !w->options.lossy &&
	       kvi_float_format(c->shape.dtype) && kind != KVARC_CONV_STATE &&
	       kind != KVARC_RECURRENT_STATE && kvi_params_serve(g->params, &c->shape, c->codec) &&
	       !kvi_params_drifted(g->params, 0, 1) &&
	       (!c->hashed || kvi_chunk_bytes(&c->shape) >= HASHED_BYTES);
}

/* n tokens of an append from row `first` on. */
static struct kvi_append_chunk chunk_of(const kvarc_writer *w, const struct kvi_group *g,
                                        uint32_t first, uint32_t n, const int32_t *positions)
{
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	struct kvi_append_chunk c = { .shape = { .dtype = t->dtype,
		                                 .n_tokens = n,
		                                 .heads = g->heads,
		                                 .head_channels = t->channels,
		                                 .positions = positions,
		                                 .rope = kvi_tensor_rope(&w->geometry, t),
		                                 .kind = t->kind },
		                      .tensor = g->tensor,
		                      .layer = t->layer,
		                      .head = g->head,
		                      .row = first,
		                      .codec = w->options.level ? KVI_CODEC_GRID
		                                                : KVI_CODEC_EXPONENT,
		                      .params = g->params,
		                      .params_sequence = g->params_sequence,
		                      .hashed = !(w->options.flags & KVARC_WRITE_STREAMABLE) };
	c.elsewhere = may_be_coded(w, g, &c);
	return c;
}

kvarc_ret kvi_writer_plan_append(kvarc_writer *w, uint32_t track, uint64_t n,
                                 const int32_t *positions, kvi_append_chunk_take take, void *opaque)
{
	int32_t at[KVI_SEGMENT_TOKENS];
	if (kvi_writer_refuses(w))
		return w->sticky;
	kvarc_ret ret = kvi_writer_may_append(w, track, kvarc_writer_tokens(w, track), n,
	                                      positions);
	if (ret)
		return ret;
	const struct kvi_writer_track *t = &w->tracks[track];
	if (t->waiting && t->waiting->n)
		return kvi_fail(w->error, KVARC_PROG,
		                "tokens of an earlier append wait: commit first");
	for (uint64_t row = 0; row < n && !ret; row += t->segment_tokens) {
		const uint32_t count = n - row < t->segment_tokens ? (uint32_t)(n - row)
		                                                   : t->segment_tokens;
		for (uint32_t i = 0; i < count; i++)
			at[i] = positions ? positions[row + i]
			                  : (int32_t)(t->next_position + (int64_t)(row + i));
		for (uint32_t g = t->first_group; g < t->end_group && !ret; g++) {
			const struct kvi_append_chunk c = chunk_of(w, &w->groups[g], (uint32_t)row,
			                                           count, at);
			ret = take(opaque, &c);
		}
	}
	return ret;
}

/* ----- the append ------------------------------------------------ */

/* Whether the library's encoder tries no other codec for want of space. */
static bool is_small(size_t bytes, size_t raw_bytes)
{
	return bytes <= raw_bytes - raw_bytes / 16;
}

/* Whether it would keep a payload with these parameters, and neither fit new ones nor try Zstandard
 * (chunk_encode.c). */
static bool fits(const struct kvi_group *g, const struct kvi_coded_chunk *c, size_t raw_bytes)
{
	const struct kvi_params *p = g->params;
	const size_t bytes = c->payload_bytes - KVI_CHUNK_HEADER_BYTES;
	return c->payload_bytes > KVI_CHUNK_HEADER_BYTES && c->elements &&
	       is_small(bytes, raw_bytes) && p && p->codec == c->codec &&
	       g->params_sequence == c->params_sequence &&
	       !kvi_params_drifted(p, bytes, c->elements);
}

/* The payload's own header says how it is cut, and its check. */
static kvarc_ret take_header(struct kvi_encode_job *j, const struct kvi_coded_chunk *c)
{
	const size_t bytes = c->payload_bytes;
	const struct kvi_group *g = j->group;
	struct kvi_chunk_header h;
	if (!kvi_chunk_header_parse(&h, j->frame + KVI_FRAME_HEAD_BYTES, bytes) ||
	    h.tensor != g->tensor || h.head != g->head || h.heads != g->heads ||
	    h.n != j->segment->s.n || h.codec != c->codec)
		return kvi_fail(&j->error, KVARC_DATA,
		                "the encoder of tensor %u gave a chunk that is not the one that "
		                "was asked for",
		                (unsigned)g->tensor);
	j->coded = (struct kvi_encoded){ .codec = h.codec,
		                         .cut = h.cut,
		                         .raw_check = h.raw_check,
		                         .uses_params = kvi_codec_has_params(h.codec),
		                         .payload = j->frame + KVI_CHUNK_PAYLOAD_AT,
		                         .payload_bytes = bytes - KVI_CHUNK_HEADER_BYTES };
	return KVARC_OK;
}

kvarc_ret kvi_writer_take_coded(struct kvi_encode_job *j)
{
	kvarc_writer *w = j->w;
	const struct kvi_append_coder *x = w->coder;
	const struct kvi_group *g = j->group;
	struct kvi_coded_chunk c;
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	const struct kvi_segment *s = &j->segment->s;
	j->raw_bytes = s->n * g->heads * t->channels * (uint32_t)kvarc_dtype_bytes(t->dtype);
	if (!x->find(x->opaque, g->tensor, g->head, (uint32_t)(s->t0 - w->coder_t0), &c) ||
	    !fits(g, &c, j->raw_bytes))
		return KVARC_OK;
	if (x->copy(x->opaque, j->frame + KVI_FRAME_HEAD_BYTES))
		return kvi_fail(&j->error, KVARC_IO,
		                "copying a chunk of tensor %u from its encoder failed",
		                (unsigned)g->tensor);
	j->raw_hash = c.hash;
	j->given = true;
	return take_header(j, &c);
}

kvarc_ret kvi_writer_append_coded(kvarc_writer *w, uint32_t track, uint64_t n, const int32_t *ids,
                                  const int32_t *positions, const struct kvi_append_coder *coder,
                                  struct kvi_coded_taken *taken)
{
	w->coder = coder;
	w->coder_t0 = kvarc_writer_tokens(w, track);
	w->coder_taken = (struct kvi_coded_taken){ 0 };
	kvarc_ret ret = kvarc_writer_append_fetch(w, track, n, ids, positions, coder->fetch,
	                                          coder->opaque);
	*taken = w->coder_taken;
	w->coder = NULL;
	return ret;
}
