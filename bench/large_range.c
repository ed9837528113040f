/* SPDX-License-Identifier: BSD-3-Clause */
/* large_range.c - opens an archive of 100 GB over a slow source and reads one layer of 64 tokens
 *
 * large_range [SEGMENTS]: a cache of 64 layers in SEGMENTS (1600) segments of 256 tokens, with a
 * PAD frame of 64 MiB behind each in place of the elements of a large model; zeros are not kept in
 * memory. The source answers any list of ranges in one request of 30 ms. Prints requests and bytes
 * of opening and of reading; fails above 3 requests in all, or above 1 MB beside the frames of the
 * chunks.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvarc.h>

#include "writer/writer_frames.h"
#include "writer/writer_state.h"

enum {
	LAYERS = 64,
	TENSORS = 2 * LAYERS,
	WIDTH = 64,
	TOKENS = 256,
	PAD_BYTES = 64 << 20,
	LATENCY_MS = 30,
	REQUESTS_MOST = 3,
	BESIDE_MOST = 1000000
};

/* Bytes at an offset of the archive. */
struct kept_bytes {
	uint64_t offset;
	size_t bytes;
	uint8_t *p;
};

/* An archive without its zeros. */
struct sparse {
	struct kept_bytes *pieces;
	size_t n, capacity;
	uint64_t size;
	unsigned requests;
	uint64_t bytes;
};

static void check(kvarc_ret ret, const char *what, const kvarc_error *e)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, e->code ? e->text : kvarc_strerror(ret));
	exit(1);
}

static void *grow(void *p, size_t bytes)
{
	p = realloc(p, bytes);
	if (!p)
		abort();
	return p;
}

static void keep(struct sparse *to, const uint8_t *from, size_t bytes, uint64_t offset)
{
	if (to->n == to->capacity) {
		to->capacity = 2 * to->capacity + 64;
		to->pieces = grow(to->pieces, to->capacity * sizeof *to->pieces);
	}
	struct kept_bytes *x = &to->pieces[to->n++];
	*x = (struct kept_bytes){ offset, bytes, grow(NULL, bytes) };
	memcpy(x->p, from, bytes);
}

/* Of a PAD frame the ends are kept. */
static int put(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	enum { END = 64 };
	struct sparse *to = opaque;
	const uint8_t *p = buf;
	if (bytes > PAD_BYTES) {
		keep(to, p, END, offset);
		keep(to, p + bytes - END, END, offset + bytes - END);
	} else {
		keep(to, p, bytes, offset);
	}
	to->size = offset + bytes;
	return 0;
}

/* The first piece that ends behind an offset. */
static size_t find(const struct sparse *from, uint64_t offset)
{
	size_t lo = 0, hi = from->n;
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;
		if (from->pieces[mid].offset + from->pieces[mid].bytes > offset)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static void copy(const struct sparse *from, uint8_t *to, size_t bytes, uint64_t offset)
{
	memset(to, 0, bytes);
	for (size_t i = find(from, offset); i < from->n; i++) {
		const struct kept_bytes *x = &from->pieces[i];
		const uint64_t begin = x->offset > offset ? x->offset : offset;
		uint64_t end = x->offset + x->bytes;
		end = end < offset + bytes ? end : offset + bytes;
		if (x->offset >= offset + bytes)
			break;
		memcpy(to + (begin - offset), x->p + (begin - x->offset), (size_t)(end - begin));
	}
}

static void answer(struct sparse *from)
{
	const struct timespec latency = { 0, LATENCY_MS * 1000000 };
	nanosleep(&latency, NULL);
	from->requests++;
}

static int64_t get(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct sparse *from = opaque;
	answer(from);
	if (offset >= from->size)
		return 0;
	bytes = bytes < from->size - offset ? bytes : (size_t)(from->size - offset);
	from->bytes += bytes;
	copy(from, buf, bytes, offset);
	return (int64_t)bytes;
}

static int get_ranges(void *opaque, const kvarc_byte_range *ranges, size_t n)
{
	struct sparse *from = opaque;
	answer(from);
	for (size_t i = 0; i < n; i++) {
		from->bytes += ranges[i].bytes;
		copy(from, ranges[i].buf, (size_t)ranges[i].bytes, ranges[i].offset);
	}
	return 0;
}

static void pad(kvarc_writer *w, uint8_t *frame)
{
	struct kvi_index_entry entry = { 0 };
	check(kvi_writer_emit(&w->out, KVI_FRAME_PAD, frame, PAD_BYTES, PAD_BYTES, NULL, &entry),
	      "pad", w->error);
}

/* One segment has noise, the others constants. */
static void fill(uint16_t *elements, bool noise)
{
	for (size_t i = 0; i < (size_t)TOKENS * WIDTH + TENSORS; i++)
		elements[i] = noise ? (uint16_t)rand() : 0x3f80;
}

static void make(struct sparse *to, unsigned segments, unsigned noisy, kvarc_error *e)
{
	static kvarc_tensor tensors[TENSORS];
	static uint16_t elements[TOKENS * WIDTH + TENSORS];
	const kvarc_track track = { .label = "tokens" };
	const kvarc_geometry geometry = {
		.n_tracks = 1, .tracks = &track, .n_tensors = TENSORS, .tensors = tensors
	};
	const kvarc_sink sink = { .write = put, .opaque = to };
	kvarc_view views[TENSORS];
	int32_t ids[TOKENS];
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	uint8_t *frame = calloc(1, PAD_BYTES + 64);
	kvarc_writer *w;
	o.common.error = e;
	o.level = KVARC_LEVEL(0);
	o.flags |= KVARC_WRITE_FILE_ID;
	for (unsigned i = 0; i < TENSORS; i++) {
		tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                     .kind = i % 2 ? KVARC_VALUE : KVARC_KEY,
			                     .dtype = KVARC_BF16,
			                     .heads = 1,
			                     .channels = WIDTH };
		views[i] = (kvarc_view){ .data = elements + i,
			                 .token_stride = 2 * WIDTH,
			                 .block_elems = WIDTH,
			                 .elem_stride = 2 };
	}
	check(kvarc_writer_open(&w, &sink, &o), "open", e);
	check(kvarc_writer_set_geometry(w, &geometry), "geometry", e);
	for (unsigned i = 0; i < segments; i++) {
		for (unsigned t = 0; t < TOKENS; t++)
			ids[t] = rand() % 100000;
		if (i == 0 || i == noisy || i == noisy + 1)
			fill(elements, i == noisy);
		check(kvarc_writer_append(w, 0, TOKENS, ids, NULL, views), "append", e);
		check(kvarc_writer_commit(w), "commit", e);
		pad(w, frame);
	}
	check(kvarc_writer_close(&w), "close", e);
	free(frame);
}

static int take(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, const void *src)
{
	(void)tensor, (void)head, (void)heads, (void)t0, (void)src;
	*(uint64_t *)opaque += n;
	return 0;
}

/* Bytes of the frames of the chunks of a layer and segment. */
static uint64_t chunk_bytes(const kvarc_source *source, const kvarc_range *range, kvarc_error *e)
{
	const kvarc_reader_options o = { .common.error = e };
	kvarc_chunk_info c;
	kvarc_reader *r;
	uint64_t sum = 0;
	check(kvarc_reader_open(&r, source, &o), "open", e);
	const kvarc_geometry *geometry = kvarc_reader_geometry(r);
	const uint64_t first = range->t0 / TOKENS * TENSORS;
	for (uint64_t i = first; i < first + TENSORS; i++) {
		check(kvarc_reader_chunk(r, i, &c), "chunk", e);
		if (geometry->tensors[c.tensor].layer == range->layer0)
			sum += c.frame_bytes;
	}
	kvarc_reader_close(&r);
	return sum;
}

int main(int argc, char **argv)
{
	const unsigned segments = argc > 1 ? (unsigned)atoi(argv[1]) : 1600, noisy = segments / 2;
	const kvarc_range range = {
		.layer0 = 31, .n_layers = 1, .t0 = (uint64_t)noisy * TOKENS + 64, .n = 64
	};
	struct sparse far = { 0 };
	kvarc_error e = { 0 };
	const kvarc_reader_options o = { .common.error = &e };
	uint64_t tokens = 0;
	kvarc_reader *r;
	make(&far, segments, noisy, &e);
	const kvarc_source source = {
		.read = get, .read_ranges = get_ranges, .opaque = &far, .size = far.size
	};
	const uint64_t chunks = chunk_bytes(&source, &range, &e);
	far.requests = 0;
	far.bytes = 0;
	check(kvarc_reader_open(&r, &source, &o), "open", &e);
	printf("archive of %.1f GB, %u segments of %d chunks\n", 1e-9 * (double)far.size, segments,
	       TENSORS);
	printf("open: %u requests, %llu bytes\n", far.requests, (unsigned long long)far.bytes);
	check(kvarc_reader_read_deliver(r, &range, take, &tokens), "read", &e);
	kvarc_reader_close(&r);
	if (tokens != 2 * range.n) {
		fprintf(stderr, "%llu tokens of tensors came\n", (unsigned long long)tokens);
		return 1;
	}
	printf("open and read: %u requests, %llu bytes, %llu of them chunks\n", far.requests,
	       (unsigned long long)far.bytes, (unsigned long long)chunks);
	for (size_t i = 0; i < far.n; i++)
		free(far.pieces[i].p);
	free(far.pieces);
	return far.requests > REQUESTS_MOST || far.bytes - chunks > BESIDE_MOST;
}
