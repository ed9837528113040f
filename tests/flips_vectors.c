/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flips_vectors.c - every single-bit flip and every truncation of vectors that have what
 * flips.c has not: several streams a chunk, rewinds, chain values, checkpoints with items
 *
 * A damaged file is detected, or what is read of it is that of the whole file: segments, ids,
 * positions, blocks, items and checkpoints, also as of each checkpoint. Of a truncated file no more
 * and no less is read than was committed. Salvage gives no row that the file never had. $KV_QUICK
 * set: one place in 29.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "synth.h"
#include "util/bytes.h"
#include "util/hash.h"
#include "workers.h"

enum { STATES = 24, ROWS = 8192, ITEMS = 16, ITEM_MAX = 4096 };

/* What a reader gives of a file. */
struct view {
	bool said;          /* an error, or that the file is not closed */
	kvarc_ret ret;      /* the first error */
	struct kvi_h128 of; /* all that was given, in order */
};

struct vector {
	const char *name;
	struct synth_file file;
	struct view whole;
	size_t n_commits;
	size_t commit_end[STATES];
	struct view committed[STATES];
	size_t n_checkpoints;
	uint64_t checkpoint[STATES];
	struct view at_checkpoint[STATES];
	size_t n_rows; /* of all states */
	uint64_t rows[ROWS];
};

struct vector_counts {
	uint64_t flips, detected, silent, cuts, cut_silent, salvaged, wrong_rows;
};

/* --------------------------------------------------- looking at a file */

struct file_reading {
	const kvarc_geometry *geometry;
	struct kvi_h128 of;
	void (*on_row)(void *opaque, uint64_t hash);
	void *opaque;
	uint64_t blocks;
	size_t n_items;
	struct item_buffer {
		uint8_t p[ITEM_MAX];
		size_t bytes;
	} items[ITEMS];
};

static void mix(struct file_reading *k, const void *p, size_t bytes)
{
	uint8_t before[16];
	kvi_store_h128(before, k->of);
	k->of = kvi_h128_2(before, sizeof before, p, bytes);
}

static void mix_number(struct file_reading *k, uint64_t number)
{
	uint8_t b[8];
	kvi_store64(b, number);
	mix(k, b, sizeof b);
}

static int on_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                    uint32_t n, const void *src)
{
	struct file_reading *k = opaque;
	const kvarc_tensor *t = &k->geometry->tensors[tensor];
	size_t row = (size_t)heads * t->channels * kvarc_dtype_bytes(t->dtype);
	mix_number(k, (uint64_t)tensor << 32 | head << 16 | heads);
	mix_number(k, t0);
	mix(k, src, n * row);
	k->blocks++;
	for (uint32_t i = 0; k->on_row && i < n; i++) {
		uint8_t place[16];
		kvi_store64(place, (uint64_t)tensor << 32 | head << 16 | heads);
		kvi_store64(place + 8, t0 + i);
		k->on_row(k->opaque,
		          kvi_h64_2(place, sizeof place, (const uint8_t *)src + i * row, row));
	}
	return 0;
}

static kvarc_ret look_through(kvarc_reader *r, struct file_reading *k)
{
	kvarc_segment s;
	kvarc_ret ret;
	while ((ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK) {
		mix_number(k, (uint64_t)s.track << 32 | s.n);
		mix_number(k, s.t0);
		mix(k, s.ids, s.ids ? s.n * sizeof *s.ids : 0);
		mix(k, s.positions, s.positions ? s.n * sizeof *s.positions : 0);
		ret = kvarc_reader_segment_deliver(r, on_block, k);
		if (ret)
			return ret;
	}
	return ret == KVARC_END ? KVARC_OK : ret;
}

static void look_at_checkpoints(kvarc_reader *r, struct file_reading *k)
{
	kvarc_checkpoint c;
	for (size_t i = 0; kvarc_reader_checkpoint(r, i, &c) == KVARC_OK; i++) {
		mix_number(k, c.number);
		mix_number(k, c.time);
		mix(k, c.label, c.label_bytes);
	}
}

static int write_item(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct item_buffer *item = opaque;
	REQUIRE(offset + bytes <= item->bytes);
	memcpy(item->p + offset, buf, bytes);
	return 0;
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct file_reading *k = opaque;
	if (k->n_items == ITEMS || item->bytes > ITEM_MAX)
		return -1; /* of a damaged file */
	mix_number(k, (uint64_t)item->index << 16 | item->kind);
	mix(k, item->name, strlen(item->name));
	struct item_buffer *b = &k->items[k->n_items++];
	b->bytes = (size_t)item->bytes;
	memset(b->p, 0, b->bytes);
	*sink = (kvarc_sink){ .write = write_item, .opaque = b };
	return 0;
}

static kvarc_ret open_file(struct synth_file *f, kvarc_reader **r, unsigned flags,
                           uint64_t checkpoint)
{
	kvarc_reader_options opt = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = synth_source(f);
	opt.flags = flags;
	opt.checkpoint = checkpoint;
	return kvarc_reader_open(r, &source, &opt);
}

/* Items, of a reader of their own. OPTIONS: there are none. */
static kvarc_ret look_at_items(struct synth_file *f, struct file_reading *k, unsigned flags,
                               uint64_t checkpoint)
{
	kvarc_reader *r;
	kvarc_ret ret = open_file(f, &r, flags, checkpoint);
	if (ret == KVARC_OK)
		ret = kvarc_unpack(r, open_item, k);
	for (size_t i = 0; i < k->n_items; i++)
		mix(k, k->items[i].p, k->items[i].bytes);
	kvarc_reader_close(&r);
	return ret == KVARC_OPTIONS ? KVARC_OK : ret;
}

/* All of a file; verify: its checks first. k: on_row and opaque are set. */
static struct view look_at(struct synth_file *f, struct file_reading *k, unsigned flags,
                           uint64_t checkpoint, bool verify)
{
	kvarc_reader *r;
	kvarc_info info = { .state = KVARC_STATE_CUT };
	k->of = (struct kvi_h128){ 0, 0 };
	k->n_items = 0;
	k->blocks = 0;
	kvarc_ret ret = open_file(f, &r, flags, checkpoint);
	if (ret == KVARC_OK && verify)
		ret = kvarc_reader_verify(r, NULL, NULL);
	if (ret == KVARC_OK) {
		k->geometry = kvarc_reader_geometry(r);
		for (uint32_t t = 0; t < k->geometry->n_tracks; t++)
			mix_number(k, kvarc_reader_tokens(r, t));
		look_at_checkpoints(r, k);
		ret = look_through(r, k);
	}
	if (ret == KVARC_OK)
		ret = kvarc_reader_get_info(r, &info);
	kvarc_reader_close(&r);
	if (ret == KVARC_OK)
		ret = look_at_items(f, k, flags, checkpoint);
	return (struct view){ ret || info.state != KVARC_STATE_CLOSED, ret, k->of };
}

static bool same(const struct view *a, const struct view *b)
{
	return a->ret == b->ret && kvi_h128_equal(a->of, b->of);
}

/* ------------------------------------------------------------ the files */

static void keep_row(void *opaque, uint64_t hash)
{
	struct vector *g = opaque;
	for (size_t i = 0; i < g->n_rows; i++)
		if (g->rows[i] == hash)
			return;
	REQUIRE(g->n_rows < ROWS);
	g->rows[g->n_rows++] = hash;
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void load(struct vector *g, const char *name)
{
	const char *srcdir = getenv("srcdir");
	char path[4096];
	g->name = name;
	snprintf(path, sizeof path, "%s/spec/vectors/good-%s.kva", srcdir ? srcdir : ".", name);
	FILE *file = fopen(path, "rb");
	REQUIRE(file);
	g->file.cap = 1 << 16;
	g->file.p = malloc(g->file.cap);
	REQUIRE(g->file.p);
	g->file.n = fread(g->file.p, 1, g->file.cap, file);
	REQUIRE(g->file.n < g->file.cap);
	fclose(file);
}

/* The states of the commits: what is read of the file up to each, and its checkpoints. */
static void golden_make(struct vector *g, const char *name)
{
	static struct file_reading k;
	k.on_row = keep_row;
	k.opaque = g;
	kvarc_checkpoint c;
	kvarc_reader *r;
	load(g, name);
	const size_t n = g->file.n;
	for (size_t at = 64; at < n;) {
		const uint8_t *p = g->file.p + at;
		at += 32 + ((kvi_load32(p + 12) + (size_t)15) & ~(size_t)15) + 16;
		if (kvi_load16(p + 8) != 8)
			continue;
		REQUIRE(g->n_commits < STATES);
		g->file.n = at;
		g->commit_end[g->n_commits] = at;
		g->committed[g->n_commits] = look_at(&g->file, &k, 0, 0, true);
		REQUIRE(!g->committed[g->n_commits++].ret);
		g->file.n = n;
	}
	g->whole = look_at(&g->file, &k, 0, 0, true);
	REQUIRE(!g->whole.said);
	REQUIRE(open_file(&g->file, &r, 0, 0) == KVARC_OK);
	while (kvarc_reader_checkpoint(r, g->n_checkpoints, &c) == KVARC_OK)
		g->checkpoint[g->n_checkpoints++] = c.number;
	kvarc_reader_close(&r);
	for (size_t i = 0; i < g->n_checkpoints; i++) {
		g->at_checkpoint[i] = look_at(&g->file, &k, 0, g->checkpoint[i], true);
		REQUIRE(!g->at_checkpoint[i].said);
	}
	qsort(g->rows, g->n_rows, sizeof *g->rows, compare);
}

/* -------------------------------------------------------------- damage */

struct judge {
	const struct vector *g;
	uint64_t wrong;
};

static void judge_row(void *opaque, uint64_t hash)
{
	struct judge *j = opaque;
	j->wrong += !bsearch(&hash, j->g->rows, j->g->n_rows, sizeof hash, compare);
}

/* What salvage gives is of the file. */
static void salvage(const struct vector *g, struct synth_file *f, struct vector_counts *n)
{
	struct judge judge = { .g = g };
	static struct file_reading k;
	k.on_row = judge_row;
	k.opaque = &judge;
	look_at(f, &k, KVARC_READ_SALVAGE, 0, false);
	n->salvaged++;
	n->wrong_rows += judge.wrong;
}

static void try_flip(const struct vector *g, struct synth_file *f, size_t bit,
                     struct vector_counts *n)
{
	static struct file_reading k;
	f->p[bit / 8] ^= (uint8_t)(1u << bit % 8);
	struct view seen = look_at(f, &k, 0, 0, true);
	n->flips++;
	n->detected += seen.said;
	n->silent += !seen.said && !same(&seen, &g->whole);
	if (bit % 8 == bit / 8 % 8) { /* one bit of each byte */
		seen = look_at(f, &k, 0, 0, false);
		n->silent += !seen.said && !same(&seen, &g->whole);
		for (size_t i = 0; i < g->n_checkpoints; i++) {
			seen = look_at(f, &k, 0, g->checkpoint[i], i & 1);
			n->silent += !seen.ret && !same(&seen, &g->at_checkpoint[i]);
		}
		salvage(g, f, n);
	}
	f->p[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static void try_cut(const struct vector *g, struct synth_file *f, size_t len,
                    struct vector_counts *n)
{
	static struct file_reading k;
	size_t last = 0;
	f->n = len;
	while (last < g->n_commits && g->commit_end[last] <= len)
		last++;
	struct view seen = look_at(f, &k, 0, 0, true);
	n->cuts++;
	/* a file may have been closed before more came: that is the end of an INDEX and a FOOTER */
	n->cut_silent += last ? !same(&seen, &g->committed[last - 1]) : k.blocks != 0;
	n->cut_silent += !seen.said && (len < 80 || kvi_load16(f->p + len - 72) != 10);
	salvage(g, f, n);
	f->n = g->file.n;
}

static void work(const void *opaque, unsigned w, unsigned count, void *result)
{
	const struct vector *g = opaque;
	struct vector_counts *n = result;
	struct synth_file f = { malloc(g->file.n), g->file.n, g->file.n };
	workers_quick(&w, &count);
	REQUIRE(f.p);
	memcpy(f.p, g->file.p, f.n);
	for (size_t bit = w; bit < g->file.n * 8; bit += count)
		try_flip(g, &f, bit, n);
	for (size_t len = w; len < g->file.n; len += count)
		try_cut(g, &f, len, n);
	free(f.p);
}

static bool run(const char *name)
{
	static struct vector g;
	struct vector_counts each[WORKERS_MAX], n = { 0 };
	memset(&g, 0, sizeof g);
	golden_make(&g, name);
	unsigned count = workers_run(work, &g, each, sizeof *each);
	for (unsigned w = 0; w < count; w++) {
		n.flips += each[w].flips;
		n.detected += each[w].detected;
		n.silent += each[w].silent;
		n.cuts += each[w].cuts;
		n.cut_silent += each[w].cut_silent;
		n.salvaged += each[w].salvaged;
		n.wrong_rows += each[w].wrong_rows;
	}
	printf("good-%s, %zu bytes, %zu commits, %zu checkpoints\n", name, g.file.n, g.n_commits,
	       g.n_checkpoints);
	printf("  flips %llu: detected %llu, silent %llu\n", (unsigned long long)n.flips,
	       (unsigned long long)n.detected, (unsigned long long)n.silent);
	printf("  truncations %llu: silent, or other than what was committed %llu\n",
	       (unsigned long long)n.cuts, (unsigned long long)n.cut_silent);
	printf("  salvages %llu: rows that the file never had %llu\n",
	       (unsigned long long)n.salvaged, (unsigned long long)n.wrong_rows);
	REQUIRE(getenv("KV_QUICK") || (n.flips == g.file.n * 8 && n.cuts == g.file.n));
	free(g.file.p);
	return n.silent == 0 && n.cut_silent == 0 && n.wrong_rows == 0;
}

int main(void)
{
	static const char *const names[] = { "streams-repeat", "linear-level2", "rewind-indexes",
		                             "rewind-tracks",  "rewind-repeat", "items-turns",
		                             "items-sets",     "checkpoints",   "chains",
		                             "appended" };
	bool ok = true;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		ok = run(names[i]) && ok;
	return ok ? 0 : 1;
}
