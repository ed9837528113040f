/* SPDX-License-Identifier: BSD-3-Clause */
/* target_roundtrip.c - fuzz target: tensors from the input, written, read, compared
 *
 * The last 12 bytes of the data are parameters; elements are the rest of it.
 */
#include "fuzz_common.h"

const size_t fuzz_parameters = 12;

struct roundtrip_job {
	kvarc_rope rope;
	kvarc_track track;
	kvarc_tensor tensors[2];
	kvarc_geometry geometry;
	kvarc_writer_options wopt;
	uint64_t tokens, first; /* first: tokens of the first append */
	int32_t position;
	uint8_t *raw[2];
	size_t row; /* bytes a token and tensor */
};

static const uint64_t freqs[40] = {
	1,     UINT64_MAX,        (uint64_t)1 << 63,  2935890503282001226u,
	99991, (uint64_t)1 << 50, 12345678901234567u, 3
};

static void job_init(struct roundtrip_job *j, struct fuzz_bytes *b, struct fuzz_env *env)
{
	kvarc_tensor *t = j->tensors;
	memset(j, 0, sizeof *j);
	t[0].dtype = fuzz_take(b) % 8;
	t[0].heads = fuzz_take(b) % 4 + 1;
	t[0].channels = fuzz_take(b) % 80 + 1;
	t[0].kind = KVARC_KEY;
	uint8_t flags = fuzz_take(b);
	uint32_t rotary = fuzz_take(b) % (t[0].channels / 2 + 1) * 2;
	if (flags & 1 && rotary) {
		t[0].rope = 1;
		j->rope =
			(kvarc_rope){ .pairing = flags >> 1 & 1, .rotary = rotary, .freq = freqs };
		j->geometry.ropes = &j->rope;
		j->geometry.n_ropes = 1;
	}
	t[1] = t[0];
	t[1].kind = KVARC_VALUE;
	if (flags & 0x80) {
		t[0].kind = KVARC_CONV_STATE;
		t[1].kind = KVARC_RECURRENT_STATE;
	}
	t[1].rope = 0;
	t[1].name = "value";
	j->geometry.tracks = &j->track;
	j->geometry.n_tracks = 1;
	j->geometry.tensors = t;
	j->geometry.n_tensors = 2;
	j->wopt = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	j->wopt.common = env->common;
	j->wopt.level = KVARC_LEVEL(flags >> 2 & 1);
	j->wopt.common.threads = flags & 8 ? 2 : 0;
	j->wopt.flags = flags & 0x10 ? KVARC_WRITE_VERIFY : 0;
	j->wopt.flags |= flags & 0x20 ? KVARC_WRITE_STREAMABLE : 0;
	j->wopt.segment_tokens = 32u << fuzz_take(b) % 4;
	j->wopt.chunk_bytes = (uint32_t)fuzz_take(b) << 6;
	j->row = (size_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
	j->tokens = fuzz_take32(b) % 600 + 1;
	while (j->tokens * j->row > 1 << 18)
		j->tokens = j->tokens / 2 + 1;
	j->first = j->tokens * fuzz_take(b) / 255;
	j->position = (int32_t)(flags & 0x40 ? 0x7fffffff - j->tokens : 0);
}

/* Elements repeat the input, changed a little from one round to the next. */
static void job_fill(struct roundtrip_job *j, const uint8_t *p, size_t n)
{
	size_t bytes = (size_t)j->tokens * j->row;
	for (int v = 0; v < 2; v++) {
		j->raw[v] = malloc(bytes);
		FUZZ_CHECK(j->raw[v]);
		for (size_t i = 0; i < bytes; i++) {
			size_t at = i + (size_t)v * bytes / 2;
			j->raw[v][i] = n ? (uint8_t)(p[at % n] ^ at / n) : 0;
		}
	}
}

static void views_at(const struct roundtrip_job *j, kvarc_view v[2], uint8_t *const raw[2],
                     uint64_t t0)
{
	for (int i = 0; i < 2; i++) {
		size_t elem = kvarc_dtype_bytes(j->tensors[i].dtype);
		v[i] = (kvarc_view){ .data = raw[i] + t0 * j->row,
			             .token_stride = j->row,
			             .block_elems = (uint32_t)(j->row / elem),
			             .elem_stride = (uint32_t)elem };
	}
}

static kvarc_ret append(kvarc_writer *w, struct roundtrip_job *j, uint64_t t0, uint64_t n)
{
	kvarc_view views[2];
	int32_t *pos = malloc(n * sizeof *pos);
	FUZZ_CHECK(pos);
	for (uint64_t t = 0; t < n; t++)
		pos[t] = j->position + (int32_t)(t0 + t);
	views_at(j, views, j->raw, t0);
	kvarc_ret ret = kvarc_writer_append(w, 0, n, j->position ? pos : NULL, pos, views);
	free(pos);
	return ret;
}

static kvarc_ret job_write(struct roundtrip_job *j, kvarc_sink *sink)
{
	kvarc_writer *w = NULL;
	kvarc_ret ret = kvarc_writer_open(&w, sink, &j->wopt);
	if (ret != KVARC_OK)
		return ret;
	ret = kvarc_writer_set_geometry(w, &j->geometry);
	if (ret == KVARC_OK && j->first)
		ret = append(w, j, 0, j->first);
	if (ret == KVARC_OK && j->tokens & 1)
		ret = kvarc_writer_commit(w);
	if (ret == KVARC_OK && j->first < j->tokens)
		ret = append(w, j, j->first, j->tokens - j->first);
	if (ret != KVARC_OK) {
		kvarc_writer_abort(&w);
		return ret;
	}
	return kvarc_writer_close(&w);
}

static kvarc_ret job_read(struct roundtrip_job *j, struct fuzz_file *f, uint8_t *const raw[2])
{
	struct fuzz_input in = { .p = f->p, .n = f->n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = j->wopt.common };
	kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_view views[2];
	kvarc_reader *r = NULL;
	kvarc_ret ret = kvarc_reader_open(&r, &source, &opt);
	if (ret != KVARC_OK)
		return ret;
	views_at(j, views, raw, 0);
	FUZZ_CHECK(kvarc_reader_tokens(r, 0) == j->tokens);
	ret = kvarc_reader_read(r, &range, views);
	if (ret == KVARC_OK)
		ret = kvarc_reader_verify(r, NULL, NULL);
	kvarc_reader_close(&r);
	return ret;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	if (n < fuzz_parameters)
		return;
	n -= fuzz_parameters;
	struct fuzz_bytes b = { data + n, fuzz_parameters };
	struct fuzz_file out = { 0 };
	kvarc_sink sink = fuzz_file_sink(&out);
	struct roundtrip_job j;
	job_init(&j, &b, env);
	job_fill(&j, data, n);
	kvarc_ret ret = job_write(&j, &sink);
	FUZZ_CHECK(ret == KVARC_OK || env->failing);
	size_t bytes = (size_t)j.tokens * j.row;
	uint8_t *back[2] = { calloc(1, bytes), calloc(1, bytes) };
	FUZZ_CHECK(back[0] && back[1]);
	if (ret == KVARC_OK) {
		ret = job_read(&j, &out, back);
		FUZZ_CHECK(ret == KVARC_OK || env->failing);
	}
	for (int i = 0; i < 2; i++) {
		if (ret == KVARC_OK)
			FUZZ_CHECK(memcmp(back[i], j.raw[i], bytes) == 0);
		free(back[i]);
		free(j.raw[i]);
	}
	fuzz_file_free(&out);
}
