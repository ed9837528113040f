/* SPDX-License-Identifier: BSD-3-Clause */
/* test_crypt.c - encrypted archives: keys, all ways of reading, append, salvage (frames.md 12.1) */
#include "append_util.h"

#include "format/crypt.h"
#include "util/arguments.h"
#include "util/bytes.h"

static const uint8_t key_bytes[3][KVARC_KEY_BYTES] = { { 1 }, { 2 }, { 3 } };
#define GIVEN(i)                                                                     \
	{                                                                            \
		.kind = KVARC_KEY_GIVEN, .bytes = key_bytes[i], .n = KVARC_KEY_BYTES \
	}
static const kvarc_key key_list[] = { GIVEN(0), GIVEN(1), GIVEN(2) };
static const kvarc_keys key_0 = { .list = &key_list[0], .n = 1 };
static const kvarc_keys key_1 = { .list = &key_list[1], .n = 1 };
static const kvarc_keys keys_12 = { .list = &key_list[1], .n = 2 };

static kvarc_key passphrase(const char *text)
{
	return (kvarc_key){ .kind = KVARC_KEY_PASSPHRASE,
		            .passes = 1,
		            .memory_kib = 1 << 10,
		            .bytes = text,
		            .n = strlen(text) };
}

static struct memfile encrypted(const struct cache *c, int level, unsigned threads,
                                const kvarc_keys *keys)
{
	kvarc_writer_options o = stream_options(level, threads);
	o.flags = 0;
	o.keys = keys;
	return stream_written(c, &o);
}

static kvarc_ret open_with(struct memfile *f, const kvarc_keys *keys, uint64_t memlimit,
                           kvarc_error *e)
{
	kvarc_reader_options o = { .keys = keys };
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	o.common.memlimit = memlimit;
	o.common.error = e;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	assert_true(!ret == !!r);
	kvarc_reader_close(&r);
	return ret;
}

static int64_t no_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	(void)opaque, (void)buf, (void)bytes, (void)offset;
	return -1;
}

/* From memory that must not be written to. */
static kvarc_ret verify_memory(const struct memfile *f, const kvarc_keys *keys)
{
	kvarc_reader_options o = { .keys = keys };
	kvarc_source source = { .read = no_read, .size = f->n, .memory = f->p };
	uint8_t *copy = malloc(f->n);
	kvarc_reader *r;
	assert_non_null(copy);
	memcpy(copy, f->p, f->n);
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	if (!ret)
		ret = kvarc_reader_verify(r, NULL, NULL);
	kvarc_reader_close(&r);
	assert_memory_equal(copy, f->p, f->n);
	free(copy);
	return ret;
}

static void all_ways(void **state)
{
	(void)state;
	for (int number = 0; number < CACHES; number++) {
		struct cache c, back;
		cache_make(&c, number, 5);
		for (int level = 0; level < 2; level++) {
			const unsigned threads = level ? 3 : 1;
			kvarc_reader_options o = { .keys = &key_0 };
			struct memfile f = encrypted(&c, level, threads, &key_0);
			o.common.threads = threads;
			for (int way = 0; way < 3; way++) {
				cache_make_empty(&back, &c);
				f.pipe = way == 2;
				f.next = 0;
				assert_int_equal(way == 1 ? cache_read_range(&back, &f, &o)
				                          : cache_read_seq(&back, &f, &o, NULL),
				                 KVARC_OK);
				assert_true(cache_equal(&c, &back));
				cache_free(&back);
			}
			f.pipe = false;
			assert_int_equal(cache_verify(&f, &o), KVARC_OK);
			assert_int_equal(verify_memory(&f, &key_0), KVARC_OK);
			memfile_free(&f);
		}
		cache_free(&c);
	}
}

/* Without the key nothing shows: not the tensors, not the same content twice. */
static void hidden(void **state)
{
	(void)state;
	struct cache c;
	cache_make(&c, 6, 5); /* bytes that are stored as they are, or nearly so */
	memset(c.data[0], 'x', cache_bytes(&c, 0));
	c.data[0][0] = 'y';
	struct memfile f = encrypted(&c, 0, 1, &key_0), g = encrypted(&c, 0, 1, &key_0);
	assert_int_equal(f.n, g.n);
	for (size_t i = 0; i + 64 < f.n; i++) {
		assert_false(kvi_all_zero(f.p + i, 64));
		assert_false(i > 64 && !memcmp(f.p + i, "test model", 10));
		assert_false(!memcmp(f.p + i, c.data[0] + 64, 32));
	}
	assert_memory_not_equal(f.p + 24, g.p + 24, 16); /* file id */
	memfile_free(&f);
	memfile_free(&g);
	cache_free(&c);
}

static void which_key(void **state)
{
	(void)state;
	const kvarc_key phrases[] = { passphrase("first"), passphrase("second"), GIVEN(0) };
	const kvarc_keys both = { .list = phrases, .n = 3 };
	const kvarc_keys first = { .list = &phrases[0], .n = 1 };
	const kvarc_keys second = { .list = &phrases[1], .n = 1 };
	const kvarc_key other = passphrase("third");
	const kvarc_keys third = { .list = &other, .n = 1 };
	const kvarc_key as_phrase = { .kind = KVARC_KEY_PASSPHRASE,
		                      .bytes = key_bytes[0],
		                      .n = KVARC_KEY_BYTES };
	const kvarc_keys wrong_kind = { .list = &as_phrase, .n = 1 };
	kvarc_error e;
	struct cache c;
	cache_make(&c, 5, 5);
	struct memfile f = encrypted(&c, 0, 1, &both);
	assert_int_equal(open_with(&f, &first, 0, &e), KVARC_OK);
	assert_int_equal(open_with(&f, &second, 0, &e), KVARC_OK);
	assert_int_equal(open_with(&f, &key_0, 0, &e), KVARC_OK);
	assert_int_equal(open_with(&f, &both, 0, &e), KVARC_OK);
	assert_int_equal(open_with(&f, &third, 0, &e), KVARC_AUTH);
	assert_non_null(strstr(e.text, "no key or passphrase that was given"));
	assert_int_equal(open_with(&f, &wrong_kind, 0, &e), KVARC_AUTH);
	assert_int_equal(open_with(&f, &keys_12, 0, &e), KVARC_AUTH);
	assert_int_equal(open_with(&f, NULL, 0, &e), KVARC_AUTH);
	assert_non_null(strstr(e.text, "no key was given"));
	f.pipe = true;
	assert_int_equal(open_with(&f, NULL, 0, &e), KVARC_AUTH);
	f.pipe = false;
	/* The memory of the passphrase, before it is used. */
	assert_int_equal(open_with(&f, &second, 1 << 20, &e), KVARC_MEMLIMIT);
	assert_true(e.bytes_needed > 1 << 20 && e.bytes_needed < 3 << 20);
	assert_int_equal(open_with(&f, &second, e.bytes_needed + (1 << 19), &e), KVARC_OK);
	/* Salvage of an archive that is fine wants a key, too. */
	kvarc_reader_options o = { .flags = KVARC_READ_SALVAGE };
	assert_int_equal(cache_verify(&f, &o), KVARC_AUTH);
	o.keys = &first;
	assert_int_equal(cache_verify(&f, &o), KVARC_OK);
	memfile_free(&f);
	/* A key for an archive that needs none. */
	kvarc_writer_options plain = stream_options(0, 1);
	f = stream_written(&c, &plain);
	assert_int_equal(open_with(&f, &key_0, 0, &e), KVARC_OK);
	memfile_free(&f);
	cache_free(&c);
}

/* A passphrase after Argon2id, for its salt alone. */
static void derived(void **state)
{
	uint8_t bytes[2][KVARC_KEY_DERIVED_BYTES];
	const kvarc_key phrase = passphrase("first"), other = passphrase("second");
	kvarc_key list[3] = { { .kind = KVARC_KEY_DERIVED, .passes = 1, .memory_kib = 1 << 10 } };
	const kvarc_keys one = { .list = list, .n = 1 }, pair = { .list = list, .n = 2 };
	const kvarc_keys first = { .list = &phrase, .n = 1 }, second = { .list = &other, .n = 1 };
	kvarc_error e;
	struct cache c;
	(void)state;
	cache_make(&c, 5, 5);
	for (int i = 0; i < 2; i++) {
		memset(bytes[i], 0x51 + i, KVI_AEAD_SALT_BYTES);
		assert_int_equal(kvi_aead_derive(bytes[i] + KVI_AEAD_SALT_BYTES, phrase.bytes,
		                                 phrase.n, bytes[i], 1, 1 << 10),
		                 KVARC_OK);
	}
	list[0].bytes = bytes[0];
	list[0].n = KVARC_KEY_DERIVED_BYTES;
	struct memfile f = encrypted(&c, 0, 1, &one);
	assert_int_equal(open_with(&f, &one, 0, &e), KVARC_OK);
	assert_int_equal(open_with(&f, &first, 0, &e), KVARC_OK);
	assert_int_equal(open_with(&f, &second, 0, &e), KVARC_AUTH);
	/* without the memory of Argon2id, which the passphrase behind it is spared, too */
	assert_int_equal(open_with(&f, &one, 1 << 20, &e), KVARC_OK);
	list[1] = other;
	assert_int_equal(open_with(&f, &pair, 1 << 20, &e), KVARC_OK);
	memfile_free(&f);
	list[0].bytes = bytes[1];
	f = encrypted(&c, 0, 1, &one);
	assert_int_equal(open_with(&f, &one, 0, &e), KVARC_OK);
	list[0].bytes = bytes[0];
	assert_int_equal(open_with(&f, &one, 0, &e), KVARC_AUTH);
	list[1] = phrase;
	assert_int_equal(open_with(&f, &pair, 0, &e), KVARC_OK);
	memfile_free(&f);
	cache_free(&c);
}

/* The KEY frame at an offset, with other work for a passphrase. */
static void ask_for(struct memfile *f, size_t offset, uint32_t passes, uint32_t memory)
{
	uint8_t *p = f->p + offset;
	kvi_store32(p + KVI_FRAME_HEAD_BYTES + 8, passes);
	kvi_store32(p + KVI_FRAME_HEAD_BYTES + 12, memory);
	kvi_frame_close(p, offset, KVI_KEY_PAYLOAD_BYTES, kvi_frame_rest(p, KVI_KEY_PAYLOAD_BYTES));
}

/* A file asks a passphrase for so much work and no more (rule R12.6): of one frame, of several in
 * all, and of what is written. */
static void work(void **state)
{
	enum { MAX = 1 << 22, SUPERBLOCK = 64 };
	const kvarc_key phrases[] = { passphrase("first"), passphrase("second") };
	const kvarc_keys both = { .list = phrases, .n = 2 };
	const kvarc_keys first = { .list = &phrases[0], .n = 1 };
	const kvarc_keys second = { .list = &phrases[1], .n = 1 };
	kvarc_key much[3] = { passphrase("a"), passphrase("b"), GIVEN(0) };
	const kvarc_keys all = { .list = much, .n = 3 };
	kvarc_error e;
	struct cache c;
	(void)state;
	cache_make(&c, 5, 5);
	struct memfile f = encrypted(&c, 0, 1, &both);
	ask_for(&f, SUPERBLOCK, 64, 1 << 22);
	assert_int_equal(open_with(&f, &first, 0, &e), KVARC_AUTH);
	assert_non_null(strstr(e.text, "more work"));
	assert_int_equal(open_with(&f, &second, 0, &e), KVARC_OK);
	ask_for(&f, SUPERBLOCK, 1, 1 << 10);
	assert_int_equal(open_with(&f, &first, 0, &e), KVARC_OK);
	/* the frames, one by one; the first is so little work that it counts 2^10 */
	ask_for(&f, SUPERBLOCK, 1, 8);
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, NULL, 64 << 20);
	for (uint64_t left = 1023; left <= 2048; left += left == 1023 ? 1 : 1024) {
		struct kvi_crypt *k;
		assert_int_equal(kvi_crypt_open(&k, &alloc, f.p + 24, &second, &e), KVARC_OK);
		k->work = MAX - left;
		for (int i = 0; i < 2; i++) {
			const size_t at = SUPERBLOCK +
			                  (size_t)i * kvi_frame_bytes(KVI_KEY_PAYLOAD_BYTES);
			struct kvi_frame frame = { .offset = at,
				                   .payload = f.p + at + KVI_FRAME_HEAD_BYTES };
			assert_true(kvi_frame_head_parse(&frame.head, f.p + at,
			                                 kvi_load64(f.p + at), at));
			assert_int_equal(kvi_crypt_frame(k, &frame, f.p + at, NULL, &e), KVARC_OK);
		}
		assert_int_equal(k->work, left == 2048 ? MAX : left == 1024 ? MAX : MAX - left);
		assert_int_equal(k->known, left == 2048);
		assert_int_equal(k->too_much, left != 2048);
		kvi_crypt_close(&k);
	}
	memfile_free(&f);
	kvarc_writer_options o = stream_options(0, 1);
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	o.flags = 0;
	o.keys = &all;
	much[0].passes = much[1].passes = 64;
	much[0].memory_kib = 1 << 15;
	much[1].memory_kib = (1 << 15) + 1;
	kvarc_ret ret = kvarc_writer_open(&w, &sink, &o);
	if (!ret)
		ret = kvarc_writer_set_geometry(w, &c.g);
	assert_int_equal(ret, KVARC_PROG);
	kvarc_writer_abort(&w);
	memfile_free(&f);
	cache_free(&c);
}

static void wrong_arguments(void **state)
{
	(void)state;
	static const kvarc_key bad[] = {
		{ .kind = (kvarc_key_kind)4, .bytes = key_bytes, .n = 32 },
		{ .kind = KVARC_KEY_DERIVED, .bytes = key_bytes, .n = 32 },
		{ .kind = KVARC_KEY_GIVEN, .bytes = key_bytes, .n = 31 },
		{ .kind = KVARC_KEY_GIVEN, .n = 32 },
		{ .kind = KVARC_KEY_PASSPHRASE, .bytes = "", .n = 0 },
		{ .kind = KVARC_KEY_PASSPHRASE, .bytes = "a", .n = 4097 },
		{ .kind = KVARC_KEY_GIVEN, .bytes = key_bytes, .n = 32, .reserved = { 0, 1 } },
		{ .kind = KVARC_KEY_PASSPHRASE, .bytes = "a", .n = 1, .passes = 65 },
		{ .kind = KVARC_KEY_PASSPHRASE, .bytes = "a", .n = 1, .memory_kib = 7 },
		{ .kind = KVARC_KEY_PASSPHRASE, .bytes = "a", .n = 1, .memory_kib = 4194305 },
	};
	static const kvarc_keys sets[] = {
		{ .list = key_list, .n = 0 },
		{ .list = NULL, .n = 1 },
		{ .list = key_list, .n = KVARC_KEYS_MAX + 1 },
		{ .list = key_list, .n = 1, .reserved = { 1 } },
	};
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_writer *w;
	for (size_t i = 0; i < sizeof bad / sizeof *bad + sizeof sets / sizeof *sets; i++) {
		const size_t n_bad = sizeof bad / sizeof *bad;
		const kvarc_keys one = { .list = &bad[i % n_bad], .n = 1 };
		o.keys = i < n_bad ? &one : &sets[i - n_bad];
		assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_PROG);
		assert_null(w);
	}
	memfile_free(&f);
}

/* ------------------------------------------------------------ appending */

static kvarc_state read_back(struct memfile *f, const struct cache *c, uint64_t n,
                             const kvarc_keys *keys)
{
	kvarc_reader_options o = { .keys = keys };
	struct cache part = *c, back;
	kvarc_state how = KVARC_STATE_UNKNOWN;
	part.n[0] = n;
	cache_make_empty(&back, &part);
	assert_int_equal(cache_verify(f, &o), KVARC_OK);
	kvarc_ret ret = cache_read_seq(&back, f, &o, &how);
	assert_true(ret == KVARC_OK || (ret == KVARC_DATA && how == KVARC_STATE_CUT));
	for (size_t i = 0; i < c->g.n_tensors; i++)
		assert_memory_equal(back.data[i], c->data[i], cache_bytes(&part, i));
	cache_free(&back);
	return how;
}

static void append_40(struct torn *t, const struct cache *c, const kvarc_keys *keys)
{
	kvarc_writer_options o = stream_options(0, 1);
	o.flags = 0;
	o.keys = keys;
	for (uint64_t at = 0; at < 40; at += 10) {
		kvarc_sink sink = torn_sink(t);
		kvarc_writer *w;
		if (at) {
			w = append_open(t, &o);
		} else {
			assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
			assert_int_equal(kvarc_writer_set_geometry(w, &c->g), KVARC_OK);
		}
		assert_int_equal(append_tokens(w, c, 0, at, at + 10), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_int_equal(read_back(&t->f, c, at + 10, keys), KVARC_STATE_CLOSED);
	}
}

static void appended(void **state)
{
	(void)state;
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	struct cache c;
	kvarc_writer_options o = stream_options(0, 1);
	kvarc_writer *w;
	cache_make(&c, 5, 5);
	append_40(&t, &c, &key_0);
	/* What is there stays, and without its key, or with a key where there is none, nothing is
	 * written. */
	kvarc_source source = torn_source(&t);
	kvarc_sink sink = torn_sink(&t);
	const size_t n = t.f.n;
	o.flags = 0;
	assert_int_equal(kvarc_writer_open_append(&w, &source, &sink, &o), KVARC_AUTH);
	o.keys = &key_1;
	assert_int_equal(kvarc_writer_open_append(&w, &source, &sink, &o), KVARC_AUTH);
	assert_null(w);
	assert_int_equal(t.f.n, n);
	torn_free(&t);
	kvarc_writer_options plain = stream_options(0, 1);
	struct memfile f = stream_written(&c, &plain);
	torn_copy(&t, &f, f.n);
	source = torn_source(&t);
	sink = torn_sink(&t);
	assert_int_equal(kvarc_writer_open_append(&w, &source, &sink, &o), KVARC_OPTIONS);
	assert_int_equal(t.f.n, f.n);
	memfile_free(&f);
	torn_free(&t);
	cache_free(&c);
}

/* Offset and number of frames, of a type or of all (0). */
static size_t find_frame(const struct memfile *f, uint16_t type, size_t index, size_t *n)
{
	const uint64_t sync = kvi_frame_sync(f->p + 24);
	struct kvi_frame_head h;
	size_t found = 0;
	*n = 0;
	for (size_t at = 64; at < f->n; at += (size_t)kvi_frame_bytes(h.payload_bytes)) {
		if (!kvi_frame_head_parse(&h, f->p + at, sync, at))
			break;
		if (type && h.type != type)
			continue;
		if (*n == index)
			found = at;
		++*n;
	}
	return found;
}

/* Behind a cut, offsets and sequence numbers do not meet those of what was lost again. */
static void cut_and_appended(void **state)
{
	(void)state;
	struct torn whole = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_writer_options o = stream_options(0, 1);
	struct cache c;
	size_t offsets = 0, n;
	cache_make(&c, 5, 5);
	o.flags = 0;
	o.keys = &key_0;
	kvarc_sink sink = torn_sink(&whole);
	kvarc_writer *w;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 0, 0, 10), KVARC_OK);
	assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
	kvarc_writer_stats stats;
	kvarc_writer_get_stats(w, &stats);
	const size_t committed = (size_t)stats.file_bytes;
	assert_int_equal(append_tokens(w, &c, 0, 10, 40), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	for (int tries = 0; tries < 8; tries++) {
		struct torn t;
		torn_copy(&t, &whole.f, committed + (tries ? 100 : 0));
		w = append_open(&t, &o);
		assert_int_equal(append_tokens(w, &c, 0, 10, 40), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		assert_int_equal(read_back(&t.f, &c, 40, &key_0), KVARC_STATE_CLOSED);
		/* The frames behind the one that parts them from what was lost. */
		size_t at = committed + (size_t)kvi_frame_bytes(kvi_load32(t.f.p + committed + 12));
		size_t was = committed +
		             (size_t)kvi_frame_bytes(kvi_load32(whole.f.p + committed + 12));
		offsets += at != was;
		assert_true(find_frame(&t.f, 0, 0, &n));
		torn_free(&t);
	}
	assert_true(offsets >= 6);
	torn_free(&whole);
	cache_free(&c);
}

/* -------------------------------------------------------------- salvage */

static uint64_t salvaged_tokens(struct memfile *f, const struct cache *c, const kvarc_keys *keys,
                                kvarc_ret want)
{
	kvarc_reader_options o = { .keys = keys, .flags = KVARC_READ_SALVAGE };
	kvarc_source source = memfile_source(f);
	struct cache back;
	kvarc_reader *r;
	kvarc_segment s;
	uint64_t n = 0;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	assert_int_equal(ret, want);
	cache_make_empty(&back, c);
	while (!ret && (ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK) {
		ret = kvarc_reader_segment_deliver(r, cache_deliver, &back);
		n += s.n;
	}
	assert_true(want || ret == KVARC_END);
	for (size_t i = 0; n == c->n[0] && i < c->g.n_tensors; i++)
		assert_memory_equal(back.data[i], c->data[i], cache_bytes(c, i));
	cache_free(&back);
	kvarc_reader_close(&r);
	return n;
}

static void salvaged(void **state)
{
	(void)state;
	const kvarc_key phrase = passphrase("salt");
	const kvarc_keys by_phrase = { .list = &phrase, .n = 1 };
	struct cache c;
	size_t n;
	cache_make(&c, 5, 5);
	for (int way = 0; way < 2; way++) {
		const kvarc_keys *keys = way ? &by_phrase : &key_0;
		struct memfile f = encrypted(&c, 0, 1, keys);
		const size_t first = find_frame(&f, KVI_FRAME_KEY, 0, &n);
		const size_t copy = find_frame(&f, KVI_FRAME_KEY, 1, &n);
		assert_int_equal(n, 2);
		assert_true(first == 64 && copy > first);
		/* The superblock, then the first KEY frame, too: its copy has both. */
		f.p[30] ^= 1;
		assert_int_equal(open_with(&f, keys, 0, NULL), KVARC_DATA);
		assert_int_equal(salvaged_tokens(&f, &c, keys, KVARC_OK), 40);
		f.p[first + 70] ^= 1;
		assert_int_equal(salvaged_tokens(&f, &c, keys, KVARC_OK), 40);
		assert_int_equal(salvaged_tokens(&f, &c, &key_1, KVARC_AUTH), 0);
		f.p[copy + 70] ^= 1;
		assert_int_equal(salvaged_tokens(&f, &c, keys, KVARC_DATA), 0);
		memfile_free(&f);
	}
	cache_free(&c);
}

/* Where the superblock says nothing, neither do readers that are no salvage. */
static void envelope(void **state)
{
	(void)state;
	const kvarc_key list[] = { GIVEN(0), passphrase("x"), passphrase("y") };
	const kvarc_keys keys = { .list = list, .n = 3 };
	kvarc_envelope v;
	struct cache c;
	cache_make(&c, 5, 5);
	struct memfile f = encrypted(&c, 0, 1, &keys);
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_read_envelope(&source, NULL, &v), KVARC_OK);
	assert_true(v.encrypted && v.keys == 1 && v.passphrases == 2);
	assert_true(v.passes == 1 && v.memory_kib == 1024 && v.file_bytes == f.n);
	assert_true(v.frames == v.encrypted_frames + 6 + 1 && v.parity_frames == 0);
	assert_memory_equal(v.file_id, f.p + 24, 16);
	source.size = KVARC_UNKNOWN;
	assert_int_equal(kvarc_read_envelope(&source, NULL, &v), KVARC_OPTIONS);
	f.p[0] = 0;
	source.size = f.n;
	assert_int_equal(kvarc_read_envelope(&source, NULL, &v), KVARC_FORMAT);
	memfile_free(&f);
	kvarc_writer_options plain = stream_options(0, 1);
	f = stream_written(&c, &plain);
	source = memfile_source(&f);
	assert_int_equal(kvarc_read_envelope(&source, NULL, &v), KVARC_OK);
	assert_true(!v.encrypted && !v.keys && !v.encrypted_frames && v.frames > 5);
	memfile_free(&f);
	cache_free(&c);
}

/* Out of memory at any call, a write that fails at any call. */
static void failures(void **state)
{
	(void)state;
	struct cache c;
	cache_make(&c, 5, 5);
	struct memfile whole = encrypted(&c, 0, 1, &key_0);
	bool done = false;
	for (long i = 0; !done; i++) {
		struct counting counts = { .fail_at = i, .sticky = true };
		const kvarc_allocator a = counting_allocator(&counts);
		kvarc_writer_options o = stream_options(0, 1);
		kvarc_reader_options ro = { .keys = &key_0 };
		struct memfile f = { .fail_at = -1 };
		o.common.allocator = ro.common.allocator = &a;
		o.keys = &key_0;
		kvarc_ret ret = cache_write(&c, &f, &o);
		assert_int_equal(counts.held, 0);
		kvarc_ret read = cache_verify(&whole, &ro);
		assert_int_equal(counts.held, 0);
		assert_true(ret == KVARC_MEM || ret == KVARC_OK);
		assert_true(read == KVARC_MEM || read == KVARC_OK);
		done = ret == KVARC_OK && read == KVARC_OK;
		memfile_free(&f);
	}
	memfile_free(&whole);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ways),  cmocka_unit_test(hidden),
		cmocka_unit_test(which_key), cmocka_unit_test(wrong_arguments),
		cmocka_unit_test(appended),  cmocka_unit_test(cut_and_appended),
		cmocka_unit_test(salvaged),  cmocka_unit_test(envelope),
		cmocka_unit_test(failures),  cmocka_unit_test(derived),
		cmocka_unit_test(work),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
