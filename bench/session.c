/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.c - slots of one growing session as one archive with a checkpoint each
 *
 * usage: session OUT.kva SLOT... What a slot has in common with the one before is stored once: its
 * leading tokens, and bytes outside of tensors. Prints the size over that of a pack of the last
 * slot alone, after every slot came back byte for byte, also from the compacted archive of its
 * checkpoint, and the size of the last one of these. Exit 1 when the first is more than 1.03, the
 * second more than 1.01.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/import_internal.h"
#include "files/plan.h"
#include "format/frame.h"
#include "writer/writer_internal.h"

enum { ROW_MAX = 1 << 22, SLOTS_MAX = 64, PREFIX_MIN = 16, LABEL_MAX = 32 };
#define RATIO_MAX 1.03
#define COMPACTED_MAX 1.01

struct session_bytes {
	uint8_t *p;
	size_t n, capacity;
};

/* One slot file: its bytes, what was found in it, and how it is put together. */
struct session_slot {
	struct session_bytes file;
	kvarc_import *im;
	struct kvi_restore plan;
	uint64_t tokens;
};

static void check(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "session: %s: %s\n", what, kvarc_strerror(ret));
	exit(1);
}

static void *checked(void *p)
{
	if (!p)
		check(KVARC_MEM, "memory");
	return p;
}

static int write_bytes(void *opaque, const void *data, size_t n, uint64_t at)
{
	struct session_bytes *b = opaque;
	if (at + n > b->capacity) {
		b->capacity = 2 * (size_t)(at + n);
		b->p = checked(realloc(b->p, b->capacity));
	}
	memcpy(b->p + at, data, n);
	b->n = at + n > b->n ? (size_t)at + n : b->n;
	return 0;
}

static int64_t read_bytes(void *opaque, void *data, size_t n, uint64_t at)
{
	const struct session_bytes *b = opaque;
	size_t left = at < b->n ? b->n - (size_t)at : 0;
	n = n < left ? n : left;
	memcpy(data, b->p + at, n);
	return (int64_t)n;
}

static kvarc_source source_of(struct session_bytes *b)
{
	return (kvarc_source){ .read = read_bytes, .opaque = b, .size = b->n };
}

static kvarc_sink sink_of(struct session_bytes *b)
{
	return (kvarc_sink){ .write = write_bytes, .opaque = b };
}

static void open_slot(struct session_slot *s, const char *path)
{
	uint8_t buffer[1 << 16];
	size_t got;
	FILE *f = fopen(path, "rb");
	*s = (struct session_slot){ 0 };
	if (!f)
		check(KVARC_IO, path);
	while ((got = fread(buffer, 1, sizeof buffer, f)) > 0)
		write_bytes(&s->file, buffer, got, s->file.n);
	fclose(f);
	kvarc_source source = source_of(&s->file);
	check(kvarc_import_open(&s->im, &source, "slot.bin", NULL), path);
	check(kvi_plan_make(s->im, 0, &s->plan), path);
	s->tokens = kvarc_import_tokens(s->im, 0);
}

/* Whether a token is the same in two slots: id, position and all elements. */
static bool same_token(const struct session_slot *a, const struct session_slot *b, uint64_t t,
                       uint8_t *rows)
{
	const kvarc_geometry *g = kvarc_import_geometry(a->im);
	int32_t ids[2], positions[2];
	const struct session_slot *const s[2] = { a, b };
	for (int i = 0; i < 2; i++)
		check(kvarc_import_read_tokens(s[i]->im, 0, t, 1, &ids[i], &positions[i]), "ids");
	if (ids[0] != ids[1] || positions[0] != positions[1])
		return false;
	for (uint32_t k = 0; k < g->n_tensors; k++) {
		const kvarc_tensor *x = &g->tensors[k];
		size_t bytes = (size_t)x->heads * x->channels * kvarc_dtype_bytes(x->dtype);
		for (int i = 0; i < 2; i++)
			if (kvarc_import_fetch(s[i]->im, k, 0, x->heads, t, 1, rows + i * ROW_MAX))
				check(KVARC_IO, "elements");
		if (memcmp(rows, rows + ROW_MAX, bytes))
			return false;
	}
	return true;
}

static uint64_t common_tokens(const struct session_slot *a, const struct session_slot *b)
{
	uint8_t *rows = checked(malloc(2 * (size_t)ROW_MAX));
	uint64_t t = 0;
	while (t < a->tokens && t < b->tokens && same_token(a, b, t, rows))
		t++;
	free(rows);
	return t;
}

static void put_frame(kvarc_writer *w, uint16_t type, struct kvi_out *out)
{
	check(out->failed ? KVARC_MEM : kvi_writer_frame(w, type, out->p, out->n, true), "frame");
	out->n = 0;
}

/* Literal pieces that begin like the same ones of the first slot refer to those. blob: what is left
 * to store. */
static void put_item(kvarc_writer *w, const struct session_slot *first,
                     const struct session_slot *s, uint64_t item)
{
	struct kvi_restore r = s->plan;
	struct kvi_out out, blob;
	const struct kvi_piece *p = s->plan.pieces, *q = first->plan.pieces;
	uint64_t at = 0, from = 0, from_at = 0;
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_out_init(&blob, kvi_writer_alloc(w));
	kvi_blob_put_head(&blob, item, 0);
	const size_t head = blob.n;
	r.pieces = checked(calloc(2 * r.n_pieces + 1, sizeof *r.pieces));
	r.n_pieces = 0;
	for (size_t i = 0; i < s->plan.n_pieces; at += p[i++].bytes) {
		uint64_t n = 0;
		if (p[i].type != KVI_PIECE_LITERAL) {
			r.pieces[r.n_pieces++] = p[i];
		} else {
			bool same = item && i < first->plan.n_pieces &&
			            q[i].type == KVI_PIECE_LITERAL;
			while (same && n < p[i].bytes && n < q[i].bytes &&
			       s->file.p[at + n] == first->file.p[from_at + n])
				n++;
			n = n < PREFIX_MIN ? 0 : n;
			if (n)
				r.pieces[r.n_pieces++] = (struct kvi_piece){
					.type = KVI_PIECE_REFERENCE, .bytes = n, .from = from
				};
			if (n < p[i].bytes)
				r.pieces[r.n_pieces++] = (struct kvi_piece){
					.type = KVI_PIECE_LITERAL, .bytes = p[i].bytes - n
				};
			kvi_put_bytes(&blob, s->file.p + at + n, (size_t)(p[i].bytes - n));
		}
		if (i < first->plan.n_pieces) {
			from += q[i].type == KVI_PIECE_LITERAL ? q[i].bytes : 0;
			from_at += q[i].bytes;
		}
	}
	kvi_restore_put(&out, &r);
	put_frame(w, KVI_FRAME_RESTORE, &out);
	if (blob.n > head)
		put_frame(w, KVI_FRAME_BLOB, &blob);
	free(r.pieces);
	kvi_out_free(&out);
	kvi_out_free(&blob);
}

static void put_tokens(kvarc_writer *w, const struct session_slot *s, uint64_t t0)
{
	size_t n = (size_t)(s->tokens - t0);
	int32_t *ids = checked(malloc(2 * (n + 1) * sizeof *ids)), *positions = ids + n;
	check(kvarc_import_read_tokens(s->im, 0, t0, n, ids, positions), "ids");
	check(kvarc_writer_append_fetch(w, 0, n, ids, positions, kvarc_import_fetch, s->im),
	      "append");
	free(ids);
}

static void write_session(struct session_bytes *out, const struct session_slot *slots, size_t n)
{
	kvarc_sink sink = sink_of(out);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_writer *w;
	o.flags = KVARC_WRITE_FILE_ID;
	check(kvarc_writer_open(&w, &sink, &o), "open");
	check(kvarc_writer_set_geometry(w, kvarc_import_geometry(slots[0].im)), "geometry");
	for (size_t i = 0; i < n; i++) {
		char label[LABEL_MAX];
		uint64_t common = i ? common_tokens(&slots[i - 1], &slots[i]) : 0;
		snprintf(label, sizeof label, "turn %zu", i + 1);
		if (i && common < slots[i - 1].tokens)
			check(kvarc_writer_rewind(w, 0, common), "rewind");
		put_tokens(w, &slots[i], common);
		put_item(w, &slots[0], &slots[i], i);
		check(kvarc_writer_checkpoint(w, label, 0, NULL), "checkpoint");
		printf("%s: %llu tokens, %llu of them new, file %zu bytes\n", label,
		       (unsigned long long)slots[i].tokens,
		       (unsigned long long)(slots[i].tokens - common), out->n);
	}
	check(kvarc_writer_close(&w), "close");
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	*sink = sink_of(opaque);
	return 0;
}

static void check_slot(struct session_bytes *archive, const struct session_slot *s,
                       uint64_t checkpoint)
{
	kvarc_reader_options o = { .checkpoint = checkpoint };
	kvarc_source source = source_of(archive);
	struct session_bytes back = { 0 };
	kvarc_reader *r;
	check(kvarc_reader_open(&r, &source, &o), "open the archive");
	check(kvarc_reader_verify(r, NULL, NULL), "verify");
	check(kvarc_unpack(r, open_item, &back), "unpack");
	kvarc_reader_close(&r);
	if (back.n != s->file.n || memcmp(back.p, s->file.p, back.n))
		check(KVARC_DATA, "a slot came back different");
	free(back.p);
}

/* The archive of one checkpoint alone. */
static size_t check_compacted(struct session_bytes *archive, const struct session_slot *s,
                              uint64_t checkpoint)
{
	kvarc_reader_options o = { .checkpoint = checkpoint };
	kvarc_source source = source_of(archive);
	struct session_bytes small = { 0 };
	kvarc_sink sink = sink_of(&small);
	kvarc_reader *r;
	check(kvarc_reader_open(&r, &source, &o), "open the archive");
	check(kvarc_compact(r, &sink, NULL, NULL), "compact");
	kvarc_reader_close(&r);
	check_slot(&small, s, 0);
	free(small.p);
	return small.n;
}

int main(int argc, char **argv)
{
	static struct session_slot slots[SLOTS_MAX];
	struct session_bytes archive = { 0 }, alone = { 0 };
	size_t n = argc > 2 ? (size_t)argc - 2 : 0;
	if (!n || n > SLOTS_MAX) {
		fprintf(stderr, "usage: session OUT.kva SLOT...\n");
		return 2;
	}
	for (size_t i = 0; i < n; i++)
		open_slot(&slots[i], argv[i + 2]);
	write_session(&archive, slots, n);
	size_t compacted = 0;
	for (size_t i = 0; i < n; i++) {
		check_slot(&archive, &slots[i], i + 1);
		compacted = check_compacted(&archive, &slots[i], i + 1);
	}
	kvarc_sink sink = sink_of(&alone);
	check(kvarc_pack(slots[n - 1].im, &sink, NULL, NULL), "pack");
	FILE *f = fopen(argv[1], "wb");
	if (!f || fwrite(archive.p, 1, archive.n, f) != archive.n || fclose(f))
		check(KVARC_IO, argv[1]);
	double ratio = (double)archive.n / (double)alone.n;
	double rest = (double)compacted / (double)alone.n;
	printf("%zu checkpoints %zu bytes, the last slot alone %zu bytes: %.4f (at most %.2f); "
	       "the last checkpoint compacted %zu bytes: %.4f (at most %.2f); all slots are back "
	       "byte for byte\n",
	       n, archive.n, alone.n, ratio, RATIO_MAX, compacted, rest, COMPACTED_MAX);
	for (size_t i = 0; i < n; i++) {
		kvi_restore_free(&slots[i].plan, &slots[i].im->alloc);
		kvarc_import_close(&slots[i].im);
		free(slots[i].file.p);
	}
	free(archive.p);
	free(alone.p);
	return ratio > RATIO_MAX || rest > COMPACTED_MAX;
}
