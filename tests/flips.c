/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flips.c - every single-bit flip and every truncation of small archives
 *
 * A damaged file is detected (a call says so), or harmless (all data is right
 * and nothing says anything), or silent: data that is wrong or missing without
 * a word. Silent never happens, and what salvage gives is right: all blocks
 * but those of the damaged frame, all that was committed before a cut. Each bit
 * is judged by verify and a read; one of each byte by a plain read, a pipe and
 * salvage as well. $KV_QUICK
 * set: one place in 29 (second and later runs of .ci/run; not a full test).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "synth.h"
#include "workers.h"

enum { COMMITS = 3, PART = 16 };

/* One golden archive and what was in it. */
struct golden {
	struct synth_cache cache;
	struct synth_file file;
	size_t commit_end[COMMITS]; /* bytes of the file after each commit */
	uint64_t blocks;            /* delivered by a whole read */
};

struct counts {
	uint64_t flips, detected, harmless, silent;
	uint64_t cuts, cut_detected, cut_silent;
	uint64_t salvages, lost_most; /* lost_most: blocks in one salvage */
};

static void golden_make(struct golden *g, uint8_t dtype, int level)
{
	struct synth_shape shape = { dtype, 2, 1, 16, COMMITS * PART, true, SYNTH_SPARSE };
	kvarc_writer_options opt = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = synth_sink(&g->file);
	static const char *const key[] = { "model" }, *const value[] = { "m" };
	kvarc_view views[16];
	kvarc_writer_stats stats;
	kvarc_writer *w;
	synth_make(&g->cache, &shape, 7);
	opt.level = KVARC_LEVEL(level);
	opt.flags = KVARC_WRITE_FILE_ID;
	memset(opt.file_id, 0x5a, sizeof opt.file_id);
	REQUIRE(kvarc_writer_open(&w, &sink, &opt) == KVARC_OK);
	REQUIRE(kvarc_writer_set_geometry(w, &g->cache.geometry) == KVARC_OK);
	REQUIRE(kvarc_writer_identity(w, 1, key, value) == KVARC_OK);
	for (int i = 0; i < COMMITS; i++) {
		uint64_t t0 = (uint64_t)i * PART;
		synth_views(&g->cache, g->cache.raw, t0, views);
		REQUIRE(kvarc_writer_append(w, 0, PART, g->cache.ids + t0, NULL, views) ==
		        KVARC_OK);
		REQUIRE(kvarc_writer_commit(w) == KVARC_OK);
		kvarc_writer_get_stats(w, &stats);
		g->commit_end[i] = stats.file_bytes;
		REQUIRE(stats.file_bytes == g->file.n);
	}
	REQUIRE(kvarc_writer_close(&w) == KVARC_OK);
	g->blocks = (uint64_t)COMMITS * shape.layers * 2;
}

/* --------------------------------------------------- looking at a file */

struct look {
	const struct golden *g;
	bool wrong;      /* a byte that is not the original's */
	uint64_t blocks; /* delivered */
	uint64_t tokens; /* every tensor has all tokens before this one */
	uint64_t have[16];
};

static int on_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                    uint32_t n, const void *src)
{
	struct look *k = opaque;
	const struct synth_cache *c = &k->g->cache;
	if (tensor >= c->geometry.n_tensors || head != 0 || heads != 1 ||
	    t0 + n > c->shape.tokens ||
	    memcmp(src, c->raw[tensor] + t0 * c->row, n * c->row) != 0) {
		k->wrong = true;
		return 0;
	}
	if (t0 == k->have[tensor])
		k->have[tensor] += n;
	k->blocks++;
	return 0;
}

/* Sequential; returns the code that ended it, END when all was well. */
static kvarc_ret look_through(kvarc_reader *r, struct look *k)
{
	const struct synth_cache *c = &k->g->cache;
	kvarc_segment s;
	kvarc_ret ret;
	while ((ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK) {
		for (uint32_t t = 0; t < s.n; t++) {
			if (s.t0 + t >= c->shape.tokens ||
			    (s.ids && s.ids[t] != c->ids[s.t0 + t]) ||
			    (s.ids && s.positions[t] != (int32_t)(s.t0 + t)))
				k->wrong = true;
		}
		ret = kvarc_reader_segment_deliver(r, on_block, k);
		if (ret != KVARC_OK)
			break;
	}
	k->tokens = c->shape.tokens;
	for (size_t i = 0; i < c->geometry.n_tensors; i++)
		if (k->have[i] < k->tokens)
			k->tokens = k->have[i];
	return ret;
}

static int64_t pipe_read(void *opaque, void *buf, size_t bytes, uint64_t at)
{
	kvarc_source s = synth_source(opaque);
	return s.read(opaque, buf, bytes, at);
}

/* Opens, verifies when asked, and reads all. True when something was said. */
static bool look_at(struct synth_file *f, struct look *k, unsigned flags, bool pipe, bool verify)
{
	kvarc_reader_options opt = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = synth_source(f);
	kvarc_info info;
	kvarc_reader *r;
	bool said = false;
	if (pipe)
		source = (kvarc_source){ .read = pipe_read, .opaque = f, .size = KVARC_UNKNOWN };
	opt.flags = flags;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return true;
	if (verify && kvarc_reader_verify(r, NULL, NULL) != KVARC_OK)
		said = true;
	if (!said)
		said = look_through(r, k) != KVARC_END;
	if (kvarc_reader_get_info(r, &info) != KVARC_OK || info.state != KVARC_STATE_CLOSED)
		said = true;
	kvarc_reader_close(&r);
	return said;
}

/* -------------------------------------------------------------- damage */

/* data: whether the look gave all of the archive's blocks, all right */
static bool complete(const struct look *k)
{
	return !k->wrong && k->blocks == k->g->blocks;
}

static void try_flip(const struct golden *g, struct synth_file *f, size_t bit, struct counts *n)
{
	uint8_t *byte = &f->p[bit / 8];
	struct look verified = { .g = g };
	*byte ^= (uint8_t)(1u << bit % 8);
	bool said = look_at(f, &verified, 0, false, true);
	n->flips++;
	if (verified.wrong || (!said && !complete(&verified)))
		n->silent++;
	else if (said)
		n->detected++;
	else
		n->harmless++;
	if (bit % 8 == bit / 8 % 8) { /* one bit of each byte */
		struct look plain = { .g = g }, pipe = { .g = g }, saved = { .g = g };
		/* reading alone may miss damage outside of what it reads */
		said = look_at(f, &plain, 0, false, false);
		if (plain.wrong || (!said && !complete(&plain)))
			n->silent++;
		said = look_at(f, &pipe, 0, true, false);
		if (pipe.wrong || (!said && !complete(&pipe)))
			n->silent++;
		look_at(f, &saved, KVARC_READ_SALVAGE, false, false);
		if (saved.wrong)
			n->silent++;
		n->salvages++;
		if (g->blocks - saved.blocks > n->lost_most && bit / 8 >= g->file.n - g->file.n / 2)
			n->lost_most = g->blocks - saved.blocks;
	}
	*byte ^= (uint8_t)(1u << bit % 8);
}

static void try_cut(const struct golden *g, struct synth_file *f, size_t len, struct counts *n)
{
	struct look whole = { .g = g }, saved = { .g = g };
	uint64_t committed = 0;
	f->n = len;
	bool said = look_at(f, &whole, 0, false, true);
	look_at(f, &saved, KVARC_READ_SALVAGE, false, false);
	for (int i = 0; i < COMMITS; i++)
		if (g->commit_end[i] <= len)
			committed = (uint64_t)(i + 1) * PART;
	n->cuts++;
	n->salvages++;
	n->cut_detected += said;
	if (!said || whole.wrong || saved.wrong || saved.tokens < committed)
		n->cut_silent++;
	f->n = g->file.n;
}

/* ------------------------------------------------------------- workers */

/* Worker w of count takes every count-th place. */
static void work(const void *opaque, unsigned w, unsigned count, void *result)
{
	const struct golden *g = opaque;
	struct counts *n = result;
	workers_quick(&w, &count);
	struct synth_file f = { malloc(g->file.n), g->file.n, g->file.n };
	REQUIRE(f.p);
	memcpy(f.p, g->file.p, f.n);
	for (size_t bit = w; bit < g->file.n * 8; bit += count)
		try_flip(g, &f, bit, n);
	for (size_t len = w; len < g->file.n; len += count)
		try_cut(g, &f, len, n);
	free(f.p);
}

static void add(struct counts *sum, const struct counts *n)
{
	sum->flips += n->flips;
	sum->detected += n->detected;
	sum->harmless += n->harmless;
	sum->silent += n->silent;
	sum->cuts += n->cuts;
	sum->cut_detected += n->cut_detected;
	sum->cut_silent += n->cut_silent;
	sum->salvages += n->salvages;
	if (n->lost_most > sum->lost_most)
		sum->lost_most = n->lost_most;
}

/* Divides the offsets among processes. */
static struct counts share(const struct golden *g)
{
	struct counts each[WORKERS_MAX], sum = { 0 };
	unsigned count = workers_run(work, g, each, sizeof *each);
	for (unsigned w = 0; w < count; w++)
		add(&sum, &each[w]);
	return sum;
}

static bool run(uint8_t dtype, int level)
{
	struct golden g = { 0 };
	golden_make(&g, dtype, level);
	struct look whole = { .g = &g };
	REQUIRE(!look_at(&g.file, &whole, 0, false, true) && complete(&whole));
	struct counts n = share(&g);
	printf("%s level %d, %zu bytes\n", kvarc_dtype_name(dtype), level, g.file.n);
	printf("  flips %llu: detected %llu, harmless %llu, silent %llu\n",
	       (unsigned long long)n.flips, (unsigned long long)n.detected,
	       (unsigned long long)n.harmless, (unsigned long long)n.silent);
	printf("  truncations %llu: detected %llu, silent or lost %llu\n",
	       (unsigned long long)n.cuts, (unsigned long long)n.cut_detected,
	       (unsigned long long)n.cut_silent);
	printf("  salvages %llu: a flip in the second half costs %llu of %llu"
	       " blocks at most\n",
	       (unsigned long long)n.salvages, (unsigned long long)n.lost_most,
	       (unsigned long long)g.blocks);
	REQUIRE(getenv("KV_QUICK") || (n.flips == g.file.n * 8 && n.cuts == g.file.n));
	bool ok = n.silent == 0 && n.cut_silent == 0 && n.lost_most <= 1;
	synth_free(&g.cache);
	free(g.file.p);
	return ok;
}

int main(void)
{
	bool ok = run(KVARC_BF16, 0);
	ok = run(KVARC_BF16, 1) && ok;
	return ok ? 0 : 1;
}
