/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_plans.c - whole archives through libkvarc-device and the kernels of gpu/ on the host,
 * behind the stand-in of the driver, against the library's reader
 *
 * check_plans [-p PROFILE] [-m MODEL] [-d N] [-r N] FILE...: all tracks of the files, and parts of
 * them, as they are, and N times with a damaged chunk: it must be noticed, or change no element,
 * and no others. What the reader does not read is left out. -m: the model of
 * the reader. With -r 1 the reader does not accept lossy chunks, and neither may staging.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/plan_state.h"
#include "device_trial.h"
#include "format/codec_ids.h"
#include "util/hash.h"

static struct {
	unsigned damage;
	unsigned long tracks, chunks, host, predicted, refused, damaged, noticed;
} t;

/* A track on its way through both readers. */
struct track_trial {
	kvarc_reader *r;
	const kvarc_geometry *g;
	uint32_t track;
	uint64_t tokens;
	kvarc_device_plan *p;
	uint8_t **raw, **elements; /* by tensor */
	kvarc_device_view *views;
	uint8_t *staging, *work;
	uint32_t *status;
};

static size_t row_bytes(const kvarc_tensor *x)
{
	return (size_t)x->heads * x->channels * kvarc_dtype_bytes(x->dtype);
}

/* Elements of a chunk that the views have. */
static size_t elements_at(const struct track_trial *x, const struct kvi_planned_chunk *c,
                          uint32_t token, uint32_t head)
{
	const kvarc_tensor *s = &x->g->tensors[c->tensor];
	return (size_t)(c->t0 + token) * row_bytes(s) +
	       (c->head + head) * s->channels * kvarc_dtype_bytes(s->dtype);
}

/* Whether the elements of a chunk are those of the library. */
static bool chunk_holds(const struct track_trial *x, const struct kvi_planned_chunk *c)
{
	const kvarc_tensor *s = &x->g->tensors[c->tensor];
	const size_t n = s->channels * kvarc_dtype_bytes(s->dtype);
	for (uint32_t i = c->from; i < c->to; i++)
		for (uint32_t h = 0; h < c->job.heads; h++) {
			const size_t at = elements_at(x, c, i, h);
			const uint8_t *e = x->elements[c->tensor] + at;
			for (size_t k = 0; k < n; k++)
				if (e[k] != x->raw[c->tensor][at + k])
					return false;
		}
	return true;
}

/* Decodes all layers, and compares statuses and elements; damaged: the number of a chunk that is,
 * SIZE_MAX: none is. */
static void decode_and_compare(struct track_trial *x, size_t damaged, const char *what)
{
	kvarc_device_plan_info info;
	if (kvarc_device_plan_get_info(x->p, &info))
		abort();
	for (size_t i = 0; i < x->g->n_tensors; i++)
		if (x->elements[i])
			memset(x->elements[i], UNTOUCHED, x->tokens * row_bytes(&x->g->tensors[i]));
	/* every other time it has what was decoded before, perhaps of the same chunks */
	if (t.damaged % 2 == 0)
		memset(x->work, UNTOUCHED, info.work_bytes);
	/* every third time layer by layer */
	const uint32_t each = t.damaged % 3 == 0 ? 1 : info.n_layers;
	for (uint32_t l = 0; l < info.n_layers; l += each)
		if (kvarc_device_decode(x->p, info.layer0 + l, each, NULL)) {
			wrong("%s: %s", what, trial.error.text);
			return;
		}
	settle();
	for (size_t i = 0; i < x->p->chunks.n; i++) {
		const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, x->p->chunks,
		                                             i);
		/* damage may look like what is for the host to decode, or change no element */
		const bool good = x->status[i] == KVI_GPU_OK;
		t.noticed += i == damaged && !good;
		if (!good && (i != damaged ||
		              (x->status[i] != KVI_GPU_DATA && x->status[i] != KVI_GPU_HOST)))
			wrong("%s: chunk %zu of codec %u, tensor %u, token %llu: answer %u", what,
			      i, c->job.codec, c->tensor, (unsigned long long)c->t0, x->status[i]);
		else if (good && !chunk_holds(x, c))
			wrong("%s: chunk %zu of codec %u, tensor %u: other elements", what, i,
			      c->job.codec, c->tensor);
	}
}

/* ----- damage ------------------------------------------------ */

/* Flips one to three bits of a chunk in staging memory, more often in its first kilobyte. */
static void damage(struct track_trial *x)
{
	const struct kvi_planned_chunk *all = x->p->chunks.p;
	const size_t i = below((uint32_t)x->p->chunks.n);
	const struct kvi_planned_chunk *c = &all[i];
	const uint32_t n = c->job.payload_bytes;
	uint8_t *payload = x->staging + c->job.payload;
	uint8_t *copy = malloc(n);
	if (!copy)
		abort();
	memcpy(copy, payload, n);
	for (uint32_t k = 1 + below(3); k-- > 0;) {
		const uint32_t at = below(below(2) && n > 1024 ? 1024 : n);
		/* extension_bytes: the frame's reader has taken it off */
		payload[at / 4 == 11 ? at - 4 : at] ^= 1u << below(8);
	}
	if (memcmp(payload, copy, n)) {
		t.damaged++;
		decode_and_compare(x, i, "damaged");
	}
	memcpy(payload, copy, n);
	free(copy);
}

/* ----- whole archives ------------------------------------------------ */

/* What is made of the chunks of a plan. */
static void count_chunks(const struct kvarc_device_plan *p)
{
	const struct kvi_planned_chunk *c = p->chunks.p;
	for (size_t i = 0; i < p->chunks.n; i++) {
		t.chunks++;
		t.host += c[i].host;
		t.predicted += c[i].predicted;
	}
}

static void check_plan(struct track_trial *x)
{
	kvarc_device_plan_info info;
	if (kvarc_device_plan_get_info(x->p, &info))
		abort();
	x->staging = memory(info.staging_bytes);
	x->work = memory(info.work_bytes);
	x->status = memory(info.status_bytes);
	if (kvarc_device_stage(x->p, address(x->staging), NULL) ||
	    kvarc_device_place(x->p, x->views, address(x->work), address(x->status), NULL)) {
		wrong("staging: %s", trial.error.text);
	} else {
		settle();
		count_chunks(x->p);
		decode_and_compare(x, SIZE_MAX, "whole");
		for (unsigned i = 0; i < t.damage && x->p->chunks.n; i++)
			damage(x);
	}
	free(x->staging);
	free(x->work);
	free(x->status);
}

/* Memory for the elements of the track, and what the library reads into it. */
static kvarc_ret read_track(struct track_trial *x)
{
	const kvarc_range range = { .track = x->track, .n_layers = UINT32_MAX, .n = x->tokens };
	kvarc_view *views = calloc(x->g->n_tensors, sizeof *views);
	if (!views)
		abort();
	for (size_t i = 0; i < x->g->n_tensors; i++) {
		const kvarc_tensor *s = &x->g->tensors[i];
		const size_t size = kvarc_dtype_bytes(s->dtype), row = row_bytes(s);
		if (s->track != x->track)
			continue;
		x->raw[i] = memory(x->tokens * row);
		x->elements[i] = memory(x->tokens * row);
		views[i] = (kvarc_view){ .data = x->raw[i],
			                 .token_stride = row,
			                 .block_stride = s->channels * size,
			                 .block_elems = s->channels,
			                 .elem_stride = (uint32_t)size };
		x->views[i] = (kvarc_device_view){ .base = address(x->elements[i]),
			                           .bytes = x->tokens * row,
			                           .token_stride = row,
			                           .head_stride = s->channels * size,
			                           .elem_stride = (uint32_t)size };
	}
	const kvarc_ret ret = kvarc_reader_read(x->r, &range, views);
	free(views);
	return ret;
}

/* A reader that does not accept lossy chunks answers the same to a plan as without one. */
static void check_refused(struct track_trial *x)
{
	kvarc_device_plan_info info;
	if (kvarc_device_plan_get_info(x->p, &info))
		abort();
	x->staging = memory(info.staging_bytes);
	const kvarc_ret ret = kvarc_device_stage(x->p, address(x->staging), NULL);
	if ((ret == KVARC_LOSSY) != (read_track(x) == KVARC_LOSSY))
		wrong("lossy chunks that are not accepted: answer %d", (int)ret);
	t.refused += ret == KVARC_LOSSY;
	settle();
	free(x->staging);
}

/* Part of a track. */
static void check_part(struct track_trial *x, const kvarc_range *range)
{
	const size_t n = x->g->n_tensors;
	for (size_t i = 0; i < n; i++)
		if (x->views[i].base) {
			x->views[i].base += range->t0 * x->views[i].token_stride;
			x->views[i].bytes -= range->t0 * x->views[i].token_stride;
		}
	if (kvarc_device_plan_read(&x->p, trial.d, x->r, range)) {
		wrong("plan of a part: %s", trial.error.text);
	} else {
		check_plan(x);
	}
	kvarc_device_plan_close(&x->p);
	for (size_t i = 0; i < n; i++)
		if (x->views[i].base) {
			x->views[i].base -= range->t0 * x->views[i].token_stride;
			x->views[i].bytes += range->t0 * x->views[i].token_stride;
		}
}

/* Parts of a track. */
static void check_parts(struct track_trial *x)
{
	const kvarc_range parts[] = {
		{ .track = x->track, .layer0 = 1, .n_layers = UINT32_MAX, .n = x->tokens },
		{ .track = x->track, .n_layers = 1, .n = x->tokens },
		{ .track = x->track, .n_layers = UINT32_MAX, .n = (x->tokens + 1) / 2 },
		{ .track = x->track,
		  .n_layers = UINT32_MAX,
		  .t0 = x->tokens / 2,
		  .n = x->tokens - x->tokens / 2 },
	};
	bool layers = false;
	for (size_t i = 0; i < x->g->n_tensors; i++)
		layers = layers || x->g->tensors[i].layer;
	for (size_t i = layers ? 0 : 1; i < sizeof parts / sizeof *parts; i++)
		check_part(x, &parts[i]);
}

static void check_track(kvarc_reader *r, uint32_t track)
{
	struct track_trial x = { .r = r, .g = kvarc_reader_geometry(r), .track = track };
	x.tokens = kvarc_reader_tokens(r, track);
	const size_t n = x.g->n_tensors;
	const kvarc_range range = KVARC_RANGE_ALL(track);
	x.raw = calloc(n, sizeof *x.raw);
	x.elements = calloc(n, sizeof *x.elements);
	x.views = calloc(n, sizeof *x.views);
	if (!x.raw || !x.elements || !x.views)
		abort();
	const bool accepts = trial.reader_flags & KVARC_READ_ALLOW_LOSSY;
	if (x.tokens && (!accepts || read_track(&x) == KVARC_OK)) {
		if (kvarc_device_plan_read(&x.p, trial.d, r, &range))
			wrong("plan: %s", trial.error.text);
		else if (!accepts)
			check_refused(&x);
		else
			check_plan(&x);
		kvarc_device_plan_close(&x.p);
		if (accepts)
			check_parts(&x);
		t.tracks++;
	}
	for (size_t i = 0; i < n; i++) {
		free(x.raw[i]);
		free(x.elements[i]);
	}
	free(x.raw);
	free(x.elements);
	free(x.views);
}

int main(int argc, char **argv)
{
	const char *profile = NULL, *model = NULL;
	int i = 1;
	trial.random = 20261125;
	trial.reader_flags = KVARC_READ_ALLOW_LOSSY;
	for (; i + 1 < argc && argv[i][0] == '-'; i += 2)
		if (!strcmp(argv[i], "-p"))
			profile = argv[i + 1];
		else if (!strcmp(argv[i], "-m"))
			model = argv[i + 1];
		else if (!strcmp(argv[i], "-r"))
			trial.reader_flags = atoi(argv[i + 1]) ? 0 : KVARC_READ_ALLOW_LOSSY;
		else
			t.damage = (unsigned)atoi(argv[i + 1]);
	trial_open(profile, 0);
	if (model)
		trial_open_model(model);
	trial_files(argv + i, (size_t)(argc - i), check_track);
	printf("%lu tracks, %lu refused; %lu chunks, %lu by the host, %lu of them predicted; "
	       "%lu damaged, %lu of them noticed; %lu wrong\n",
	       t.tracks, t.refused, t.chunks, t.host, t.predicted, t.damaged, t.noticed,
	       trial.wrong);
	return trial_close();
}
