/* SPDX-License-Identifier: BSD-3-Clause */
/* test_track_forks.c - tracks that begin as others (spec 6.3): written, read in every way, appended
 * to, cut, compacted, salvaged */
#include "append_util.h"
#include "format/frame.h"
#include "format/superblock.h"

enum { TRACKS = 4, MOST = 700, CHECKPOINTS = 8 };

/* Four tracks of keys with a RoPE and values, each with its tensors in another order. */
static void make(struct cache *c)
{
	static uint64_t freq[4] = { 1u << 30, 1u << 26, 1u << 22, 1u << 18 };
	*c = (struct cache){ .ropes = { { .pairing = 0, .rotary = 8, .freq = freq } } };
	for (uint32_t i = 0; i < TRACKS; i++) {
		const kvarc_tensor key = { .kind = KVARC_KEY,
			                   .dtype = KVARC_BF16,
			                   .heads = 2,
			                   .channels = 8,
			                   .track = i,
			                   .rope = 1,
			                   .flags = KVARC_TENSOR_POST_ROPE };
		const kvarc_tensor value = { .kind = KVARC_VALUE,
			                     .dtype = KVARC_F16,
			                     .heads = 1,
			                     .channels = 24,
			                     .track = i };
		c->tensors[2 * i] = i % 2 ? key : value;
		c->tensors[2 * i + 1] = i % 2 ? value : key;
		c->n[i] = MOST;
	}
	c->g = (kvarc_geometry){ .n_ropes = 1,
		                 .n_tracks = TRACKS,
		                 .n_tensors = 2 * TRACKS,
		                 .ropes = c->ropes,
		                 .tracks = c->tracks,
		                 .tensors = c->tensors };
	cache_link(c);
}

/* Bytes of a token of a tensor. */
static size_t row_of(const struct cache *c, size_t i)
{
	return (size_t)c->tensors[i].heads * c->tensors[i].channels * 2;
}

/* The tensor of a kind of a track. */
static size_t tensor_of(uint32_t track, unsigned kind)
{
	return 2 * track + (kind == KVARC_VALUE ? track % 2 : 1 - track % 2);
}

/* A writer's tracks beside what they must hold. */
struct forked_world {
	struct torn t;
	struct cache c;
	uint64_t n[TRACKS];
	struct cache then[CHECKPOINTS];
	uint64_t n_then[CHECKPOINTS][TRACKS];
	unsigned checkpoints;
	uint64_t seed;
	kvarc_writer *w;
};

static uint64_t pick(struct forked_world *x, uint64_t n)
{
	return rand_next(&x->seed) % n;
}

/* Tokens that nobody had before. */
static void append(struct forked_world *x, uint32_t track, uint64_t n)
{
	const uint64_t t0 = x->n[track];
	const bool odd = pick(x, 4) == 0; /* positions of no text */
	n = n < MOST - t0 ? n : MOST - t0;
	for (unsigned kind = 0; kind < 2; kind++) {
		const size_t i = tensor_of(track, kind), row = row_of(&x->c, i);
		for (size_t k = (size_t)t0 * row; k < (size_t)(t0 + n) * row; k += 2) {
			x->c.data[i][k] = (uint8_t)pick(x, 64);
			x->c.data[i][k + 1] = (uint8_t)(0x3c + k / 2 % 5);
		}
	}
	for (uint64_t k = t0; k < t0 + n; k++) {
		x->c.ids[track][k] = (int32_t)pick(x, 50000);
		x->c.positions[track][k] = (int32_t)(k + (odd ? 3 : 0));
	}
	assert_int_equal(append_tokens(x->w, &x->c, track, t0, t0 + n), KVARC_OK);
	x->n[track] = t0 + n;
}

static void take_tokens(struct cache *c, uint32_t to, uint32_t from, uint64_t n)
{
	for (unsigned kind = 0; kind < 2; kind++)
		memcpy(c->data[tensor_of(to, kind)], c->data[tensor_of(from, kind)],
		       (size_t)n * row_of(c, tensor_of(to, kind)));
	memcpy(c->ids[to], c->ids[from], (size_t)n * sizeof(int32_t));
	memcpy(c->positions[to], c->positions[from], (size_t)n * sizeof(int32_t));
}

static void fork_to(struct forked_world *x, uint32_t to, uint32_t from, uint64_t n)
{
	assert_int_equal(kvarc_writer_fork(x->w, to, from, n), KVARC_OK);
	take_tokens(&x->c, to, from, n);
	x->n[to] = n;
	assert_int_equal(kvarc_writer_tokens(x->w, to), n);
}

/* A rewind counts once tokens follow it. */
static void rewind_to(struct forked_world *x, uint32_t track, uint64_t t0)
{
	assert_int_equal(kvarc_writer_rewind(x->w, track, t0), KVARC_OK);
	x->n[track] = t0;
	append(x, track, 1 + pick(x, 20));
}

static void checkpoint(struct forked_world *x)
{
	if (x->checkpoints == CHECKPOINTS)
		return;
	assert_int_equal(kvarc_writer_checkpoint(x->w, "a state", 0, NULL), KVARC_OK);
	cache_make_empty(&x->then[x->checkpoints], &x->c);
	for (size_t i = 0; i < x->c.g.n_tensors; i++)
		memcpy(x->then[x->checkpoints].data[i], x->c.data[i], cache_bytes(&x->c, i));
	for (uint32_t i = 0; i < TRACKS; i++) {
		memcpy(x->then[x->checkpoints].ids[i], x->c.ids[i], MOST * sizeof(int32_t));
		memcpy(x->then[x->checkpoints].positions[i], x->c.positions[i],
		       MOST * sizeof(int32_t));
	}
	memcpy(x->n_then[x->checkpoints++], x->n, sizeof x->n);
}

static void begin(struct forked_world *x, int level, uint64_t seed)
{
	static kvarc_error e;
	kvarc_writer_options o = stream_options(level, 0);
	*x = (struct forked_world){ .t = { .fail_at = -1, .f = { .fail_at = -1 } }, .seed = seed };
	kvarc_sink sink = torn_sink(&x->t);
	make(&x->c);
	o.common.error = &e;
	o.segment_tokens = seed % 3 == 0 ? 64 : 0;
	assert_int_equal(kvarc_writer_open(&x->w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(x->w, &x->c.g), KVARC_OK);
	assert_int_equal(kvarc_writer_identity(x->w, 1, (const char *const[]){ "model" },
	                                       (const char *const[]){ "a model" }),
	                 KVARC_OK);
}

static void end(struct forked_world *x)
{
	kvarc_writer_abort(&x->w);
	for (unsigned i = 0; i < x->checkpoints; i++)
		cache_free(&x->then[i]);
	torn_free(&x->t);
	cache_free(&x->c);
}

static void reopen(struct forked_world *x, int level)
{
	kvarc_writer_options o = stream_options(level, 0);
	assert_int_equal(kvarc_writer_close(&x->w), KVARC_OK);
	x->w = append_open(&x->t, &o);
	for (uint32_t i = 0; i < TRACKS; i++)
		assert_int_equal(kvarc_writer_tokens(x->w, i), x->n[i]);
}

/* Salvage of a whole file loses nothing. */
static void check_salvage(struct memfile *f, const struct cache *c, const uint64_t *n)
{
	kvarc_reader_options o = { .flags = KVARC_READ_SALVAGE };
	struct cache part = *c, back;
	kvarc_loss loss;
	kvarc_reader *r;
	kvarc_segment s;
	kvarc_source source = memfile_source(f);
	memcpy(part.n, n, sizeof part.n);
	cache_make_empty(&back, &part);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	while (kvarc_reader_next_segment(r, &s) == KVARC_OK)
		assert_int_equal(kvarc_reader_segment_deliver(r, cache_deliver, &back), KVARC_OK);
	assert_int_equal(kvarc_reader_damage(r, NULL, NULL), 0);
	assert_int_equal(kvarc_reader_loss(r, UINT32_MAX, &loss), KVARC_OK);
	assert_int_equal(loss.lost_tokens, 0);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		assert_memory_equal(c->data[i], back.data[i],
		                    (size_t)n[c->tensors[i].track] * row_of(c, i));
	kvarc_reader_close(&r);
	cache_free(&back);
}

/* The segments of a state as kvarc_reader_segment_at lists them; their chain values are those of
 * kvarc_reader_chain. Returns how many of them a fork has taken. */
static unsigned check_list(struct memfile *f, const uint64_t *n)
{
	uint64_t tokens[TRACKS] = { 0 };
	uint8_t chain[16];
	kvarc_stored s;
	kvarc_reader *r;
	unsigned flags, forked = 0;
	kvarc_source source = memfile_source(f);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_segment_at(r, i, &s, &flags) == KVARC_OK; i++) {
		assert_int_equal(s.t0, tokens[s.track]);
		tokens[s.track] += s.left;
		forked += flags & KVARC_SEGMENT_FORKED ? 1 : 0;
		if (!s.has_chain || s.left != s.n)
			continue;
		assert_int_equal(kvarc_reader_chain(r, s.track, s.t0 + s.n, chain), KVARC_OK);
		assert_memory_equal(chain, s.chain, 16);
	}
	assert_memory_equal(tokens, n, sizeof tokens);
	kvarc_reader_close(&r);
	return forked;
}

/* The last state as a new archive; returns how many segments a fork has taken there. */
static unsigned check_compact(struct torn *from, const struct cache *c, const uint64_t *n,
                              bool streamable, uint64_t *bytes)
{
	static kvarc_error e;
	struct torn to = { .fail_at = -1, .f = { .fail_at = -1 } };
	kvarc_writer_options o = stream_options(1, 0);
	kvarc_source source = torn_source(from);
	kvarc_sink sink = torn_sink(&to);
	kvarc_reader_options ro = { .common = { .error = &e } };
	kvarc_reader *r;
	o.common.error = &e;
	o.flags |= streamable ? KVARC_WRITE_STREAMABLE : 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
	if (kvarc_compact(r, &sink, &o, NULL))
		fail_msg("compact: %s", e.text);
	kvarc_reader_close(&r);
	assert_int_equal(append_check(&to.f, c, n, 0), KVARC_STATE_CLOSED);
	to.f.pipe = streamable;
	assert_int_equal(cache_verify(&to.f, NULL), KVARC_OK);
	to.f.pipe = false;
	const unsigned forked = check_list(&to.f, n);
	*bytes = to.f.n;
	torn_free(&to);
	return forked;
}

/* A part of a track as an archive of its own. */
static void check_cut(struct torn *from, const struct cache *c, uint32_t track, uint64_t t0,
                      uint64_t n)
{
	struct torn to = { .fail_at = -1, .f = { .fail_at = -1 } };
	const kvarc_range range = { .track = track, .n_layers = 1, .t0 = t0, .n = n };
	kvarc_writer_options o = stream_options(1, 0);
	kvarc_source source = torn_source(from), cut;
	kvarc_sink sink = torn_sink(&to);
	kvarc_view views[2] = { KVARC_ZERO, KVARC_ZERO };
	kvarc_reader *r;
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_cut(r, &range, &sink, &o, NULL), KVARC_OK);
	kvarc_reader_close(&r);
	cut = torn_source(&to);
	assert_int_equal(kvarc_reader_open(&r, &cut, NULL), KVARC_OK);
	for (uint32_t i = 0; i < 2; i++) {
		const size_t of = 2 * track + i, row = row_of(c, of);
		uint8_t *data = calloc((size_t)n, row);
		views[i] = (kvarc_view){ .data = data,
			                 .token_stride = row,
			                 .block_elems = (uint32_t)row / 2,
			                 .elem_stride = 2 };
		assert_int_equal(kvarc_reader_read(r, &(kvarc_range)KVARC_RANGE_ALL(0), views),
		                 KVARC_OK);
		assert_memory_equal(data, c->data[of] + t0 * row, (size_t)n * row);
		views[i].data = NULL;
		free(data);
	}
	kvarc_reader_close(&r);
	torn_free(&to);
}

static void step(struct forked_world *x, int level)
{
	const uint32_t track = (uint32_t)pick(x, TRACKS), from = (uint32_t)pick(x, TRACKS);
	switch (pick(x, 8)) {
	case 0:
	case 1:
	case 2:
		append(x, track, 1 + pick(x, 300));
		break;
	case 3:
	case 4:
		if (track != from && x->n[from])
			fork_to(x, track, from, 1 + pick(x, x->n[from]));
		break;
	case 5:
		rewind_to(x, track, pick(x, x->n[track] + 1));
		break;
	case 6:
		checkpoint(x);
		break;
	default:
		reopen(x, level);
	}
}

/* Appends, forks, rewinds, checkpoints and writers that go on, in any order: each state is what it
 * must be, in every way to read it. */
static void test_any_order(void **state)
{
	unsigned forked = 0, kept = 0;
	(void)state;
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct forked_world x;
		uint64_t small, large;
		const int level = (int)(seed % 2);
		begin(&x, level, seed);
		append(&x, 0, 300);
		for (int i = 0; i < 24; i++)
			step(&x, level);
		assert_int_equal(kvarc_writer_close(&x.w), KVARC_OK);
		assert_int_equal(append_check(&x.t.f, &x.c, x.n, 0), KVARC_STATE_CLOSED);
		for (unsigned i = 0; i < x.checkpoints; i++)
			append_check(&x.t.f, &x.then[i], x.n_then[i], i + 1);
		check_salvage(&x.t.f, &x.c, x.n);
		for (uint32_t i = 0; i < TRACKS; i++)
			if (x.n[i])
				check_cut(&x.t, &x.c, i, x.n[i] / 3, x.n[i] - x.n[i] / 3);
		forked += check_list(&x.t.f, x.n);
		kept += check_compact(&x.t, &x.c, x.n, false, &small);
		assert_int_equal(check_compact(&x.t, &x.c, x.n, true, &large), 0);
		/* Without its index the archive is read in another way. */
		x.t.f.n -= 80;
		append_check(&x.t.f, &x.c, x.n, 0);
		end(&x);
	}
	assert_true(forked > 40 && kept > 20);
}

/* A fork costs a frame and no chunk, and a track that it has made is independent. */
static void test_size(void **state)
{
	struct forked_world x;
	(void)state;
	begin(&x, 1, 5);
	append(&x, 0, 600);
	assert_int_equal(kvarc_writer_commit(x.w), KVARC_OK);
	const size_t before = x.t.f.n;
	fork_to(&x, 1, 0, 600);
	fork_to(&x, 2, 1, 399);
	assert_true(x.t.f.n - before <= 2 * 80);
	rewind_to(&x, 0, 10);
	append(&x, 2, 30);
	assert_int_equal(kvarc_writer_close(&x.w), KVARC_OK);
	assert_int_equal(append_check(&x.t.f, &x.c, x.n, 0), KVARC_STATE_CLOSED);
	x.t.f.pipe = true;
	assert_int_equal(cache_verify(&x.t.f, NULL), KVARC_OPTIONS);
	end(&x);
}

/* Chain values behind a fork of a fork: tokens that were taken keep the number of the track that
 * they were written to. */
static void test_chains(void **state)
{
	static const char *const key = "model", *const value = "a model";
	uint8_t chain[16], expected[16];
	kvarc_reader *r;
	struct forked_world x;
	(void)state;
	begin(&x, 0, 5);
	for (int i = 0; i < 300; i++)
		x.c.positions[0][i] = x.c.positions[1][i] = i;
	assert_int_equal(append_tokens(x.w, &x.c, 0, 0, 300), KVARC_OK);
	x.n[0] = 300;
	fork_to(&x, 3, 0, 290);
	reopen(&x, 0);
	fork_to(&x, 1, 3, 270);
	assert_int_equal(append_tokens(x.w, &x.c, 1, 270, 300), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&x.w), KVARC_OK);
	assert_int_equal(kvarc_chain_root(&x.c.g, 1, &key, &value, expected), KVARC_OK);
	assert_int_equal(kvarc_chain_next(expected, 0, 256, x.c.ids[0], x.c.positions[0], expected),
	                 KVARC_OK);
	kvarc_source source = torn_source(&x.t);
	assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
	assert_int_equal(kvarc_reader_chain(r, 1, 256, chain), KVARC_OK);
	assert_memory_equal(chain, expected, 16);
	assert_int_equal(kvarc_chain_next(expected, 0, 14, x.c.ids[0] + 256, x.c.positions[0] + 256,
	                                  expected),
	                 KVARC_OK);
	assert_int_equal(kvarc_chain_next(expected, 1, 30, x.c.ids[1] + 270, x.c.positions[1] + 270,
	                                  expected),
	                 KVARC_OK);
	assert_int_equal(kvarc_reader_chain(r, 1, 300, chain), KVARC_OK);
	assert_memory_equal(chain, expected, 16);
	assert_int_equal(kvarc_reader_chain(r, 1, 270, chain), KVARC_END);
	kvarc_reader_close(&r);
	assert_int_equal(cache_verify(&x.t.f, NULL), KVARC_OK);
	end(&x);
}

static void test_refused(void **state)
{
	struct forked_world x;
	(void)state;
	begin(&x, 1, 5);
	append(&x, 0, 20);
	assert_int_equal(kvarc_writer_fork(NULL, 1, 0, 1), KVARC_PROG);
	assert_int_equal(kvarc_writer_fork(x.w, 1, 0, 0), KVARC_GEOMETRY);
	assert_int_equal(kvarc_writer_fork(x.w, 1, 0, 21), KVARC_GEOMETRY);
	assert_int_equal(kvarc_writer_fork(x.w, 0, 0, 2), KVARC_GEOMETRY);
	assert_int_equal(kvarc_writer_fork(x.w, TRACKS, 0, 2), KVARC_GEOMETRY);
	assert_int_equal(kvarc_writer_fork(x.w, 0, TRACKS, 2), KVARC_GEOMETRY);
	fork_to(&x, 1, 0, 20);
	assert_int_equal(kvarc_writer_close(&x.w), KVARC_OK);
	append_check(&x.t.f, &x.c, x.n, 0);
	end(&x);
}

/* Each field of a pair of tensors. */
static void test_pairs(void **state)
{
	(void)state;
	for (int field = 0; field < 10; field++) {
		static kvarc_rope ropes[2];
		struct memfile f = { .fail_at = -1 };
		kvarc_sink sink = memfile_sink(&f);
		kvarc_writer_options o = stream_options(1, 0);
		struct cache c;
		kvarc_writer *w;
		make(&c);
		kvarc_tensor *t = &c.tensors[tensor_of(1, KVARC_KEY)];
		ropes[0] = ropes[1] = c.ropes[0];
		c.g.ropes = ropes;
		c.g.n_ropes = 2;
		t->layer += field == 1;
		t->role = field == 2;
		t->dtype = field == 3 ? KVARC_F16 : t->dtype;
		t->heads += field == 4;
		t->channels += field == 5;
		t->rope += field == 6;
		t->flags ^= field == 7 ? KVARC_TENSOR_POST_ROPE : 0;
		t->source_type = field == 8 ? 0x100 : 0;
		t->total_heads = t->heads + (field == 9);
		assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
		assert_int_equal(append_tokens(w, &c, 0, 0, 5), KVARC_OK);
		assert_int_equal(kvarc_writer_fork(w, 1, 0, 3), field ? KVARC_GEOMETRY : KVARC_OK);
		assert_int_equal(kvarc_writer_fork(w, 2, 0, 3), KVARC_OK);
		kvarc_writer_abort(&w);
		memfile_free(&f);
		cache_free(&c);
	}
}

/* Forks in an encrypted archive with parity, closed and without its end, also in salvage. */
static void test_encrypted(void **state)
{
	static const uint8_t secret[KVARC_KEY_BYTES] = { 7 };
	const kvarc_key key = { .kind = KVARC_KEY_GIVEN, .bytes = secret, .n = sizeof secret };
	const kvarc_keys keys = { .list = &key, .n = 1 };
	const kvarc_parity parity = { .rows = 1 };
	kvarc_writer_options o = stream_options(1, 0);
	kvarc_reader_options ro = { .keys = &keys };
	struct torn t = { .fail_at = -1, .f = { .fail_at = -1 } };
	struct cache c, back;
	kvarc_writer *w;
	(void)state;
	make(&c);
	cache_as_text(&c);
	take_tokens(&c, 1, 0, 50);
	kvarc_sink sink = torn_sink(&t);
	memset(o.file_id, 0, sizeof o.file_id);
	o.flags &= ~KVARC_WRITE_FILE_ID;
	o.keys = &keys;
	o.parity = &parity;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &c.g), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 0, 0, 70), KVARC_OK);
	assert_int_equal(kvarc_writer_fork(w, 1, 0, 50), KVARC_OK);
	assert_int_equal(append_tokens(w, &c, 1, 50, 60), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	memcpy(c.n, (const uint64_t[TRACKS]){ 70, 60 }, sizeof c.n);
	for (int way = 0; way < 3; way++) {
		t.f.n -= way == 1 ? 80 : 0;
		ro.flags = way == 2 ? KVARC_READ_SALVAGE : 0;
		if (way < 2)
			assert_int_equal(cache_verify(&t.f, &ro), KVARC_OK);
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &t.f, &ro, NULL), KVARC_OK);
		assert_true(cache_equal(&c, &back));
		cache_free(&back);
	}
	torn_free(&t);
	cache_free(&c);
}

/* Where frame number `nth` of a type begins. */
static size_t frame_at(const struct memfile *f, uint16_t type, size_t nth)
{
	const uint8_t id[16] = { 0 };
	const uint64_t sync = kvi_frame_sync(id);
	struct kvi_frame_head h;
	size_t o = KVI_SUPERBLOCK_BYTES;
	for (;; o += (size_t)kvi_frame_bytes(h.payload_bytes)) {
		assert_true(o < f->n && kvi_frame_head_parse(&h, f->p + o, sync, o));
		if (h.type == type && nth-- == 0)
			return o;
	}
}

/* What is lost of each track, and that all else is right. */
static void check_losses(struct forked_world *x, const uint64_t *lost)
{
	kvarc_reader_options o = { .flags = KVARC_READ_SALVAGE };
	kvarc_source source = torn_source(&x->t);
	struct cache part = x->c, back;
	kvarc_reader *r;
	kvarc_segment s;
	kvarc_loss loss;
	memcpy(part.n, x->n, sizeof part.n);
	cache_make_empty(&back, &part);
	assert_int_equal(cache_verify(&x->t.f, NULL), KVARC_DATA);
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	while (kvarc_reader_next_segment(r, &s) == KVARC_OK)
		assert_int_equal(kvarc_reader_segment_deliver(r, cache_deliver, &back), KVARC_OK);
	for (uint32_t i = 0; i < TRACKS; i++) {
		assert_int_equal(kvarc_reader_loss(r, i, &loss), KVARC_OK);
		assert_int_equal(loss.tokens, x->n[i]);
		assert_int_equal(loss.lost_tokens, lost[i]);
	}
	for (size_t i = 0; i < back.g.n_tensors; i++)
		for (size_t k = 0; k < x->n[x->c.tensors[i].track] * row_of(&x->c, i); k++)
			if (back.data[i][k] != x->c.data[i][k])
				assert_int_equal(back.data[i][k], 0xa5);
	kvarc_reader_close(&r);
	cache_free(&back);
}

/* 0: a chunk of the shared part, 1: its SEGMENT, 2: the FORK, 3: a chunk behind the fork. */
static void test_damage(void **state)
{
	static const uint64_t lost[4][TRACKS] = {
		{ 256, 256, 44 }, { 0, 0, 0 }, { 0, 300, 44 }, { 0, 20, 0 }
	};
	(void)state;
	for (int what = 0; what < 4; what++) {
		struct forked_world x;
		begin(&x, 0, 5);
		append(&x, 0, 300);
		fork_to(&x, 1, 0, 300);
		append(&x, 1, 20);
		fork_to(&x, 2, 1, 44);
		assert_int_equal(kvarc_writer_close(&x.w), KVARC_OK);
		const size_t at = what == 0   ? frame_at(&x.t.f, KVI_FRAME_CHUNK, 1)
		                  : what == 1 ? frame_at(&x.t.f, KVI_FRAME_SEGMENT, 0)
		                  : what == 2 ? frame_at(&x.t.f, KVI_FRAME_FORK, 0)
		                              : frame_at(&x.t.f, KVI_FRAME_CHUNK, 4);
		x.t.f.p[at + 40] ^= 1;
		check_losses(&x, lost[what]);
		end(&x);
	}
}

/* The file after each number of its bytes: a fork is there once a commit follows it. */
static void test_cut(void **state)
{
	struct forked_world x;
	struct torn t;
	(void)state;
	begin(&x, 0, 5);
	append(&x, 0, 40);
	assert_int_equal(kvarc_writer_commit(x.w), KVARC_OK);
	const size_t from = x.t.f.n;
	fork_to(&x, 1, 0, 30);
	assert_int_equal(kvarc_writer_commit(x.w), KVARC_OK);
	const size_t to = x.t.f.n;
	append(&x, 1, 5);
	assert_int_equal(kvarc_writer_close(&x.w), KVARC_OK);
	for (size_t n = from; n < x.t.f.n; n += n % 16 ? 9 : 7) {
		const uint64_t tokens[TRACKS] = { 40, n < to ? 0 : n < to + 1500 ? 30 : 35 };
		kvarc_writer_options o = stream_options(0, 0);
		kvarc_reader *r;
		torn_copy(&t, &x.t.f, n);
		kvarc_source source = torn_source(&t);
		assert_int_equal(kvarc_reader_open(&r, &source, NULL), KVARC_OK);
		const uint64_t there[TRACKS] = { 40, kvarc_reader_tokens(r, 1) };
		kvarc_reader_close(&r);
		assert_true(there[1] == tokens[1] || (n >= to && there[1] == 35));
		append_check(&t.f, &x.c, there, 0);
		kvarc_writer *w = append_open(&t, &o);
		assert_int_equal(append_tokens(w, &x.c, 2, 0, 3), KVARC_OK);
		assert_int_equal(kvarc_writer_fork(w, 3, 0, 40), KVARC_OK);
		assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
		const uint64_t after[TRACKS] = { 40, there[1], 3, 40 };
		take_tokens(&x.c, 3, 0, 40);
		append_check(&t.f, &x.c, after, 0);
		torn_free(&t);
	}
	end(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_order), cmocka_unit_test(test_size),
		cmocka_unit_test(test_chains),    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_pairs),     cmocka_unit_test(test_damage),
		cmocka_unit_test(test_cut),       cmocka_unit_test(test_encrypted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
