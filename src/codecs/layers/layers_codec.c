/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_codec.c - the layers codec: exponents in codes of 2 bits, the rest stored (spec layers) */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "layers_tops.h"

#include "codecs/coder.h"
#include "kernels/layers.h"

enum {
	LAYERS = KVI_LAYERS_N,
	PLANES = KVI_LAYERS_PLANES,
	ALIGN = 4,           /* of planes of the rest, and of layer 1 of a stream */
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

/* ----- memory of threads ------------------------------------------------ */

/* Work memory for streams that are coded at the same time, as many as the chunk has. */
struct work {
	uint8_t *memory;
	size_t each;      /* bytes for a stream */
	atomic_uint busy; /* a bit for each that is in use */
};

/* Bytes of the values of n elements, in front of the work memory of kernels. */
static size_t values_bytes(size_t n)
{
	return n + KVI_LAYERS_SLACK;
}

static bool work_open(struct work *work, struct kvi_coder *coder, unsigned streams, size_t n)
{
	work->each = values_bytes(n) + kvi_layers_work(n);
	work->memory = kvi_scratch(coder, KVI_SCRATCH_CONTEXT, streams * work->each);
	atomic_init(&work->busy, 0);
	return work->memory;
}

/* Takes the first memory that nobody uses, which one thread alone finds in its cache. */
static unsigned work_take(struct work *work)
{
	unsigned busy = atomic_load(&work->busy), free;
	do
		free = (unsigned)__builtin_ctz(~busy);
	while (!atomic_compare_exchange_weak(&work->busy, &busy, busy | 1u << free));
	return free;
}

static void work_give_back(struct work *work, unsigned number)
{
	atomic_fetch_and(&work->busy, ~(1u << number));
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
	struct work work;
	void *elements; /* of 16 bits: kvi_elements16_buffer, else job->decoded */
};

static bool get_table(struct kvi_streams_in *streams_in, const struct kvi_streams *streams,
                      size_t section_bytes, struct kvi_in *in)
{
	if (!kvi_get_padding(in, section_bytes))
		return false;
	for (unsigned i = 0; streams->n > 1 && i < streams->n; i++)
		streams_in->check[i] = kvi_get64(in);
	return !in->bad;
}

static void put_checks(const struct kvi_streams *streams, uint8_t *table,
                       const uint64_t check[KVI_STREAMS_MAX])
{
	for (unsigned i = 0; i < streams->n; i++)
		kvi_store64(table + 8 * i, check[i]);
}

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

/* A plane; NULL: it is not there, or its padding is not zero. */
static const uint8_t *get_plane(struct kvi_in *in, size_t n, unsigned bits)
{
	const uint8_t *plane = kvi_get_bytes(in, kvi_layers_plane(n, bits));
	return plane && tail_is_clear(plane, n, bits) ? plane : NULL;
}

/* The bytes in front of a multiple of ALIGN, counted from `from`. */
static bool get_zeros(struct kvi_in *in, const uint8_t *from)
{
	const size_t n = (size_t)(from - in->p) % ALIGN;
	const uint8_t *zeros = kvi_get_bytes(in, n);
	for (size_t i = 0; zeros && i < n; i++)
		if (zeros[i])
			return false;
	return zeros;
}

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
		values->layer[i] = get_plane(in, values->n[i], 2);
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
		if (!get_zeros(in, from))
			return false;
		stream->rest.plane[i] = get_plane(in, stream->in.n[0], layout->bits[i]);
		if (!stream->rest.plane[i])
			return false;
	}
	return get_zeros(in, from) && get_values(in, layout->exponent, &stream->in);
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
	if (!top || !work_open(&decoding->work, coder, streams->n, most))
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
	const unsigned number = work_take(&decoding->work);
	uint8_t *work = decoding->work.memory + number * decoding->work.each;
	for (unsigned i = first; i < first + n && ok; i++) {
		const size_t at = kvi_stream_first(&job->streams, i) * job->mask.channels;
		ok = decode_stream(decoding, &decoding->stream[i], at, work);
		if (ok && decoding->layout.size == 2)
			kvi_elements16_done((const uint16_t *)decoding->elements + at,
			                    job->decoded + 2 * at, decoding->stream[i].in.n[0]);
	}
	work_give_back(&decoding->work, number);
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
	struct work work;
	/* Begin and end of each stream, and the counts of its values. */
	uint8_t *place[KVI_STREAMS_MAX], *end[KVI_STREAMS_MAX];
	uint32_t count[KVI_STREAMS_MAX][LAYERS];
};

/* Most bytes of the parts of n values. */
static size_t values_space(size_t n)
{
	return 2 * n + LAYERS + KVI_LAYERS_SLACK;
}

/* Most bytes of a stream of n elements, and more that kernels may write to; a multiple of ALIGN. */
static size_t stream_space(size_t n, unsigned size)
{
	const size_t bytes = n * size + values_space(n) + (PLANES + 1) * ALIGN;
	return bytes + (-bytes & (ALIGN - 1));
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

static uint8_t *put_zeros(uint8_t *to, const uint8_t *from)
{
	while ((size_t)(to - from) % ALIGN)
		*to++ = 0;
	return to;
}

static void put_counts(const uint32_t count[LAYERS], uint8_t *to)
{
	for (unsigned i = 0; i < LAYERS; i++)
		kvi_store32(to + 4 * i, count[i]);
}

/* Encodes a stream (kvi_pool_loop): number i to place[i]. */
static void encode_stream(void *opaque, size_t number)
{
	struct encoding *encoding = opaque;
	const struct kvi_stream_part part = kvi_stream_part_of(encoding->streams, (unsigned)number);
	const struct layout *layout = &encoding->layout;
	const size_t at = part.first * encoding->tops.channels;
	const size_t n = part.rows * encoding->tops.channels;
	const unsigned dtype = encoding->job->chunk->dtype;
	const unsigned taken = work_take(&encoding->work);
	uint8_t *work = encoding->work.memory + taken * encoding->work.each;
	uint8_t *plane[PLANES] = { NULL }, *to = encoding->place[number];
	for (unsigned i = 0; i < layout->planes; i++) {
		plane[i] = encoding->nowhere ? encoding->nowhere + at : NULL;
		if (encoding->absent >> i & 1)
			continue;
		plane[i] = to;
		to += kvi_layers_plane(n, layout->bits[i]);
		to = put_zeros(to, encoding->place[number]);
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
	encoding->end[number] = to;
	memcpy(encoding->count[number], out.count, sizeof out.count);
	work_give_back(&encoding->work, taken);
}

/* The streams from `to` on; returns their end. Other threads, where some are free, put
 * them apart, from where they move together. */
static uint8_t *put_streams(struct encoding *encoding, struct kvi_pool *pool, uint8_t *to)
{
	const unsigned streams = encoding->streams->n;
	const uint8_t *from = to;
	if (streams < 2 || !kvi_pool_idle(pool)) {
		for (unsigned i = 0; i < streams; i++) {
			encoding->place[i] = put_zeros(to, from);
			encode_stream(encoding, i);
			to = encoding->end[i];
		}
		return to;
	}
	uint8_t *place = to;
	for (unsigned i = 0; i < streams; i++) {
		encoding->place[i] = place;
		place += stream_space(kvi_stream_part_of(encoding->streams, i).rows *
		                              encoding->tops.channels,
		                      encoding->layout.size);
	}
	kvi_pool_loop(pool, streams, encode_stream, encoding);
	for (unsigned i = 0; i < streams; i++) {
		const size_t bytes = (size_t)(encoding->end[i] - encoding->place[i]);
		to = put_zeros(to, from);
		memmove(to, encoding->place[i], bytes);
		to += bytes;
	}
	return to;
}

/* The cut: the smallest streams that have STREAM_ELEMENTS. */
static void cut(struct kvi_streams *streams, size_t rows, size_t channels)
{
	for (unsigned size = 0; size < KVI_ONE_STREAM; size++)
		if (kvi_streams_cut(streams, size, rows) &&
		    streams->tokens * channels >= STREAM_ELEMENTS)
			return;
	kvi_streams_cut(streams, KVI_ONE_STREAM, rows);
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
	cut(&out->streams, job->mask.rows, channels);
	const size_t most = kvi_stream_part_of(&out->streams, 0).rows * channels;
	uint8_t *top = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, channels + KVI_LAYERS_SLACK);
	if (encoding.layout.size == 2)
		encoding.elements = kvi_elements16(coder, job->packed, n);
	if (!top || (encoding.layout.size == 2 && !encoding.elements) ||
	    !work_open(&encoding.work, coder, out->streams.n, most))
		return kvi_alloc_error(coder->alloc);
	encoding.tops.top = top;
	encoding.absent = absent_planes(&encoding.layout, used_bits(&encoding, n));
	if (encoding.absent) {
		encoding.nowhere = kvi_scratch(coder, KVI_SCRATCH_PLANE, n);
		if (!encoding.nowhere)
			return kvi_alloc_error(coder->alloc);
	}
	out->begin = out->words;
	uint8_t *head = out->begin + (out->streams.n > 1 ? 8 * out->streams.n : 0);
	uint8_t *to = put_zeros(put_head(&encoding, top, head), head);
	out->end = put_streams(&encoding, coder->pool, to);
	uint8_t *counts = head + HEAD + (head[1] & FLAG_ONE_TOP ? 0 : COUNTS);
	for (unsigned i = 0; i < out->streams.n; i++)
		put_counts(encoding.count[i], counts + i * COUNTS);
	return KVARC_OK;
}

const struct kvi_codec kvi_codec_layers = {
	.takes = KVI_TAKES_FLOATS,
	.get_table = get_table,
	.put_checks = put_checks,
	.side_bytes = side_bytes,
	.encode = encode,
	.decode = decode,
};
