/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * appends.c - archives that grow: commits token by token, and a second turn that ends at any write
 *
 * usage: appends tokens SLOT
 *        appends turns SLOT1 SLOT2
 * tokens: a commit behind each token, a new writer behind every hundredth; then the archive is
 * compacted. Prints the sizes over that of one call of a writer. Exit 1 when the compacted one is
 * more than 1.01.
 * turns: the second slot is appended to the archive of the first, of which the leading tokens that
 * both have are kept. Each write of that ends once in nothing, half of its bytes, or all but one:
 * the archive verifies each time, and holds exactly the tokens of the last commit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarc.h"

enum { ROW_MAX = 1 << 22, EVERY = 100, COMMITS_MAX = 256 };
#define RATIO_MAX 1.01

/* A file in memory that ends at a write. */
struct grown {
	uint8_t *p;
	size_t n, capacity;
	long writes, fail_at; /* -1: none fails */
	int part;             /* of that write: 0 nothing, 1 half, 2 all but one byte */
	/* Behind each commit: size, and tokens in the file. */
	size_t committed[COMMITS_MAX];
	size_t n_commits;
};

/* A slot file, and what was found in it. */
struct slot_file {
	struct grown file;
	kvarc_import *im;
	uint64_t tokens;
};

static void check(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "appends: %s: %s\n", what, kvarc_strerror(ret));
	exit(1);
}

static void *checked(void *p)
{
	if (!p)
		check(KVARC_MEM, "memory");
	return p;
}

static void put(struct grown *g, const void *data, size_t n, uint64_t at)
{
	if (at + n > g->capacity) {
		g->capacity = 2 * (size_t)(at + n);
		g->p = checked(realloc(g->p, g->capacity));
	}
	memcpy(g->p + at, data, n);
	g->n = at + n > g->n ? (size_t)at + n : g->n;
}

static int write_bytes(void *opaque, const void *data, size_t n, uint64_t at)
{
	enum { TYPE_AT = 8, COMMIT = 8, HEAD = 32 };
	struct grown *g = opaque;
	if (g->fail_at >= 0 && g->writes >= g->fail_at) {
		size_t part = g->part == 0 ? 0 : g->part == 1 ? n / 2 : n - 1;
		if (g->writes++ == g->fail_at)
			put(g, data, part, at);
		return -1;
	}
	g->writes++;
	put(g, data, n, at);
	if (n > HEAD && ((const uint8_t *)data)[TYPE_AT] == COMMIT && g->n_commits < COMMITS_MAX)
		g->committed[g->n_commits++] = g->n;
	return 0;
}

static int64_t read_bytes(void *opaque, void *data, size_t n, uint64_t at)
{
	const struct grown *g = opaque;
	size_t left = at < g->n ? g->n - (size_t)at : 0;
	n = n < left ? n : left;
	memcpy(data, g->p + at, n);
	return (int64_t)n;
}

static int cut_bytes(void *opaque, uint64_t n)
{
	struct grown *g = opaque;
	g->n = (size_t)n;
	return 0;
}

static kvarc_source source_of(struct grown *g)
{
	return (kvarc_source){ .read = read_bytes, .opaque = g, .size = g->n };
}

static kvarc_sink sink_of(struct grown *g)
{
	return (kvarc_sink){ .write = write_bytes, .opaque = g, .truncate = cut_bytes };
}

static void open_slot(struct slot_file *s, const char *path)
{
	uint8_t buffer[1 << 16];
	size_t got;
	FILE *f = fopen(path, "rb");
	*s = (struct slot_file){ .file = { .fail_at = -1 } };
	if (!f)
		check(KVARC_IO, path);
	while ((got = fread(buffer, 1, sizeof buffer, f)) > 0)
		put(&s->file, buffer, got, s->file.n);
	fclose(f);
	kvarc_source source = source_of(&s->file);
	check(kvarc_import_open(&s->im, &source, "slot.bin", NULL), path);
	s->tokens = kvarc_import_tokens(s->im, 0);
}

static kvarc_ret append(kvarc_writer *w, const struct slot_file *s, uint64_t t0, uint64_t end)
{
	size_t n = (size_t)(end - t0);
	int32_t *ids = checked(malloc(2 * (n + 1) * sizeof *ids)), *positions = ids + n;
	check(kvarc_import_read_tokens(s->im, 0, t0, n, ids, positions), "ids");
	kvarc_ret ret = kvarc_writer_append_fetch(w, 0, n, ids, positions, kvarc_import_fetch,
	                                          s->im);
	free(ids);
	return ret;
}

static kvarc_writer *start(struct grown *g, const struct slot_file *s)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = sink_of(g);
	kvarc_writer *w;
	o.flags = KVARC_WRITE_FILE_ID;
	check(kvarc_writer_open(&w, &sink, &o), "open");
	check(kvarc_writer_set_geometry(w, kvarc_import_geometry(s->im)), "geometry");
	return w;
}

static kvarc_writer *resume(struct grown *g)
{
	kvarc_source source = source_of(g);
	kvarc_sink sink = sink_of(g);
	kvarc_writer *w;
	check(kvarc_writer_open_append(&w, &source, &sink, NULL), "open to append");
	return w;
}

/* What an archive must hold. */
struct wanted {
	const struct slot_file *slot;
	uint8_t *row;
};

static int compare(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                   uint32_t n, const void *src)
{
	const struct wanted *x = opaque;
	const kvarc_tensor *t = &kvarc_import_geometry(x->slot->im)->tensors[tensor];
	size_t bytes = (size_t)n * heads * t->channels * kvarc_dtype_bytes(t->dtype);
	if (bytes > ROW_MAX || kvarc_import_fetch(x->slot->im, tensor, head, heads, t0, n, x->row))
		return -1;
	return memcmp(x->row, src, bytes);
}

/* Verifies an archive of the first n tokens of a slot: elements, ids and positions. */
static void compare_all(struct grown *g, const struct slot_file *s, uint64_t n)
{
	static struct wanted x;
	kvarc_source source = source_of(g);
	const kvarc_range all = KVARC_RANGE_ALL(0);
	size_t count = (size_t)n;
	int32_t *t = checked(malloc(4 * (count + 1) * sizeof *t));
	kvarc_reader *r;
	x.slot = s;
	x.row = x.row ? x.row : checked(malloc(ROW_MAX));
	check(kvarc_reader_open(&r, &source, NULL), "open the archive");
	check(kvarc_reader_verify(r, NULL, NULL), "verify");
	if (kvarc_reader_tokens(r, 0) != n)
		check(KVARC_DATA, "the number of tokens");
	check(kvarc_reader_read_deliver(r, &all, compare, &x), "elements");
	check(kvarc_reader_read_tokens(r, 0, 0, n, t, t + count), "tokens");
	check(kvarc_import_read_tokens(s->im, 0, 0, n, t + 2 * count, t + 3 * count), "ids");
	if (memcmp(t, t + 2 * count, 2 * count * sizeof *t))
		check(KVARC_DATA, "token ids or positions");
	kvarc_reader_close(&r);
	free(t);
}

/* ----- token by token ------------------------------------------------- */

static int tokens(const char *path)
{
	struct slot_file s;
	struct grown once = { .fail_at = -1 }, grown = once, small = once;
	open_slot(&s, path);
	kvarc_writer *w = start(&once, &s);
	check(append(w, &s, 0, s.tokens), "append");
	check(kvarc_writer_close(&w), "close");
	w = start(&grown, &s);
	for (uint64_t t = 0; t < s.tokens; t++) {
		check(append(w, &s, t, t + 1), "append");
		check(kvarc_writer_commit(w), "commit");
		if (t % EVERY == EVERY - 1) { /* as after a crash */
			kvarc_writer_abort(&w);
			w = resume(&grown);
		}
	}
	check(kvarc_writer_close(&w), "close");
	compare_all(&grown, &s, s.tokens);
	kvarc_source source = source_of(&grown);
	kvarc_sink sink = sink_of(&small);
	kvarc_reader *r;
	check(kvarc_reader_open(&r, &source, NULL), "open");
	check(kvarc_compact(r, &sink, NULL, NULL), "compact");
	kvarc_reader_close(&r);
	compare_all(&small, &s, s.tokens);
	double ratio = (double)small.n / (double)once.n;
	printf("%llu tokens: one call %zu bytes, a commit behind each token %zu (%.3f), "
	       "compacted %zu (%.4f, at most %.2f)\n",
	       (unsigned long long)s.tokens, once.n, grown.n, (double)grown.n / (double)once.n,
	       small.n, ratio, RATIO_MAX);
	return ratio > RATIO_MAX;
}

/* ----- a second turn --------------------------------------------------- */

static int same_token(const struct slot_file *a, const struct slot_file *b, uint64_t t,
                      uint8_t *rows)
{
	const kvarc_geometry *g = kvarc_import_geometry(a->im);
	const struct slot_file *const s[2] = { a, b };
	int32_t ids[2];
	for (int i = 0; i < 2; i++)
		check(kvarc_import_read_tokens(s[i]->im, 0, t, 1, &ids[i], NULL), "ids");
	for (uint32_t k = 0; k < g->n_tensors && ids[0] == ids[1]; k++) {
		const kvarc_tensor *x = &g->tensors[k];
		size_t bytes = (size_t)x->heads * x->channels * kvarc_dtype_bytes(x->dtype);
		for (int i = 0; i < 2; i++)
			if (kvarc_import_fetch(s[i]->im, k, 0, x->heads, t, 1,
			                       rows + (size_t)i * ROW_MAX))
				check(KVARC_IO, "elements");
		if (memcmp(rows, rows + ROW_MAX, bytes))
			return 0;
	}
	return ids[0] == ids[1];
}

/* The second turn behind the first: three commits. */
static kvarc_ret second_turn(struct grown *g, const struct slot_file *b, uint64_t common)
{
	kvarc_writer *w = resume(g);
	const uint64_t half = (common + b->tokens) / 2;
	kvarc_ret ret = kvarc_writer_checkpoint(w, "turn 1", 0, NULL);
	if (!ret)
		ret = kvarc_writer_rewind(w, 0, common);
	if (!ret)
		ret = append(w, b, common, half);
	if (!ret)
		ret = kvarc_writer_commit(w);
	if (!ret)
		ret = append(w, b, half, b->tokens);
	if (!ret)
		ret = kvarc_writer_checkpoint(w, "turn 2", 0, NULL);
	if (!ret)
		return kvarc_writer_close(&w);
	kvarc_writer_abort(&w);
	return ret;
}

static struct grown copy_of(const struct grown *g)
{
	struct grown c = { .fail_at = -1 };
	put(&c, g->p, g->n, 0);
	return c;
}

/* Tokens of the archive that ends behind its first `bytes` bytes. */
static uint64_t tokens_at(const struct grown *g, size_t bytes)
{
	struct grown part = *g;
	kvarc_reader *r;
	part.n = bytes;
	kvarc_source source = source_of(&part);
	check(kvarc_reader_open(&r, &source, NULL), "open a prefix");
	uint64_t n = kvarc_reader_tokens(r, 0);
	kvarc_reader_close(&r);
	return n;
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	*sink = sink_of(opaque);
	return 0;
}

/* The first slot comes back at the first checkpoint. */
static void unpack_first(struct grown *g, const struct slot_file *a)
{
	kvarc_reader_options o = { .checkpoint = 1 };
	struct grown back = { .fail_at = -1 };
	kvarc_source source = source_of(g);
	kvarc_reader *r;
	check(kvarc_reader_open(&r, &source, &o), "open at the checkpoint");
	check(kvarc_unpack(r, open_item, &back), "unpack");
	kvarc_reader_close(&r);
	if (back.n != a->file.n || memcmp(back.p, a->file.p, back.n))
		check(KVARC_DATA, "the first slot came back different");
	free(back.p);
}

static int turns(const char *first, const char *second)
{
	struct slot_file a, b;
	struct grown packed = { .fail_at = -1 };
	uint8_t *rows = checked(malloc(2 * (size_t)ROW_MAX));
	uint64_t common = 0;
	open_slot(&a, first);
	open_slot(&b, second);
	while (common < a.tokens && common < b.tokens && same_token(&a, &b, common, rows))
		common++;
	kvarc_sink sink = sink_of(&packed);
	check(kvarc_pack(a.im, &sink, NULL, NULL), "pack");
	struct grown all = copy_of(&packed);
	check(second_turn(&all, &b, common), "the second turn");
	compare_all(&all, &b, b.tokens);
	unpack_first(&all, &a);
	for (long k = 0; k < all.writes; k++)
		for (int part = 0; part < 3; part++) {
			struct grown g = copy_of(&packed);
			g.fail_at = k;
			g.part = part;
			if (second_turn(&g, &b, common) != KVARC_IO)
				check(KVARC_PROG, "a write that fails");
			/* Of the second turn from the commit behind the checkpoint on. */
			size_t end = g.n_commits ? g.committed[g.n_commits - 1] : packed.n;
			compare_all(&g, g.n_commits > 1 ? &b : &a, tokens_at(&all, end));
			g.fail_at = -1;
			check(part == 1 ? second_turn(&g, &b, common) : KVARC_OK, "once more");
			if (part == 1)
				compare_all(&g, &b, b.tokens);
			free(g.p);
		}
	printf("%llu of %llu tokens kept, %llu appended in %ld writes: %zu -> %zu bytes; "
	       "after each of %ld torn writes the last commit is whole\n",
	       (unsigned long long)common, (unsigned long long)a.tokens,
	       (unsigned long long)(b.tokens - common), all.writes, packed.n, all.n,
	       3 * all.writes);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "tokens"))
		return tokens(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "turns"))
		return turns(argv[2], argv[3]);
	fprintf(stderr, "usage: appends tokens SLOT\n       appends turns SLOT1 SLOT2\n");
	return 2;
}
