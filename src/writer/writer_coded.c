/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_coded.c - appends of whose chunks some were encoded elsewhere */

#include "writer_append.h"
#include "writer_coded.h"
#include "writer_frames.h"
#include "writer_state.h"
#include "codecs/coder.h"

/* Fewer bytes than HASHED_BYTES have another hash than kernels make. */
enum { HASHED_BYTES = 241 };

const kvarc_geometry *kvi_writer_geometry(const kvarc_writer *w)
{
	return w->has_geometry ? &w->geometry : NULL;
}

/* ----- what an append will have ------------------------------------------------ */

/* Whether another encoder makes the same of a chunk at this level: there are some of codec layers,
 * and of codecs cells and grid with parameters that are there. */
static bool may_be_coded(const kvarc_writer_options *options, uint8_t kind,
                         const struct kvi_group *group, const struct kvi_append_chunk *chunk)
{
	if (options->lossy || kind == KVARC_CONV_STATE || kind == KVARC_RECURRENT_STATE ||
	    (chunk->hashed && kvi_chunk_bytes(&chunk->shape) < HASHED_BYTES))
		return false;
	if (options->level == KVI_LEVEL_LAYERS)
		return chunk->codec == KVI_CODEC_LAYERS;
	return options->level == KVI_LEVEL_CELLS && kvi_codec_has_params(chunk->codec) &&
	       kvi_params_serve(group->params, &chunk->shape, chunk->codec) &&
	       !kvi_params_drifted(group->params, 0, 1);
}

/* The chunk of a group that n tokens of an append from row `first` on make. */
static struct kvi_append_chunk chunk_of(const kvarc_writer *w, const struct kvi_group *group,
                                        uint32_t first, uint32_t n, const int32_t *positions)
{
	const kvarc_tensor *t = &w->geometry.tensors[group->tensor];
	struct kvi_append_chunk c = { .shape = { .dtype = t->dtype,
		                                 .n_tokens = n,
		                                 .heads = group->heads,
		                                 .head_channels = t->channels,
		                                 .positions = positions,
		                                 .rope = kvi_tensor_rope(&w->geometry, t) },
		                      .tensor = group->tensor,
		                      .layer = t->layer,
		                      .head = group->head,
		                      .row = first,
		                      .codec = (uint8_t)kvi_level_codec(w->options.level, t->dtype),
		                      .params = group->params,
		                      .params_sequence = group->params_sequence,
		                      .hashed = !(w->options.flags & KVARC_WRITE_STREAMABLE) };
	c.elsewhere = may_be_coded(&w->options, t->kind, group, &c);
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

kvarc_ret kvi_writer_append_coded(kvarc_writer *w, uint32_t track, uint64_t n, const int32_t *ids,
                                  const int32_t *positions, const struct kvi_append_coder *coder,
                                  struct kvi_accepted *accepted)
{
	w->other.coder = coder;
	w->other.t0 = kvarc_writer_tokens(w, track);
	w->other.accepted = (struct kvi_accepted){ 0 };
	kvarc_ret ret = kvarc_writer_append_fetch(w, track, n, ids, positions, coder->fetch,
	                                          coder->opaque);
	*accepted = w->other.accepted;
	w->other.coder = NULL;
	return ret;
}
