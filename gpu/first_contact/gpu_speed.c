/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_speed.c - what a GPU takes to decode and encode a cache, and to have it brought: times of the
 * public calls of libkvarc-device, and the bits that come of them
 *
 * gpu_speed [-l LEVEL] [-L LAYERS] [-T TOKENS] [-R REQUESTS] [-n TIMES] [-e] [-g] [-o FILE] SEED
 *
 * A cache of 8 heads of 128 channels in bf16, or (-e) e4m3, with the signs and exponents of SEED,
 * an archive in bf16, and random mantissas. Prints an object of JSON; exit status 1: bits differ.
 * -R: requests of 1024 tokens in one call, 0: none. -g: the first decode of the process is recorded
 * in a graph. -o: writes elements, 256 MiB at most. Kernels: KVARC_KERNELS, KVARC_ENCODERS.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvarc/device.h>

#include "contact.h"

enum { HEADS = 8, CHANNELS = 128, ROW = HEADS * CHANNELS, REQUEST_TOKENS = 1024, MOST = 99 };

static struct {
	kvarc_error error;
	kvarc_common common;
	kvarc_device *d;
	int level;
	uint32_t layers, tokens, tensors, times;
	uint32_t size;              /* of an element */
	size_t tensor_bytes, bytes; /* of a tensor, of all */
	uint8_t *raw;
	kvarc_view *views;    /* of raw */
	kvarc_tensor *tensor; /* of the geometry */
	int32_t *positions;
	uint64_t out; /* as raw, in the device */
	bool bad;
} s;

static void need(kvarc_ret ret, const char *what)
{
	if (ret)
		contact_fail(what, (int)ret, s.error.text);
}
static double timed(void (*call)(const void *), const void *opaque)
{
	return contact_timed(call, opaque, s.times);
}

/* ----- the cache and its archive ------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* An archive that is read as a whole. */
struct seed {
	uint16_t **tensor;
	uint32_t tensors, width;
	uint64_t tokens;
};

static void read_seed(struct seed *seed, const char *name)
{
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source;
	kvarc_reader *r;
	o.common = s.common;
	need(kvarc_source_open_path(&source, name, &s.common), name);
	need(kvarc_reader_open(&r, &source, &o), name);
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	kvarc_view *views = contact_memory(g->n_tensors, sizeof *views);
	seed->tensors = (uint32_t)g->n_tensors;
	seed->width = g->tensors[0].heads * g->tensors[0].channels;
	seed->tokens = kvarc_reader_tokens(r, 0);
	seed->tensor = contact_memory(g->n_tensors, sizeof *seed->tensor);
	for (uint32_t i = 0; i < seed->tensors; i++) {
		seed->tensor[i] = contact_memory(seed->tokens * seed->width, 2);
		views[i] = (kvarc_view){ .data = seed->tensor[i],
			                 .token_stride = seed->width * 2,
			                 .block_elems = seed->width,
			                 .elem_stride = 2 };
	}
	need(kvarc_reader_read(r, &range, views), name);
	kvarc_reader_close(&r);
	kvarc_source_close(&source);
	free(views);
}

/* A number with the sign and exponent of one in bf16, and random bits for its mantissa. */
static uint16_t element(uint16_t like, uint64_t random)
{
	enum { BF16_BIAS = 127, E4M3_BIAS = 7, E4M3_MOST = 14 };
	const int e = (like >> 7 & 255) - BF16_BIAS + E4M3_BIAS;
	if (s.size == 2)
		return (uint16_t)((like & 0xff80) | (random & 0x7f));
	return (uint16_t)((like >> 8 & 0x80) |
	                  (e < 0           ? 0
	                   : e > E4M3_MOST ? E4M3_MOST
	                                   : e)
	                          << 3 |
	                  (random & 7));
}

static void make_cache(const char *name)
{
	struct seed seed;
	const uint16_t *from[ROW];
	uint64_t row[ROW];
	read_seed(&seed, name);
	s.raw = contact_memory(s.tensors, s.tensor_bytes);
	for (uint32_t i = 0; i < s.tensors; i++) {
		uint8_t *to = s.raw + i * s.tensor_bytes;
		for (uint32_t c = 0; c < ROW; c++) {
			/* keys of keys, values of values */
			from[c] = seed.tensor[(i + 2 * (c / seed.width)) % seed.tensors] +
			          (c + 31 * (c / seed.width)) % seed.width;
			row[c] = 7 * c % seed.tokens;
		}
		for (size_t at = 0; at < (size_t)s.tokens * ROW; at++, to += s.size) {
			const size_t c = at % ROW;
			const uint16_t x = element(from[c][row[c] * seed.width],
			                           mix(((uint64_t)i << 42) + at + 1));
			memcpy(to, &x, s.size);
			row[c] = row[c] + 1 < seed.tokens ? row[c] + 1 : 0;
		}
	}
	for (uint32_t i = 0; i < seed.tensors; i++)
		free(seed.tensor[i]);
	free(seed.tensor);
}

static kvarc_view *views_of(uint8_t *raw)
{
	kvarc_view *views = contact_memory(s.tensors, sizeof *views);
	for (uint32_t i = 0; i < s.tensors; i++)
		views[i] = (kvarc_view){ .data = raw + i * s.tensor_bytes,
			                 .token_stride = ROW * s.size,
			                 .block_elems = ROW,
			                 .elem_stride = s.size };
	return views;
}

static kvarc_writer *open_writer(kvarc_memory **m)
{
	static uint64_t frequencies[CHANNELS / 2];
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_track track = { .kind = KVARC_TRACK_SELF };
	kvarc_rope rope = { .pairing = KVARC_ROPE_HALF, .rotary = CHANNELS, .freq = frequencies };
	const kvarc_geometry g = { .n_ropes = 1,
		                   .n_tracks = 1,
		                   .n_tensors = s.tensors,
		                   .ropes = &rope,
		                   .tracks = &track,
		                   .tensors = s.tensor };
	kvarc_sink sink;
	kvarc_writer *w;
	for (uint32_t i = 0; i < CHANNELS / 2; i++)
		frequencies[i] =
			(uint64_t)(pow(1e4, -2.0 * i / CHANNELS) / 6.283185307179586 * 0x1p64);
	for (uint32_t i = 0; i < s.tensors; i++)
		s.tensor[i] =
			(kvarc_tensor){ .layer = i / 2,
			                .kind = i % 2 ? KVARC_VALUE : KVARC_KEY,
			                .dtype = s.size == 2 ? KVARC_BF16 : KVARC_E4M3,
			                .flags = (uint8_t)(i % 2 ? 0 : KVARC_TENSOR_POST_ROPE),
			                .heads = HEADS,
			                .channels = CHANNELS,
			                .rope = i % 2 ? 0 : 1 };
	o.common = s.common;
	o.level = KVARC_LEVEL(s.level);
	need(kvarc_memory_open(m, &s.common), "memory");
	need(kvarc_memory_sink(*m, &sink), "memory");
	need(kvarc_writer_open(&w, &sink, &o), "the writer");
	need(kvarc_writer_set_geometry(w, &g), "the geometry");
	return w;
}

static kvarc_reader *open_reader(kvarc_memory *m)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source;
	kvarc_reader *r;
	o.common = s.common;
	need(kvarc_memory_source(m, &source), "memory");
	need(kvarc_reader_open(&r, &source, &o), "the reader");
	return r;
}

/* ----- plans ------------------------------------------------ */

struct speed_plan {
	kvarc_device_plan *p;
	kvarc_device_plan_info info;
	kvarc_device_view *views;
	uint64_t staging, work, status;
};

static uint64_t device_memory(uint64_t bytes)
{
	uint64_t at;
	need(kvarc_device_alloc(s.d, bytes ? bytes : 1, &at), "memory of the device");
	return at;
}

/* Views of memory of the device that has `tokens` tokens of each tensor, from token t0 on. */
static kvarc_device_view *device_views(uint64_t base, uint64_t tokens, uint64_t t0)
{
	kvarc_device_view *views = contact_memory(s.tensors, sizeof *views);
	for (uint32_t i = 0; i < s.tensors; i++)
		views[i] = (kvarc_device_view){ .base = base + (i * tokens + t0) * ROW * s.size,
			                        .bytes = (tokens - t0) * ROW * s.size,
			                        .token_stride = ROW * s.size,
			                        .head_stride = CHANNELS * s.size,
			                        .elem_stride = s.size };
	return views;
}

static void give_memory(struct speed_plan *x)
{
	need(kvarc_device_plan_get_info(x->p, &x->info), "the plan");
	x->staging = device_memory(x->info.staging_bytes);
	x->work = device_memory(x->info.work_bytes);
	x->status = device_memory(x->info.status_bytes);
}

static void put(const struct speed_plan *x)
{
	need(kvarc_device_place(x->p, x->views, x->work, x->status, cu.stream), "place");
}

static void plan_read(struct speed_plan *x, kvarc_reader *r, uint64_t t0, uint64_t tokens)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .t0 = t0, .n = tokens };
	need(kvarc_device_plan_read(&x->p, s.d, r, &range), "plan");
	give_memory(x);
}

/* Elements of `tokens` tokens from t0 on that are at an address: how many tensors differ. */
static unsigned tensors_wrong(uint64_t at, uint64_t t0, uint64_t tokens)
{
	const size_t n = tokens * ROW * s.size;
	uint8_t *back = contact_memory(1, n);
	unsigned wrong = 0;
	for (uint32_t i = 0; i < s.tensors; i++) {
		need(kvarc_device_fetch(s.d, back, at + i * n, n, cu.stream), "elements");
		wrong += memcmp(back, s.raw + i * s.tensor_bytes + t0 * ROW * s.size, n) != 0;
	}
	free(back);
	s.bad |= wrong != 0;
	return wrong;
}

static void close_plan(struct speed_plan *x)
{
	kvarc_device_plan_close(&x->p);
	free(x->views);
	kvarc_device_free(s.d, x->staging);
	kvarc_device_free(s.d, x->work);
	kvarc_device_free(s.d, x->status);
}

static void require_good(const struct speed_plan *x)
{
	uint32_t *words = contact_memory(x->info.status_bytes / 4 + 1, 4);
	need(kvarc_device_fetch(s.d, words, x->status, x->info.status_bytes, cu.stream), "status");
	need(kvarc_device_plan_answer(x->p, 0, UINT32_MAX, words), "the answer");
	free(words);
}

/* Other bytes than those of the cache, so that nothing is there before it was decoded. */
static void clear_tensors(void)
{
	uint8_t *other = contact_memory(1, s.tensor_bytes);
	memset(other, 0xa5, s.tensor_bytes);
	for (uint32_t i = 0; i < s.tensors; i++)
		need(kvarc_device_send(s.d, s.out + i * s.tensor_bytes, other, s.tensor_bytes,
		                       cu.stream),
		     "elements");
	contact_need(cu.wait(cu.stream), "waiting");
	free(other);
}

/* ----- decoding ------------------------------------------------ */

static void decode_all(const void *x)
{
	need(kvarc_device_decode(((const struct speed_plan *)x)->p, 0, UINT32_MAX, cu.stream),
	     "decode");
}
static void decode_layer(const void *x)
{
	need(kvarc_device_decode(((const struct speed_plan *)x)->p, s.layers / 2, 1, cu.stream),
	     "decode");
}
static void stage_all(const void *x)
{
	const struct speed_plan *plan = x;
	need(kvarc_device_stage(plan->p, plan->staging, cu.stream), "stage");
}
static void stage_and_decode(const void *x)
{
	stage_all(x);
	put(x);
	decode_all(x);
}
static void layer_by_layer(const void *x)
{
	const struct speed_plan *plan = x;
	for (uint32_t i = 0; i < s.layers; i++) {
		need(kvarc_device_stage_layers(plan->p, plan->staging, i, 1, cu.stream), "stage");
		if (i == 0)
			put(plan);
		need(kvarc_device_decode(plan->p, i, 1, cu.stream), "decode");
	}
}

static void launch_graph(const void *graph)
{
	void *g;
	memcpy(&g, graph, sizeof g);
	contact_need(cu.graph_launch(g, cu.stream), "launch of a graph");
}
/* Records the first decode of the process. */
static void graph(const struct speed_plan *x)
{
	void *recorded, *g;
	contact_need(cu.capture_begin(cu.stream, 0), "capture");
	decode_all(x);
	contact_need(cu.capture_end(cu.stream, &recorded), "capture");
	g = recorded;
	if (cu.instantiate)
		contact_need(cu.instantiate(&g, recorded, 0), "instantiate");
	launch_graph(&g);
	contact_number("graph_tensors_wrong", tensors_wrong(s.out, 0, s.tokens));
	contact_number("graph_gbs", (double)s.bytes / timed(launch_graph, &g) / 1e9);
}

static void decode(kvarc_reader *r, bool with_graph)
{
	struct speed_plan x = { 0 };
	plan_read(&x, r, 0, UINT64_MAX);
	contact_number("chunks", x.info.chunks);
	contact_number("host_chunks", x.info.host_chunks);
	const double staged = timed(stage_all, &x);
	contact_number("stage_ms", staged * 1e3);
	contact_number("stage_gbs_of_file", (double)x.info.file_bytes / staged / 1e9);
	clear_tensors();
	x.views = device_views(s.out, s.tokens, 0);
	put(&x);
	if (with_graph)
		graph(&x);
	clear_tensors();
	decode_all(&x);
	contact_number("tensors_wrong", tensors_wrong(s.out, 0, s.tokens));
	require_good(&x);
	contact_number("decode_gbs", (double)s.bytes / timed(decode_all, &x) / 1e9);
	const double one = timed(decode_layer, &x);
	contact_number("one_layer_ms", one * 1e3);
	contact_number("one_layer_gbs", (double)s.bytes / s.layers / one / 1e9);
	contact_number("stage_then_decode_ms", timed(stage_and_decode, &x) * 1e3);
	clear_tensors();
	contact_number("layer_by_layer_ms", timed(layer_by_layer, &x) * 1e3);
	contact_number("layer_by_layer_wrong", tensors_wrong(s.out, 0, s.tokens));
	close_plan(&x);
}

/* ----- requests ------------------------------------------------ */

struct requests {
	kvarc_device_plan **plans;
	size_t n;
};
static void decode_requests(const void *x)
{
	const struct requests *all = x;
	need(kvarc_device_decode_plans(all->plans, all->n, 0, UINT32_MAX, cu.stream), "decode");
}

/* n requests of 1024 tokens in one call, with one work memory. */
static void requests(kvarc_reader *r, uint32_t n)
{
	const uint32_t tokens = s.tokens < REQUEST_TOKENS ? s.tokens : REQUEST_TOKENS;
	const uint64_t bytes = (uint64_t)s.tensors * tokens * ROW * s.size;
	struct speed_plan *x = contact_memory(n, sizeof *x);
	struct requests all = { contact_memory(n, sizeof(void *)), n };
	uint64_t *out = contact_memory(n, sizeof *out);
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t t0 = (uint64_t)(i % (s.tokens / tokens)) * tokens;
		plan_read(&x[i], r, t0, tokens);
		out[i] = device_memory(bytes);
		if (i) {
			kvarc_device_free(s.d, x[i].work);
			x[i].work = x[0].work;
		}
		stage_all(&x[i]);
		x[i].views = device_views(out[i], tokens, 0);
		put(&x[i]);
		all.plans[i] = x[i].p;
	}
	contact_number("requests", n);
	contact_number("requests_gbs", (double)(bytes * n) / timed(decode_requests, &all) / 1e9);
	contact_number("one_request_gbs", (double)bytes / timed(decode_all, &x[0]) / 1e9);
	unsigned wrong = 0;
	for (uint32_t i = 0; i < n; i++) {
		require_good(&x[i]);
		wrong += tensors_wrong(out[i], (uint64_t)(i % (s.tokens / tokens)) * tokens,
		                       tokens);
		if (i)
			x[i].work = 0;
		close_plan(&x[i]);
		kvarc_device_free(s.d, out[i]);
	}
	contact_number("requests_wrong", wrong);
	free(x);
	free(out);
	free(all.plans);
}

/* ----- encoding ------------------------------------------------ */

static void encode_all(const void *x)
{
	need(kvarc_device_encode(((const struct speed_plan *)x)->p, 0, UINT32_MAX, cu.stream),
	     "encode");
}

/* The host encodes the first segment, and kernels what they can of the rest. */
static void encode(void)
{
	kvarc_memory *m;
	kvarc_writer *w = open_writer(&m);
	const uint32_t segment = kvarc_writer_segment_tokens(w, 0), n = s.tokens - segment;
	const double bytes = (double)s.tensors * n * ROW * s.size;
	struct speed_plan x = { 0 };
	need(kvarc_writer_append(w, 0, segment, NULL, s.positions, s.views), "append");
	need(kvarc_device_plan_write(&x.p, s.d, w, 0, n, NULL, s.positions + segment), "plan");
	give_memory(&x);
	contact_number("encode_host_chunks", x.info.host_chunks);
	if (x.info.host_chunks == x.info.chunks) {
		close_plan(&x);
		kvarc_writer_abort(&w);
		return; /* there are no kernels for this level */
	}
	stage_all(&x);
	x.views = device_views(s.out, s.tokens, segment);
	put(&x);
	contact_number("encode_gbs", bytes / timed(encode_all, &x) / 1e9);
	const double begun = contact_now();
	need(kvarc_device_append(x.p, cu.stream), "append");
	contact_number("append_ms", (contact_now() - begun) * 1e3);
	need(kvarc_device_plan_get_info(x.p, &x.info), "the plan");
	contact_number("encode_host_chunks_at_the_end", x.info.host_chunks);
	close_plan(&x);
	need(kvarc_writer_close(&w), "the writer");
	uint8_t *back = contact_memory(1, s.bytes);
	kvarc_view *views = views_of(back);
	kvarc_reader *r = open_reader(m);
	const kvarc_range range = KVARC_RANGE_ALL(0);
	need(kvarc_reader_read(r, &range, views), "reading back");
	contact_number("encoded_otherwise", memcmp(back, s.raw, s.bytes) != 0);
	s.bad |= memcmp(back, s.raw, s.bytes) != 0;
	kvarc_reader_close(&r);
	free(views);
	free(back);
}

/* ----- copies ------------------------------------------------ */

static void *pinned;
static size_t copied;
static void copy_pinned(const void *to)
{
	contact_need(cu.to_device(*(const uint64_t *)to, pinned, copied, cu.stream), "a copy");
}
static void copy_pageable(const void *to)
{
	contact_need(cu.to_device(*(const uint64_t *)to, s.raw, copied, cu.stream), "a copy");
}
static void copy_inside(const void *to)
{
	contact_need(cu.in_device(*(const uint64_t *)to, s.out, copied, cu.stream), "a copy");
}
static void copies(void)
{
	const uint64_t to = device_memory(s.bytes);
	copied = s.bytes < 256 << 20 ? s.bytes : 256 << 20;
	contact_need(cu.host_alloc(&pinned, copied, 0), "pinned memory");
	memcpy(pinned, s.raw, copied);
	contact_number("copy_pinned_gbs", (double)copied / timed(copy_pinned, &to) / 1e9);
	contact_number("copy_pageable_gbs", (double)copied / timed(copy_pageable, &to) / 1e9);
	if (cu.in_device)
		contact_number("copy_inside_gbs",
		               2.0 * (double)copied / timed(copy_inside, &to) / 1e9);
	kvarc_device_free(s.d, to);
}

static void write_raw(const char *name)
{
	FILE *f = fopen(name, "wb");
	const size_t n = s.bytes < 256 << 20 ? s.bytes : 256 << 20;
	if (!f || fwrite(s.raw, 1, n, f) != n || fclose(f))
		contact_fail(name, 0, "cannot be written");
}

static kvarc_memory *write_archive(void)
{
	kvarc_memory *m;
	kvarc_writer *w = open_writer(&m);
	const double begun = contact_now();
	need(kvarc_writer_append(w, 0, s.tokens, NULL, s.positions, s.views), "append");
	need(kvarc_writer_close(&w), "the writer");
	contact_number("host_encode_gbs", (double)s.bytes / (contact_now() - begun) / 1e9);
	contact_number("ratio", (double)s.bytes / (double)kvarc_memory_bytes(m));
	return m;
}

int main(int argc, char **argv)
{
	kvarc_device_options o = KVARC_DEVICE_OPTIONS_INIT;
	kvarc_device_info info;
	uint32_t n_requests = 64;
	const char *raw_file = NULL;
	bool with_graph = false;
	s.layers = 32;
	s.tokens = 8192;
	s.times = 9;
	s.size = 2;
	for (int c; (c = getopt(argc, argv, "l:L:T:R:n:ego:")) != -1;) {
		const uint32_t n = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
		if (c == 'l')
			s.level = (int)n;
		else if (c == 'L')
			s.layers = n;
		else if (c == 'T')
			s.tokens = n;
		else if (c == 'R')
			n_requests = n;
		else if (c == 'n')
			s.times = n < MOST ? n : MOST;
		else if (c == 'e')
			s.size = 1;
		else if (c == 'g')
			with_graph = true;
		else if (c == 'o')
			raw_file = optarg;
		else
			return 2;
	}
	if (optind + 1 != argc || !s.layers || !s.tokens || !s.times)
		return 2;
	s.common = (kvarc_common){ .error = &s.error, .memlimit = UINT64_C(48) << 30 };
	s.tensors = 2 * s.layers;
	s.tensor_bytes = (size_t)s.tokens * ROW * s.size;
	s.bytes = s.tensors * s.tensor_bytes;
	s.tensor = contact_memory(s.tensors, sizeof *s.tensor);
	s.positions = contact_memory(s.tokens, sizeof *s.positions);
	for (uint32_t i = 0; i < s.tokens; i++)
		s.positions[i] = (int32_t)i;
	printf("{\"level\": %d, \"bits\": %u, \"layers\": %u, \"tokens\": %u, ", s.level,
	       8 * s.size, s.layers, s.tokens);
	make_cache(argv[optind]);
	if (raw_file)
		write_raw(raw_file);
	s.views = views_of(s.raw);
	kvarc_reader *r = open_reader(write_archive());
	contact_open();
	o.common.error = &s.error;
	o.kernels = getenv("KVARC_KERNELS");
	o.encoders = getenv("KVARC_ENCODERS");
	need(kvarc_device_open(&s.d, &o), "the device");
	need(kvarc_device_get_info(s.d, &info), "the device");
	printf("\"gpu\": \"%s\", ", info.name);
	s.out = device_memory(s.bytes);
	decode(r, with_graph);
	if (n_requests)
		requests(r, n_requests);
	encode();
	copies();
	kvarc_device_free(s.d, s.out);
	kvarc_device_close(&s.d);
	kvarc_reader_close(&r);
	printf("\"ok\": %s}\n", s.bad ? "false" : "true");
	return s.bad;
}
