/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_outputs.c - tracks of archives written again through libkvarc-device and the kernels of
 * gpu/ on the host, behind the stand-in of the driver, against the library's writer
 *
 * check_outputs -l LEVEL [-t TIER] [-p PROFILE] [-m N] FILE...: all tracks of the files, as they
 * are, short ones with their tokens again and again, and N times with other elements: random bits,
 * infinities and NaN, dead channels, constant tokens and tensors. Both writers have to make the
 * same bytes, without verification and with it. What the reader does not read, or the writer does
 * not write, is left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../synth.h"
#include "device/plan_state.h"
#include "device_trial.h"
#include "util/hash.h"

/* The least number of tokens of a track that is written: two segments. */
enum { LEAST_TOKENS = 300 };

static struct {
	unsigned changes;
	int level;
	kvarc_lossy tier; /* if lossy */
	bool lossy;
	unsigned long tracks, chunks, host;
} t;

/* A track, and what is made of it. */
struct output_trial {
	kvarc_reader *r;
	const kvarc_geometry *g;
	uint32_t track;
	uint64_t stored, tokens;  /* of the archive; with those that are repeated */
	uint8_t **raw;            /* by tensor */
	int32_t *ids, *positions; /* ids NULL: not known */
	kvarc_view *views;
	kvarc_device_view *device_views;
};

static size_t row_bytes(const kvarc_tensor *x)
{
	return (size_t)x->heads * x->channels * kvarc_dtype_bytes(x->dtype);
}

/* ----- other elements ------------------------------------------------ */

/* Some elements of a tensor become anything, or such as a model does not expect. */
static void spoil(uint8_t *raw, size_t n, size_t size, uint32_t rare)
{
	for (size_t i = below(rare); i < n; i += 1 + below(rare))
		for (size_t k = 0; k < size; k++)
			raw[i * size + k] = below(4) ? (uint8_t)kvi_splitmix64(&trial.random)
			                             : 0xff;
}

/* A channel, or a token, has one value. */
static void flatten(uint8_t *raw, size_t n, size_t stride, size_t size)
{
	for (size_t i = 1; i < n; i++)
		memcpy(raw + i * stride, raw, size);
}

static void change(const struct output_trial *x)
{
	for (size_t i = 0; i < x->g->n_tensors; i++) {
		const kvarc_tensor *s = &x->g->tensors[i];
		const size_t row = row_bytes(s), size = kvarc_dtype_bytes(s->dtype);
		const size_t C = row / size, n = (size_t)x->tokens;
		if (!x->raw[i] || !C)
			continue;
		switch (below(8)) {
		case 0:
			spoil(x->raw[i], n * C, size, 2000);
			break;
		case 1:
			spoil(x->raw[i], n * C, size, 8);
			break;
		case 2:
			flatten(x->raw[i] + below((uint32_t)C) * size, n, row, size);
			break;
		case 3:
			flatten(x->raw[i] + below((uint32_t)n) * row, C, size, size);
			break;
		case 4:
			if (!below(4))
				flatten(x->raw[i], n * C, size, size);
			break;
		default:
			break;
		}
	}
}

/* ----- both writers ------------------------------------------------ */

static kvarc_ret open_writer(const struct output_trial *x, struct synth_file *f, kvarc_sink *sink,
                             unsigned flags, kvarc_writer **w)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	o.common.error = &trial.error;
	o.common.threads = 2;
	o.level = KVARC_LEVEL(t.level);
	o.flags = KVARC_WRITE_FILE_ID | flags;
	o.profile = trial.profile;
	o.lossy = t.lossy ? &t.tier : NULL;
	memset(f, 0, sizeof *f);
	*sink = synth_sink(f);
	kvarc_ret ret = kvarc_writer_open(w, sink, &o);
	return ret ? ret : kvarc_writer_set_geometry(*w, x->g);
}

/* Appends n tokens from t0 on. */
static kvarc_ret append(const struct output_trial *x, kvarc_writer *w, uint64_t t0, uint64_t n)
{
	kvarc_device_plan_info info;
	kvarc_device_plan *p;
	kvarc_ret ret = kvarc_device_plan_write(&p, trial.d, w, x->track, n,
	                                        x->ids ? x->ids + t0 : NULL, x->positions + t0);
	if (ret)
		return ret;
	for (size_t i = 0; i < x->g->n_tensors; i++) {
		const kvarc_tensor *s = &x->g->tensors[i];
		const size_t size = kvarc_dtype_bytes(s->dtype), row = row_bytes(s);
		if (x->raw[i])
			x->device_views[i] =
				(kvarc_device_view){ .base = address(x->raw[i]) + t0 * row,
				                     .bytes = n * row,
				                     .token_stride = row,
				                     .head_stride = s->channels * size,
				                     .elem_stride = (uint32_t)size };
	}
	REQUIRE(kvarc_device_plan_get_info(p, &info) == KVARC_OK);
	void *staging = memory(info.staging_bytes), *work = memory(info.work_bytes);
	void *status = memory(info.status_bytes);
	ret = kvarc_device_stage(p, address(staging), NULL);
	if (!ret)
		ret = kvarc_device_place(p, x->device_views, address(work), address(status), NULL);
	for (uint32_t l = 0; l < info.n_layers && !ret; l++)
		ret = kvarc_device_encode(p, info.layer0 + l, 1, NULL);
	if (!ret)
		ret = kvarc_device_append(p, NULL);
	REQUIRE(kvarc_device_plan_get_info(p, &info) == KVARC_OK);
	t.chunks += info.chunks;
	t.host += info.host_chunks;
	settle();
	free(staging);
	free(work);
	free(status);
	kvarc_device_plan_close(&p);
	return ret;
}

/* Appends n tokens from t0 on. */
static kvarc_ret append_views(const struct output_trial *x, kvarc_writer *w, uint64_t t0,
                              uint64_t n)
{
	kvarc_view *views = calloc(x->g->n_tensors, sizeof *views);
	REQUIRE(views);
	for (size_t i = 0; i < x->g->n_tensors; i++) {
		views[i] = x->views[i];
		if (x->raw[i])
			views[i].data = x->raw[i] + t0 * row_bytes(&x->g->tensors[i]);
	}
	kvarc_ret ret = kvarc_writer_append(w, x->track, n, x->ids ? x->ids + t0 : NULL,
	                                    x->positions + t0, views);
	free(views);
	return ret;
}

/* The tokens of the first append: a segment. */
static uint64_t first_tokens(const struct output_trial *x, const kvarc_writer *w)
{
	const uint32_t segment = kvarc_writer_segment_tokens(w, x->track);
	return x->tokens < segment ? x->tokens : segment;
}

/* In as many appends as on the device: last tokens of a track may stay exact. */
static bool write_on_host(const struct output_trial *x, unsigned flags, struct synth_file *f)
{
	kvarc_sink sink;
	kvarc_writer *w;
	kvarc_ret ret = open_writer(x, f, &sink, flags, &w);
	const uint64_t first = ret ? 0 : first_tokens(x, w);
	if (!ret)
		ret = append_views(x, w, 0, first);
	if (!ret && first < x->tokens)
		ret = append_views(x, w, first, x->tokens - first);
	if (!ret)
		return kvarc_writer_close(&w) == KVARC_OK;
	/* the profile is of another model, or there is none */
	kvarc_writer_abort(&w);
	return false;
}

/* The first segment and the others, so that levels without models have parameters. */
static void write_on_device(const struct output_trial *x, struct synth_file *f, unsigned flags)
{
	kvarc_sink sink;
	kvarc_writer *w;
	kvarc_ret ret = open_writer(x, f, &sink, flags, &w);
	const uint64_t first = ret ? 0 : first_tokens(x, w);
	if (!ret)
		ret = append(x, w, 0, first);
	if (!ret && first < x->tokens)
		ret = append(x, w, first, x->tokens - first);
	if (!ret)
		ret = kvarc_writer_close(&w);
	if (ret)
		wrong("track %u: %s", x->track, trial.error.text);
	kvarc_writer_abort(&w);
}

/* Writes a track on the host and on the device: the archives have to be the same. Whether the host
 * could. */
static bool write_both(const struct output_trial *x, unsigned flags, const char *what)
{
	struct synth_file host, device;
	const bool written = write_on_host(x, flags & ~(unsigned)KVARC_WRITE_VERIFY, &host);
	if (written) {
		write_on_device(x, &device, flags);
		if (host.n != device.n || memcmp(host.p, device.p, host.n))
			wrong("%s: track %u: other bytes", what, x->track);
		free(device.p);
	}
	free(host.p);
	return written;
}

static void check_elements(const struct output_trial *x, const char *what)
{
	if (!write_both(x, 0, what))
		return;
	t.tracks++;
	/* small chunks, too */
	(void)write_both(x, KVARC_WRITE_VERIFY | KVARC_WRITE_STREAMABLE, what);
}

/* ----- tracks ------------------------------------------------ */

/* The tokens behind those of the archive, which differ from them in the last bits: rows that repeat
 * are the host's. */
static void repeat_tokens(struct output_trial *x)
{
	enum { LAST_BITS = 7 };
	for (size_t i = (size_t)x->stored; i < x->tokens; i++) {
		const size_t from = i - (size_t)x->stored;
		if (x->ids)
			x->ids[i] = x->ids[from];
		x->positions[i] = x->positions[from];
		for (size_t k = 0; k < x->g->n_tensors; k++) {
			const size_t row = row_bytes(&x->g->tensors[k]);
			const size_t size = kvarc_dtype_bytes(x->g->tensors[k].dtype);
			uint8_t *to = x->raw[k] ? x->raw[k] + i * row : NULL;
			if (to)
				memcpy(to, x->raw[k] + from * row, row);
			for (size_t b = 0; to && b < row; b += size)
				to[b] ^= (i / (size_t)x->stored) & LAST_BITS;
		}
	}
}

static bool read_track(struct output_trial *x)
{
	const kvarc_range range = KVARC_RANGE_ALL(x->track);
	const size_t n = (size_t)x->tokens, stored = (size_t)x->stored;
	for (size_t i = 0; i < x->g->n_tensors; i++) {
		const kvarc_tensor *s = &x->g->tensors[i];
		const size_t size = kvarc_dtype_bytes(s->dtype), row = row_bytes(s);
		if (s->track != x->track)
			continue;
		x->raw[i] = memory(x->tokens * row);
		x->views[i] = (kvarc_view){ .data = x->raw[i],
			                    .token_stride = row,
			                    .block_stride = s->channels * size,
			                    .block_elems = s->channels,
			                    .elem_stride = (uint32_t)size };
	}
	x->ids = memory(n * sizeof *x->ids);
	x->positions = memory(n * sizeof *x->positions);
	if (kvarc_reader_read(x->r, &range, x->views))
		return false;
	if (kvarc_reader_read_tokens(x->r, x->track, 0, stored, x->ids, x->positions)) {
		free(x->ids);
		x->ids = NULL;
		if (kvarc_reader_read_tokens(x->r, x->track, 0, stored, NULL, x->positions))
			return false;
	}
	repeat_tokens(x);
	return true;
}

static void check_track(kvarc_reader *r, uint32_t track)
{
	struct output_trial x = { .r = r, .g = kvarc_reader_geometry(r), .track = track };
	x.stored = kvarc_reader_tokens(r, track);
	x.tokens = x.stored && x.stored < LEAST_TOKENS ? LEAST_TOKENS : x.stored;
	x.raw = calloc(x.g->n_tensors, sizeof *x.raw);
	x.views = calloc(x.g->n_tensors, sizeof *x.views);
	x.device_views = calloc(x.g->n_tensors, sizeof *x.device_views);
	REQUIRE(x.raw && x.views && x.device_views);
	if (x.tokens && read_track(&x)) {
		check_elements(&x, "whole");
		for (unsigned i = 0; i < t.changes; i++) {
			change(&x);
			check_elements(&x, "changed");
		}
	}
	for (size_t i = 0; i < x.g->n_tensors; i++)
		free(x.raw[i]);
	free(x.raw);
	free(x.ids);
	free(x.positions);
	free(x.views);
	free(x.device_views);
}

int main(int argc, char **argv)
{
	const char *profile = NULL;
	int i = 1;
	trial.random = 20261126;
	for (; i + 1 < argc && argv[i][0] == '-'; i += 2)
		switch (argv[i][1]) {
		case 't':
			REQUIRE(kvarc_lossy_parse(&t.tier, argv[i + 1], NULL) == KVARC_OK);
			t.lossy = true;
			break;
		case 'p':
			profile = argv[i + 1];
			break;
		case 'l':
			t.level = atoi(argv[i + 1]);
			break;
		default:
			t.changes = (unsigned)atoi(argv[i + 1]);
			break;
		}
	trial.reader_flags = t.lossy ? KVARC_READ_ALLOW_LOSSY : 0;
	trial_open(profile, 1);
	trial_files(argv + i, (size_t)(argc - i), check_track);
	printf("%lu tracks; %lu chunks, %lu by kernels; %lu wrong\n", t.tracks, t.chunks,
	       t.chunks - t.host, trial.wrong);
	return trial_close();
}
