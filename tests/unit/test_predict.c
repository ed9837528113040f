/* SPDX-License-Identifier: BSD-3-Clause */
/* test_predict.c - levels 2 and 3 through writer and reader: profiles, sources, threads, damage */
#include "layers_util.h"

#include "codecs/codec.h"
#include "format/chunk_header.h"
#include "format/frame.h"
#include "format/superblock.h"
#include "profile/profile_io.h"

static kvarc_writer_options options(int level, const kvarc_profile *p, unsigned threads)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.level = KVARC_LEVEL(level);
	o.profile = p;
	o.profile_name = "made up";
	o.common.threads = threads;
	o.flags = KVARC_WRITE_FILE_ID;
	return o;
}

static struct layers_shape random_shape(uint64_t *seed)
{
	static const uint8_t dtypes[] = { KVARC_BF16, KVARC_F16, KVARC_F32, KVARC_E4M3,
		                          KVARC_E5M2 };
	struct layers_shape s = { .layers = (uint32_t)(1 + rand_next(seed) % 4),
		                  .heads = (uint32_t)(1 + rand_next(seed) % 3),
		                  .channels = (uint32_t)(8 + rand_next(seed) % 9),
		                  .tokens = (uint32_t)(1 + rand_next(seed) % 300),
		                  .tracks = 1 + (rand_next(seed) % 4 == 0),
		                  .dtype =
		                          dtypes[rand_next(seed) % 8 < 4 ? 0 : rand_next(seed) % 5],
		                  .rope = rand_next(seed) % 2 };
	s.latent_layer = (uint32_t)(rand_next(seed) % 6);
	if (s.tracks > 1 && s.layers > 3)
		s.layers = 3;
	return s;
}

/* Chunks of codec 7 in a file. */
static size_t count_linear(struct memfile *f, const kvarc_reader_options *o)
{
	kvarc_source source = memfile_source(f);
	kvarc_chunk_info info;
	kvarc_reader *r;
	size_t n = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, o), KVARC_OK);
	for (uint64_t i = 0; kvarc_reader_chunk(r, i, &info) == KVARC_OK; i++)
		n += info.codec == KVI_CODEC_LINEAR;
	kvarc_reader_close(&r);
	return n;
}

static void check_read(const struct cache *c, struct memfile *f, const kvarc_reader_options *o,
                       bool range)
{
	struct cache back;
	kvarc_state how = KVARC_STATE_CLOSED;
	cache_make_empty(&back, c);
	assert_int_equal(range ? cache_read_range(&back, f, o) : cache_read_seq(&back, f, o, &how),
	                 KVARC_OK);
	assert_int_equal(how, KVARC_STATE_CLOSED);
	assert_true(cache_equal(c, &back));
	cache_free(&back);
}

/* Every layer and a few tokens on their own. */
static void check_parts(const struct cache *c, struct memfile *f, const kvarc_reader_options *o,
                        uint64_t *seed)
{
	kvarc_source source = memfile_source(f);
	kvarc_reader *r;
	assert_int_equal(kvarc_reader_open(&r, &source, o), KVARC_OK);
	for (int i = 0; i < 12; i++) {
		struct cache back;
		kvarc_view views[16];
		kvarc_range range = { .n_layers = 1 };
		size_t tensor = rand_next(seed) % c->g.n_tensors;
		const kvarc_tensor *t = &c->tensors[tensor];
		range.track = t->track;
		range.layer0 = t->layer;
		range.t0 = rand_next(seed) % c->n[t->track];
		range.n = 1 + rand_next(seed) % (c->n[t->track] - range.t0);
		cache_make_empty(&back, c);
		memset(views, 0, sizeof views);
		cache_views_at(&back, range.t0, views);
		for (size_t k = 0; k < c->g.n_tensors; k++)
			if (k != tensor)
				views[k].data = NULL;
		assert_int_equal(kvarc_reader_read(r, &range, views), KVARC_OK);
		size_t row = cache_bytes(c, tensor) / c->n[t->track];
		assert_memory_equal(back.data[tensor] + range.t0 * row,
		                    c->data[tensor] + range.t0 * row, range.n * row);
		if (range.t0)
			assert_int_equal(back.data[tensor][0], 0xa5);
		cache_free(&back);
	}
	kvarc_reader_close(&r);
}

static void test_round_trips(void **state)
{
	uint64_t seed = 1;
	size_t linear = 0;
	(void)state;
	for (int i = 0; i < 40; i++) {
		struct layers_shape s = random_shape(&seed);
		struct cache c;
		cache_make_layers(&c, &s, seed);
		kvarc_profile *p = layers_profile(&c, rand_next(&seed));
		int level = 2 + i % 2;
		struct memfile first = { .fail_at = -1 };
		static const unsigned threads[] = { 1, 2, 8 };
		for (int k = 0; k < 3; k++) {
			struct memfile f = { .fail_at = -1 };
			kvarc_writer_options wo = options(level, p, threads[k]);
			kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
			const kvarc_profile *const list[] = { p };
			wo.flags |= k == 1 ? 0 : KVARC_WRITE_VERIFY;
			if (i % 4 < 2)
				wo.flags |= KVARC_WRITE_EMBED_PROFILE;
			if (i % 8 < 4)
				wo.flags |= KVARC_WRITE_STREAMABLE;
			wo.segment_tokens = 32 + (uint32_t)i * 5;
			ro.common.threads = threads[(k + 1) % 3];
			ro.profiles = list;
			ro.n_profiles = i % 4 >= 2 || i % 3 == 0;
			assert_int_equal(cache_write(&c, &f, &wo), KVARC_OK);
			check_read(&c, &f, &ro, true);
			check_read(&c, &f, &ro, false);
			check_parts(&c, &f, &ro, &seed);
			assert_int_equal(cache_verify(&f, &ro), KVARC_OK);
			if (i % 8 < 4) {
				f.pipe = true;
				check_read(&c, &f, &ro, false);
				assert_int_equal(cache_verify(&f, &ro), KVARC_OK);
				f.pipe = false;
			}
			linear += count_linear(&f, &ro);
			if (!first.p) {
				first = f;
				continue;
			}
			assert_int_equal(f.n, first.n);
			assert_memory_equal(f.p, first.p, f.n);
			memfile_free(&f);
		}
		memfile_free(&first);
		kvarc_profile_close(&p);
		cache_free(&c);
	}
	assert_true(linear > 200);
}

static const struct layers_shape usual = { .layers = 3,
	                                   .heads = 2,
	                                   .channels = 12,
	                                   .tokens = 300,
	                                   .tracks = 1,
	                                   .dtype = KVARC_BF16,
	                                   .rope = true,
	                                   .latent_layer = UINT32_MAX };

static struct memfile written(const struct cache *c, const kvarc_writer_options *o)
{
	struct memfile f = { .fail_at = -1 };
	assert_int_equal(cache_write(c, &f, o), KVARC_OK);
	return f;
}

/* Without the profile, with another one, and with one that is called the same. */
static void test_missing(void **state)
{
	struct cache c;
	(void)state;
	cache_make_layers(&c, &usual, 3);
	kvarc_profile *p = layers_profile(&c, 4), *other = layers_profile(&c, 5);
	for (int embed = 0; embed < 2; embed++) {
		const kvarc_profile *const wrong[] = { other };
		const kvarc_profile *const both[] = { other, p };
		kvarc_writer_options wo = options(3, p, 2);
		wo.flags |= embed ? KVARC_WRITE_EMBED_PROFILE : 0;
		struct memfile f = written(&c, &wo);
		for (int with = 0; with < 3; with++) {
			kvarc_error e = { 0 };
			kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
			kvarc_predictor_info info;
			kvarc_source source = memfile_source(&f);
			kvarc_reader *r;
			ro.common.error = &e;
			ro.common.threads = 3;
			ro.profiles = with == 2 ? both : wrong;
			ro.n_profiles = (size_t)with;
			kvarc_ret want = embed || with == 2 ? KVARC_OK : KVARC_PREDICTOR;
			struct cache back;
			cache_make_empty(&back, &c);
			assert_int_equal(cache_read_range(&back, &f, &ro), want);
			assert_int_equal(cache_verify(&f, &ro), want);
			if (want) {
				assert_int_equal(e.code, KVARC_PREDICTOR);
				assert_non_null(strstr(e.text, "made up"));
			}
			f.pipe = true;
			assert_int_equal(cache_read_seq(&back, &f, &ro, NULL) == KVARC_PREDICTOR,
			                 want != KVARC_OK);
			f.pipe = false;
			cache_free(&back);
			/* The information about the file is still available. */
			assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
			assert_int_equal(kvarc_reader_predictor(r, 0, &info), KVARC_OK);
			assert_int_equal(info.level, 3);
			assert_string_equal(info.name, "made up");
			assert_int_equal(info.embedded, embed);
			assert_int_equal(info.present, want == KVARC_OK);
			assert_memory_equal(info.digest, &kvi_profile_of(p)->digest, 16);
			/* The copy at the end is the same one. */
			assert_int_equal(kvarc_reader_predictor(r, 1, &info), KVARC_END);
			kvarc_reader_close(&r);
		}
		memfile_free(&f);
	}
	kvarc_profile_close(&p);
	kvarc_profile_close(&other);
	cache_free(&c);
}

/* A profile of other shapes is refused at once; levels need one. */
static void test_wrong_profile(void **state)
{
	struct layers_shape wide = usual;
	struct cache c, d;
	kvarc_error e = { 0 };
	kvarc_writer *w;
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	(void)state;
	wide.channels = 14;
	cache_make_layers(&c, &usual, 6);
	cache_make_layers(&d, &wide, 6);
	kvarc_profile *p = layers_profile(&d, 7);
	kvarc_writer_options o = options(2, p, 1);
	o.common.error = &e;
	assert_int_equal(cache_write(&c, &f, &o), KVARC_PREDICTOR);
	assert_non_null(strstr(e.text, "another model"));
	for (int level = 2; level <= 3; level++) {
		o.profile = NULL;
		o.level = KVARC_LEVEL(level);
		assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_PREDICTOR);
	}
	o.level = 1;
	o.flags |= KVARC_WRITE_EMBED_PROFILE;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_PROG);
	memfile_free(&f);
	kvarc_profile_close(&p);
	cache_free(&c);
	cache_free(&d);
}

/* The offset of the n-th frame of a type; 0: there are fewer. */
static size_t find_frame(const struct memfile *f, uint16_t type, int n)
{
	const uint8_t id[16] = { 0 };
	uint64_t sync = kvi_frame_sync(id);
	struct kvi_frame_head h;
	for (size_t o = KVI_SUPERBLOCK_BYTES; o < f->n; o += kvi_frame_bytes(h.payload_bytes)) {
		assert_true(kvi_frame_head_parse(&h, f->p + o, sync, o));
		if (h.type == type && n-- == 0)
			return o;
	}
	return 0;
}

/* Reads with salvage; what arrives must be right. Returns how many bytes did. */
static size_t salvaged(const struct cache *c, struct memfile *f, const kvarc_profile *p,
                       kvarc_ret want)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	const kvarc_profile *const list[] = { p };
	struct cache back;
	size_t got = 0;
	ro.flags = KVARC_READ_SALVAGE;
	ro.common.threads = 2;
	ro.profiles = list;
	ro.n_profiles = p != NULL;
	cache_make_empty(&back, c);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		memset(back.data[i], 0, cache_bytes(c, i));
	assert_int_equal(cache_read_seq(&back, f, &ro, NULL), want);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		for (size_t k = 0; k < cache_bytes(c, i); k++) {
			if (back.data[i][k] != c->data[i][k])
				assert_int_equal(back.data[i][k], 0);
			got += back.data[i][k] == c->data[i][k];
		}
	cache_free(&back);
	return got;
}

static void flip(struct memfile *f, size_t at)
{
	f->p[at] ^= 4;
}

static void test_salvage(void **state)
{
	struct cache c;
	size_t all = 0;
	(void)state;
	cache_make_layers(&c, &usual, 8);
	for (size_t i = 0; i < c.g.n_tensors; i++)
		all += cache_bytes(&c, i);
	kvarc_profile *p = layers_profile(&c, 9);
	for (int embed = 0; embed < 2; embed++) {
		kvarc_writer_options wo = options(3, p, 2);
		wo.flags |= embed ? KVARC_WRITE_EMBED_PROFILE : 0;
		struct memfile f = written(&c, &wo);
		const kvarc_profile *given = embed ? NULL : p;
		assert_int_equal(salvaged(&c, &f, given, KVARC_OK), all);
		/* A chunk of the lowest layer takes with it what is predicted
		 * from it, and no other segment. */
		size_t at = find_frame(&f, KVI_FRAME_CHUNK, 0) + 100;
		flip(&f, at);
		size_t got = salvaged(&c, &f, given, KVARC_OK);
		assert_true(got < all && got >= all * 40 / 300);
		assert_int_equal(cache_verify(&f, NULL), KVARC_DATA);
		flip(&f, at);
		/* PREDICTOR: its copy serves, when there is one. */
		assert_non_null(find_frame(&f, KVI_FRAME_PREDICTOR, 1));
		at = find_frame(&f, KVI_FRAME_PREDICTOR, 0) + 40;
		flip(&f, at);
		got = salvaged(&c, &f, p, KVARC_OK);
		assert_int_equal(got, all);
		flip(&f, at);
		/* PROFILE: elsewhere, or what needs none. */
		at = embed ? find_frame(&f, KVI_FRAME_PROFILE, 0) + 60 : 0;
		if (at) {
			flip(&f, at);
			assert_int_equal(salvaged(&c, &f, p, KVARC_OK), all);
			got = salvaged(&c, &f, NULL, KVARC_OK);
			assert_true(got < all);
			flip(&f, at);
		} else {
			salvaged(&c, &f, NULL, KVARC_PREDICTOR);
		}
		memfile_free(&f);
	}
	kvarc_profile_close(&p);
	cache_free(&c);
}

/* Appends a frame with a new sequence number. */
static void put_frame(struct memfile *f, uint16_t type, uint64_t sequence, const uint8_t *payload,
                      uint32_t payload_bytes, uint32_t decoded_bytes)
{
	const uint8_t id[16] = { 0 };
	const struct kvi_frame_head h = { type, kvi_frame_flags(type), payload_bytes, decoded_bytes,
		                          sequence };
	const size_t padded = kvi_frame_padded(payload_bytes);
	uint8_t *p = f->p + f->n;
	memset(p, 0, (size_t)kvi_frame_bytes(payload_bytes));
	kvi_frame_head_write(p, &h, kvi_frame_sync(id), f->n);
	memcpy(p + KVI_FRAME_HEAD_BYTES, payload, payload_bytes);
	kvi_store_h128(p + KVI_FRAME_HEAD_BYTES + padded,
	               kvi_frame_check(p, f->n, p + KVI_FRAME_HEAD_BYTES, padded));
	f->n += (size_t)kvi_frame_bytes(payload_bytes);
}

/* The first segment of a file, with a chunk of the first head alone before the whole tensor's. */
static struct memfile with_head(const struct cache *c, const struct memfile *f, uint32_t *tokens)
{
	const uint8_t id[16] = { 0 };
	const size_t first = find_frame(f, KVI_FRAME_CHUNK, 0);
	struct memfile to = {
		.p = calloc(1, 2 * f->n), .n = first, .cap = 2 * f->n, .fail_at = -1
	};
	struct kvi_frame_head h;
	struct kvi_chunk_header chunk;
	const uint8_t *from = f->p + first;
	assert_non_null(to.p);
	memcpy(to.p, f->p, first);
	assert_true(kvi_frame_head_parse(&h, from, kvi_frame_sync(id), first));
	assert_true(kvi_chunk_header_parse(&chunk, from + KVI_FRAME_HEAD_BYTES, h.payload_bytes));
	const size_t half = h.decoded_bytes / 2, row = half / chunk.n;
	uint8_t *payload = malloc(KVI_CHUNK_HEADER_BYTES + half);
	assert_non_null(payload);
	for (size_t t = 0; t < chunk.n; t++)
		memcpy(payload + KVI_CHUNK_HEADER_BYTES + t * row,
		       c->data[chunk.tensor] + 2 * t * row, row);
	chunk.heads = 1;
	chunk.params = 0;
	chunk.cut = (struct kvi_chunk_cut){ .stream_size = KVI_ONE_STREAM };
	chunk.codec = KVI_CODEC_RAW;
	chunk.raw_check = kvi_h64(payload + KVI_CHUNK_HEADER_BYTES, half);
	kvi_chunk_header_write(payload, &chunk);
	put_frame(&to, KVI_FRAME_CHUNK, h.sequence, payload,
	          (uint32_t)(KVI_CHUNK_HEADER_BYTES + half), (uint32_t)half);
	free(payload);
	*tokens = chunk.n;
	for (size_t at = first; kvi_frame_head_parse(&h, f->p + at, kvi_frame_sync(id), at) &&
	                        h.type == KVI_FRAME_CHUNK;
	     at += (size_t)kvi_frame_bytes(h.payload_bytes))
		put_frame(&to, h.type, h.sequence + 1, f->p + at + KVI_FRAME_HEAD_BYTES,
		          h.payload_bytes, h.decoded_bytes);
	return to;
}

/* Salvage checks no order of chunks: the same tensor twice, in part and whole. */
static void test_salvage_twice(void **state)
{
	struct layers_shape s = usual;
	struct cache c, back;
	uint32_t n;
	(void)state;
	s.latent_layer = UINT32_MAX;
	cache_make_layers(&c, &s, 18);
	kvarc_profile *p = layers_profile(&c, 19);
	const kvarc_profile *const list[] = { p };
	kvarc_writer_options wo = options(3, p, 2);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	struct memfile f = written(&c, &wo), twice = with_head(&c, &f, &n);
	ro.profiles = list;
	ro.n_profiles = 1;
	ro.flags = KVARC_READ_SALVAGE;
	for (ro.common.threads = 1; ro.common.threads < 4; ro.common.threads++) {
		cache_make_empty(&back, &c);
		assert_int_equal(cache_read_seq(&back, &twice, &ro, NULL), KVARC_OK);
		for (size_t i = 0; i < c.g.n_tensors; i++)
			assert_memory_equal(back.data[i], c.data[i],
			                    cache_bytes(&c, i) / s.tokens * n);
		cache_free(&back);
	}
	memfile_free(&twice);
	memfile_free(&f);
	kvarc_profile_close(&p);
	cache_free(&c);
}

/* Each bit of PREDICTOR and PROFILE frames, and of some chunks. */
static void test_flips(void **state)
{
	struct layers_shape s = usual;
	struct cache c;
	(void)state;
	s.layers = 2;
	s.heads = 1;
	s.channels = 8;
	s.tokens = 40;
	cache_make_layers(&c, &s, 10);
	kvarc_profile *p = layers_profile(&c, 11);
	kvarc_writer_options wo = options(3, p, 1);
	wo.flags |= KVARC_WRITE_EMBED_PROFILE;
	struct memfile f = written(&c, &wo);
	size_t from = find_frame(&f, KVI_FRAME_PREDICTOR, 0);
	size_t end = find_frame(&f, KVI_FRAME_SEGMENT, 0);
	for (size_t bit = 8 * from; bit < 8 * end; bit++) {
		f.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(cache_verify(&f, NULL), KVARC_DATA);
		if (bit % 37 == 0)
			salvaged(&c, &f, NULL, KVARC_OK);
		f.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	memfile_free(&f);
	kvarc_profile_close(&p);
	cache_free(&c);
}

/* Equal segments in two tracks: the second is repeats of the first one. */
static void test_repeats(void **state)
{
	struct layers_shape s = usual;
	struct cache c;
	(void)state;
	s.tracks = 2;
	s.layers = 3;
	cache_make_layers(&c, &s, 12);
	for (size_t i = 0; i < c.g.n_tensors; i++)
		for (size_t k = 0; k < i; k++)
			if (c.tensors[k].track == 0 && c.tensors[i].track == 1 &&
			    c.tensors[k].layer == c.tensors[i].layer &&
			    c.tensors[k].kind == c.tensors[i].kind)
				memcpy(c.data[i], c.data[k], cache_bytes(&c, k));
	memcpy(c.positions[1], c.positions[0], 4 * c.n[0]);
	/* One chunk in the middle differs. */
	c.data[7][3000] ^= 1;
	kvarc_profile *p = layers_profile(&c, 13);
	const kvarc_profile *const list[] = { p };
	for (int level = 2; level <= 3; level++)
		for (unsigned threads = 1; threads <= 4; threads += 3) {
			kvarc_writer_options wo = options(level, p, threads);
			kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
			uint64_t seed = 5, repeats = 0;
			kvarc_chunk_info info;
			kvarc_reader *r;
			ro.profiles = list;
			ro.n_profiles = 1;
			ro.common.threads = threads;
			wo.segment_tokens = 64;
			struct memfile f = written(&c, &wo);
			kvarc_source source = memfile_source(&f);
			check_read(&c, &f, &ro, true);
			check_read(&c, &f, &ro, false);
			check_parts(&c, &f, &ro, &seed);
			assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
			for (uint64_t i = 0; kvarc_reader_chunk(r, i, &info) == KVARC_OK; i++)
				repeats += info.codec == KVI_CODEC_REPEAT;
			kvarc_reader_close(&r);
			assert_true(repeats > 15);
			memfile_free(&f);
		}
	kvarc_profile_close(&p);
	cache_free(&c);
}

/* Part of the layers only: sources may be missing. */
static void test_missing_layers(void **state)
{
	struct layers_shape s = usual;
	struct cache c, upper;
	(void)state;
	s.layers = 4;
	cache_make_layers(&c, &s, 14);
	kvarc_profile *p = layers_profile(&c, 15);
	const kvarc_profile *const list[] = { p };
	cache_make_layers(&upper, &s, 14);
	upper.g.n_tensors -= 2; /* layer 0 is the first two */
	memmove(upper.tensors, upper.tensors + 2, upper.g.n_tensors * sizeof *upper.tensors);
	for (size_t i = 0; i < 2; i++)
		free(upper.data[i]);
	memmove(upper.data, upper.data + 2, upper.g.n_tensors * sizeof *upper.data);
	memmove(upper.views, upper.views + 2, upper.g.n_tensors * sizeof *upper.views);
	size_t all = kvarc_profile_predicts(p, 3, &c.g);
	size_t some = kvarc_profile_predicts(p, 3, &upper.g);
	assert_true(0 < some && some < upper.g.n_tensors);
	assert_int_equal(all, c.g.n_tensors);
	assert_int_equal(kvarc_profile_predicts(p, 1, &c.g), 0);
	assert_int_equal(kvarc_profile_predicts(NULL, 3, &c.g), 0);
	kvarc_writer_options wo = options(3, p, 2);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	ro.profiles = list;
	ro.n_profiles = 1;
	ro.common.threads = 2;
	struct memfile f = written(&upper, &wo);
	check_read(&upper, &f, &ro, true);
	check_read(&upper, &f, &ro, false);
	memfile_free(&f);
	/* The uppermost layer alone. */
	struct cache top = upper;
	kvarc_error e;
	top.g.tensors = upper.g.tensors + upper.g.n_tensors - 2;
	top.g.n_tensors = 2;
	assert_int_equal(kvarc_profile_predicts(p, 3, &top.g), 0);
	wo.common.error = &e;
	assert_int_equal(cache_write(&top, &f, &wo), KVARC_PREDICTOR);
	assert_non_null(strstr(e.text, "lower level"));
	memfile_free(&f);
	kvarc_profile_close(&p);
	cache_free(&upper);
	cache_free(&c);
}

/* Layers 1 to 3 and tokens 30 to 219. */
static const kvarc_range cut_range = { .layer0 = 1, .n_layers = 3, .t0 = 30, .n = 190 };

static kvarc_ret cut(struct memfile *f, const kvarc_reader_options *ro,
                     const kvarc_writer_options *wo, struct memfile *part)
{
	kvarc_source source = memfile_source(f);
	kvarc_sink sink = memfile_sink(part);
	kvarc_reader *r;
	*part = (struct memfile){ .fail_at = -1 };
	kvarc_ret ret = kvarc_reader_open(&r, &source, ro);
	if (!ret)
		ret = kvarc_cut(r, &cut_range, &sink, wo, NULL);
	kvarc_reader_close(&r);
	return ret;
}

/* Tensors 2 to 7 are those of layers 1 to 3. */
static void check_cut(const struct cache *c, struct memfile *part, const kvarc_reader_options *ro)
{
	kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_source source = memfile_source(part);
	struct cache back;
	kvarc_view views[16];
	kvarc_reader *r;
	assert_int_equal(cache_verify(part, ro), KVARC_OK);
	assert_int_equal(kvarc_reader_open(&r, &source, ro), KVARC_OK);
	assert_int_equal(kvarc_reader_tokens(r, 0), 190);
	cache_make_empty(&back, c);
	cache_views_at(&back, 30, views);
	assert_int_equal(kvarc_reader_read(r, &all, views + 2), KVARC_OK);
	kvarc_reader_close(&r);
	for (size_t i = 2; i < 8; i++) {
		size_t row = cache_bytes(c, i) / c->n[0];
		assert_memory_equal(back.data[i] + 30 * row, c->data[i] + 30 * row, 190 * row);
	}
	cache_free(&back);
	memfile_free(part);
}

/* A part of an archive in which layers depend on each other; and with the
 * least memory that is enough. */
static void test_cut(void **state)
{
	struct layers_shape s = usual;
	struct cache c;
	struct memfile part;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	(void)state;
	s.layers = 4;
	cache_make_layers(&c, &s, 18);
	kvarc_profile *p = layers_profile(&c, 19);
	const kvarc_profile *const list[] = { p };
	kvarc_writer_options wo = options(3, p, 2);
	struct memfile f = written(&c, &wo);
	ro.profiles = list;
	ro.n_profiles = 1;
	for (int level = 1; level <= 3; level++) {
		ro.common.threads = 2;
		wo = options(level, p, 2);
		wo.segment_tokens = 60;
		assert_int_equal(cut(&f, &ro, &wo, &part), KVARC_OK);
		check_cut(&c, &part, &ro);
	}
	ro.common.threads = 1;
	kvarc_ret ret = KVARC_MEMLIMIT;
	for (uint64_t limit = 1000000; ret; limit += 10000) {
		ro.common.memlimit = limit;
		ret = cut(&f, &ro, &wo, &part);
		assert_true(ret == KVARC_OK || ret == KVARC_MEMLIMIT);
		if (ret)
			memfile_free(&part);
	}
	ro.common.memlimit = 0;
	check_cut(&c, &part, &ro);
	memfile_free(&f);
	kvarc_profile_close(&p);
	cache_free(&c);
}

/* Every allocation fails once. */
static void test_memory(void **state)
{
	struct layers_shape s = usual;
	struct cache c, back;
	(void)state;
	s.layers = 2;
	s.tokens = 50;
	cache_make_layers(&c, &s, 16);
	kvarc_profile *p = layers_profile(&c, 17);
	kvarc_writer_options wo = options(3, p, 1);
	wo.flags |= KVARC_WRITE_EMBED_PROFILE;
	struct memfile good = written(&c, &wo);
	struct counting count = { .fail_at = -1 };
	kvarc_allocator a = counting_allocator(&count);
	kvarc_ret ret = KVARC_MEM;
	wo.common.allocator = &a;
	for (long i = 0; ret == KVARC_MEM; i++) {
		struct memfile f = { .fail_at = -1 };
		count = (struct counting){ .fail_at = i };
		ret = cache_write(&c, &f, &wo);
		assert_int_equal(count.held, 0);
		memfile_free(&f);
	}
	assert_int_equal(ret, KVARC_OK);
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	ro.common.allocator = &a;
	ret = KVARC_MEM;
	for (long i = 0; ret == KVARC_MEM; i++) {
		count = (struct counting){ .fail_at = i };
		cache_make_empty(&back, &c);
		ret = cache_read_seq(&back, &good, &ro, NULL);
		cache_free(&back);
		assert_int_equal(count.held, 0);
	}
	assert_int_equal(ret, KVARC_OK);
	memfile_free(&good);
	kvarc_profile_close(&p);
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),   cmocka_unit_test(test_missing),
		cmocka_unit_test(test_wrong_profile), cmocka_unit_test(test_salvage),
		cmocka_unit_test(test_salvage_twice), cmocka_unit_test(test_flips),
		cmocka_unit_test(test_repeats),       cmocka_unit_test(test_missing_layers),
		cmocka_unit_test(test_cut),           cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
