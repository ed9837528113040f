/* SPDX-License-Identifier: BSD-3-Clause */
/* append_util.c - archives that are appended to, on files that tear: for the append tests */
#include "append_util.h"

#include "format/frame.h"

static int torn_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct torn *t = opaque;
	struct memfile *f = &t->f;
	const uint8_t *frame = buf;
	bool fails = t->fail_at >= 0 && t->calls >= t->fail_at;
	size_t n = !fails ? bytes : t->calls == t->fail_at ? bytes * t->part / 16 : 0;
	t->calls++;
	if (n && offset + n > f->cap) {
		f->cap = 2 * ((size_t)offset + n);
		f->p = realloc(f->p, f->cap);
		assert_non_null(f->p);
	}
	assert_true(!n || t->anywhere || offset == f->n); /* strictly forward */
	if (n)
		memcpy(f->p + offset, buf, n);
	f->n = offset + n > f->n ? (size_t)offset + n : f->n;
	if (!fails && bytes >= KVI_FRAME_HEAD_BYTES && frame[8] == KVI_FRAME_COMMIT && offset) {
		assert_true(t->n_commits < 512);
		t->commits[t->n_commits++] = f->n;
	}
	return fails ? -1 : 0;
}

static int torn_flush(void *opaque)
{
	struct torn *t = opaque;
	t->flushes++;
	return t->flush_fails ? -1 : 0;
}

static int torn_truncate(void *opaque, uint64_t bytes)
{
	struct torn *t = opaque;
	assert_true(bytes < t->f.n);
	t->truncates++;
	t->f.n = (size_t)bytes;
	return 0;
}

void torn_free(struct torn *t)
{
	memfile_free(&t->f);
	*t = (struct torn){ .fail_at = -1, .f = { .fail_at = -1 } };
}

void torn_copy(struct torn *t, const struct memfile *f, size_t n)
{
	*t = (struct torn){ .fail_at = -1, .f = { .fail_at = -1, .p = malloc(n + 1), .n = n } };
	assert_non_null(t->f.p);
	memcpy(t->f.p, f->p, n);
	t->f.cap = n;
}

kvarc_sink torn_sink(struct torn *t)
{
	return (kvarc_sink){ .write = torn_write,
		             .flush = torn_flush,
		             .opaque = t,
		             .truncate = t->no_truncate ? NULL : torn_truncate };
}

/* Of the size that the file has now: reads behind it are of a file that grew. */
static int64_t torn_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct torn *t = opaque;
	size_t n = offset < t->f.n ? t->f.n - (size_t)offset : 0;
	n = n < bytes ? n : bytes;
	memcpy(buf, t->f.p + offset, n);
	return (int64_t)n;
}

kvarc_source torn_source(struct torn *t)
{
	return (kvarc_source){ .read = torn_read, .opaque = t, .size = t->f.n };
}

void cache_as_text(struct cache *c)
{
	for (size_t i = 0; i < c->g.n_tracks; i++)
		for (uint64_t t = 0; t < c->n[i]; t++) {
			c->ids[i][t] &= INT32_MAX;
			c->positions[i][t] = (int32_t)t;
		}
}

void cache_mix(struct cache *to, const struct cache *from, uint32_t track, uint64_t t)
{
	for (size_t i = 0; i < to->g.n_tensors; i++) {
		size_t all = (size_t)to->n[track];
		size_t at = all ? cache_bytes(to, i) / all * (size_t)t : 0;
		if (to->tensors[i].track == track)
			memcpy(to->data[i] + at, from->data[i] + at, cache_bytes(to, i) - at);
	}
	for (; t < to->n[track]; t++) {
		to->ids[track][t] = from->ids[track][t];
		to->positions[track][t] = from->positions[track][t];
	}
}

kvarc_writer *append_open(struct torn *t, const kvarc_writer_options *o)
{
	kvarc_source source = torn_source(t);
	kvarc_sink sink = torn_sink(t);
	static kvarc_error e; /* outlives the writer */
	kvarc_writer_options mine = *o;
	kvarc_writer *w;
	mine.common.error = &e;
	kvarc_ret ret = kvarc_writer_open_append(&w, &source, &sink, &mine);
	if (ret)
		fail_msg("open_append: %s: %s", kvarc_strerror(ret), e.text);
	return w;
}

kvarc_ret append_tokens(kvarc_writer *w, const struct cache *c, uint32_t track, uint64_t t0,
                        uint64_t end)
{
	kvarc_view views[16];
	cache_views_at(c, t0, views);
	return kvarc_writer_append(w, track, end - t0, c->ids[track] + t0, c->positions[track] + t0,
	                           views);
}

/* The first n tokens of two caches. */
static void check_equal(const struct cache *a, const struct cache *b, const uint64_t *n)
{
	for (size_t i = 0; i < a->g.n_tensors; i++) {
		uint32_t track = a->tensors[i].track;
		size_t row = a->n[track] ? cache_bytes(a, i) / (size_t)a->n[track] : 0;
		assert_memory_equal(a->data[i], b->data[i], row * (size_t)n[track]);
	}
	for (size_t i = 0; i < a->g.n_tracks; i++) {
		assert_memory_equal(a->ids[i], b->ids[i], 4 * (size_t)n[i]);
		assert_memory_equal(a->positions[i], b->positions[i], 4 * (size_t)n[i]);
	}
}

kvarc_state append_check(struct memfile *f, const struct cache *c, const uint64_t *n,
                         uint64_t checkpoint)
{
	kvarc_reader_options o = { .checkpoint = checkpoint };
	struct cache part = *c, back;
	kvarc_source source = memfile_source(f);
	kvarc_error e = { 0 };
	kvarc_reader *r;
	kvarc_info info;
	kvarc_chunk_info chunk;
	o.common.error = &e;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	if (!ret)
		ret = kvarc_reader_verify(r, NULL, NULL);
	if (ret)
		fail_msg("%s: %s", kvarc_strerror(ret), e.text);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++)
		assert_true(info.codecs >> chunk.codec & 1);
	for (uint32_t i = 0; i < c->g.n_tracks; i++) {
		assert_int_equal(kvarc_reader_tokens(r, i), n[i]);
		part.n[i] = n[i];
	}
	kvarc_reader_close(&r);
	for (int way = 0; way < 2; way++) {
		cache_make_empty(&back, &part);
		ret = way ? cache_read_range(&back, f, &o) : cache_read_seq(&back, f, &o, NULL);
		assert_int_equal(ret, KVARC_OK);
		check_equal(c, &back, n);
		cache_free(&back);
	}
	return info.state;
}
