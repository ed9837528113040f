/* SPDX-License-Identifier: BSD-3-Clause */
/* cut_archive.c - part of an archive as a new archive */
#include "counted.h"
#include "llama_describe.h"
#include "reader/reader_internal.h"
#include "reader_bounds.h"
#include "transfer.h"
#include "util/arguments.h"

/* What is cut, and the geometry of the new archive. */
struct cutting {
	kvarc_reader *r;
	kvarc_writer *w;
	const struct kvi_alloc *alloc;
	kvarc_range range;
	const kvarc_geometry *from;
	kvarc_geometry to;
	kvarc_tensor *tensors; /* of to */
	uint32_t *source;      /* tensor i of to is this one of from */
	uint32_t *to_of;       /* tensor i of from is this one of to */
	uint32_t segment_tokens;
};

/* The tensors of the range, on one track; RoPEs stay as they are numbered. */
static kvarc_ret make_geometry(struct cutting *c)
{
	size_t n = 0;
	c->tensors = kvi_array(c->alloc, c->from->n_tensors + 1, sizeof *c->tensors);
	c->source = kvi_array(c->alloc, c->from->n_tensors + 1, sizeof *c->source);
	c->to_of = kvi_array(c->alloc, c->from->n_tensors + 1, sizeof *c->to_of);
	if (!c->tensors || !c->source || !c->to_of)
		return kvi_reader_fail(c->r, kvi_alloc_error(c->alloc),
		                       "not enough memory for the geometry");
	for (uint32_t i = 0; i < c->from->n_tensors; i++) {
		c->to_of[i] = KVI_COPY_OUT;
		if (!kvi_range_has(&c->range, &c->from->tensors[i]))
			continue;
		c->to_of[i] = (uint32_t)n;
		c->tensors[n] = c->from->tensors[i];
		c->tensors[n].track = 0;
		c->source[n++] = i;
	}
	if (n == 0)
		return kvi_reader_fail(c->r, KVARC_GEOMETRY, "no tensors in this range");
	c->to = *c->from;
	c->to.n_tracks = 1;
	c->to.tracks = &c->from->tracks[c->range.track];
	c->to.n_tensors = n;
	c->to.tensors = c->tensors;
	return KVARC_OK;
}

/* All pairs, and what a llama.cpp file has beside tensors: the file is not copied. */
static kvarc_ret copy_identity(struct cutting *c)
{
	char text[KVI_LLAMA_PAIR_BYTES];
	kvarc_ret ret = kvi_llama_describe_track(c->r, c->range.track, text);
	if (ret && ret != KVARC_END)
		return kvi_reader_fail(c->r, ret, "not enough memory for the identity");
	return kvi_transfer_identity(c->r, c->w, ret ? NULL : KVI_LLAMA_PAIR, text);
}

static kvarc_ret write_all(struct cutting *c)
{
	struct kvi_transfer t = { .r = c->r,
		                  .w = c->w,
		                  .range = c->range,
		                  .tensors = c->tensors,
		                  .n_tensors = c->to.n_tensors,
		                  .source = c->source,
		                  .to_of = c->to_of,
		                  .segment_tokens = c->segment_tokens };
	bool ids;
	kvarc_ret ret = kvi_range_has_ids(c->r, &c->range, &ids);
	if (!ret)
		ret = kvarc_writer_set_geometry(c->w, &c->to);
	if (!ret)
		ret = copy_identity(c);
	if (!ret)
		ret = kvi_transfer_begin(&t);
	if (!ret)
		ret = kvi_transfer_tokens(&t, 0, c->range.n, ids);
	kvi_transfer_end(&t);
	return ret;
}

kvarc_ret kvarc_cut(kvarc_reader *r, const kvarc_range *range, const kvarc_sink *sink,
                    const kvarc_writer_options *options, kvarc_writer_stats *stats)
{
	if (!r || !range)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_sink(kvi_reader_error(r), "kvarc_cut", sink);
	if (ret)
		return ret;
	struct kvi_counted counted = { .to = *sink };
	kvarc_sink counting = kvi_counted_sink(&counted);
	struct cutting c = { .r = r,
		             .range = *range,
		             .from = kvarc_reader_geometry(r),
		             .segment_tokens = options ? options->segment_tokens : 0,
		             .alloc = kvi_reader_alloc(r) };
	ret = kvi_range_settle(r, &c.range);
	if (ret)
		return ret;
	ret = make_geometry(&c);
	if (!ret)
		ret = kvarc_writer_open(&c.w, &counting, options);
	if (!ret)
		ret = write_all(&c);
	ret = kvi_counted_close(&counted, &c.w, ret, stats);
	kvi_free(c.alloc, c.tensors);
	kvi_free(c.alloc, c.source);
	kvi_free(c.alloc, c.to_of);
	return ret;
}
