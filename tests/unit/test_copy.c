/* SPDX-License-Identifier: BSD-3-Clause */
/* test_copy.c - cuts of lossy archives: payloads as they were, who may have parts of segments,
 * repeated chunks, old bytes under new ones, failures */
#include "stream_util.h"

#include "codecs/codec.h"
#include "format/chunk_header.h"
#include "format/frame.h"

enum {
	SEGMENT = 64,
	SEGMENTS = 5,
	TOKENS = SEGMENT * SEGMENTS - 10,
	HEADS = 2,
	CHANNELS = 32,
	WIDTH = HEADS * CHANNELS,
	LAYERS = 2,
	HEAD = KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES
};

/* Layers of turned keys and of values. Segment 3 is segment 1 again, at the same positions, so that
 * its chunks are repeats. */
static void make(struct cache *c)
{
	static uint64_t freq[16];
	const size_t row = 2 * WIDTH;
	uint64_t seed = 3;
	memset(c, 0, sizeof *c);
	for (size_t i = 0; i < 16; i++)
		freq[i] = 0x28be60db9391054au >> 2 * i;
	c->ropes[0] = (kvarc_rope){ .pairing = KVARC_ROPE_HALF, .rotary = 32, .freq = freq };
	c->tracks[0] = (kvarc_track){ .kind = KVARC_TRACK_SELF, .label = "main" };
	for (uint32_t i = 0; i < 2 * LAYERS; i++)
		c->tensors[i] =
			(kvarc_tensor){ .layer = i / 2,
			                .kind = i % 2 ? KVARC_VALUE : KVARC_KEY,
			                .dtype = KVARC_F16,
			                .heads = HEADS,
			                .channels = CHANNELS,
			                .rope = i % 2 ? 0 : 1,
			                .flags = (uint8_t)(i % 2 ? 0 : KVARC_TENSOR_POST_ROPE) };
	c->g.n_ropes = c->g.n_tracks = 1;
	c->g.n_tensors = 2 * LAYERS;
	c->n[0] = TOKENS;
	cache_link(c);
	for (size_t t = 0; t < 2 * LAYERS; t++) {
		for (size_t i = 0; i < TOKENS * WIDTH; i++) {
			uint64_t x = rand_next(&seed); /* 0.5 to 2 and signs */
			uint16_t v = (uint16_t)((0x3800 + (x & 0x7ff)) | (x >> 20 & 1) << 15);
			memcpy(c->data[t] + 2 * i, &v, 2);
		}
		memcpy(c->data[t] + 3 * SEGMENT * row, c->data[t] + SEGMENT * row, SEGMENT * row);
	}
	for (int32_t i = 0; i < TOKENS; i++) {
		c->ids[0][i] = 3 * i;
		c->positions[0][i] = i / SEGMENT == 3 ? i - 2 * SEGMENT : i;
	}
}

static struct memfile written(const struct cache *c, const char *tier)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_lossy l;
	assert_int_equal(kvarc_lossy_parse(&l, tier, NULL), KVARC_OK);
	l.generation = 4;
	o.segment_tokens = SEGMENT;
	o.lossy = &l;
	assert_int_equal(cache_write(c, &f, &o), KVARC_OK);
	return f;
}

static kvarc_ret cut(struct memfile *f, unsigned allow, kvarc_range range, kvarc_writer_options *o,
                     struct memfile *out, kvarc_error *e)
{
	kvarc_source source = memfile_source(f);
	kvarc_sink sink = memfile_sink(out);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	ro.flags = allow;
	ro.common = o->common;
	ro.common.error = o->common.error = e;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &ro);
	if (!ret)
		ret = kvarc_cut(r, &range, &sink, o, NULL);
	kvarc_reader_close(&r);
	return ret;
}

static kvarc_reader *open(struct memfile *f, kvarc_chunk_info *chunk, uint64_t i)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	o.flags = KVARC_READ_ALLOW_LOSSY;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	if (chunk && kvarc_reader_chunk(r, i, chunk))
		memset(chunk, 0, sizeof *chunk);
	return r;
}

/* A chunk of a file; n = 0: there is none. */
static kvarc_chunk_info chunk_at(struct memfile *f, uint64_t i)
{
	kvarc_chunk_info c;
	kvarc_reader *r = open(f, &c, i);
	kvarc_reader_close(&r);
	return c;
}

/* Elements, ids and positions of the cut are those that the range of the archive gives. */
static void same_elements(struct memfile *f, struct memfile *part, kvarc_range range)
{
	static uint8_t a[2 * LAYERS][2 * TOKENS * WIDTH], b[2 * LAYERS][2 * TOKENS * WIDTH];
	int32_t ids[2][TOKENS], positions[2][TOKENS];
	kvarc_view views[2][2 * LAYERS] = { 0 };
	kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_reader *r = open(f, NULL, 0), *p = open(part, NULL, 0);
	uint32_t n = 0;
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		if (i / 2 < range.layer0 || i / 2 - range.layer0 >= range.n_layers)
			continue;
		views[0][i] = (kvarc_view){ .data = a[i],
			                    .token_stride = 2 * WIDTH,
			                    .block_elems = WIDTH,
			                    .elem_stride = 2 };
		views[1][n++] = (kvarc_view){ .data = b[i],
			                      .token_stride = 2 * WIDTH,
			                      .block_elems = WIDTH,
			                      .elem_stride = 2 };
	}
	assert_int_equal(kvarc_reader_tokens(p, 0), range.n);
	assert_int_equal(kvarc_reader_geometry(p)->n_tensors, n);
	assert_int_equal(kvarc_reader_read(r, &range, views[0]), KVARC_OK);
	assert_int_equal(kvarc_reader_read(p, &all, views[1]), KVARC_OK);
	for (uint32_t i = 0; i < 2 * LAYERS; i++)
		if (views[0][i].data)
			assert_memory_equal(a[i], b[i], 2 * range.n * WIDTH);
	assert_int_equal(kvarc_reader_read_tokens(r, 0, range.t0, range.n, ids[0], positions[0]),
	                 0);
	assert_int_equal(kvarc_reader_read_tokens(p, 0, 0, range.n, ids[1], positions[1]), 0);
	assert_memory_equal(ids[0], ids[1], 4 * range.n);
	assert_memory_equal(positions[0], positions[1], 4 * range.n);
	assert_int_equal(kvarc_reader_verify(p, NULL, NULL), KVARC_OK);
	kvarc_reader_close(&p);
	kvarc_reader_close(&r);
}

/* Whole segments need no permission, and their payloads are the same bytes. */
static void test_whole(void **state)
{
	static const char *const tiers[] = { "had:4", "had:3,no-unrope", "near:0.01", "tsc:4",
		                             "vq:2" };
	const kvarc_range range = { .layer0 = 1, .n_layers = 1, .t0 = SEGMENT, .n = 2 * SEGMENT };
	struct cache c;
	(void)state;
	make(&c);
	for (size_t k = 0; k < sizeof tiers / sizeof *tiers; k++) {
		struct memfile f = written(&c, tiers[k]), part = { .fail_at = -1 };
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		o.flags = k % 2 ? KVARC_WRITE_VERIFY : 0;
		assert_int_equal(cut(&f, 0, range, &o, &part, NULL), KVARC_OK);
		same_elements(&f, &part, range);
		for (uint64_t i = 0; i < 4; i++) {
			/* segments of 4 chunks, of which the last 2 are of layer 1 */
			kvarc_chunk_info x = chunk_at(&f, 4 * (1 + i / 2) + 2 + i % 2);
			kvarc_chunk_info y = chunk_at(&part, i);
			assert_int_equal(x.payload_bytes, y.payload_bytes);
			assert_int_equal(x.codec, y.codec);
			assert_int_equal(y.generation, 5);
			assert_memory_equal(f.p + x.offset + HEAD, part.p + y.offset + HEAD,
			                    x.payload_bytes - KVI_CHUNK_HEADER_BYTES);
		}
		assert_int_equal(chunk_at(&part, 4).n, 0);
		memfile_free(&part);
		memfile_free(&f);
	}
	cache_free(&c);
}

/* Parts of segments are for those who take their elements as they are; they are not changed
 * again. */
static void test_parts(void **state)
{
	static const struct {
		uint64_t t0, n;
		const char *text;
	} bad[] = {
		{ 1, TOKENS - 1, "tokens 0 to 63 as one" },
		{ 0, SEGMENT + 1, "tokens 64 to 127 as one" },
		{ 70, 3, "tokens 64 to 127 as one" },
		{ SEGMENT, 3 * SEGMENT + 1, "tokens 256 to 309" },
	};
	struct cache c;
	(void)state;
	make(&c);
	struct memfile f = written(&c, "had:4");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		const kvarc_range range = { .n_layers = LAYERS, .t0 = bad[i].t0, .n = bad[i].n };
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		struct memfile part = { .fail_at = -1 };
		uint64_t lossy = 0, chunks = 0;
		kvarc_error e;
		assert_int_equal(cut(&f, 0, range, &o, &part, &e), KVARC_LOSSY);
		assert_non_null(strstr(e.text, bad[i].text));
		memfile_free(&part);
		part = (struct memfile){ .fail_at = -1 };
		assert_int_equal(cut(&f, KVARC_READ_ALLOW_LOSSY, range, &o, &part, &e), KVARC_OK);
		same_elements(&f, &part, range);
		for (kvarc_chunk_info x; (x = chunk_at(&part, chunks)).n; chunks++)
			lossy += kvi_codec_lossy(x.codec);
		assert_int_equal(lossy, i == 0 ? 12 : i == 1 ? 4 : i == 2 ? 0 : 8);
		memfile_free(&part);
	}
	memfile_free(&f);
	cache_free(&c);
}

/* A call that asks for a tier or a model gets no copies. */
static void test_asked(void **state)
{
	const kvarc_range range = { .n_layers = LAYERS, .n = SEGMENT };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	struct memfile part = { .fail_at = -1 };
	struct cache c;
	kvarc_lossy l;
	kvarc_error e;
	(void)state;
	make(&c);
	struct memfile f = written(&c, "had:4");
	assert_int_equal(kvarc_lossy_parse(&l, "had:2", NULL), KVARC_OK);
	o.lossy = &l;
	assert_int_equal(cut(&f, 0, range, &o, &part, &e), KVARC_LOSSY);
	assert_non_null(strstr(e.text, "tokens 0 to 63 were changed"));
	memfile_free(&part);
	memfile_free(&f);
	cache_free(&c);
}

/* Chunks that repeat others repeat their copies, or have the payload where those are not copied. */
static void test_repeats(void **state)
{
	static const struct {
		uint64_t segment, n;
		unsigned flags;
		unsigned repeats;
	} cuts[] = {
		{ 0, 4, 0, 4 },
		{ 1, 3, 0, 4 },
		{ 2, 2, 0, 0 },
		{ 3, 1, 0, 0 },
		{ 0, 4, KVARC_WRITE_STREAMABLE, 0 },
	};
	struct cache c;
	(void)state;
	make(&c);
	struct memfile f = written(&c, "had:4");
	assert_int_equal(chunk_at(&f, 12).codec, KVI_CODEC_REPEAT);
	assert_int_equal(chunk_at(&f, 12).generation, 5);
	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		const kvarc_range range = { .n_layers = LAYERS,
			                    .t0 = cuts[i].segment * SEGMENT,
			                    .n = cuts[i].n * SEGMENT };
		kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
		struct memfile part = { .fail_at = -1 };
		uint64_t repeats = 0;
		o.flags = cuts[i].flags;
		assert_int_equal(cut(&f, 0, range, &o, &part, NULL), KVARC_OK);
		same_elements(&f, &part, range);
		for (uint64_t k = 0; k < 4 * cuts[i].n; k++)
			repeats += chunk_at(&part, k).codec == KVI_CODEC_REPEAT;
		assert_int_equal(repeats, cuts[i].repeats);
		memfile_free(&part);
	}
	memfile_free(&f);
	cache_free(&c);
}

/* Segments that are coded come before, between and behind those that are copied: a pipe has the
 * parameters of all. */
static void test_pipe(void **state)
{
	const kvarc_range range = { .n_layers = LAYERS, .t0 = 1, .n = 4 * SEGMENT + 20 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	struct memfile part = { .fail_at = -1 };
	uint64_t lossy = 0;
	struct cache c;
	(void)state;
	make(&c);
	for (size_t t = 0; t < 2 * LAYERS; t++) /* no tier takes infinities */
		for (size_t i = 2 * SEGMENT; i < 3 * SEGMENT; i++)
			memcpy(c.data[t] + 2 * WIDTH * i, &(uint16_t){ 0x7c00 }, 2);
	struct memfile f = written(&c, "had:4");
	o.flags = KVARC_WRITE_STREAMABLE;
	assert_int_equal(cut(&f, KVARC_READ_ALLOW_LOSSY, range, &o, &part, NULL), KVARC_OK);
	same_elements(&f, &part, range);
	kvarc_chunk_info x;
	for (uint64_t i = 0; (x = chunk_at(&part, i)).n; i++) {
		lossy += kvi_codec_lossy(x.codec);
		assert_true(kvi_codec_lossy(x.codec) || kvi_codec_has_params(x.codec));
	}
	assert_int_equal(lossy, 2 * 2 * LAYERS);
	part.pipe = true;
	kvarc_reader *r = open(&part, NULL, 0);
	assert_int_equal(kvarc_reader_verify(r, NULL, NULL), KVARC_OK);
	kvarc_reader_close(&r);
	memfile_free(&part);
	memfile_free(&f);
	cache_free(&c);
}

/* Cut twice is as cut once. */
static void test_twice(void **state)
{
	const kvarc_range first = { .n_layers = LAYERS, .t0 = SEGMENT, .n = 4 * SEGMENT - 10 };
	const kvarc_range second = { .layer0 = 1, .n_layers = 1, .t0 = 2 * SEGMENT, .n = SEGMENT };
	const kvarc_range both = { .layer0 = 1, .n_layers = 1, .t0 = 3 * SEGMENT, .n = SEGMENT };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	struct memfile a = { .fail_at = -1 }, b = a, d = a;
	struct cache c;
	(void)state;
	make(&c);
	struct memfile f = written(&c, "had:4");
	o.flags = KVARC_WRITE_FILE_ID;
	assert_int_equal(cut(&f, 0, first, &o, &a, NULL), KVARC_OK);
	assert_int_equal(cut(&a, 0, second, &o, &b, NULL), KVARC_OK);
	assert_int_equal(cut(&f, 0, both, &o, &d, NULL), KVARC_OK);
	assert_int_equal(b.n, d.n);
	assert_memory_equal(b.p, d.p, b.n);
	memfile_free(&a);
	memfile_free(&b);
	memfile_free(&d);
	memfile_free(&f);
	cache_free(&c);
}

/* Appended frames come behind the bytes that are there: nothing is coded again. */
static void test_append(void **state)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_view views[2 * LAYERS];
	kvarc_sink sink = memfile_sink(&f);
	kvarc_lossy l;
	kvarc_writer *w;
	struct cache c;
	(void)state;
	make(&c);
	assert_int_equal(kvarc_lossy_parse(&l, "had:4", NULL), KVARC_OK);
	o.lossy = &l;
	o.segment_tokens = SEGMENT;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	uint8_t *old = NULL;
	size_t bytes = 0;
	for (uint64_t at = 0, n = 40; at < TOKENS; at += n) {
		n = n < TOKENS - at ? n : TOKENS - at;
		cache_views_at(&c, at, views);
		assert_int_equal(
			kvarc_writer_append(w, 0, n, c.ids[0] + at, c.positions[0] + at, views),
			KVARC_OK);
		assert_int_equal(kvarc_writer_commit(w), KVARC_OK);
		assert_true(f.n > bytes);
		if (bytes)
			assert_memory_equal(f.p, old, bytes);
		free(old);
		bytes = f.n;
		old = malloc(bytes);
		assert_non_null(old);
		memcpy(old, f.p, bytes);
	}
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	assert_memory_equal(f.p, old, bytes);
	free(old);
	memfile_free(&f);
	cache_free(&c);
}

/* Without memory, with a full disk, with a source that fails: an error, and nothing is held. */
static void test_failures(void **state)
{
	const kvarc_range range = { .n_layers = LAYERS, .t0 = SEGMENT, .n = 3 * SEGMENT };
	struct cache c;
	(void)state;
	make(&c);
	struct memfile f = written(&c, "had:4");
	for (int way = 0; way < 3; way++) {
		bool done = false;
		for (long k = 0; !done; k++) {
			struct counting count = { .fail_at = way == 0 ? k : -1 };
			struct memfile part = { .fail_at = way == 1 ? k : -1 };
			kvarc_allocator a = counting_allocator(&count);
			kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
			o.common.allocator = &a;
			o.common.threads = 1;
			f.fail_at = way == 2 ? k : -1;
			f.calls = 0;
			kvarc_ret ret = cut(&f, 0, range, &o, &part, NULL);
			assert_int_equal(count.held, 0);
			if (ret)
				assert_int_equal(ret, way ? KVARC_IO : KVARC_MEM);
			done = ret == KVARC_OK;
			memfile_free(&part);
		}
	}
	f.fail_at = -1;
	memfile_free(&f);
	cache_free(&c);
}

/* Damage is found before it is written as if it were sound. */
static void test_damage(void **state)
{
	const kvarc_range range = { .n_layers = LAYERS, .n = 4 * SEGMENT };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	struct cache c;
	(void)state;
	make(&c);
	struct memfile f = written(&c, "had:4");
	for (uint64_t i = 0; i < 32; i++) {
		kvarc_chunk_info x = chunk_at(&f, i / 2);
		uint8_t *at = f.p + x.offset + 20;
		if (i % 2)
			at += x.payload_bytes;
		struct memfile part = { .fail_at = -1 };
		*at ^= 4;
		assert_int_equal(cut(&f, 0, range, &o, &part, NULL), KVARC_DATA);
		*at ^= 4;
		memfile_free(&part);
	}
	memfile_free(&f);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),  cmocka_unit_test(test_parts),
		cmocka_unit_test(test_asked),  cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_pipe),   cmocka_unit_test(test_twice),
		cmocka_unit_test(test_append), cmocka_unit_test(test_failures),
		cmocka_unit_test(test_damage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
