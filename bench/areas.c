/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * areas.c - time that kvarc_unpack takes for an item of many areas, by areas and segments
 *
 * One tensor of one byte a token; an area holds one token, or one token of two tensors whose bytes
 * interleave (rows). Nothing is decoded to speak of, so what is measured is how unpack finds the
 * areas of a segment. One thread. usage: areas
 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/frame.h"
#include "format/restore.h"
#include "writer/writer_internal.h"

struct areas_file {
	uint8_t *bytes;
	size_t n, capacity;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, kvarc_strerror(ret));
	exit(1);
}

static int write_file(void *opaque, const void *data, size_t n, uint64_t at)
{
	struct areas_file *f = opaque;

	if (at + n > f->capacity) {
		f->capacity = 2 * (size_t)(at + n);
		f->bytes = realloc(f->bytes, f->capacity);
		if (!f->bytes)
			return 1;
	}
	memcpy(f->bytes + at, data, n);
	f->n = at + n > f->n ? (size_t)at + n : f->n;
	return 0;
}

static int64_t read_file(void *opaque, void *data, size_t n, uint64_t at)
{
	const struct areas_file *f = opaque;
	size_t left = at < f->n ? f->n - (size_t)at : 0;

	n = n < left ? n : left;
	memcpy(data, f->bytes + at, n);
	return (int64_t)n;
}

/* An item of n areas, each with one of the number of tokens of all tensors. */
static void put_item(kvarc_writer *w, uint32_t tensors, size_t n, size_t tokens)
{
	struct kvi_area_view *views = calloc(n * tensors, sizeof *views);
	struct kvi_piece *pieces = calloc(n, sizeof *pieces);
	struct kvi_restore item = { .kind = 255,
		                    .name = (char[]){ "item" },
		                    .file_bytes = n * tensors,
		                    .n_pieces = n,
		                    .pieces = pieces };
	struct kvi_out out;

	if (!views || !pieces)
		exit(1);
	for (size_t i = 0; i < n; i++) {
		struct kvi_area_view *v = views + i * tensors;
		pieces[i] = (struct kvi_piece){ .type = KVI_PIECE_AREA,
			                        .bytes = tensors,
			                        .t0 = i % tokens,
			                        .n_tokens = 1,
			                        .n_views = tensors,
			                        .views = v };
		for (uint32_t k = 0; k < tensors; k++)
			v[k] = (struct kvi_area_view){ k, 1, k, tensors, 1, 1 };
	}
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_restore_put(&out, &item);
	check(kvi_writer_frame(w, KVI_FRAME_RESTORE, out.p, out.n, true), "RESTORE");
	kvi_out_free(&out);
	free(pieces);
	free(views);
}

static void make(struct areas_file *f, uint32_t tensors, size_t areas, size_t segments,
                 uint32_t each)
{
	kvarc_tensor t[2] = { { .kind = KVARC_KEY, .dtype = KVARC_U8, .heads = 1, .channels = 1 } };
	kvarc_track track = { 0 };
	kvarc_geometry g = { .n_tensors = tensors, .tensors = t, .n_tracks = 1, .tracks = &track };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = { .write = write_file, .opaque = f };
	uint8_t *data = calloc(1, each);
	kvarc_view v = { .data = data,
		         .token_stride = 1,
		         .block_stride = 1,
		         .block_elems = 1,
		         .elem_stride = 1 };
	kvarc_view views[2] = { v, v };
	kvarc_writer *w;

	t[1] = t[0];
	t[1].kind = KVARC_VALUE;
	o.common.threads = 1;
	o.level = KVARC_LEVEL(0);
	o.segment_tokens = 32;
	check(kvarc_writer_open(&w, &sink, &o), "open");
	check(kvarc_writer_set_geometry(w, &g), "geometry");
	put_item(w, tensors, areas, segments * each);
	for (size_t i = 0; i < segments; i++) {
		check(kvarc_writer_append(w, 0, each, NULL, NULL, views), "append");
		check(kvarc_writer_commit(w), "commit");
	}
	check(kvarc_writer_close(&w), "close");
	free(data);
}

static int drop(void *opaque, const void *data, size_t n, uint64_t at)
{
	uint64_t *sum = opaque;

	(void)data, (void)at;
	*sum += n;
	return 0;
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	*sink = (kvarc_sink){ .write = drop, .opaque = opaque };
	return 0;
}

static double unpack(struct areas_file *f, uint64_t bytes)
{
	kvarc_source source = { .read = read_file, .opaque = f, .size = f->n };
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	double start = now();
	uint64_t sum = 0;
	kvarc_reader *r;

	o.common.threads = 1;
	check(kvarc_reader_open(&r, &source, &o), "open");
	check(kvarc_unpack(r, open_item, &sum), "unpack");
	kvarc_reader_close(&r);
	if (sum != bytes) {
		fprintf(stderr, "%" PRIu64 " bytes of %" PRIu64 "\n", sum, bytes);
		exit(1);
	}
	return now() - start;
}

int main(void)
{
	static const struct areas_case {
		uint32_t tensors, each; /* tokens of a segment */
		size_t areas, segments;
	} rows[] = {
		{ 1, 25, 100000, 4000 }, { 1, 25, 200000, 8000 }, { 1, 25, 400000, 16000 },
		{ 2, 32, 25000, 1 },     { 2, 32, 50000, 1 },     { 2, 32, 100000, 1 },
	};

	puts("tensors    areas  segments  seconds of unpack");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct areas_case *r = &rows[i];
		struct areas_file f = { 0 };
		make(&f, r->tensors, r->areas, r->segments, r->each);
		printf("%7" PRIu32 " %8zu %9zu %18.2f\n", r->tensors, r->areas, r->segments,
		       unpack(&f, (uint64_t)r->areas * r->tensors));
		fflush(stdout);
		free(f.bytes);
	}
	return 0;
}
