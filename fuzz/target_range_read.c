/* SPDX-License-Identifier: BSD-3-Clause */
/* target_range_read.c - fuzz target: ranges of layers and tokens, export and cut
 *
 * The last 12 bytes of the data say which range.
 */
#include "fuzz_store.h"

const size_t fuzz_parameters = 12;

static kvarc_range range_of(struct fuzz_bytes *b, uint64_t tokens)
{
	kvarc_range g = KVARC_RANGE_ALL(fuzz_take(b) & 1);
	uint8_t how = fuzz_take(b);
	uint32_t t0 = fuzz_take32(b), n = fuzz_take32(b);
	g.layer0 = fuzz_take(b) & 3;
	if (how & 1)
		g.n_layers = fuzz_take(b);
	if (how & 2)
		g.t0 = how & 8 ? t0 : t0 % (tokens + 1);
	if (how & 4)
		g.n = how & 8 ? n : n % (tokens - g.t0 % (tokens + 1) + 1);
	return g;
}

/* What a plan must be, whatever the index says: ascending, inside of the file, not empty. */
static void plan(kvarc_reader *r, const kvarc_range *range, const kvarc_view *views)
{
	const kvarc_byte_range *p;
	kvarc_info info;
	size_t n;
	uint64_t end = 0;
	kvarc_ret ret = kvarc_reader_plan(r, range, views, &p, &n);
	FUZZ_CHECK(kvarc_reader_get_info(r, &info) == KVARC_OK);
	FUZZ_CHECK(ret == KVARC_OK || (!p && !n));
	for (size_t i = 0; i < n; i++) {
		FUZZ_CHECK(p[i].bytes && !p[i].buf && p[i].offset >= end);
		FUZZ_CHECK(p[i].offset < info.file_bytes);
		FUZZ_CHECK(p[i].bytes <= info.file_bytes - p[i].offset);
		end = p[i].offset + p[i].bytes;
	}
}

/* A kvarc_source.read_ranges over a fuzz_input. */
static int read_ranges(void *opaque, const kvarc_byte_range *ranges, size_t n)
{
	struct fuzz_input *in = opaque;
	uint64_t end = 0;
	for (size_t i = 0; i < n; i++) {
		FUZZ_CHECK(ranges[i].bytes && ranges[i].offset >= end && ranges[i].offset < in->n);
		FUZZ_CHECK(ranges[i].bytes <= in->n - ranges[i].offset);
		memcpy(ranges[i].buf, in->p + ranges[i].offset, (size_t)ranges[i].bytes);
		end = ranges[i].offset + ranges[i].bytes;
	}
	return 0;
}

/* One block of memory and a view on it for every tensor of up to 1 MiB. */
static void read_views(kvarc_reader *r, const kvarc_range *range)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	uint64_t tokens = kvarc_reader_tokens(r, range->track);
	kvarc_view *views = calloc(g->n_tensors + 1, sizeof *views);
	FUZZ_CHECK(views);
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		size_t elem = kvarc_dtype_bytes(t->dtype);
		size_t row = (size_t)t->heads * t->channels * elem;
		if (tokens > (1u << 20) / row || i >= 64)
			continue;
		views[i].data = malloc(row * (size_t)tokens + 1);
		FUZZ_CHECK(views[i].data);
		views[i].elem_stride = (uint32_t)elem;
		if (i & 1) { /* [heads][tokens][channels] */
			views[i].block_elems = t->channels;
			views[i].token_stride = t->channels * elem;
			views[i].block_stride = tokens * t->channels * elem;
		} else {
			views[i].block_elems = t->heads * t->channels;
			views[i].token_stride = row;
		}
	}
	plan(r, range, views);
	kvarc_ret ret = kvarc_reader_read(r, range, views);
	FUZZ_CHECK(ret != KVARC_END && ret != KVARC_FORMAT);
	for (size_t i = 0; i < g->n_tensors; i++)
		free(views[i].data);
	free(views);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	if (n < fuzz_parameters)
		return;
	n -= fuzz_parameters;
	struct fuzz_bytes b = { data + n, fuzz_parameters };
	struct fuzz_input in = { .p = data, .n = n };
	struct fuzz_file out = { 0 };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_sink sink = fuzz_file_sink(&out);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_writer_options wopt = KVARC_WRITER_OPTIONS_INIT;
	struct fuzz_store store;
	kvarc_reader *r = NULL;
	fuzz_store_use(&store, &opt);
	opt.common.threads = env->mode & 1 ? 2 : 0;
	opt.request_cost = env->mode & 0x20 ? 1 : 0; /* files are small: else one request */
	if (env->mode & 0x40)
		source.read_ranges = read_ranges;
	opt.flags = env->mode & 0x10 ? 0 : KVARC_READ_ALLOW_LOSSY;
	wopt.common = env->common;
	wopt.flags = KVARC_WRITE_FILE_ID;
	wopt.level = KVARC_LEVEL(env->mode >> 7);
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return;
	store.vectors.geometry = kvarc_reader_geometry(r);
	kvarc_range range = range_of(&b, kvarc_reader_tokens(r, 0));
	struct fuzz_sum sum = { kvarc_reader_geometry(r), 0 };
	kvarc_ret ret = KVARC_OK;
	switch ((env->mode >> 1) % 4) {
	case 0:
		read_views(r, &range);
		break;
	case 1:
		plan(r, &range, NULL);
		ret = kvarc_reader_read_deliver(r, &range, fuzz_deliver, &sum);
		break;
	case 2:
		ret = kvarc_export_safetensors(r, &range, &sink);
		break;
	case 3:
		ret = kvarc_cut(r, &range, &sink, &wopt, NULL);
		break;
	}
	FUZZ_CHECK(ret != KVARC_END && ret != KVARC_FORMAT);
	kvarc_reader_close(&r);
	fuzz_file_free(&out);
}
