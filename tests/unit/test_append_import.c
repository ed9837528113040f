/* SPDX-License-Identifier: BSD-3-Clause */
/* test_append_import.c - files that are appended to an archive: every checkpoint restores its file,
 * and only what is new was written */
#include "append_util.h"
#include "slots_util.h"

enum { TURNS = 6 };

/* Files that an archive gets one after the other. */
struct turns {
	struct blob file[TURNS];
	size_t n;
};

static struct torn empty(void)
{
	return (struct torn){ .fail_at = -1, .f = { .fail_at = -1 } };
}

static kvarc_ret append_file(struct torn *t, struct blob *file, kvarc_append_options *o,
                             kvarc_append_result *result)
{
	static kvarc_error e;
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source src = blob_source(file), archive = torn_source(t);
	kvarc_sink sink = torn_sink(t);
	kvarc_import *im;
	e = (kvarc_error){ 0 };
	o->writer.common.error = io.common.error = &e;
	o->writer.segment_tokens = 32;
	io.common.allocator = o->writer.common.allocator;
	kvarc_ret ret = kvarc_import_open(&im, &src, "slot", &io);
	if (ret)
		return ret;
	ret = kvarc_append_import(im, t->f.n ? &archive : NULL, &sink, o, result);
	assert_true(!ret || e.text[0] || ret == KVARC_MEM);
	kvarc_import_close(&im);
	return ret;
}

static kvarc_append_result append_ok(struct torn *t, struct blob *file)
{
	kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
	kvarc_append_result result;
	kvarc_ret ret = append_file(t, file, &o, &result);
	if (ret)
		fail_msg("%d: %s", ret, o.writer.common.error->text);
	assert_int_equal(result.archive_bytes, t->f.n);
	return result;
}

static int open_blob(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	(void)item;
	*sink = blob_sink(opaque);
	return 0;
}

/* Whether a checkpoint gives the file back; what it gives is never another file. */
static kvarc_ret restore(struct torn *t, uint64_t checkpoint, const struct blob *file)
{
	struct blob out = { NULL, 0, 0, -1 };
	kvarc_reader_options o = { .checkpoint = checkpoint };
	kvarc_source source = torn_source(t);
	kvarc_reader *r;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	if (!ret)
		ret = kvarc_unpack(r, open_blob, &out);
	kvarc_reader_close(&r);
	if (!ret) {
		assert_int_equal(out.n, file->n);
		assert_memory_equal(out.p, file->p, out.n);
	}
	blob_free(&out);
	return ret;
}

/* The archive verifies at a checkpoint, which gives the file back. */
static void check_file(struct torn *t, uint64_t checkpoint, const struct blob *file)
{
	kvarc_reader_options o = { .checkpoint = checkpoint };
	kvarc_source source = torn_source(t);
	kvarc_reader *r;
	assert_int_equal(restore(t, checkpoint, file), KVARC_OK);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_reader_verify(r, NULL, NULL), KVARC_OK);
	kvarc_reader_close(&r);
}

/* The first n tokens of a slot; none: false. */
static bool shorten(struct blob *slot, uint64_t n, struct blob *out)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = n };
	struct blob archive = slot_pack(slot);
	kvarc_source src = blob_source(&archive);
	kvarc_slot_prefix prefix = { 0 };
	kvarc_reader *r;
	*out = (struct blob){ NULL, 0, 0, -1 };
	kvarc_sink sink = blob_sink(out);
	assert_int_equal(kvarc_reader_open(&r, &src, NULL), KVARC_OK);
	bool good = n && kvarc_reader_tokens(r, 0) > n &&
	            kvarc_export_llama(r, &range, &sink, NULL, &prefix) == KVARC_OK &&
	            prefix.whole_tokens == n;
	kvarc_reader_close(&r);
	blob_free(&archive);
	if (!good)
		blob_free(out);
	return good;
}

static bool same_blobs(const struct blob *a, const struct blob *b)
{
	return a->n == b->n && !memcmp(a->p, b->p, a->n);
}

static size_t tracks_of(struct blob *slot)
{
	kvarc_import *im = slot_open(slot);
	size_t n = kvarc_import_geometry(im)->n_tracks;
	kvarc_import_close(&im);
	return n;
}

/* A slot that grows, goes back, stays, and grows again; shorter where that can be made of it. */
static void make_turns(struct turns *t, const char *name)
{
	struct blob slot = blob_load(name);
	kvarc_import *im = slot_open(&slot);
	const uint64_t n = kvarc_import_tokens(im, 0);
	const uint64_t at[TURNS] = { n / 2, n - n / 4, n / 2, n / 2, n ? n - 1 : 0, n };
	kvarc_import_close(&im);
	t->n = 0;
	for (size_t i = 0; i < TURNS; i++) {
		if (at[i] == n)
			t->file[t->n++] = blob_copy(&slot);
		else if (shorten(&slot, at[i], &t->file[t->n])) {
			/* An archive does not get more tracks, which some context checkpoints
			 * are. */
			if (tracks_of(&t->file[t->n]) == tracks_of(&slot))
				t->n++;
			else
				blob_free(&t->file[t->n]);
		}
	}
	blob_free(&slot);
}

static void free_turns(struct turns *t)
{
	for (size_t i = 0; i < t->n; i++)
		blob_free(&t->file[i]);
}

/* Each turn, and each checkpoint behind it. */
static void append_turns(struct turns *t)
{
	struct torn archive = empty();
	uint64_t number[TURNS];
	for (size_t i = 0; i < t->n; i++) {
		kvarc_append_result x = append_ok(&archive, &t->file[i]);
		bool same = i && same_blobs(&t->file[i], &t->file[i - 1]);
		number[i] = x.checkpoint;
		assert_int_equal(x.checkpoint, !i ? 1 : number[i - 1] + !same);
		assert_int_equal(!x.written_bytes, same);
		assert_true(!same || x.kept_tokens == x.tokens);
		for (size_t k = 0; k <= i; k++)
			check_file(&archive, number[k], &t->file[k]);
	}
	check_file(&archive, 0, &t->file[t->n - 1]);
	torn_free(&archive);
}

static void test_turns(void **state)
{
	size_t done = 0;
	(void)state;
	for (size_t i = 0; i < n_import_files; i++) {
		struct turns t = { .n = 0 };
		if (strncmp(import_files[i].format, "llama.cpp", 9) != 0 ||
		    import_files[i].tensors == 0)
			continue;
		make_turns(&t, import_files[i].name);
		append_turns(&t);
		done += t.n == TURNS;
		free_turns(&t);
	}
	assert_true(done >= 10);
}

/* Any other file: it is one checkpoint behind the other, unless it is of another shape. */
static void test_others(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_import_files; i++) {
		struct torn archive = empty();
		struct blob file = blob_load(import_files[i].name);
		kvarc_append_options o = { .label = "again" };
		kvarc_append_result x;
		append_ok(&archive, &file);
		x = append_ok(&archive, &file);
		assert_int_equal(x.written_bytes, 0);
		assert_int_equal(x.checkpoint, 1);
		assert_int_equal(append_file(&archive, &file, &o, &x), KVARC_OK);
		assert_int_equal(x.checkpoint, 2);
		assert_int_equal(x.kept_tokens, x.tokens);
		check_file(&archive, 1, &file);
		check_file(&archive, 2, &file);
		torn_free(&archive);
		blob_free(&file);
	}
}

static const char slot_name[] = "ggsq4-long.bin";

/* Rows that changed in the middle: all that is behind them is written, nothing is substituted. */
static void test_changed(void **state)
{
	(void)state;
	struct blob slot = blob_load(slot_name), changed = blob_copy(&slot);
	for (unsigned verify = 0; verify < 2; verify++)
		for (size_t at = slot.n / 2; at < slot.n; at += slot.n / 29 + 1) {
			struct torn archive = empty();
			kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
			kvarc_append_result x;
			o.writer.flags = verify ? KVARC_WRITE_VERIFY : 0;
			append_ok(&archive, &slot);
			changed.p[at] ^= 0x40;
			assert_int_equal(append_file(&archive, &changed, &o, &x), KVARC_OK);
			assert_int_equal(x.checkpoint, 2);
			check_file(&archive, 1, &slot);
			check_file(&archive, 2, &changed);
			assert_true(x.kept_tokens < x.tokens);
			changed.p[at] ^= 0x40;
			torn_free(&archive);
		}
	blob_free(&slot);
	blob_free(&changed);
}

/* Each byte of some rows, the last one of a row as well, is compared. */
static void test_changed_byte(void **state)
{
	enum { BYTES = 160 };
	(void)state;
	struct blob slot = blob_load(slot_name);
	struct torn whole = empty();
	append_ok(&whole, &slot);
	for (size_t at = slot.n / 2; at < slot.n / 2 + BYTES; at++) {
		kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
		struct torn archive;
		torn_copy(&archive, &whole.f, whole.f.n);
		o.writer.flags = at % 2 ? KVARC_WRITE_VERIFY : 0;
		slot.p[at] ^= 1;
		assert_int_equal(append_file(&archive, &slot, &o, NULL), KVARC_OK);
		assert_int_equal(restore(&archive, 0, &slot), KVARC_OK);
		slot.p[at] ^= 1;
		torn_free(&archive);
	}
	torn_free(&whole);
	blob_free(&slot);
}

static bool is_closed(struct torn *t)
{
	kvarc_source source = torn_source(t);
	kvarc_info info = { 0 };
	kvarc_reader *r;
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	kvarc_reader_close(&r);
	return info.state == KVARC_STATE_CLOSED;
}

/* What is damaged is not kept, but written again; then the archive is as good as before. */
static void append_damaged(const struct torn *whole, size_t at, struct blob *slot,
                           unsigned *healed)
{
	kvarc_append_options o = { .label = "again" };
	kvarc_append_result x;
	struct torn archive, archive_was;
	torn_copy(&archive, &whole->f, whole->f.n);
	archive.f.p[at] ^= 4;
	torn_copy(&archive_was, &archive.f, archive.f.n);
	const kvarc_ret was = restore(&archive, 0, slot);
	const size_t n = archive.f.n;
	const kvarc_ret ret = append_file(&archive, slot, &o, &x);
	if (ret) {
		/* a line, and nothing is changed */
		assert_true(was && o.writer.common.error->text[0]);
		assert_int_equal(archive.f.n, n);
	} else {
		/* of an end that is damaged nothing is lost but the end */
		assert_int_equal(x.lost_tokens || x.lost_bytes, was && is_closed(&archive_was));
		assert_int_equal(x.kept_tokens < x.tokens, x.lost_tokens > 0);
		assert_int_equal(restore(&archive, 0, slot), KVARC_OK);
		assert_int_equal(append_file(&archive, slot, &o, &x), KVARC_OK);
		assert_int_equal(x.lost_tokens, 0);
		assert_int_equal(x.kept_tokens, x.tokens);
		assert_int_equal(x.lost_bytes, 0);
		assert_int_equal(restore(&archive, 0, slot), KVARC_OK);
		*healed += was != KVARC_OK;
	}
	torn_free(&archive);
	torn_free(&archive_was);
}

static void test_damaged(void **state)
{
	enum { DAMAGES = 300 };
	static const char *const names[] = { "ggsq4-long.bin", "ggsq4-f16-vtrans.bin" };
	(void)state;
	for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
		struct blob slot = blob_load(names[k]), first;
		struct torn archive = empty();
		unsigned healed = 0;
		if (shorten(&slot, 20, &first)) {
			append_ok(&archive, &first);
			blob_free(&first);
		}
		append_ok(&archive, &slot);
		for (size_t i = 0; i < DAMAGES; i++)
			append_damaged(&archive, archive.f.n * i / DAMAGES + i % 7, &slot,
			               &healed);
		assert_true(healed > DAMAGES / 2);
		torn_free(&archive);
		blob_free(&slot);
	}
}

/* An archive that was packed gets a checkpoint of what it was. */
static void test_packed(void **state)
{
	(void)state;
	struct blob slot = blob_load(slot_name), first, packed;
	struct torn archive;
	assert_true(shorten(&slot, 20, &first));
	packed = slot_pack(&first);
	const struct memfile f = { .p = packed.p, .n = packed.n };
	torn_copy(&archive, &f, packed.n);
	kvarc_append_result x = append_ok(&archive, &slot);
	assert_int_equal(x.checkpoint, 2);
	assert_int_equal(x.kept_tokens, 20);
	check_file(&archive, 1, &first);
	check_file(&archive, 2, &slot);
	torn_free(&archive);
	blob_free(&slot);
	blob_free(&first);
	blob_free(&packed);
}

/* What does not belong together: one line, and nothing is written. */
static void test_refusals(void **state)
{
	static const char *const others[] = { "ggsq4-q8_0.bin", "ggsq3-bf16.bin", "opaque.txt",
		                              "ggsq4-f16-vtrans.bin", "ggsq4-iswa.bin" };
	struct blob slot = blob_load("ggsq4-f16.bin");
	struct torn archive = empty();
	kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
	kvarc_append_result x;
	(void)state;
	append_ok(&archive, &slot);
	const size_t n = archive.f.n;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		struct blob other = blob_load(others[i]);
		assert_int_equal(append_file(&archive, &other, &o, &x), KVARC_GEOMETRY);
		blob_free(&other);
	}
	o.writer.level = 4;
	assert_int_equal(append_file(&archive, &slot, &o, &x), KVARC_OPTIONS);
	o.writer.level = 1;
	o.writer.flags = KVARC_WRITE_STREAMABLE;
	assert_int_equal(append_file(&archive, &slot, &o, &x), KVARC_PROG);
	o.writer.flags = 0;
	o.reserved[0] = 1;
	assert_int_equal(append_file(&archive, &slot, &o, &x), KVARC_PROG);
	o.reserved[0] = 0;
	assert_int_equal(archive.f.n, n);
	assert_int_equal(kvarc_append_import(NULL, NULL, NULL, NULL, NULL), KVARC_PROG);
	torn_free(&archive);
	blob_free(&slot);
}

/* The append ends at each of its writes: the last checkpoint is there, with and without what the
 * call removes by itself, and the next append continues. */
static void test_torn(void **state)
{
	(void)state;
	struct blob slot = blob_load(slot_name), first;
	struct torn whole = empty();
	assert_true(shorten(&slot, 20, &first));
	append_ok(&whole, &first);
	kvarc_ret ret = KVARC_IO;
	for (long k = 0; ret; k++)
		for (unsigned part = 0; part < 16; part += 5) {
			kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
			struct torn t;
			torn_copy(&t, &whole.f, whole.f.n);
			t.fail_at = k;
			t.part = part;
			t.no_truncate = true;
			ret = append_file(&t, &slot, &o, NULL);
			t.fail_at = -1;
			t.no_truncate = false;
			check_file(&t, 1, &first);
			assert_int_equal(append_ok(&t, &slot).checkpoint, 2);
			check_file(&t, 1, &first);
			check_file(&t, 2, &slot);
			torn_free(&t);
		}
	/* With truncate nothing is left of it. */
	kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
	const size_t n = whole.f.n;
	whole.fail_at = whole.calls + 5;
	whole.part = 7;
	assert_int_equal(append_file(&whole, &slot, &o, NULL), KVARC_IO);
	assert_int_equal(whole.f.n, n);
	torn_free(&whole);
	blob_free(&slot);
	blob_free(&first);
}

static void test_memory(void **state)
{
	(void)state;
	struct blob slot = blob_load(slot_name), first;
	struct torn whole = empty();
	kvarc_ret ret = KVARC_MEM;
	assert_true(shorten(&slot, 20, &first));
	append_ok(&whole, &first);
	for (long k = 0; ret; k++) {
		struct counting counting = { .fail_at = k, .sticky = true };
		kvarc_allocator allocator = counting_allocator(&counting);
		kvarc_append_options o = KVARC_APPEND_OPTIONS_INIT;
		struct torn t;
		torn_copy(&t, &whole.f, whole.f.n);
		o.writer.common.allocator = &allocator;
		ret = append_file(&t, &slot, &o, NULL);
		/* A fetch of the import says only that it failed. */
		assert_true(ret == KVARC_OK || ret == KVARC_MEM || ret == KVARC_IO);
		assert_int_equal(counting.held, 0);
		assert_true(k < 3000);
		torn_free(&t);
	}
	torn_free(&whole);
	blob_free(&slot);
	blob_free(&first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turns),   cmocka_unit_test(test_others),
		cmocka_unit_test(test_changed), cmocka_unit_test(test_changed_byte),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_packed),  cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_torn),    cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
