/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_coded.c - appends of whose chunks some were encoded elsewhere */
#include "writer_coded.h"

#include "codecs/lossy/lossy_codec.h"
#include "writer_state.h"

/* Fewer bytes than HASHED_BYTES have another hash than kernels make. */
enum { HASHED_BYTES = 241, PACKED_MORE = 4 };

const kvarc_geometry *kvi_writer_geometry(const kvarc_writer *w)
{
	return w->has_geometry ? &w->geometry : NULL;
}

/* ----- what an append will have ------------------------------------------------ */

/* Whether the model of the track predicts a chunk. */
static bool is_covered(const kvarc_writer *w, const struct kvi_group *g)
{
	const struct kvi_prediction *p = w->tracks[w->geometry.tensors[g->tensor].track].prediction;
	return p && kvi_prediction_covers(p, g->order_index);
}

/* Whether the models of a plan are those of codec linear, and one predicts a chunk. */
static bool is_predicted(const kvarc_writer *w, const struct kvi_group *g)
{
	return w->plan && w->options.level < KVI_LEVEL_MODEL && !w->options.lossy &&
	       w->plan->of[g->order_index].complete;
}

/* Whether a model predicts the elements of a codec's chunks. */
static bool is_linear(unsigned codec)
{
	return codec == KVI_CODEC_LINEAR || codec == KVI_CODEC_MODEL;
}

/* Whether a chunk is coded by itself, or by a model of the writer's profile. */
static bool needs_params(unsigned codec)
{
	return !is_linear(codec) && codec != KVI_CODEC_KLT;
}

/* Whether another encoder makes the same of a chunk with this tier. */
static bool tier_may_be_coded(const kvarc_lossy *tier)
{
	return (tier->tier == KVARC_TIER_HAD || tier->tier == KVARC_TIER_KLT) && !tier->outliers;
}

/* Whether the profile has a basis for a chunk, so that a tier codes it. */
static bool has_basis(const kvarc_writer *w, const struct kvi_group *g,
                      const struct kvi_chunk *shape)
{
	const struct kvi_model *m = w->plan ? w->plan->of[g->order_index].model : NULL;
	return m && w->plan->of[g->order_index].complete && m->flags & KVI_MODEL_BASIS &&
	       m->heads == shape->heads && m->head_channels == shape->head_channels;
}

/* Whether another encoder makes the same of a chunk at this level. Where a tier leaves tokens out,
 * rows of an append are not those of segments. */
static bool may_be_coded(const kvarc_writer *w, const struct kvi_group *g,
                         const struct kvi_append_chunk *c)
{
	const uint8_t kind = c->shape.kind;
	return (w->options.level < KVI_LEVEL_MODEL || c->predicted) &&
	       !(w->options.lossy && w->options.lossy->token_rate) &&
	       (!kvi_codec_lossy(c->codec) || tier_may_be_coded(&c->tier)) &&
	       kvi_float_format(c->shape.dtype) && kind != KVARC_CONV_STATE &&
	       kind != KVARC_RECURRENT_STATE &&
	       (!needs_params(c->codec) || (kvi_params_serve(g->params, &c->shape, c->codec) &&
	                                    !kvi_params_drifted(g->params, 0, 1))) &&
	       (!c->hashed || kvi_chunk_bytes(&c->shape) >= HASHED_BYTES);
}

/* The codec of a chunk, but where it does not take the elements; *tier: of its layer, if that codes
 * it. */
static uint8_t codec_of(const kvarc_writer *w, const struct kvi_group *g,
                        const struct kvi_chunk *shape, kvarc_lossy *tier)
{
	if (kvi_writer_tier(w, g->tensor, tier) && kvi_lossy_takes(tier, shape) &&
	    (tier->tier != KVARC_TIER_KLT || has_basis(w, g, shape)))
		return (uint8_t)tier->tier;
	if (w->options.level == 0)
		return KVI_CODEC_EXPONENT;
	return is_predicted(w, g) ? KVI_CODEC_LINEAR : KVI_CODEC_GRID;
}

/* Tokens of an append: n of all; with the writer's model, or without. */
struct kvi_append_rows {
	uint32_t first, n;
	uint64_t all;
	bool model;
};

static struct kvi_append_chunk chunk_of(const kvarc_writer *w, const struct kvi_group *g,
                                        const struct kvi_append_rows *rows,
                                        const int32_t *positions)
{
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	const uint64_t t0 = kvarc_writer_tokens(w, t->track);
	const bool plans = w->options.level < KVI_LEVEL_MODEL || rows->model;
	struct kvi_append_chunk c = { .shape = { .dtype = t->dtype,
		                                 .n_tokens = rows->n,
		                                 .heads = g->heads,
		                                 .head_channels = t->channels,
		                                 .positions = positions,
		                                 .rope = kvi_tensor_rope(&w->geometry, t),
		                                 .kind = t->kind,
		                                 .t0 = t0 + rows->first,
		                                 .end = t0 + rows->all },
		                      .tensor = g->tensor,
		                      .layer = t->layer,
		                      .head = g->head,
		                      .row = rows->first,
		                      .plan = plans ? w->plan : NULL,
		                      .order_index = g->order_index,
		                      .predicted = rows->model && is_covered(w, g),
		                      .params = g->params,
		                      .params_sequence = g->params_sequence,
		                      .hashed = !(w->options.flags & KVARC_WRITE_STREAMABLE) };
	c.codec = c.predicted ? KVI_CODEC_MODEL : codec_of(w, g, &c.shape, &c.tier);
	c.elsewhere = may_be_coded(w, g, &c);
	return c;
}

kvarc_ret kvi_writer_plan_append(kvarc_writer *w, uint32_t track, uint64_t n,
                                 const int32_t *positions, const struct kvi_located_model *model,
                                 kvi_append_chunk_take take, void *opaque)
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
			const struct kvi_append_rows rows = { (uint32_t)row, count, n, model };
			const struct kvi_append_chunk c = chunk_of(w, &w->groups[g], &rows, at);
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
 * (chunk_encode.c, lossy_encode.c). A model's is compared with others later, but where it has
 * planes, of which the library's may be smaller. Exact tokens of a tier take PACKED_MORE bytes
 * more at most once they are packed. */
static bool fits(const struct kvi_group *g, const struct kvi_coded_chunk *c, unsigned dtype,
                 size_t raw_bytes)
{
	const struct kvi_params *p = g->params;
	const size_t bytes = c->payload_bytes - KVI_CHUNK_HEADER_BYTES;
	const bool lossy = kvi_codec_lossy(c->codec);
	if (c->payload_bytes <= KVI_CHUNK_HEADER_BYTES || !c->elements)
		return false;
	if (is_linear(c->codec))
		return (c->fits && is_small(bytes, raw_bytes)) || !kvi_coded_plane_bits(dtype);
	if (lossy ? bytes + PACKED_MORE >= raw_bytes : !is_small(bytes, raw_bytes))
		return false;
	if (!needs_params(c->codec))
		return true;
	return p && p->codec == c->codec && g->params_sequence == c->params_sequence &&
	       !kvi_params_drifted(p, lossy ? c->body_bytes : bytes, c->elements);
}

static uint32_t raw_bytes_of(const kvarc_writer *w, const struct kvi_group *g, uint32_t tokens)
{
	const kvarc_tensor *t = &w->geometry.tensors[g->tensor];
	return tokens * g->heads * t->channels * (uint32_t)kvarc_dtype_bytes(t->dtype);
}

/* What the other encoder has of a group's chunk of n tokens from row `row` of the append on, if it
 * could be taken. */
static bool find_at(const kvarc_writer *w, const struct kvi_group *g, uint32_t row, uint32_t n,
                    struct kvi_coded_chunk *c)
{
	return w->coder->find(w->coder->opaque, g->tensor, g->head, row, c) &&
	       fits(g, c, w->geometry.tensors[g->tensor].dtype, raw_bytes_of(w, g, n));
}

/* The same, if it is to be taken. */
static bool find(const kvarc_writer *w, const struct kvi_group *g, const struct kvi_segment *s,
                 struct kvi_coded_chunk *c)
{
	return (w->options.level < KVI_LEVEL_MODEL || w->coder_predicts) &&
	       find_at(w, g, (uint32_t)(s->t0 - w->coder_t0), s->n, c);
}

/* Whether all chunks of an append of n tokens that the model of the track predicts could be taken:
 * then the model need not go through them. */
static bool predicts_all(const kvarc_writer *w, uint32_t track, uint64_t n)
{
	const struct kvi_writer_track *t = &w->tracks[track];
	struct kvi_coded_chunk c;
	for (uint64_t row = 0; row < n; row += t->segment_tokens) {
		const uint64_t left = n - row;
		const uint32_t count = left < t->segment_tokens ? (uint32_t)left
		                                                : t->segment_tokens;
		for (uint32_t g = t->first_group; g < t->end_group; g++)
			if (is_covered(w, &w->groups[g]) &&
			    !find_at(w, &w->groups[g], (uint32_t)row, count, &c))
				return false;
	}
	return t->prediction;
}

uint8_t kvi_writer_predicted_elsewhere(const kvarc_writer *w, const struct kvi_group *g,
                                       const struct kvi_segment *s)
{
	struct kvi_coded_chunk c;
	if (!w->coder || !w->plan || !w->plan->of[g->order_index].complete || !find(w, g, s, &c) ||
	    needs_params(c.codec))
		return KVI_CODEC_RAW;
	return c.codec;
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
	j->raw_bytes = raw_bytes_of(w, g, j->segment->s.n);
	if (!find(w, g, &j->segment->s, &c))
		return KVARC_OK;
	if (x->copy(x->opaque, j->frame + KVI_FRAME_HEAD_BYTES))
		return kvi_fail(&j->error, KVARC_IO,
		                "copying a chunk of tensor %u from its encoder failed",
		                (unsigned)g->tensor);
	j->raw_hash = c.hash;
	j->given = true;
	j->linear = (struct kvi_linear_payload){ c.payload_bytes - KVI_CHUNK_HEADER_BYTES, c.fits };
	j->beside = is_linear(c.codec) && (!c.fits || !is_small(j->linear.bytes, j->raw_bytes));
	return take_header(j, &c);
}

kvarc_ret kvi_writer_append_coded(kvarc_writer *w, uint32_t track, uint64_t n, const int32_t *ids,
                                  const int32_t *positions, const struct kvi_append_coder *coder,
                                  struct kvi_coded_taken *taken)
{
	w->coder = coder;
	w->coder_t0 = kvarc_writer_tokens(w, track);
	w->coder_taken = (struct kvi_coded_taken){ 0 };
	w->coder_predicts = predicts_all(w, track, n);
	kvarc_ret ret = kvarc_writer_append_fetch(w, track, n, ids, positions, coder->fetch,
	                                          coder->opaque);
	*taken = w->coder_taken;
	w->coder = NULL;
	w->tracks[track].ended |= w->coder_predicts;
	w->coder_predicts = false;
	return ret;
}
