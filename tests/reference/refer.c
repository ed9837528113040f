/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * refer.c - an archive with parts in a store, of a small archive, for the reference decoder
 *
 * refer SEED ARCHIVE OUT FOLDER: OUT has the tokens of ARCHIVE; as many of the first segments of
 * each track as SEED says lie in a store, FOLDER, to which ARCHIVE is copied under their keys
 * (spec/vectors/README.md). Others follow, some behind a rewind into the last stored one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvarc.h>

static const char *const keys[] = { "model", "namespace" };
static const char *const values[] = { "random", "random" };
static uint64_t random_state;

static uint32_t below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 32) % n;
}

static void *checked(void *p)
{
	if (!p) {
		fprintf(stderr, "refer: out of memory\n");
		exit(1);
	}
	return p;
}

static void check(kvarc_ret ret, const kvarc_error *e, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "refer: %s: %s (%s)\n", what, kvarc_strerror(ret), e->text);
	exit(1);
}

/* A file in memory. */
struct archive_bytes {
	uint8_t *p;
	size_t n;
};

static struct archive_bytes read_file(const char *path)
{
	FILE *f = checked(fopen(path, "rb"));
	struct archive_bytes b = { NULL, 0 };
	if (fseek(f, 0, SEEK_END) == 0)
		b.n = (size_t)ftell(f);
	rewind(f);
	b.p = checked(malloc(b.n + 1));
	b.n = fread(b.p, 1, b.n, f);
	fclose(f);
	return b;
}

static int append_bytes(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct archive_bytes *b = opaque;
	if (offset != b->n)
		return -1;
	b->p = checked(realloc(b->p, b->n + bytes));
	memcpy(b->p + b->n, buf, bytes);
	b->n += bytes;
	return 0;
}

static void write_file(const char *path, const struct archive_bytes *b)
{
	FILE *f = checked(fopen(path, "wb"));
	if (fwrite(b->p, 1, b->n, f) != b->n || fclose(f)) {
		fprintf(stderr, "refer: writing %s failed\n", path);
		exit(1);
	}
}

/* One archive becomes another. */
struct referring {
	kvarc_reader *r;
	kvarc_writer *w;
	kvarc_error error;
	const kvarc_geometry *g;
	const struct archive_bytes *object;
	const char *folder;
	kvarc_view *views; /* of the track in hand, from its first token on */
	kvarc_view *at;    /* the same from another one on */
};

static void put_object(const struct referring *x, const kvarc_stored *s)
{
	const uint8_t *key = s->has_chain ? s->chain : s->digest;
	char path[4096], hex[33];
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", key[i]);
	snprintf(path, sizeof path, "%s/object-%s-%s.kva", x->folder, values[1], hex);
	write_file(path, x->object);
}

static const kvarc_view *views_at(struct referring *x, uint64_t t0)
{
	for (size_t i = 0; i < x->g->n_tensors; i++) {
		x->at[i] = x->views[i];
		if (x->at[i].data)
			x->at[i].data = (uint8_t *)x->at[i].data + t0 * x->at[i].token_stride;
	}
	return x->at;
}

/* The elements of a track. */
static void read_track(struct referring *x, uint32_t track)
{
	const uint64_t tokens = kvarc_reader_tokens(x->r, track);
	const kvarc_range range = KVARC_RANGE_ALL(track);
	for (size_t i = 0; i < x->g->n_tensors; i++) {
		const kvarc_tensor *t = &x->g->tensors[i];
		const size_t elem = kvarc_dtype_bytes(t->dtype);
		free(x->views[i].data);
		x->views[i] =
			(kvarc_view){ .block_elems = t->heads * t->channels,
			              .elem_stride = (uint32_t)elem,
			              .token_stride = (uint64_t)t->heads * t->channels * elem };
		if (t->track == track)
			x->views[i].data =
				checked(malloc((size_t)tokens * x->views[i].token_stride + 1));
	}
	check(kvarc_reader_read(x->r, &range, x->views), &x->error, "read");
}

/* Ids of n tokens, NULL: they have none; and positions. */
static const int32_t *read_tokens(struct referring *x, const kvarc_stored *s, int32_t *ids,
                                  int32_t *positions)
{
	kvarc_ret ret = kvarc_reader_read_tokens(x->r, s->track, s->t0, s->left, ids, NULL);
	check(kvarc_reader_read_tokens(x->r, s->track, s->t0, s->left, NULL, positions), &x->error,
	      "positions");
	return ret == KVARC_OK ? ids : NULL;
}

/* Makes a segment of the archive one of the store. */
static void put_stored(struct referring *x, kvarc_stored *s, int text, uint8_t chain[16])
{
	int32_t ids[256], positions[256];
	const int32_t *with = read_tokens(x, s, ids, positions);
	check(kvarc_content_digest(x->g, s->track, s->n, with, positions, views_at(x, s->t0),
	                           s->digest),
	      &x->error, "digest");
	s->has_chain = text && with;
	memset(s->chain, 0, sizeof s->chain);
	if (s->has_chain)
		check(kvarc_chain_next(chain, s->track, s->n, with, positions, s->chain), &x->error,
		      "chain");
	memcpy(chain, s->chain, 16);
	put_object(x, s);
	check(kvarc_writer_append_stored(x->w, 1, s, with, positions), &x->error, "append_stored");
}

static void put_tokens(struct referring *x, kvarc_stored s, uint32_t skip)
{
	int32_t ids[256], positions[256];
	const int32_t *with;
	s.t0 += skip;
	s.left -= skip;
	with = read_tokens(x, &s, ids, positions);
	check(kvarc_writer_append(x->w, s.track, s.left, with, positions, views_at(x, s.t0)),
	      &x->error, "append");
}

static void put_track(struct referring *x, uint32_t track)
{
	kvarc_stored s;
	uint8_t chain[16];
	int text = (int)below(3), stores = 1;
	unsigned flags;
	read_track(x, track);
	check(kvarc_chain_root(x->g, 2, keys, values, chain), &x->error, "root");
	for (uint64_t i = 0; kvarc_reader_segment_at(x->r, i, &s, &flags) == KVARC_OK; i++) {
		if (s.track != track)
			continue;
		stores = stores && !flags && below(4);
		if (!stores) {
			put_tokens(x, s, 0);
			continue;
		}
		put_stored(x, &s, text, chain);
		text = text && s.has_chain;
		if (!below(3))
			check(kvarc_writer_checkpoint(x->w, "stored", 0, NULL), &x->error,
			      "checkpoint");
		if (below(3))
			continue;
		const uint32_t left = below(s.n); /* the rest of it is written again */
		check(kvarc_writer_rewind(x->w, track, s.t0 + left), &x->error, "rewind");
		put_tokens(x, s, left);
		stores = 0;
	}
}

int main(int argc, char **argv)
{
	struct archive_bytes out = { NULL, 0 };
	struct referring x = { .folder = argc == 5 ? argv[4] : NULL };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_sink sink = { .write = append_bytes, .opaque = &out };
	if (argc != 5) {
		fprintf(stderr, "usage: refer SEED ARCHIVE OUT FOLDER\n");
		return 2;
	}
	random_state = strtoull(argv[1], NULL, 0) * 2 + 1;
	struct archive_bytes in = read_file(argv[2]);
	const kvarc_source source = { .memory = in.p, .size = in.n };
	x.object = &in;
	ro.flags = KVARC_READ_ALLOW_LOSSY;
	ro.common.error = o.common.error = &x.error;
	o.level = KVARC_LEVEL((int)below(2));
	o.flags = KVARC_WRITE_STORED | KVARC_WRITE_FILE_ID;
	check(kvarc_reader_open(&x.r, &source, &ro), &x.error, "open");
	x.g = kvarc_reader_geometry(x.r);
	x.views = checked(calloc(x.g->n_tensors + 1, sizeof *x.views));
	x.at = checked(calloc(x.g->n_tensors + 1, sizeof *x.at));
	check(kvarc_writer_open(&x.w, &sink, &o), &x.error, "open");
	check(kvarc_writer_set_geometry(x.w, x.g), &x.error, "geometry");
	check(kvarc_writer_identity(x.w, 2, keys, values), &x.error, "identity");
	for (uint32_t i = 0; i < x.g->n_tracks; i++)
		put_track(&x, i);
	check(kvarc_writer_close(&x.w), &x.error, "close");
	write_file(argv[3], &out);
	for (size_t i = 0; i < x.g->n_tensors; i++)
		free(x.views[i].data);
	free(x.views);
	free(x.at);
	kvarc_reader_close(&x.r);
	free(in.p);
	free(out.p);
	return 0;
}
