/* SPDX-License-Identifier: BSD-3-Clause */
/* test_state_archive.c - states of checkpoints that refer to earlier ones, in one archive */
#include "append_util.h"
#include "format/codec_ids.h"

enum { ROWS = 300, CHANNELS = 64, STATES = 6, REOPENED = 3, HEAD = 32 + 48 };

static const uint64_t counts[1] = { ROWS };

/* A recurrent state of f32 and a convolution state of bf16. */
static void shape(struct cache *c)
{
	memset(c, 0, sizeof *c);
	c->tracks[0].kind = KVARC_TRACK_STATE;
	for (size_t i = 0; i < 2; i++)
		c->tensors[i] = (kvarc_tensor){
			.kind = i ? KVARC_CONV_STATE : KVARC_RECURRENT_STATE,
			.dtype = i ? KVARC_BF16 : KVARC_F32,
			.heads = 1,
			.channels = CHANNELS,
			.total_heads = 1,
			.name = "",
		};
	c->g.tracks = c->tracks;
	c->g.n_tracks = 1;
	c->g.tensors = c->tensors;
	c->g.n_tensors = 2;
	c->n[0] = ROWS;
	cache_link(c);
	for (int32_t t = 0; t < ROWS; t++)
		c->ids[0][t] = c->positions[0][t] = t;
}

static float noise(uint64_t *seed)
{
	float v = 0;
	for (int i = 0; i < 4; i++)
		v += (float)(int32_t)rand_next(seed) / 2147483648.0f;
	return v;
}

/* The states of a text: most of the one before is left. */
static void decay(struct cache *c, const struct cache *before, uint64_t *seed)
{
	shape(c);
	for (size_t i = 0; i < (size_t)ROWS * CHANNELS; i++) {
		const float scale = (float)(1 + i / CHANNELS % 7) * (float)(1 + i % 5);
		float x = noise(seed) * scale * 0.2f;
		uint32_t bits;
		if (before) {
			float y;
			memcpy(&y, before->data[0] + 4 * i, 4);
			x += 0.98f * y;
		}
		memcpy(c->data[0] + 4 * i, &x, 4);
		memcpy(&bits, &x, 4);
		c->data[1][2 * i] = (uint8_t)(bits >> 16);
		c->data[1][2 * i + 1] = (uint8_t)(bits >> 24);
	}
}

static void put_state(kvarc_writer *w, const struct cache *c)
{
	uint64_t number;
	if (kvarc_writer_tokens(w, 0))
		assert_int_equal(kvarc_writer_rewind(w, 0, 0), KVARC_OK);
	assert_int_equal(append_tokens(w, c, 0, 0, ROWS), KVARC_OK);
	assert_int_equal(kvarc_writer_checkpoint(w, "", 0, &number), KVARC_OK);
}

/* Six states, the last three by another writer, from the offset that is returned. */
static uint64_t write_states(struct torn *t, struct cache *states, const kvarc_writer_options *o)
{
	uint64_t seed = 11, behind = 0;
	kvarc_writer *w;
	memset(t, 0, sizeof *t);
	t->fail_at = t->f.fail_at = -1;
	kvarc_sink sink = torn_sink(t);
	assert_int_equal(kvarc_writer_open(&w, &sink, o), KVARC_OK);
	for (int i = 0; i < STATES; i++)
		decay(&states[i], i ? &states[i - 1] : NULL, &seed);
	assert_int_equal(kvarc_writer_set_geometry(w, &states[0].g), KVARC_OK);
	for (int i = 0; i < STATES; i++) {
		if (i == REOPENED) {
			assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
			w = append_open(t, o);
			behind = t->f.n;
		}
		put_state(w, &states[i]);
	}
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	return behind;
}

/* Chunks of codec state, and those behind an offset that refer to others before it, or with 0 to
 * any; *key: the offset of one of these. */
static void count_chunks(struct torn *t, uint64_t behind, unsigned *states, unsigned *refer,
                         uint64_t *key)
{
	const kvarc_source source = torn_source(t);
	const kvarc_reader_options o = { 0 };
	kvarc_chunk_info c;
	kvarc_reader *r;
	*states = *refer = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	for (uint64_t i = 0; !kvarc_reader_chunk(r, i, &c); i++) {
		uint64_t offset = 0;
		if (c.codec != KVI_CODEC_STATE)
			continue;
		for (int k = 0; k < 8; k++)
			offset |= (uint64_t)t->f.p[c.offset + HEAD + 8 + (unsigned)k] << 8 * k;
		++*states;
		if (!offset || (behind && (c.offset < behind || offset >= behind)))
			continue;
		++*refer;
		*key = offset;
	}
	kvarc_reader_close(&r);
}

static void free_states(struct torn *t, struct cache *states)
{
	torn_free(t);
	for (int i = 0; i < STATES; i++)
		cache_free(&states[i]);
}

static void test_checkpoints(void **state)
{
	struct cache states[STATES];
	struct torn t;
	unsigned n, refer;
	uint64_t key;
	(void)state;
	for (unsigned threads = 1; threads <= 3; threads += 2) {
		const kvarc_writer_options o = stream_options(1, threads);
		const uint64_t behind = write_states(&t, states, &o);
		for (uint64_t i = 0; i < STATES; i++)
			append_check(&t.f, &states[i], counts, i + 1);
		append_check(&t.f, &states[STATES - 1], counts, 0);
		count_chunks(&t, 0, &n, &refer, &key);
		assert_true(n >= STATES * 2 && refer >= n / 2);
		/* Those of the writer that continued refer to what was there. */
		count_chunks(&t, behind, &n, &refer, &key);
		assert_true(refer > 0);
		free_states(&t, states);
	}
}

/* A state for each of four tracks, as files of engines hold several checkpoints; all of them refer
 * to the first one. The third one is of another layer, which has none to refer to. */
static void make_tracks(struct cache *c, struct cache states[4])
{
	uint64_t seed = 5;
	struct cache text[20]; /* until states hold more than a step adds */
	memset(c, 0, sizeof *c);
	for (uint32_t i = 0; i < 20; i++)
		decay(&text[i], i ? &text[i - 1] : NULL, &seed);
	for (uint32_t i = 0; i < 4; i++) {
		decay(&states[i], i ? &states[i - 1] : &text[19], &seed);
		c->tracks[i] = states[i].tracks[0];
		c->n[i] = ROWS;
		c->tensors[i] = states[i].tensors[0];
		c->tensors[i].track = i;
		c->tensors[i].layer = i == 2;
	}
	c->g.n_tracks = c->g.n_tensors = 4;
	cache_link(c);
	for (uint32_t i = 0; i < 4; i++) {
		memcpy(c->data[i], states[i].data[0], cache_bytes(c, i));
		memcpy(c->positions[i], states[i].positions[0], ROWS * sizeof(int32_t));
	}
	for (uint32_t i = 0; i < 20; i++)
		cache_free(&text[i]);
}

static void test_tracks(void **state)
{
	struct cache c, states[4];
	struct memfile f[2] = { 0 };
	struct torn t;
	unsigned n, refer;
	uint64_t key;
	(void)state;
	make_tracks(&c, states);
	for (unsigned i = 0; i < 2; i++) {
		const kvarc_writer_options o = stream_options(1, 1 + 3 * i);
		f[i].fail_at = -1;
		assert_int_equal(cache_write(&c, &f[i], &o), KVARC_OK);
		append_check(&f[i], &c, c.n, 0);
	}
	/* whatever the threads do */
	assert_int_equal(f[0].n, f[1].n);
	assert_memory_equal(f[0].p, f[1].p, f[0].n);
	torn_copy(&t, &f[0], f[0].n);
	count_chunks(&t, 0, &n, &refer, &key);
	assert_true(n >= 4 && refer == n / 2);
	torn_free(&t);
	for (unsigned i = 0; i < 2; i++)
		memfile_free(&f[i]);
	for (unsigned i = 0; i < 4; i++)
		cache_free(&states[i]);
	cache_free(&c);
}

/* Level 0 is fast, a small memory limit has no copies, and neither have pipes. */
static void test_none(void **state)
{
	struct cache states[STATES];
	struct torn t;
	unsigned n, refer;
	uint64_t key;
	kvarc_writer_options o = stream_options(0, 1);
	(void)state;
	write_states(&t, states, &o);
	count_chunks(&t, 0, &n, &refer, &key);
	assert_int_equal(n, 0);
	append_check(&t.f, &states[1], counts, 2);
	free_states(&t, states);
	o = stream_options(1, 1);
	o.flags |= KVARC_WRITE_STREAMABLE;
	struct memfile f = stream_written((decay(&states[0], NULL, &(uint64_t){ 3 }), &states[0]),
	                                  &o);
	struct torn copy;
	torn_copy(&copy, &f, f.n);
	count_chunks(&copy, 0, &n, &refer, &key);
	assert_true(n > 0 && refer == 0);
	torn_free(&copy);
	memfile_free(&f);
	cache_free(&states[0]);
}

/* A pipe cannot go back; damage to what is referred to is found, and costs what refers to it. */
static void test_failures(void **state)
{
	struct cache states[STATES], back;
	struct torn t;
	unsigned n, refer;
	uint64_t key = 0;
	kvarc_state how;
	const kvarc_writer_options o = stream_options(1, 2);
	const kvarc_reader_options plain = { 0 };
	kvarc_reader_options salvage = { .flags = KVARC_READ_SALVAGE };
	(void)state;
	write_states(&t, states, &o);
	count_chunks(&t, 0, &n, &refer, &key);
	cache_make_empty(&back, &states[0]);
	t.f.pipe = true;
	t.f.next = 0;
	assert_int_equal(cache_read_seq(&back, &t.f, &plain, NULL), KVARC_OPTIONS);
	t.f.pipe = false;
	assert_int_equal(cache_read_range(&back, &t.f, &plain), KVARC_OK);
	t.f.p[key + HEAD + 900] ^= 4;
	assert_int_equal(cache_read_range(&back, &t.f, &plain), KVARC_DATA);
	cache_free(&back);
	cache_make_empty(&back, &states[0]);
	assert_int_equal(cache_read_seq(&back, &t.f, &salvage, &how), KVARC_OK);
	assert_false(cache_equal(&back, &states[STATES - 1]));
	cache_free(&back);
	free_states(&t, states);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checkpoints),
		cmocka_unit_test(test_tracks),
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
