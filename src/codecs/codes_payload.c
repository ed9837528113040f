/* SPDX-License-Identifier: BSD-3-Clause */
/* codes_payload.c - payloads of codes: planes, checks and streams (spec layers 2, 4) */
#include "codes_payload.h"

#include "kernels/layers.h"
#include "util/pool.h"

/* Whether what no code of the last block uses is zero. */
static bool tail_is_clear(const uint8_t *plane, size_t n, unsigned bits)
{
	const size_t codes = n % KVI_LAYERS_BLOCK, bytes = (codes * bits + 7) / 8;
	plane += kvi_layers_plane(n - codes, bits);
	for (size_t i = codes; i < bytes * 8 / bits; i++)
		if (plane[i % bytes] >> bits * (i / bytes) & ((1u << bits) - 1))
			return false;
	return true;
}

const uint8_t *kvi_code_plane_get(struct kvi_in *in, size_t n, unsigned bits)
{
	const uint8_t *plane = kvi_get_bytes(in, kvi_layers_plane(n, bits));
	return plane && tail_is_clear(plane, n, bits) ? plane : NULL;
}

bool kvi_aligned_get(struct kvi_in *in, const uint8_t *from)
{
	const size_t n = (size_t)(from - in->p) % KVI_CODES_ALIGN;
	const uint8_t *zeros = kvi_get_bytes(in, n);
	for (size_t i = 0; zeros && i < n; i++)
		if (zeros[i])
			return false;
	return zeros;
}

bool kvi_checks_get(struct kvi_streams_in *streams_in, const struct kvi_streams *streams,
                    size_t section_bytes, struct kvi_in *in)
{
	if (!kvi_get_padding(in, section_bytes))
		return false;
	for (unsigned i = 0; streams->n > 1 && i < streams->n; i++)
		streams_in->check[i] = kvi_get64(in);
	return !in->bad;
}

void kvi_checks_put(const struct kvi_streams *streams, uint8_t *begin,
                    const uint64_t check[KVI_STREAMS_MAX])
{
	for (unsigned i = 0; i < streams->n; i++)
		kvi_store64(begin + 8 * i, check[i]);
}

void kvi_streams_cut_by(struct kvi_streams *streams, size_t rows, size_t channels, size_t elements)
{
	for (unsigned size = 0; size < KVI_ONE_STREAM; size++)
		if (kvi_streams_cut(streams, size, rows) && streams->tokens * channels >= elements)
			return;
	kvi_streams_cut(streams, KVI_ONE_STREAM, rows);
}

/* Streams that threads write, each to memory of its own. */
struct streams_written {
	const struct kvi_streams_writer *writer;
	uint8_t *begin[KVI_STREAMS_MAX], *end[KVI_STREAMS_MAX];
};

static void write_stream(void *opaque, size_t number)
{
	struct streams_written *out = opaque;
	out->end[number] = out->writer->one(out->writer->opaque, (unsigned)number,
	                                    out->begin[number]);
}

uint8_t *kvi_streams_put(struct kvi_pool *pool, const struct kvi_streams *streams,
                         const struct kvi_streams_writer *writer, uint8_t *to)
{
	struct streams_written out = { .writer = writer };
	const uint8_t *from = to;
	if (streams->n < 2 || !kvi_pool_idle(pool, writer->work)) {
		for (unsigned i = 0; i < streams->n; i++)
			to = writer->one(writer->opaque, i, kvi_aligned_put(to, from));
		return to;
	}
	uint8_t *begin = to;
	for (unsigned i = 0; i < streams->n; i++) {
		out.begin[i] = begin;
		begin += writer->space(writer->opaque, kvi_stream_part_of(streams, i).rows);
	}
	kvi_pool_loop(pool, streams->n, write_stream, &out);
	for (unsigned i = 0; i < streams->n; i++) {
		const size_t bytes = (size_t)(out.end[i] - out.begin[i]);
		to = kvi_aligned_put(to, from);
		memmove(to, out.begin[i], bytes);
		to += bytes;
	}
	return to;
}
