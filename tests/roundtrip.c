/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * roundtrip.c - dtypes x shapes x contents x levels x threads x instruction sets
 *
 * Every combination gives the tensors back bit for bit, and the archive's
 * bytes are the same for all thread counts and instruction sets. $KV_QUICK set:
 * fewer dtypes and shapes (second and later runs of .ci/run).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "synth.h"

static const unsigned thread_counts[] = { 1, 2, 4 };
static const struct trip_shape {
	uint32_t heads, channels, tokens, segment;
} shapes[] = {
	{ 1, 1, 1, 0 },      /* one element */
	{ 1, 2, 33, 32 },    /* smallest pair, a tail of one token */
	{ 3, 64, 300, 0 },   /* a usual model, two segments */
	{ 2, 80, 65, 64 },   /* a head that is no power of two */
	{ 5, 7, 100, 96 },   /* odd everything */
	{ 1, 128, 31, 0 },   /* fewer tokens than lanes */
	{ 4, 32, 256, 128 }, /* full segments only */
};
static unsigned archives, reads;

static void write_archive(const struct synth_cache *c, int level, unsigned threads, uint32_t isa,
                          uint32_t segment, struct synth_file *out)
{
	kvarc_writer_options opt = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = synth_sink(out);
	kvarc_view views[16];
	kvarc_writer *w;
	opt.common.threads = threads;
	opt.common.isa_mask = isa;
	opt.level = KVARC_LEVEL(level);
	opt.flags = KVARC_WRITE_FILE_ID;
	opt.segment_tokens = segment;
	/* small chunks, so that heads are split among several */
	opt.chunk_bytes = 16384;
	REQUIRE(kvarc_writer_open(&w, &sink, &opt) == KVARC_OK);
	REQUIRE(kvarc_writer_set_geometry(w, &c->geometry) == KVARC_OK);
	synth_views(c, c->raw, 0, views);
	REQUIRE(kvarc_writer_append(w, 0, c->shape.tokens, c->ids, NULL, views) == KVARC_OK);
	REQUIRE(kvarc_writer_close(&w) == KVARC_OK && !w);
	archives++;
}

static void read_archive(const struct synth_cache *c, struct synth_file *in, unsigned threads,
                         uint32_t isa)
{
	kvarc_reader_options opt = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = synth_source(in);
	kvarc_range all = KVARC_RANGE_ALL(0);
	uint8_t *back[16] = { NULL };
	kvarc_view views[16];
	kvarc_reader *r;
	int32_t *ids = calloc(c->shape.tokens, sizeof *ids);
	size_t bytes = c->shape.tokens * c->row;
	opt.common.threads = threads;
	opt.common.isa_mask = isa;
	REQUIRE(ids);
	for (size_t i = 0; i < c->geometry.n_tensors; i++)
		REQUIRE((back[i] = calloc(1, bytes)));
	REQUIRE(kvarc_reader_open(&r, &source, &opt) == KVARC_OK);
	synth_views(c, back, 0, views);
	REQUIRE(kvarc_reader_tokens(r, 0) == c->shape.tokens);
	REQUIRE(kvarc_reader_read(r, &all, views) == KVARC_OK);
	REQUIRE(kvarc_reader_read_tokens(r, 0, 0, c->shape.tokens, ids, NULL) == KVARC_OK);
	REQUIRE(!memcmp(ids, c->ids, c->shape.tokens * sizeof *ids));
	REQUIRE(kvarc_reader_verify(r, NULL, NULL) == KVARC_OK);
	for (size_t i = 0; i < c->geometry.n_tensors; i++) {
		REQUIRE(!memcmp(back[i], c->raw[i], bytes));
		free(back[i]);
	}
	kvarc_reader_close(&r);
	free(ids);
	reads++;
}

/* All levels, threads and sets of one cache. */
static void cross(const struct synth_cache *c, uint32_t segment)
{
	uint32_t have = kvarc_isa_available();
	for (int level = 0; level <= KVARC_LEVEL_DEFAULT; level++) {
		struct synth_file golden = { 0 };
		write_archive(c, level, 1, KVARC_ISA_SCALAR, segment, &golden);
		for (size_t t = 0; t < 3; t++)
			for (uint32_t isa = 1; isa <= KVARC_ISA_NEON; isa <<= 1) {
				struct synth_file f = { 0 };
				if (!(isa & have))
					continue;
				write_archive(c, level, thread_counts[t], isa, segment, &f);
				REQUIRE(f.n == golden.n);
				REQUIRE(!memcmp(f.p, golden.p, f.n));
				read_archive(c, &f, thread_counts[t], isa);
				free(f.p);
			}
		free(golden.p);
	}
}

int main(void)
{
	size_t n_shapes = sizeof shapes / sizeof shapes[0];
	unsigned step = getenv("KV_QUICK") ? 3 : 1;
	for (unsigned dtype = KVARC_BYTES; dtype <= KVARC_U8; dtype += step)
		for (size_t i = 0; i < n_shapes; i += step)
			for (int kind = 0; kind < SYNTH_KINDS; kind++) {
				const struct trip_shape *s = &shapes[i];
				struct synth_shape h = {
					(uint8_t)dtype,       2,         s->heads,
					s->channels,          s->tokens, s->channels > 1,
					(enum synth_kind)kind
				};
				struct synth_cache c;
				synth_make(&c, &h, dtype * 100u + i);
				cross(&c, s->segment);
				synth_free(&c);
			}
	printf("round trips: %u archives written, %u read back, all equal\n", archives, reads);
	return 0;
}
