/* SPDX-License-Identifier: BSD-3-Clause */
/* test_salvage.c - damaged and cut files: everything is noticed, whole parts are decoded */
#include "stream_util.h"

#include "codecs/codec.h"
#include "format/frame.h"
#include "format/frame_index.h"
#include "format/superblock.h"
#include "writer/writer_internal.h"

static kvarc_writer_options options(int level)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.level = KVARC_LEVEL(level);
	o.flags = KVARC_WRITE_FILE_ID | KVARC_WRITE_STREAMABLE;
	o.segment_tokens = 32;
	return o;
}

static struct memfile written(struct cache *c, int number, uint64_t tokens, int level)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = options(level);
	cache_make(c, number, 11);
	if (tokens < c->n[0])
		c->n[0] = tokens;
	assert_int_equal(cache_write(c, &f, &o), KVARC_OK);
	return f;
}

/* Reads in order; what arrives must be right, whatever else happens. */
static kvarc_ret read_checked(const struct cache *c, struct memfile *f, kvarc_state *how)
{
	struct cache back;
	cache_make_empty(&back, c);
	kvarc_ret ret = cache_read_seq(&back, f, NULL, how);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		for (size_t k = 0; k < cache_bytes(c, i); k++)
			if (back.data[i][k] != c->data[i][k])
				assert_int_equal(back.data[i][k], 0xa5);
	if (ret == KVARC_OK && *how == KVARC_STATE_CLOSED)
		assert_true(cache_equal(c, &back));
	cache_free(&back);
	return ret;
}

/* Where frame number `nth` of a type begins. */
static size_t frame_at(const struct memfile *f, uint16_t type, size_t nth)
{
	const uint8_t id[16] = { 0 };
	uint64_t sync = kvi_frame_sync(id);
	struct kvi_frame_head h;
	size_t o = KVI_SUPERBLOCK_BYTES;
	for (;; o += (size_t)kvi_frame_bytes(h.payload_bytes)) {
		assert_true(o < f->n && kvi_frame_head_parse(&h, f->p + o, sync, o));
		if (h.type == type && nth-- == 0)
			return o;
	}
}

/* Verify says DATA, or that the archive was cut: then the damage is behind the last commit. */
static bool noticed(struct memfile *f, size_t at, size_t footer)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	kvarc_info info = { .state = KVARC_STATE_CLOSED };
	kvarc_ret ret = kvarc_reader_open(&r, &source, NULL);
	if (ret == KVARC_OK)
		ret = kvarc_reader_verify(r, NULL, NULL);
	if (ret == KVARC_OK)
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	kvarc_reader_close(&r);
	return ret != KVARC_OK || (info.state == KVARC_STATE_CUT && at >= footer);
}

static void test_every_bit(void **state)
{
	(void)state;
	for (int level = 0; level <= KVARC_LEVEL_DEFAULT; level++) {
		struct cache c;
		kvarc_state how;
		struct memfile f = written(&c, 5, 40, level);
		size_t footer = frame_at(&f, KVI_FRAME_FOOTER, 0);
		for (size_t bit = 0; bit < 8 * f.n; bit++) {
			f.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_true(noticed(&f, bit / 8, footer));
			/* verify reads the same way; one bit a byte will do */
			if (bit / 8 % 8 == bit % 8) {
				kvarc_ret ret = read_checked(&c, &f, &how);
				assert_true(ret != KVARC_OK || bit / 8 >= footer);
				assert_true(ret != KVARC_OK || how == KVARC_STATE_CUT);
				f.pipe = true;
				assert_int_not_equal(read_checked(&c, &f, &how), KVARC_OK);
			}
			f.pipe = false;
			f.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
		memfile_free(&f);
		cache_free(&c);
	}
}

/* A crash behind a commit: all calls give the same tokens and say the same. */
static void test_cut_is_one_answer(void **state)
{
	static const uint8_t stray[12] = "stray bytes";
	struct cache c, back;
	kvarc_reader *r;
	kvarc_segment s;
	kvarc_info info;
	kvarc_ret ret;
	unsigned segments = 0;
	(void)state;
	struct memfile f = written(&c, 0, 100, 1);
	const kvarc_range all = KVARC_RANGE_ALL(0);
	size_t commit = frame_at(&f, KVI_FRAME_SEGMENT, 2); /* where the second commit ends */
	memcpy(f.p + commit, stray, sizeof stray);
	f.n = commit + sizeof stray;
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_tokens(r, 0), 64);
	cache_make_empty(&back, &c);
	while ((ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK && segments < 4)
		segments++;
	assert_int_equal(ret, KVARC_END);
	assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_END);
	assert_int_equal(segments, 2);
	assert_int_equal(kvarc_reader_verify(r, NULL, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_read(r, &all, back.views), KVARC_OK);
	assert_memory_equal(back.data[0], c.data[0], 64 * (size_t)c.views[0].token_stride);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	assert_int_equal(info.state, KVARC_STATE_CUT);
	assert_int_equal(info.dropped_bytes, sizeof stray);
	kvarc_reader_close(&r);
	/* A frame behind it, though it was moved, is not the remains of a write. */
	f.p = realloc(f.p, f.cap += 100);
	memcpy(f.p + f.n, f.p + frame_at(&f, KVI_FRAME_SEGMENT, 1), 64);
	f.n += 64;
	source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	assert_int_equal(info.state, KVARC_STATE_DAMAGED);
	assert_int_equal(kvarc_reader_verify(r, NULL, NULL), KVARC_DATA);
	kvarc_reader_close(&r);
	f.n -= 64;
	/* Damage in what was committed is damage, cut or not. */
	f.p[frame_at(&f, KVI_FRAME_CHUNK, 2) + 90] ^= 4;
	assert_int_equal(cache_verify(&f, NULL), KVARC_DATA);
	cache_free(&back);
	memfile_free(&f);
	cache_free(&c);
}

/* Salvage says cut where the damage reaches the end, and damaged where something is behind it. */
static void test_salvage_states(void **state)
{
	struct cache c;
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	(void)state;
	struct memfile f = written(&c, 0, 100, 1);
	const struct {
		size_t at;
		kvarc_state state;
	} cases[] = { { frame_at(&f, KVI_FRAME_FOOTER, 0) + 3, KVARC_STATE_CUT },
		      { frame_at(&f, KVI_FRAME_CHUNK, 1) + 90, KVARC_STATE_DAMAGED } };
	o.flags = KVARC_READ_SALVAGE;
	for (size_t i = 0; i < 2; i++) {
		kvarc_source source = memfile_source(&f);
		kvarc_reader *r;
		kvarc_info info;
		f.p[cases[i].at] ^= 4;
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
		assert_int_equal(info.state, cases[i].state);
		kvarc_reader_close(&r);
		f.p[cases[i].at] ^= 4;
	}
	memfile_free(&f);
	cache_free(&c);
}

/* Whether a frame ends at this byte, and the last one that counts for the order, which INDEX does
 * not, has this type. */
static bool ends_here(const struct memfile *f, size_t at, uint16_t type)
{
	const uint8_t id[16] = { 0 };
	uint64_t sync = kvi_frame_sync(id);
	struct kvi_frame_head h;
	uint16_t last = 0;
	for (size_t o = KVI_SUPERBLOCK_BYTES; o < at; o += kvi_frame_bytes(h.payload_bytes)) {
		assert_true(kvi_frame_head_parse(&h, f->p + o, sync, o));
		if (kvi_frame_counts(h.type))
			last = h.type;
		if (o + kvi_frame_bytes(h.payload_bytes) == at)
			return last == type;
	}
	return false;
}

static void test_every_length(void **state)
{
	struct cache c;
	(void)state;
	struct memfile f = written(&c, 5, 40, 1);
	size_t full = f.n, opens = 0;
	size_t begin = 1; /* where GEOMETRY ends */
	while (!ends_here(&f, begin, KVI_FRAME_GEOMETRY))
		begin++;
	for (f.n = 0; f.n < full; f.n++) {
		bool commit = ends_here(&f, f.n, KVI_FRAME_COMMIT);
		kvarc_ret on_pipe = commit                  ? KVARC_OK
		                    : f.n < KVI_MAGIC_BYTES ? KVARC_FORMAT
		                                            : KVARC_DATA;
		kvarc_ret want = f.n >= begin ? KVARC_OK : on_pipe;
		kvarc_state how = KVARC_STATE_UNKNOWN;
		assert_int_equal(cache_verify(&f, NULL), want);
		assert_int_equal(read_checked(&c, &f, &how), want);
		assert_true(want || how == (commit ? KVARC_STATE_OPEN : KVARC_STATE_CUT));
		f.pipe = true;
		assert_int_equal(read_checked(&c, &f, &how), on_pipe);
		assert_true(how != KVARC_STATE_CLOSED);
		f.pipe = false;
		opens += commit;
	}
	assert_int_equal(opens, 3); /* one a segment, and behind the INDEX */
	memfile_free(&f);
	cache_free(&c);
}

static void test_extra_bytes(void **state)
{
	struct cache c;
	kvarc_state how;
	(void)state;
	struct memfile f = written(&c, 1, 40, 1);
	for (size_t extra = 1; extra < 100; extra += 7) {
		struct memfile g = f;
		g.n = g.cap = f.n + extra;
		g.p = calloc(1, g.n);
		memcpy(g.p, f.p, f.n);
		assert_int_equal(cache_verify(&g, NULL), KVARC_OK);
		assert_int_equal(read_checked(&c, &g, &how), KVARC_OK);
		assert_int_equal(how, KVARC_STATE_CUT);
		g.pipe = true;
		assert_int_equal(read_checked(&c, &g, &how), KVARC_DATA);
		memfile_free(&g);
	}
	memfile_free(&f);
	cache_free(&c);
}

struct damages {
	kvarc_damage list[64];
	size_t n;
	kvarc_loss loss; /* of track 0 */
};

static void note(void *opaque, const kvarc_damage *d)
{
	struct damages *all = opaque;
	assert_true(all->n < 64);
	assert_non_null(d->what);
	all->list[all->n++] = *d;
}

/* Salvage in order; bytes that do not come stay 0xa5. */
static kvarc_ret salvage(struct cache *to, struct memfile *f, struct damages *all, kvarc_info *info)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	kvarc_segment s;
	kvarc_ret ret;
	all->n = 0;
	o.flags = KVARC_READ_SALVAGE;
	ret = kvarc_reader_open(&r, &source, &o);
	if (ret)
		return ret;
	while ((ret = kvarc_reader_next_segment(r, &s)) == KVARC_OK)
		assert_int_equal(kvarc_reader_segment_deliver(r, cache_deliver, to), KVARC_OK);
	assert_int_equal(ret, KVARC_END);
	assert_int_equal(kvarc_reader_get_info(r, info), KVARC_OK);
	uint64_t count = kvarc_reader_damage(r, note, all);
	assert_int_equal(count, all->n);
	assert_int_equal(kvarc_reader_loss(r, UINT32_MAX, &all->loss), KVARC_OK);
	assert_int_equal(all->loss.n_damages, count);
	assert_int_equal(kvarc_reader_loss(r, 4096, &all->loss), KVARC_GEOMETRY);
	assert_int_equal(kvarc_reader_loss(r, 0, &all->loss), KVARC_OK);
	kvarc_reader_close(&r);
	return KVARC_OK;
}

/* How many rows of tensors did not arrive; those that did are right. */
static size_t missing_rows(const struct cache *c, const struct cache *back, size_t tensor)
{
	size_t row = (size_t)c->views[tensor].token_stride, missing = 0;
	for (size_t t = 0; t < c->n[0]; t++) {
		const uint8_t *got = back->data[tensor] + t * row;
		if (memcmp(got, c->data[tensor] + t * row, row) == 0)
			continue;
		for (size_t k = 0; k < row; k++)
			assert_int_equal(got[k], 0xa5);
		missing++;
	}
	return missing;
}

/* What the sums say is what did not arrive of the first loss.tokens tokens. */
static void check_loss(const struct cache *c, const struct cache *back, const kvarc_loss *loss)
{
	uint64_t lost = 0, bytes = 0, whole = loss->tokens;
	assert_true(loss->tokens <= c->n[0]);
	for (uint64_t t = loss->tokens; t-- > 0;) {
		bool missing = false;
		for (size_t i = 0; i < c->g.n_tensors; i++) {
			size_t row = (size_t)c->views[i].token_stride;
			if (!memcmp(back->data[i] + t * row, c->data[i] + t * row, row))
				continue;
			missing = true;
			bytes += row;
		}
		lost += missing;
		whole = missing ? t : whole;
	}
	assert_int_equal(loss->lost_tokens, lost);
	assert_int_equal(loss->lost_bytes, bytes);
	assert_int_equal(loss->whole_tokens, whole);
}

static void test_one_chunk(void **state)
{
	struct cache c;
	kvarc_chunk_info chunk;
	kvarc_reader *r;
	(void)state;
	for (int where = 0; where < 3; where++) { /* head, payload, check */
		struct memfile f = written(&c, 0, 100, 1);
		kvarc_source source = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		for (uint64_t i = 0; kvarc_reader_chunk(r, i, &chunk) == KVARC_OK; i++) {
			struct cache back;
			struct damages all;
			kvarc_info info;
			size_t at = (size_t)chunk.offset +
			            (where == 0 ? 3
			             : where == 1
			                     ? 32 + 45
			                     : (size_t)kvi_frame_bytes(chunk.payload_bytes) - 5);
			f.p[at] ^= 0x10;
			cache_make_empty(&back, &c);
			assert_int_equal(salvage(&back, &f, &all, &info), KVARC_OK);
			assert_int_equal(all.n, 1);
			assert_int_equal(all.list[0].tensor, chunk.tensor);
			assert_int_equal(all.list[0].t0, chunk.t0);
			assert_int_equal(all.list[0].n, chunk.n);
			assert_int_equal(all.list[0].offset, chunk.offset);
			assert_int_equal(info.state, KVARC_STATE_DAMAGED);
			check_loss(&c, &back, &all.loss);
			assert_int_equal(all.loss.tokens, 100);
			assert_int_equal(all.loss.whole_tokens, chunk.t0);
			assert_int_equal(all.loss.lost_tokens, chunk.n);
			assert_int_equal(all.loss.end_unknown, 0);
			for (size_t k = 0; k < c.g.n_tensors; k++)
				assert_int_equal(missing_rows(&c, &back, k),
				                 k == chunk.tensor ? chunk.n : 0);
			/* Ranges that do not touch it are read as ever. */
			assert_int_equal(cache_verify(&f, NULL), KVARC_DATA);
			f.p[at] ^= 0x10;
			cache_free(&back);
		}
		kvarc_reader_close(&r);
		memfile_free(&f);
		cache_free(&c);
	}
}

/* Damages frame number `nth` of a type; false when there is none. */
static bool damage_frame(struct memfile *f, uint16_t type, size_t nth, size_t byte)
{
	const uint8_t id[16] = { 0 };
	uint64_t sync = kvi_frame_sync(id);
	struct kvi_frame_head h;
	for (size_t o = KVI_SUPERBLOCK_BYTES; o < f->n; o += kvi_frame_bytes(h.payload_bytes)) {
		assert_true(kvi_frame_head_parse(&h, f->p + o, sync, o));
		if (h.type == type && nth-- == 0) {
			f->p[o + byte] ^= 0x40;
			return true;
		}
	}
	return false;
}

static void test_other_frames(void **state)
{
	(void)state;
	for (uint16_t type = KVI_FRAME_GEOMETRY; type <= KVI_FRAME_FOOTER; type++)
		for (size_t nth = 0; nth < 20; nth++)
			for (size_t byte = 2; byte < 50; byte += 31) {
				struct cache c, back;
				struct damages all;
				kvarc_info info;
				size_t missing = 0;
				struct memfile f = written(&c, 0, 100, 1);
				bool there = damage_frame(&f, type, nth, byte);
				cache_make_empty(&back, &c);
				kvarc_ret ret = salvage(&back, &f, &all, &info);
				if (there && type == KVI_FRAME_GEOMETRY) {
					assert_int_equal(ret, KVARC_DATA);
				} else {
					assert_int_equal(ret, KVARC_OK);
					assert_int_equal(all.n > 0, there);
					check_loss(&c, &back, &all.loss);
					assert_int_equal(all.loss.tokens, 100);
					for (size_t k = 0; k < 4; k++)
						missing += missing_rows(&c, &back, k);
				}
				if (type == KVI_FRAME_CHUNK || type == KVI_FRAME_SEGMENT)
					assert_true(missing <= 64);
				else if (type == KVI_FRAME_PARAMS)
					assert_true(missing <= 100);
				else
					assert_int_equal(missing, 0);
				cache_free(&back);
				memfile_free(&f);
				cache_free(&c);
			}
}

/* A large file carries copies of its parameters. */
static void test_params_copy(void **state)
{
	(void)state;
	for (size_t byte = 2; byte < 50; byte += 31) {
		struct cache c, back;
		struct damages all;
		kvarc_info info;
		struct memfile f = written(&c, 3, 1000, 1);
		assert_true(damage_frame(&f, KVI_FRAME_PARAMS, 0, byte));
		assert_int_equal(cache_verify(&f, NULL), KVARC_DATA);
		cache_make_empty(&back, &c);
		assert_int_equal(salvage(&back, &f, &all, &info), KVARC_OK);
		assert_int_equal(all.n, 1);
		assert_int_equal(missing_rows(&c, &back, 0), 0);
		cache_free(&back);
		memfile_free(&f);
		cache_free(&c);
	}
}

static void test_superblock(void **state)
{
	(void)state;
	for (size_t byte = 8; byte < KVI_SUPERBLOCK_BYTES; byte++) {
		struct cache c, back;
		struct damages all;
		kvarc_info info;
		struct memfile f = written(&c, 0, 50, 1);
		f.p[byte] ^= 0x81;
		cache_make_empty(&back, &c);
		assert_int_equal(salvage(&back, &f, &all, &info), KVARC_OK);
		assert_int_equal(all.n, 1);
		for (size_t k = 0; k < 4; k++)
			assert_int_equal(missing_rows(&c, &back, k), 0);
		cache_free(&back);
		memfile_free(&f);
		cache_free(&c);
	}
}

static void test_cuts(void **state)
{
	struct cache c;
	(void)state;
	struct memfile f = written(&c, 0, 100, 1);
	size_t full = f.n;
	for (f.n = 800; f.n < full; f.n += 37) {
		struct cache back;
		struct damages all;
		kvarc_info info;
		kvarc_reader *r;
		cache_make_empty(&back, &c);
		assert_int_equal(salvage(&back, &f, &all, &info), KVARC_OK);
		/* What a plain reader promises is there, and maybe more. */
		kvarc_source source = memfile_source(&f);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		size_t whole = (size_t)kvarc_reader_tokens(r, 0);
		check_loss(&c, &back, &all.loss);
		assert_true(all.loss.whole_tokens >= whole);
		assert_true(all.n > 0);
		for (size_t k = 0; k < 4; k++) {
			size_t row = (size_t)c.views[k].token_stride;
			missing_rows(&c, &back, k);
			assert_memory_equal(back.data[k], c.data[k], whole * row);
		}
		assert_true(whole % 32 == 0 || whole == 100);
		kvarc_reader_close(&r);
		cache_free(&back);
	}
	memfile_free(&f);
	cache_free(&c);
}

/* Everything between the first commit and the index is gone: the index says what that was. */
static void test_index_tells(void **state)
{
	struct cache c, back;
	struct damages all;
	kvarc_info info;
	(void)state;
	struct memfile f = written(&c, 0, 100, 1);
	size_t from = frame_at(&f, KVI_FRAME_COMMIT, 0), to = frame_at(&f, KVI_FRAME_INDEX, 0);
	memset(f.p + from, 0, to - from);
	/* The COMMIT is a multiple of 8 long: what follows is found again. */
	cache_make_empty(&back, &c);
	assert_int_equal(salvage(&back, &f, &all, &info), KVARC_OK);
	check_loss(&c, &back, &all.loss);
	assert_int_equal(all.loss.tokens, 100);
	assert_int_equal(all.loss.whole_tokens, 32);
	assert_int_equal(all.loss.lost_tokens, 68);
	assert_int_equal(all.n, 1);
	assert_int_equal(all.list[0].offset, from);
	assert_int_equal(all.list[0].tensor, UINT32_MAX);
	assert_int_equal(all.list[0].t0, 32);
	assert_int_equal(all.list[0].n, 68);
	/* Without it nobody knows, and that is said. */
	f.n = to;
	assert_int_equal(salvage(&back, &f, &all, &info), KVARC_OK);
	assert_int_equal(all.loss.tokens, 32);
	assert_int_equal(all.loss.lost_tokens, 0);
	assert_int_equal(all.loss.end_unknown, 1);
	assert_int_equal(all.n, 1);
	assert_int_equal(all.list[0].bytes, to - from);
	cache_free(&back);
	memfile_free(&f);
	cache_free(&c);
}

/* kvarc_reader_verify with a callback reports the damage and still returns DATA. */
static void test_verify_reports(void **state)
{
	struct cache c;
	struct damages all = { .n = 0 };
	kvarc_reader *r;
	kvarc_error e = { 0 };
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	(void)state;
	struct memfile f = written(&c, 0, 100, 1);
	o.common.error = &e;
	assert_true(damage_frame(&f, KVI_FRAME_CHUNK, 1, 90));
	f.p[f.n - 60] ^= 1; /* and the footer */
	kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	assert_int_equal(kvarc_reader_loss(r, 0, &all.loss), KVARC_PROG);
	assert_int_equal(kvarc_reader_verify(r, note, &all), KVARC_DATA);
	assert_int_equal(all.n, 2);
	assert_int_equal(kvarc_reader_loss(r, 0, &all.loss), KVARC_OK);
	assert_int_equal(all.loss.n_damages, 2);
	assert_int_equal(all.loss.whole_tokens, 0);
	assert_int_equal(all.loss.lost_tokens, 32);
	assert_int_equal(e.code, KVARC_DATA);
	assert_non_null(strstr(e.text, "salvage"));
	kvarc_reader_close(&r);
	memfile_free(&f);
	cache_free(&c);
}

/* No crash, no leak, no hang on files with many random changes. */
static void test_random_damage(void **state)
{
	uint64_t seed = 99;
	(void)state;
	for (int i = 0; i < 200; i++) {
		struct cache c, back;
		struct damages all;
		kvarc_info info;
		kvarc_state how;
		struct memfile f = written(&c, i % 3, 70, i % 2);
		for (int k = 0; k < 1 + i % 9; k++)
			f.p[64 + rand_next(&seed) % (f.n - 64)] = (uint8_t)rand_next(&seed);
		cache_make_empty(&back, &c);
		salvage(&back, &f, &all, &info);
		read_checked(&c, &f, &how);
		cache_free(&back);
		memfile_free(&f);
		cache_free(&c);
	}
}

/* An archive without footer, with n more frames of a type; each decodes to `bytes` bytes. */
static struct memfile with_frames(uint16_t type, unsigned n, size_t bytes)
{
	struct cache c;
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = options(1);
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	uint8_t *content = calloc(1,
	                          bytes); /* PARAMS: of tensor 0; IDENTITY: a value is replaced */
	assert_non_null(content);
	content[6] = 1; /* PARAMS: one head */
	content[8] = 5; /* of codec grid */
	if (type == KVI_FRAME_IDENTITY) {
		/* One pair: key "k", a value of 65535 characters. */
		static const uint8_t head[] = { 1, 1, 'k', 0xff, 0xff, 3 };
		memset(content, 'v', bytes);
		memcpy(content, head, sizeof head);
		bytes = sizeof head + 65535;
	}
	cache_make(&c, 0, 11);
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(kvi_writer_frame(w, type, content, bytes, true), KVARC_OK);
	kvarc_writer_abort(&w);
	free(content);
	cache_free(&c);
	return f;
}

static kvarc_ret open_limited(struct memfile *f, unsigned flags)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	o.flags = flags;
	o.common.memlimit = 16 << 20;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	kvarc_reader_close(&r);
	return ret;
}

/* Frames that no chunk uses cost nothing; those that are read cost no more than the limit. */
static void test_metadata_bombs(void **state)
{
	(void)state;
	struct memfile f = with_frames(KVI_FRAME_PARAMS, 3, 64 << 20);
	assert_true(f.n < 100 << 10);
	assert_int_equal(open_limited(&f, 0), KVARC_OK);
	assert_int_equal(open_limited(&f, KVARC_READ_SALVAGE), KVARC_OK);
	memfile_free(&f);
	f = with_frames(KVI_FRAME_IDENTITY, 300, 1 << 20);
	assert_int_equal(open_limited(&f, 0), KVARC_MEMLIMIT);
	assert_int_equal(open_limited(&f, KVARC_READ_SALVAGE), KVARC_MEMLIMIT);
	memfile_free(&f);
	f = with_frames(KVI_FRAME_IDENTITY, 200, 1 << 20);
	assert_int_equal(open_limited(&f, 0), KVARC_OK);
	memfile_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_bit),         cmocka_unit_test(test_every_length),
		cmocka_unit_test(test_cut_is_one_answer), cmocka_unit_test(test_salvage_states),
		cmocka_unit_test(test_extra_bytes),       cmocka_unit_test(test_one_chunk),
		cmocka_unit_test(test_other_frames),      cmocka_unit_test(test_params_copy),
		cmocka_unit_test(test_superblock),        cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_index_tells),       cmocka_unit_test(test_verify_reports),
		cmocka_unit_test(test_metadata_bombs),    cmocka_unit_test(test_random_damage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
