/* SPDX-License-Identifier: BSD-3-Clause */
/* test_repair.c - parity: arithmetic, what writers add, what a repair restores (frames.md 12.2) */
#include "append_util.h"

#include <stdio.h>

#include "format/parity.h"
#include "util/bytes.h"

static const uint8_t key_bytes[KVARC_KEY_BYTES] = { 7 };
static const kvarc_key key = { .kind = KVARC_KEY_GIVEN, .bytes = key_bytes, .n = KVARC_KEY_BYTES };
static const kvarc_keys keys = { .list = &key, .n = 1 };

/* ----------------------------------------------------------- arithmetic */

static void field(void **state)
{
	(void)state;
	for (unsigned a = 0; a < 256; a++) {
		const uint8_t i = kvi_gf_inverse((uint8_t)a);
		assert_int_equal(kvi_gf_times((uint8_t)a, i), a != 0);
		assert_int_equal(kvi_gf_times((uint8_t)a, 1), a);
		for (unsigned b = 0; b < 256; b++)
			assert_int_equal(kvi_gf_times((uint8_t)a, (uint8_t)b),
			                 kvi_gf_times((uint8_t)b, (uint8_t)a));
	}
	assert_int_equal(kvi_gf_times(0x80, 2), 0x1d);
	for (unsigned k = 1; k < 256; k++)
		for (unsigned j = 0; j < k; j++)
			assert_int_equal(kvi_parity_factor(k, 0, j), 1);
}

static void adding(void **state)
{
	(void)state;
	enum { MOST = 1000 };
	uint8_t from[MOST], a[MOST], b[MOST];
	uint64_t seed = 3;
	for (unsigned factor = 0; factor < 256; factor++)
		for (size_t n = 0; n < MOST; n += 1 + n / 5) {
			for (size_t i = 0; i < MOST; i++) {
				from[i] = (uint8_t)rand_next(&seed);
				a[i] = b[i] = (uint8_t)rand_next(&seed);
			}
			kvi_parity_add(a + 3, (uint8_t)factor, from + 1, n < 900 ? n : 900);
			kvi_parity_add_portable(b + 3, (uint8_t)factor, from + 1,
			                        n < 900 ? n : 900);
			assert_memory_equal(a, b, MOST);
		}
}

/* Every square part of the matrix has an inverse. */
static void inverses(void **state)
{
	(void)state;
	uint64_t seed = 11;
	for (int tries = 0; tries < 300; tries++) {
		enum { MOST = 12 };
		const unsigned k = MOST + (unsigned)(rand_next(&seed) % 200), m = 20;
		const unsigned n = 1 + (unsigned)(rand_next(&seed) % MOST);
		uint8_t rows[MOST * 2 * MOST], was[MOST][MOST];
		const unsigned r0 = (unsigned)(rand_next(&seed) % (m - n + 1));
		const unsigned j0 = (unsigned)(rand_next(&seed) % (k - n + 1));
		for (unsigned i = 0; i < n; i++)
			for (unsigned j = 0; j < n; j++)
				was[i][j] = rows[i * 2 * n + j] = kvi_parity_factor(k, r0 + i,
				                                                    j0 + j);
		assert_true(kvi_parity_invert(rows, n));
		for (unsigned i = 0; i < n; i++)
			for (unsigned j = 0; j < n; j++) {
				uint8_t sum = 0;
				for (unsigned l = 0; l < n; l++)
					sum ^= kvi_gf_times(was[i][l], rows[l * 2 * n + n + j]);
				assert_int_equal(sum, i == j);
			}
	}
	uint8_t none[8] = { 5, 7, 0, 0, 5, 7, 0, 0 };
	assert_false(kvi_parity_invert(none, 2));
}

/* -------------------------------------------------------------- repairs */

static struct memfile repaired(struct memfile *f, unsigned flags, const kvarc_keys *with,
                               kvarc_repair_report *report)
{
	struct memfile out = { .fail_at = -1 };
	kvarc_repair_options o = { .flags = flags, .keys = with };
	kvarc_source source = memfile_source(f);
	kvarc_sink sink = memfile_sink(&out);
	kvarc_error e = { 0 };
	o.common.error = &e;
	kvarc_ret ret = kvarc_repair(&source, &sink, &o, report);
	if (ret)
		fail_msg("%s: %s", kvarc_strerror(ret), e.text);
	assert_int_equal(report->file_bytes, out.n);
	return out;
}

struct frame_list {
	size_t at[600], bytes[600], n;
	uint16_t type[600];
};

static void find_frames(const struct memfile *f, struct frame_list *x)
{
	const uint64_t sync = kvi_frame_sync(f->p + 24);
	struct kvi_frame_head h;
	x->n = 0;
	for (size_t at = 64; at < f->n; at += x->bytes[x->n++]) {
		assert_true(x->n < 600 && kvi_frame_head_parse(&h, f->p + at, sync, at));
		x->at[x->n] = at;
		x->type[x->n] = h.type;
		x->bytes[x->n] = (size_t)kvi_frame_bytes(h.payload_bytes);
	}
}

static size_t count(const struct frame_list *x, uint16_t type)
{
	size_t n = 0;
	for (size_t i = 0; i < x->n; i++)
		n += x->type[i] == type;
	return n;
}

static struct memfile copy_of(const struct memfile *f)
{
	struct memfile c = { .fail_at = -1, .p = malloc(f->n), .n = f->n, .cap = f->n };
	assert_non_null(c.p);
	memcpy(c.p, f->p, f->n);
	return c;
}

/* The damaged copy becomes the archive again. */
static void comes_back(struct memfile *damaged, const struct memfile *f, const char *what,
                       size_t which)
{
	kvarc_repair_report r;
	struct memfile out = repaired(damaged, KVARC_REPAIR_END, NULL, &r);
	if (out.n != f->n || memcmp(out.p, f->p, f->n) || r.lost_places)
		fail_msg("%s %zu: not restored, %llu ranges lost", what, which,
		         (unsigned long long)r.lost_places);
	memfile_free(&out);
	memfile_free(damaged);
}

static struct memfile with_parity(int number, uint32_t pieces, uint32_t rows,
                                  const kvarc_keys *encrypt)
{
	const kvarc_parity parity = { .pieces = pieces, .rows = rows };
	kvarc_writer_options o = stream_options(0, 1);
	struct cache c;
	cache_make(&c, number, 5);
	o.flags |= KVARC_WRITE_FILE_ID;
	o.file_id[3] = 9;
	o.parity = &parity;
	o.keys = encrypt;
	struct memfile f = stream_written(&c, &o);
	kvarc_reader_options ro = { .keys = encrypt };
	assert_int_equal(cache_verify(&f, &ro), KVARC_OK);
	assert_int_equal(f.p[12] & 1, 1); /* compat bit 0 */
	cache_free(&c);
	return f;
}

/* Every frame in turn, and the superblock. INDEX and FOOTER without a key. */
static void each_frame(void **state)
{
	(void)state;
	static const uint32_t shapes[][2] = { { 0, 0 }, { 4, 1 }, { 5, 3 }, { 1, 1 }, { 16, 2 } };
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		for (int encrypt = 0; encrypt < 2; encrypt++) {
			struct memfile f = with_parity(3, shapes[s][0], shapes[s][1],
			                               encrypt ? &keys : NULL);
			struct frame_list x;
			find_frames(&f, &x);
			assert_true(count(&x, KVI_FRAME_PARITY) > 0);
			for (size_t i = 0; i < x.n; i++) {
				const bool single = shapes[s][1] <= 1;
				/* INDEX and FOOTER are for another test */
				if ((x.type[i] == KVI_FRAME_PARITY && single) || i + 2 >= x.n)
					continue;
				struct memfile d = copy_of(&f);
				memset(d.p + x.at[i], 0, x.bytes[i]);
				comes_back(&d, &f, "frame", i);
			}
			struct memfile d = copy_of(&f);
			memset(d.p, 0xff, 64);
			comes_back(&d, &f, "superblock", 0);
			memfile_free(&f);
		}
	}
}

/* Frames from i on are damaged, from the middle of the first to that of the last. */
static void burst(const struct memfile *f, const struct frame_list *x, size_t i, size_t n)
{
	struct memfile d = copy_of(f);
	const size_t last = i + n - 1, at = x->at[i] + 40;
	memset(d.p + at, 0x55, x->at[last] + 48 - at);
	comes_back(&d, f, "burst at frame", i);
}

/* Bytes in a row cost each group one piece. */
static void bursts(void **state)
{
	(void)state;
	struct memfile f = with_parity(3, 1, 1, NULL);
	struct frame_list x;
	find_frames(&f, &x);
	/* The superblock and 3 frames are the first 4 groups. */
	assert_true(x.type[2] != KVI_FRAME_PARITY && x.type[3] == KVI_FRAME_PARITY &&
	            x.type[6] == KVI_FRAME_PARITY);
	burst(&f, &x, 0, 3);
	memfile_free(&f);
	f = with_parity(3, 2, 1, NULL);
	find_frames(&f, &x);
	for (size_t i = 0; i + 3 < x.n; i++)
		if (x.type[i] != KVI_FRAME_PARITY && x.type[i + 1] != KVI_FRAME_PARITY)
			burst(&f, &x, i, 2);
	memfile_free(&f);
	/* Any 3 of a group of 5 with 3 rows: here all 3 from frame to frame in steps of 4. */
	f = with_parity(3, 5, 3, NULL);
	find_frames(&f, &x);
	for (size_t i = 0; i < 4; i++) {
		struct memfile d = copy_of(&f);
		for (size_t k = i; k < i + 12; k += 4)
			d.p[x.at[k] + 40] ^= 1;
		comes_back(&d, &f, "three from frame", i);
	}
	memfile_free(&f);
}

/* More than the rows give: nothing is made up, and it is counted. */
static void too_much(void **state)
{
	(void)state;
	struct memfile f = with_parity(3, 8, 1, NULL);
	struct frame_list x;
	kvarc_repair_report r;
	find_frames(&f, &x);
	struct memfile d = copy_of(&f);
	d.p[x.at[0] + 40] ^= 1;
	d.p[x.at[4] + 40] ^= 1; /* the same group */
	d.p[x.at[1] + 40] ^= 1; /* another one */
	struct memfile out = repaired(&d, KVARC_REPAIR_END, NULL, &r);
	assert_int_equal(r.restored_pieces, 1);
	assert_int_equal(r.lost_places, 2);
	assert_int_equal(r.lost_bytes, x.bytes[0] + x.bytes[4]);
	assert_false(r.end_made);
	d.p[x.at[1] + 40] ^= 1;
	assert_int_equal(out.n, d.n);
	assert_memory_equal(out.p, d.p, d.n);
	memfile_free(&out);
	memfile_free(&d);
	/* Without parity it is a copy, and what is fine stays. */
	out = repaired(&f, KVARC_REPAIR_END, NULL, &r);
	assert_memory_equal(out.p, f.p, f.n);
	assert_true(!r.restored_pieces && !r.lost_places && !r.end_made && r.groups);
	memfile_free(&out);
	memfile_free(&f);
}

/* ------------------------------------------------------------ the end */

/* INDEX and FOOTER are new: those of copies of PARAMS name no original. */
static void has_new_end(struct memfile *d, const struct memfile *f, size_t index)
{
	kvarc_repair_report r;
	struct memfile out = repaired(d, KVARC_REPAIR_END, NULL, &r);
	assert_true(r.end_made && !r.lost_places && out.n > index);
	assert_memory_equal(out.p, f->p, index);
	assert_int_equal(cache_verify(&out, NULL), KVARC_OK);
	kvarc_source source = memfile_source(&out);
	kvarc_reader *reader;
	kvarc_info info;
	assert_int_equal(kvarc_reader_open(&reader, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_get_info(reader, &info), KVARC_OK);
	assert_int_equal(info.state, KVARC_STATE_CLOSED);
	kvarc_reader_close(&reader);
	memfile_free(&out);
	memfile_free(d);
}

static void ends(void **state)
{
	(void)state;
	struct memfile f = with_parity(3, 0, 0, NULL);
	struct frame_list x;
	kvarc_repair_report r;
	find_frames(&f, &x);
	const size_t index = x.at[x.n - 2];
	assert_int_equal(x.type[x.n - 2], KVI_FRAME_INDEX);
	/* Cut in INDEX or FOOTER, or between. */
	static const size_t cuts[] = { 1, 16, 79, 80, 81, 130 };
	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		struct memfile d = copy_of(&f);
		d.n -= cuts[i];
		has_new_end(&d, &f, index);
	}
	struct memfile d = copy_of(&f);
	d.n = index;
	has_new_end(&d, &f, index);
	d = copy_of(&f);
	d.p[index + 40] ^= 1;
	has_new_end(&d, &f, index);
	d = copy_of(&f);
	memset(d.p + index, 0, 60);
	has_new_end(&d, &f, index);
	d = copy_of(&f);
	memset(d.p + d.n - 80, 0, 80);
	has_new_end(&d, &f, index);
	/* A row alone: nothing else is lost, and readers take the archive. */
	d = copy_of(&f);
	assert_int_equal(x.type[x.n - 3], KVI_FRAME_PARITY);
	d.p[x.at[x.n - 3] + 100] ^= 1;
	assert_int_equal(cache_verify(&d, NULL), KVARC_DATA);
	struct memfile row = repaired(&d, KVARC_REPAIR_END, NULL, &r);
	assert_true(r.emptied_rows == 1 && !r.lost_places && !r.end_made && row.n == f.n);
	assert_int_equal(cache_verify(&row, NULL), KVARC_OK);
	memfile_free(&row);
	memfile_free(&d);
	/* Further: the last row is lost, and the archive ends at its last commit. */
	d = copy_of(&f);
	d.n = index - 40;
	struct memfile out = repaired(&d, KVARC_REPAIR_END, NULL, &r);
	assert_true(r.lost_places == 1 && r.end_made);
	assert_int_equal(cache_verify(&out, NULL), KVARC_OK);
	memfile_free(&out);
	/* Without the flag it stays as it is. */
	out = repaired(&d, 0, NULL, &r);
	assert_true(r.lost_places == 1 && !r.end_made && out.n == d.n);
	memfile_free(&out);
	memfile_free(&d);
	memfile_free(&f);
	/* With its key an encrypted archive gets an end, too. */
	f = with_parity(5, 0, 0, &keys);
	kvarc_reader_options ro = { .keys = &keys };
	for (int with = 0; with < 2; with++) {
		d = copy_of(&f);
		d.n -= 80;
		out = repaired(&d, KVARC_REPAIR_END, with ? &keys : NULL, &r);
		assert_int_equal(r.end_made, with);
		assert_int_equal(cache_verify(&out, &ro), KVARC_OK);
		memfile_free(&out);
		memfile_free(&d);
	}
	memfile_free(&f);
}

/* Pieces behind a cut come back where rows in front of it cover them: of an append they do not. */
static void appended(void **state)
{
	(void)state;
	const kvarc_parity parity = { .pieces = 8, .rows = 1 };
	kvarc_writer_options o = stream_options(0, 1);
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	struct cache c;
	struct frame_list x;
	cache_make(&c, 5, 5);
	o.parity = &parity;
	for (uint64_t at = 0; at < 40; at += 10) {
		kvarc_sink sink = torn_sink(&t);
		kvarc_writer *w;
		if (at) {
			w = append_open(&t, &o);
		} else {
			assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
			assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
		}
		assert_int_equal(append_tokens(w, &c, 0, at, at + 5), KVARC_OK);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
		assert_int_equal(append_tokens(w, &c, 0, at + 5, at + 10), KVARC_OK);
		assert_int_equal(kvarc_writer_checkpoint(w, "x", 0, NULL), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	}
	assert_int_equal(cache_verify(&t.f, NULL), KVARC_OK);
	find_frames(&t.f, &x);
	assert_true(count(&x, KVI_FRAME_PARITY) >= 8);
	for (size_t i = 0; i < x.n; i++) {
		/* What is not covered, but for the last ones. */
		if (x.type[i] == KVI_FRAME_PARITY || x.type[i] == KVI_FRAME_FOOTER ||
		    x.type[i] == KVI_FRAME_INDEX)
			continue;
		struct memfile d = copy_of(&t.f);
		memset(d.p + x.at[i], 0xee, x.bytes[i]);
		comes_back(&d, &t.f, "appended frame", i);
	}
	torn_free(&t);
	cache_free(&c);
}

/* ------------------------------------------------------- specification */

static struct memfile read_vector(const char *name)
{
	struct memfile f = { .fail_at = -1, .p = malloc(1 << 20) };
	const char *srcdir = getenv("srcdir");
	char path[4096];
	snprintf(path, sizeof path, "%s/spec/vectors/%s.kva", srcdir ? srcdir : ".", name);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	assert_non_null(f.p);
	f.n = f.cap = fread(f.p, 1, 1 << 20, file);
	fclose(file);
	return f;
}

/* The table "Repair" of the vectors, byte for byte. */
static void vectors(void **state)
{
	(void)state;
	const char *srcdir = getenv("srcdir");
	char line[512], from[128], to[128];
	bool table = false;
	int n = 0;
	snprintf(line, sizeof line, "%s/spec/vectors/README.md", srcdir ? srcdir : ".");
	FILE *readme = fopen(line, "r");
	assert_non_null(readme);
	while (fgets(line, sizeof line, readme)) {
		kvarc_repair_report r;
		if (line[0] == '#')
			table = !strcmp(line, "## Repair\n");
		if (!table || sscanf(line, "| %127[a-z0-9-] | %127[a-z0-9-] |", from, to) != 2 ||
		    strncmp(from, "bad-", 4))
			continue;
		const char *name = strcmp(to, "nothing") ? to : from;
		struct memfile f = read_vector(from), want = read_vector(name);
		struct memfile out = repaired(&f, 0, NULL, &r);
		if (out.n != want.n || memcmp(out.p, want.p, want.n))
			fail_msg("%s is not %s", from, name);
		memfile_free(&f);
		memfile_free(&want);
		memfile_free(&out);
		n++;
	}
	fclose(readme);
	assert_true(n >= 25);
}

/* ------------------------------------------------------------- failures */

static int write_fails(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	(void)opaque, (void)buf, (void)bytes, (void)offset;
	return -1;
}

static void failures(void **state)
{
	(void)state;
	struct memfile f = with_parity(5, 5, 2, NULL), d = copy_of(&f), out = { .fail_at = -1 };
	kvarc_repair_options o = KVARC_REPAIR_OPTIONS_INIT;
	kvarc_source source = memfile_source(&d);
	kvarc_sink sink = memfile_sink(&out);
	const kvarc_sink none = { .write = write_fails };
	bool done = false;
	memset(d.p + 64, 0, 100);
	for (long i = 0; !done; i++) {
		struct counting counts = { .fail_at = i, .sticky = i % 2 };
		const kvarc_allocator a = counting_allocator(&counts);
		o.common.allocator = &a;
		out.n = 0;
		kvarc_ret ret = kvarc_repair(&source, &sink, &o, NULL);
		assert_true(ret == KVARC_MEM || ret == KVARC_OK);
		assert_int_equal(counts.held, 0);
		done = ret == KVARC_OK && counts.calls <= i;
	}
	o.common.allocator = NULL;
	o.common.memlimit = 1 << 16;
	assert_int_equal(kvarc_repair(&source, &sink, &o, NULL), KVARC_MEMLIMIT);
	o.common.memlimit = 0;
	assert_int_equal(kvarc_repair(&source, &none, &o, NULL), KVARC_IO);
	assert_int_equal(kvarc_repair(&source, NULL, &o, NULL), KVARC_PROG);
	o.flags = 2;
	assert_int_equal(kvarc_repair(&source, &sink, &o, NULL), KVARC_PROG);
	o.flags = 0;
	o.reserved[3] = 1;
	assert_int_equal(kvarc_repair(&source, &sink, &o, NULL), KVARC_PROG);
	o.reserved[3] = 0;
	source.size = KVARC_UNKNOWN;
	assert_int_equal(kvarc_repair(&source, &sink, &o, NULL), KVARC_OPTIONS);
	memset(d.p, 'x', d.n);
	source.size = d.n;
	assert_int_equal(kvarc_repair(&source, &sink, &o, NULL), KVARC_FORMAT);
	/* More than a group may have. */
	static const kvarc_parity wrong[] = { { .pieces = 255, .rows = 2 },
		                              { .pieces = 256 },
		                              { .rows = 241 },
		                              { .reserved = { 0, 1 } } };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		kvarc_writer_options wo = stream_options(0, 1);
		kvarc_writer *w;
		wo.parity = &wrong[i];
		assert_int_equal(kvarc_writer_open(&w, &sink, &wo), KVARC_PROG);
	}
	memfile_free(&f);
	memfile_free(&d);
	memfile_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(field),    cmocka_unit_test(adding),
		cmocka_unit_test(inverses), cmocka_unit_test(each_frame),
		cmocka_unit_test(bursts),   cmocka_unit_test(too_much),
		cmocka_unit_test(ends),     cmocka_unit_test(appended),
		cmocka_unit_test(vectors),  cmocka_unit_test(failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
