/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_codec.c - the layers codec: exponents in codes of 2 bits, the rest stored (spec layers) */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "layers_tops.h"

#include "codecs/codes_payload.h"
#include "codecs/coder.h"
#include "codecs/stream_work.h"
#include "kernels/layers.h"

enum {
	LAYERS = KVI_LAYERS_N,
	PLANES = KVI_LAYERS_PLANES,
	COUNTS = 4 * LAYERS, /* bytes of the counts of a list of values */
	HEAD = 4,            /* base, flags, absent, reserved */
	FLAG_ONE_TOP = 1,
	STREAM_ELEMENTS = 16384, /* a stream has as many, if the chunk does */
};

/* ----- dtypes ------------------------------------------------ */

/* A dtype in planes: bits of each, and the first bit of it in the rest. */
struct layout {
	unsigned size, mantissa, exponent; /* bytes; bits */
	unsigned planes, bits[PLANES], low[PLANES];
};

static struct layout layout_of(unsigned dtype)
{
	const struct kvi_float_format *format = kvi_float_format(dtype);
	struct layout layout = { .size = (unsigned)kvarc_dtype_bytes(dtype),
		                 .mantissa = format->mant_bits,
		                 .exponent = format->exp_bits };
	unsigned left = format->mant_bits + 1, low = 0;
	while (left) {
		const unsigned bits = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
		layout.bits[layout.planes] = bits;
		layout.low[layout.planes++] = low;
		left -= bits;
		low += bits;
	}
	return layout;
}

/* An element rotated left by one: exponent, mantissa, sign. */
static inline uint32_t rotated_left(uint32_t x, unsigned size)
{
	const unsigned width = 8 * size;
	return size == 4 ? x << 1 | x >> 31 : (x << 1 | x >> (width - 1)) & ((1u << width) - 1);
}

/* The inverse of rotated_left. */
static inline uint32_t rotated_right(uint32_t y, unsigned size)
{
	return y >> 1 | y << (8 * size - 1);
}

/* Bytes of the values of n elements, in front of the work memory of kernels. */
static size_t values_bytes(size_t n)
{
	return n + KVI_LAYERS_SLACK;
}

/* Work memory for a stream of n elements. */
static size_t work_bytes(size_t n)
{
	return values_bytes(n) + kvi_layers_work(n);
}

/* The tops of `channels` channels go on from the first one behind their end. */
static void repeat_tops(uint8_t *top, size_t channels)
{
	for (size_t i = 0; i < KVI_LAYERS_SLACK; i++)
		top[channels + i] = top[i];
}

/* ----- reading ------------------------------------------------ */

/* A stream in its payload. */
struct layers_stream {
	struct kvi_layers_rest rest;
	struct kvi_layers_in in; /* without work memory */
};

struct layers_decoding {
	const struct kvi_layer_kernels *kernels;
	const struct kvi_coder_job *job;
	struct layout layout;
	struct kvi_layers_tops tops;
	struct layers_stream stream[KVI_STREAMS_MAX];
	struct kvi_stream_work work;
	void *elements; /* of 16 bits: kvi_elements16_buffer, else job->decoded */
};

static void get_counts(struct kvi_in *in, size_t n, struct kvi_layers_in *values)
{
	values->n[0] = n;
	for (unsigned i = 1; i <= LAYERS; i++)
		values->n[i] = kvi_get32(in);
}

/* The parts of a list of values, whose counts are known. */
static bool get_values(struct kvi_in *in, unsigned exponent, struct kvi_layers_in *values)
{
	for (unsigned i = 0; i < LAYERS; i++)
		if (values->n[i + 1] > values->n[i])
			return false;
	for (unsigned i = 0; i < LAYERS; i++) {
		values->layer[i] = kvi_code_plane_get(in, values->n[i], 2);
		if (!values->layer[i])
			return false;
	}
	const size_t n = values->n[LAYERS];
	values->bytes = kvi_get_bytes(in, n);
	for (size_t i = 0; values->bytes && i < n; i++)
		if (values->bytes[i] < KVI_LAYERS_BYTE || values->bytes[i] >> exponent)
			return false;
	return values->bytes;
}

/* zeros: what stands for planes that are absent. */
static bool get_stream(struct kvi_in *in, const uint8_t *from, const struct layout *layout,
                       unsigned absent, const uint8_t *zeros, struct layers_stream *stream)
{
	for (unsigned i = 0; i < layout->planes; i++) {
		stream->rest.plane[i] = zeros;
		if (absent >> i & 1)
			continue;
		if (!kvi_aligned_get(in, from))
			return false;
		stream->rest.plane[i] = kvi_code_plane_get(in, stream->in.n[0], layout->bits[i]);
		if (!stream->rest.plane[i])
			return false;
	}
	return kvi_aligned_get(in, from) && get_values(in, layout->exponent, &stream->in);
}

/* The tops, less 2. values: NULL: all are base. */
static bool get_tops(const struct layers_decoding *decoding, struct kvi_layers_in *values,
                     uint8_t base, uint8_t *top)
{
	const size_t channels = decoding->tops.channels;
	if (values && !decoding->kernels->get(values, top))
		return false;
	for (size_t c = 0; c < channels; c++)
		top[c] = (uint8_t)(values ? base - 4 - top[c] : base - 2);
	repeat_tops(top, channels);
	return true;
}

static kvarc_ret get_all(struct kvi_coder *coder, struct layers_decoding *decoding,
                         struct kvi_in *in)
{
	const struct kvi_streams *streams = &decoding->job->streams;
	const size_t channels = decoding->tops.channels;
	const size_t most = kvi_stream_part_of(streams, 0).rows * channels;
	const uint8_t *from = in->p;
	const uint8_t base = kvi_get8(in), flags = kvi_get8(in), absent = kvi_get8(in);
	struct kvi_layers_in tops = { .n = { 0 } };
	const uint8_t *zeros = NULL;
	const bool reserved = kvi_get8(in) || flags & ~(unsigned)FLAG_ONE_TOP ||
	                      absent >> decoding->layout.planes;
	if (in->bad || reserved || base >> decoding->layout.exponent)
		return KVARC_DATA;
	uint8_t *top = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, channels + KVI_LAYERS_SLACK);
	if (!top || !kvi_stream_work_open(&decoding->work, coder, streams->n, work_bytes(most)))
		return kvi_alloc_error(coder->alloc);
	if (absent) {
		zeros = kvi_scratch(coder, KVI_SCRATCH_PLANE, most);
		if (!zeros)
			return kvi_alloc_error(coder->alloc);
		memset((uint8_t *)(uintptr_t)zeros, 0, most);
	}
	const bool own = !(flags & FLAG_ONE_TOP);
	if (own)
		get_counts(in, channels, &tops);
	for (unsigned i = 0; i < streams->n; i++)
		get_counts(in, kvi_stream_part_of(streams, i).rows * channels,
		           &decoding->stream[i].in);
	if (in->bad || (own && !get_values(in, decoding->layout.exponent, &tops)))
		return KVARC_DATA;
	tops.work = decoding->work.memory;
	if (!get_tops(decoding, own ? &tops : NULL, base, top))
		return KVARC_DATA;
	decoding->tops.top = top;
	for (unsigned i = 0; i < streams->n; i++)
		if (!get_stream(in, from, &decoding->layout, absent, zeros, &decoding->stream[i]))
			return KVARC_DATA;
	return KVARC_OK;
}

/* ----- dtypes without kernels ------------------------------------------------ */

/* Where a function is called with numbers that are known to the compiler, which makes vectors. */
#define INLINE static inline __attribute__((always_inline))

/* Codes of a block, put into their place in its elements. */
INLINE void read_block(const uint8_t *block, size_t codes, unsigned bits, unsigned low, uint32_t *y)
{
	const size_t bytes = (codes * bits + 7) / 8;
	const uint32_t mask = (1u << bits) - 1;
	for (unsigned k = 0; k * bytes < codes; k++) {
		const size_t left = codes - k * bytes, n = left < bytes ? left : bytes;
		for (size_t i = 0; i < n; i++)
			y[k * bytes + i] |= ((uint32_t)block[i] >> bits * k & mask) << low;
	}
}

/* The codes of a block, taken from its elements. */
INLINE void write_block(const uint32_t *y, size_t codes, unsigned bits, unsigned low,
                        uint8_t *block)
{
	const size_t bytes = (codes * bits + 7) / 8;
	const uint32_t mask = (1u << bits) - 1;
	for (unsigned k = 0; k * bytes < codes; k++) {
		const size_t left = codes - k * bytes, n = left < bytes ? left : bytes;
		for (size_t i = 0; i < n; i++) {
			const uint32_t code = (y[k * bytes + i] >> low & mask) << bits * k;
			block[i] = (uint8_t)(k ? block[i] | code : code);
		}
	}
}

#define OF_BITS(call, codes)            \
	do                              \
		if (bits == 8)          \
			call(codes, 8); \
		else if (bits == 4)     \
			call(codes, 4); \
		else if (bits == 2)     \
			call(codes, 2); \
		else                    \
			call(codes, 1); \
	while (0)

INLINE void read_plane(const uint8_t *block, size_t codes, unsigned bits, unsigned low, uint32_t *y)
{
#define READ(codes, bits) read_block(block, codes, bits, low, y)
	if (codes == KVI_LAYERS_BLOCK)
		OF_BITS(READ, KVI_LAYERS_BLOCK);
	else
		OF_BITS(READ, codes);
#undef READ
}

INLINE void write_plane(const uint32_t *y, size_t codes, unsigned bits, unsigned low,
                        uint8_t *block)
{
#define WRITE(codes, bits) write_block(y, codes, bits, low, block)
	if (codes == KVI_LAYERS_BLOCK)
		OF_BITS(WRITE, KVI_LAYERS_BLOCK);
	else
		OF_BITS(WRITE, codes);
#undef WRITE
}

/* The elements of a block of a stream, from element `at` on; less2: their values less 2, top: those
 * of their channels. */
INLINE void merge_block(const struct layers_stream *stream, const struct layout *layout,
                        const uint8_t *top, const uint8_t *less2, size_t at, size_t codes,
                        uint8_t *to, const unsigned size)
{
	const unsigned mask = (1u << layout->exponent) - 1, low = layout->mantissa + 1;
	uint32_t y[KVI_LAYERS_BLOCK];
	for (size_t i = 0; i < codes; i++)
		y[i] = ((uint32_t)(uint8_t)(top[i] - less2[i]) & mask) << low;
	for (unsigned k = 0; k < layout->planes; k++)
		read_plane(stream->rest.plane[k] + at / 8 * layout->bits[k], codes, layout->bits[k],
		           layout->low[k], y);
	for (size_t i = 0; i < codes; i++)
		kvi_store_element(to + i * size, size, rotated_right(y[i], size));
}

/* Elements of a stream; less2: their values less 2. */
INLINE void merge(const struct layers_stream *stream, const struct layout *layout,
                  const struct kvi_layers_tops *tops, const uint8_t *less2, uint8_t *to,
                  const unsigned size)
{
	const size_t n = stream->in.n[0];
	size_t channel = 0;
	for (size_t at = 0; at < n; at += KVI_LAYERS_BLOCK) {
		if (n - at >= KVI_LAYERS_BLOCK)
			merge_block(stream, layout, tops->top + channel, less2 + at, at,
			            KVI_LAYERS_BLOCK, to + at * size, size);
		else
			merge_block(stream, layout, tops->top + channel, less2 + at, at, n - at,
			            to + at * size, size);
		channel = (channel + KVI_LAYERS_BLOCK) % tops->channels;
	}
}

/* The planes of a block, moved to their end, and its values; top: those of its channels. */
INLINE void split_block(const uint8_t *packed, size_t codes, const struct layout *layout,
                        const uint8_t *top, uint8_t *plane[PLANES], uint8_t *values,
                        const unsigned size)
{
	const unsigned mask = (1u << layout->exponent) - 1, low = layout->mantissa + 1;
	uint32_t y[KVI_LAYERS_BLOCK];
	for (size_t i = 0; i < codes; i++)
		y[i] = rotated_left(kvi_load_element(packed + i * size, size), size);
	for (size_t i = 0; i < codes; i++)
		values[i] = (uint8_t)((top[i] - (y[i] >> low)) & mask);
	for (unsigned k = 0; k < layout->planes; k++) {
		write_plane(y, codes, layout->bits[k], layout->low[k], plane[k]);
		plane[k] += (codes * layout->bits[k] + 7) / 8;
	}
}

/* The planes of n elements, and their values. */
INLINE void split(const uint8_t *packed, size_t n, const struct layout *layout,
                  const struct kvi_layers_tops *tops, uint8_t *const planes[PLANES],
                  uint8_t *values, const unsigned size)
{
	uint8_t *plane[PLANES];
	size_t channel = 0;
	memcpy(plane, planes, sizeof plane);
	for (size_t at = 0; at < n; at += KVI_LAYERS_BLOCK) {
		if (n - at >= KVI_LAYERS_BLOCK)
			split_block(packed + at * size, KVI_LAYERS_BLOCK, layout,
			            tops->top + channel, plane, values + at, size);
		else
			split_block(packed + at * size, n - at, layout, tops->top + channel, plane,
			            values + at, size);
		channel = (channel + KVI_LAYERS_BLOCK) % tops->channels;
	}
}

/* ----- streams that are read ------------------------------------------------ */

/* Decodes a stream to the elements from `at` on. work: for its values, and of kernels. */
static bool decode_stream(const struct layers_decoding *decoding,
                          const struct layers_stream *stream, size_t at, uint8_t *work)
{
	const struct kvi_layer_kernels *kernels = decoding->kernels;
	const unsigned dtype = decoding->job->chunk->dtype;
	struct kvi_layers_in in = stream->in;
	in.work = work + values_bytes(in.n[0]);
	if (dtype == KVARC_BF16)
		return kernels->get_bf16(&in, &stream->rest, &decoding->tops,
		                         (uint16_t *)decoding->elements + at);
	if (dtype == KVARC_F16)
		return kernels->get_f16(&in, &stream->rest, &decoding->tops,
		                        (uint16_t *)decoding->elements + at);
	if (!kernels->get(&in, work))
		return false;
	uint8_t *to = (uint8_t *)decoding->elements + at * decoding->layout.size;
	if (dtype == KVARC_F32)
		merge(stream, &decoding->layout, &decoding->tops, work, to, 4);
	else
		merge(stream, &decoding->layout, &decoding->tops, work, to, 1);
	return true;
}

/* Decodes streams (kvi_streams_decoder.some). */
static bool decode_some(void *opaque, unsigned first, unsigned n)
{
	struct layers_decoding *decoding = opaque;
	const struct kvi_coder_job *job = decoding->job;
	bool ok = true;
	uint8_t *work;
	const unsigned number = kvi_stream_work_take(&decoding->work, &work);
	for (unsigned i = first; i < first + n && ok; i++) {
		const size_t at = kvi_stream_first(&job->streams, i) * job->mask.channels;
		ok = decode_stream(decoding, &decoding->stream[i], at, work);
		if (ok && decoding->layout.size == 2)
			kvi_elements16_done((const uint16_t *)decoding->elements + at,
			                    job->decoded + 2 * at, decoding->stream[i].in.n[0]);
	}
	kvi_stream_work_give_back(&decoding->work, number);
	return ok;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct layers_decoding decoding = { .kernels = coder->kernels->layers,
		                            .job = job,
		                            .layout = layout_of(job->chunk->dtype),
		                            .tops = { .channels = job->mask.channels },
		                            .elements = job->decoded };
	if (decoding.layout.size == 2)
		decoding.elements = kvi_elements16_buffer(coder, job->decoded,
		                                          kvi_mask_elements(&job->mask));
	if (!decoding.elements)
		return kvi_alloc_error(coder->alloc);
	const kvarc_ret ret = get_all(coder, &decoding, in);
	if (ret)
		return ret;
	const struct kvi_streams_decoder decoder = {
		.opaque = &decoding,
		.some = decode_some,
		.most = 1,
		.work = kvi_mask_elements(&job->mask) * job->mask.size,
	};
	return kvi_streams_decode(coder, job, &decoder);
}

/* ----- writing ------------------------------------------------ */

struct encoding {
	const struct kvi_layer_kernels *kernels;
	const struct kvi_coder_job *job;
	const struct kvi_streams *streams;
	struct layout layout;
	const uint16_t *elements; /* of 16 bits; else job->packed */
	struct kvi_layers_tops tops;
	unsigned absent;
	uint8_t *nowhere; /* where absent planes go: a byte for each element of the chunk */
	struct kvi_stream_work work;
	uint32_t count[KVI_STREAMS_MAX][LAYERS]; /* counts of the values of each stream */
};

/* Most bytes of the parts of n values. */
static size_t values_space(size_t n)
{
	return 2 * n + LAYERS + KVI_LAYERS_SLACK;
}

/* Most bytes of a stream of n elements, and more that kernels may write to; a multiple of ALIGN. */
static size_t stream_space(size_t n, unsigned size)
{
	const size_t bytes = n * size + values_space(n) + (PLANES + 1) * KVI_CODES_ALIGN;
	return bytes + (-bytes & (KVI_CODES_ALIGN - 1));
}

static size_t side_bytes(const struct kvi_mask *mask)
{
	const size_t n = kvi_mask_elements(mask);
	return HEAD + COUNTS + values_space(mask->channels) + stream_space(n, mask->size) +
	       KVI_STREAMS_MAX * (stream_space(0, mask->size) + 8 + COUNTS);
}

/* The bits of the rest that are set in any element. */
static uint32_t used_bits(const struct encoding *encoding, size_t n)
{
	const unsigned size = encoding->layout.size;
	const uint32_t all = (uint32_t)(((uint64_t)1 << (encoding->layout.mantissa + 1)) - 1);
	uint32_t used = 0;
	for (size_t i = 0; i < n && (used & all) != all; i++)
		used |= rotated_left(kvi_load_element(encoding->job->packed + i * size, size),
		                     size);
	return used & all;
}

static unsigned absent_planes(const struct layout *layout, uint32_t used)
{
	unsigned absent = 0;
	for (unsigned i = 0; i < layout->planes; i++)
		if (!(used >> layout->low[i] & ((1u << layout->bits[i]) - 1)))
			absent |= 1u << i;
	return absent;
}

static void put_counts(const uint32_t count[LAYERS], uint8_t *to)
{
	for (unsigned i = 0; i < LAYERS; i++)
		kvi_store32(to + 4 * i, count[i]);
}

/* The bytes of a stream of this many tokens (kvi_streams_writer.space). */
static size_t space_of(const void *opaque, size_t rows)
{
	const struct encoding *encoding = opaque;
	return stream_space(rows * encoding->tops.channels, encoding->layout.size);
}

/* Encodes a stream (kvi_streams_writer.one). */
static uint8_t *encode_stream(void *opaque, unsigned number, uint8_t *to)
{
	struct encoding *encoding = opaque;
	const uint8_t *from = to;
	const struct kvi_stream_part part = kvi_stream_part_of(encoding->streams, number);
	const struct layout *layout = &encoding->layout;
	const size_t at = part.first * encoding->tops.channels;
	const size_t n = part.rows * encoding->tops.channels;
	const unsigned dtype = encoding->job->chunk->dtype;
	uint8_t *work;
	const unsigned taken = kvi_stream_work_take(&encoding->work, &work);
	uint8_t *plane[PLANES] = { NULL };
	for (unsigned i = 0; i < layout->planes; i++) {
		plane[i] = encoding->nowhere ? encoding->nowhere + at : NULL;
		if (encoding->absent >> i & 1)
			continue;
		plane[i] = to;
		to += kvi_layers_plane(n, layout->bits[i]);
		to = kvi_aligned_put(to, from);
	}
	struct kvi_layers_out out = { .to = to, .work = work + values_bytes(n) };
	const uint8_t *packed = encoding->job->packed + at * layout->size;
	if (dtype == KVARC_BF16)
		to = encoding->kernels->put_bf16(encoding->elements + at, n, &encoding->tops, plane,
		                                 &out);
	else if (dtype == KVARC_F16)
		to = encoding->kernels->put_f16(encoding->elements + at, n, &encoding->tops, plane,
		                                &out);
	else if (dtype == KVARC_F32)
		split(packed, n, layout, &encoding->tops, plane, work, 4);
	else
		split(packed, n, layout, &encoding->tops, plane, work, 1);
	if (layout->size != 2)
		to = encoding->kernels->put(work, n, &out);
	memcpy(encoding->count[number], out.count, sizeof out.count);
	kvi_stream_work_give_back(&encoding->work, taken);
	return to;
}

/* Chooses the tops, and writes base, flags and tops from `to` on, and leaves space for counts.
 * Returns the end. */
static uint8_t *put_head(struct encoding *encoding, uint8_t *top, uint8_t *to)
{
	const struct layout *layout = &encoding->layout;
	const struct kvi_mask *mask = &encoding->job->mask;
	const uint8_t exponents = (uint8_t)((1u << layout->exponent) - 1);
	const struct kvi_layers_matrix matrix = { encoding->job->packed, mask->rows,
		                                  mask->channels,        layout->size,
		                                  layout->mantissa,      exponents };
	uint8_t *counts = to + HEAD, *work = encoding->work.memory;
	const bool one = kvi_layers_find_tops(encoding->kernels, &matrix, top, to);
	to[1] = one ? FLAG_ONE_TOP : 0;
	to[2] = (uint8_t)encoding->absent;
	to[3] = 0;
	const uint8_t base = *to;
	to = counts + (encoding->streams->n + !one) * COUNTS;
	if (!one) {
		struct kvi_layers_out out = { .to = to,
			                      .work = work + values_bytes(mask->channels) };
		for (size_t c = 0; c < mask->channels; c++)
			work[c] = (base - top[c]) & exponents;
		to = encoding->kernels->put(work, mask->channels, &out);
		put_counts(out.count, counts);
	}
	repeat_tops(top, mask->channels);
	return to;
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	const size_t n = kvi_mask_elements(&job->mask), channels = job->mask.channels;
	struct encoding encoding = { .kernels = coder->kernels->layers,
		                     .job = job,
		                     .streams = &out->streams,
		                     .layout = layout_of(job->chunk->dtype),
		                     .tops = { .channels = channels } };
	kvi_streams_cut_by(&out->streams, job->mask.rows, channels, STREAM_ELEMENTS);
	const size_t most = kvi_stream_part_of(&out->streams, 0).rows * channels;
	uint8_t *top = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, channels + KVI_LAYERS_SLACK);
	if (encoding.layout.size == 2)
		encoding.elements = kvi_elements16(coder, job->packed, n);
	if (!top || (encoding.layout.size == 2 && !encoding.elements) ||
	    !kvi_stream_work_open(&encoding.work, coder, out->streams.n, work_bytes(most)))
		return kvi_alloc_error(coder->alloc);
	encoding.tops.top = top;
	encoding.absent = absent_planes(&encoding.layout, used_bits(&encoding, n));
	if (encoding.absent) {
		encoding.nowhere = kvi_scratch(coder, KVI_SCRATCH_PLANE, n);
		if (!encoding.nowhere)
			return kvi_alloc_error(coder->alloc);
	}
	out->begin = out->words;
	uint8_t *head = out->begin + kvi_checks_bytes(&out->streams);
	uint8_t *to = kvi_aligned_put(put_head(&encoding, top, head), head);
	const struct kvi_streams_writer writer = { &encoding, encode_stream, space_of,
		                                   n * job->mask.size };
	out->end = kvi_streams_put(coder->pool, &out->streams, &writer, to);
	uint8_t *counts = head + HEAD + (head[1] & FLAG_ONE_TOP ? 0 : COUNTS);
	for (unsigned i = 0; i < out->streams.n; i++)
		put_counts(encoding.count[i], counts + i * COUNTS);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_layers = {
	.takes = KVI_TAKES_FLOATS,
	.get_table = kvi_checks_get,
	.put_checks = kvi_checks_put,
	.side_bytes = side_bytes,
	.encode = encode,
	.decode = decode,
};
