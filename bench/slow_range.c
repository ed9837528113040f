/* SPDX-License-Identifier: BSD-3-Clause */
/* slow_range.c - what a range costs over a source where each request takes 30 ms
 *
 * slow_range SLOT [LEVEL [PROFILE]]: packs a cache in memory and reads layers 4 to 7, tokens 100 to
 * 163 of it. Prints requests, bytes and time; fails above 6 requests or 1.5 times the bytes of the
 * chunks: the frames of CHUNK type that have tokens and layers of the range (levels 2 and 3: and of
 * layers that they are predicted from, which the plan names).
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvarc.h>

enum { LATENCY_MS = 30, REQUESTS_MOST = 6 };

/* An archive in memory that answers slowly. */
struct slow_store {
	const uint8_t *p;
	uint64_t n;
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

static int64_t get(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct slow_store *far = opaque;
	const struct timespec latency = { 0, LATENCY_MS * 1000000 };
	nanosleep(&latency, NULL);
	if (offset >= far->n)
		return 0;
	bytes = bytes < far->n - offset ? bytes : (size_t)(far->n - offset);
	far->requests++;
	far->bytes += bytes;
	memcpy(buf, far->p + offset, bytes);
	return (int64_t)bytes;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pack(kvarc_memory *to, const char *path, int level, const kvarc_profile *profile,
                 kvarc_error *e)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_source source;
	kvarc_import *im;
	kvarc_sink sink;
	const kvarc_common common = { .error = e };
	const kvarc_import_options io = { .common.error = e };
	o.common.error = e;
	o.level = KVARC_LEVEL(level);
	o.profile = profile;
	check(kvarc_source_open_path(&source, path, &common), path, e);
	check(kvarc_memory_sink(to, &sink), path, e);
	check(kvarc_import_open(&im, &source, path, &io), path, e);
	check(kvarc_pack(im, &sink, &o, NULL), path, e);
	kvarc_import_close(&im);
	kvarc_source_close(&source);
}

/* Frames of the chunks of a range. */
static uint64_t chunk_bytes(kvarc_reader *r, const kvarc_range *g)
{
	const kvarc_geometry *geometry = kvarc_reader_geometry(r);
	kvarc_chunk_info c;
	uint64_t sum = 0;
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &c) == KVARC_OK; i++) {
		uint32_t layer = geometry->tensors[c.tensor].layer;
		if (layer >= g->layer0 && layer - g->layer0 < g->n_layers && c.t0 < g->t0 + g->n &&
		    c.t0 + c.n > g->t0)
			sum += (c.payload_bytes + 15) / 16 * 16 + 48;
	}
	return sum;
}

static int take(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, const void *src)
{
	(void)opaque, (void)tensor, (void)head, (void)heads, (void)t0, (void)n, (void)src;
	return 0;
}

static void show(const char *what, struct slow_store *far, double from)
{
	printf("%-6s %2u requests %9llu bytes %7.1f ms\n", what, far->requests,
	       (unsigned long long)far->bytes, 1e3 * (now() - from));
	far->requests = 0;
	far->bytes = 0;
}

int main(int argc, char **argv)
{
	const kvarc_range range = { .layer0 = 4, .n_layers = 4, .t0 = 100, .n = 64 };
	const int level = argc > 2 ? atoi(argv[2]) : 1;
	kvarc_error e = { 0 };
	const kvarc_common common = { .error = &e, .memlimit = (uint64_t)1 << 30 };
	kvarc_profile *profile = NULL;
	kvarc_memory *archive;
	kvarc_source source;
	kvarc_reader *r;
	if (argc < 2) {
		fprintf(stderr, "usage: slow_range SLOT [LEVEL [PROFILE]]\n");
		return 2;
	}
	if (argc > 3) {
		check(kvarc_source_open_path(&source, argv[3], &common), argv[3], &e);
		check(kvarc_profile_open(&profile, &source, &common), argv[3], &e);
		kvarc_source_close(&source);
	}
	check(kvarc_memory_open(&archive, &common), "memory", &e);
	pack(archive, argv[1], level, profile, &e);
	struct slow_store far = { kvarc_memory_data(archive), kvarc_memory_bytes(archive), 0, 0 };
	const kvarc_profile *profiles[] = { profile };
	const kvarc_reader_options o = { .common = common,
		                         .profiles = profiles,
		                         .n_profiles = profile != NULL };
	check(kvarc_memory_source(archive, &source), "memory", &e);
	check(kvarc_reader_open(&r, &source, &o), "open", &e);
	uint64_t needed = chunk_bytes(r, &range);
	kvarc_reader_close(&r);

	source = (kvarc_source){ .read = get, .opaque = &far, .size = far.n };
	double from = now();
	check(kvarc_reader_open(&r, &source, &o), "open", &e);
	unsigned requests = far.requests;
	uint64_t bytes = far.bytes;
	show("open", &far, from);
	from = now();
	check(kvarc_reader_read_deliver(r, &range, take, NULL), "read", &e);
	requests += far.requests;
	bytes += far.bytes;
	show("read", &far, from);
	from = now();
	check(kvarc_reader_read_deliver(r, &range, take, NULL), "read", &e);
	show("again", &far, from);
	printf("open and read: %u requests, %llu bytes, %.2f of the %llu of the chunks\n", requests,
	       (unsigned long long)bytes, (double)bytes / (double)needed,
	       (unsigned long long)needed);
	kvarc_reader_close(&r);
	kvarc_memory_close(&archive);
	kvarc_profile_close(&profile);
	return requests > REQUESTS_MOST || (level < 2 && 2 * bytes > 3 * needed);
}
