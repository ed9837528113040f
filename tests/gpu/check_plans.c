/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_plans.c - whole archives through libkvarc-device and the kernels of gpu/ on the host,
 * behind the stand-in of the driver, against the library's reader
 *
 * check_plans [-p PROFILE] [-m MODEL] [-d N] [-c NAME] [-r N] [-f CUFILE] FILE...: all tracks of
 * the files, as they are, and N times with a damaged chunk: it, and those that are predicted from
 * it, must be noticed and leave their elements alone, and no others. What the reader does not read
 * is left out. With -m the model is in the device, parts of tracks are checked, too, and kernels
 * must stay in their memory whatever the reader says of a track (they count as unread). With -r 1
 * the reader does not accept lossy chunks, and neither may staging. With -f that cuFile, or its
 * stand-in, reads payloads. With -c, and without damage, a line with this name says what the
 * kernels have counted.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/plan_state.h"
#include "device_trial.h"
#include "event_report.h"
#include "format/codec_ids.h"
#include "util/hash.h"

static struct {
	unsigned damage;
	const char *counts; /* their name; NULL: none */
	struct event_totals totals;
	unsigned long archives, engines, unread, chunks, linear, lossy, unpacked, features, host,
		refused;
	unsigned long damaged, followed;
	unsigned long long direct; /* bytes that cuFile read */
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

/* Whether the elements of a chunk are those of the library, or none where it is bad. */
static bool chunk_holds(const struct track_trial *x, const struct kvi_planned_chunk *c, bool good)
{
	const kvarc_tensor *s = &x->g->tensors[c->tensor];
	const size_t n = s->channels * kvarc_dtype_bytes(s->dtype);
	for (uint32_t i = c->from; i < c->to; i++)
		for (uint32_t h = 0; h < c->job.heads; h++) {
			const size_t at = elements_at(x, c, i, h);
			const uint8_t *e = x->elements[c->tensor] + at;
			for (size_t k = 0; k < n; k++)
				if (e[k] != (good ? x->raw[c->tensor][at + k] : UNTOUCHED))
					return false;
		}
	return true;
}

/* Decodes all layers, and compares statuses and elements; bad: of each chunk the status that it has
 * to have. */
static void decode_and_compare(struct track_trial *x, const uint8_t *bad, const char *what)
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
	for (uint32_t l = 0; l < info.n_layers; l++)
		if (kvarc_device_decode(x->p, info.layer0 + l, 1, NULL)) {
			wrong("%s: %s", what, trial.error.text);
			return;
		}
	for (size_t i = 0; i < x->p->chunks.n; i++) {
		const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, x->p->chunks,
		                                             i);
		/* damage may look like what is for the host to decode, or like the check of other
		 * predictions */
		const bool same = x->status[i] == bad[i] ||
		                  (bad[i] == KVI_GPU_DATA && (x->status[i] == KVI_GPU_HOST ||
		                                              (x->status[i] == KVI_GPU_PREDICTOR &&
		                                               c->job.codec == KVI_CODEC_MODEL)));
		if (!same)
			wrong("%s: chunk %zu of codec %u, tensor %u, token %llu: answer %u, not %u",
			      what, i, c->job.codec, c->tensor, (unsigned long long)c->t0,
			      x->status[i], bad[i]);
		else if (!chunk_holds(x, c, !bad[i]))
			wrong("%s: chunk %zu of codec %u, tensor %u: other elements", what, i,
			      c->job.codec, c->tensor);
	}
}

/* ----- damage ------------------------------------------------ */

static bool source_bad(const bool *bad, const uint32_t *sources, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (bad[sources[i]])
			return true;
	return false;
}

/* Whether the engine, in a closed loop, predicts chunk i of the models from chunks of lower layers
 * that have no elements. */
static bool engine_lost(const struct kvarc_device_plan *p, const bool *bad, size_t damaged,
                        size_t i)
{
	const struct kvi_planned_model *m = p->modelled.p;
	if (!p->engine.model || !p->engine.of.closed || !m[i].predicted || !m[i].coded)
		return false;
	for (size_t k = 0; k < p->modelled.n; k++)
		if (bad[k] && (m[k].coded || k == damaged) && m[k].predicted &&
		    m[k].layer < m[i].layer && m[k].t0 <= m[i].t0)
			return true;
	return false;
}

/* The statuses that follow from a chunk that is damaged. */
static void spread(const struct track_trial *x, size_t damaged, uint8_t *status)
{
	const struct kvarc_device_plan *p = x->p;
	const struct kvi_planned_chunk *c = p->chunks.p;
	bool *bad = calloc(p->modelled.n + 1, sizeof *bad);
	if (!bad)
		abort();
	memset(status, KVI_GPU_OK, p->chunks.n);
	const size_t first = c[damaged].modelled - (size_t)1; /* of the models; too large: none */
	if (c[damaged].modelled)
		bad[first] = true;
	for (size_t i = 0; i < p->modelled.n; i++) {
		const struct kvi_planned_model *m = KVI_LIST(struct kvi_planned_model, p->modelled,
		                                             i);
		if (m->features == KVI_GPU_FEATURES_ALL || m->transforms)
			bad[i] |= source_bad(bad, m->lower, m->model->n_lower) ||
			          source_bad(bad, m->same, m->model->n_same) ||
			          (m->model->scale_source && bad[m->scale]);
		bad[i] |= engine_lost(p, bad, first, i);
	}
	for (size_t i = 0; i < p->chunks.n; i++)
		if (c[i].modelled && bad[c[i].modelled - 1] &&
		    (kvi_plan_is_linear(c[i].job.codec) || c[i].job.codec == KVI_CODEC_KLT))
			status[i] = KVI_GPU_SOURCE;
	for (size_t i = 0; i < p->chunks.n; i++)
		t.followed += i != damaged && status[i];
	status[damaged] = KVI_GPU_DATA;
	free(bad);
}

/* A byte of a payload of n bytes, more often in the first kilobyte. Of lossy chunks one of the
 * header or of the last quarter, a stream: a generation, for one, changes no element. */
static uint32_t damaged_byte(const struct kvi_planned_chunk *c, uint32_t n)
{
	const bool front = below(2) && n > 1024;
	if (kvi_codec_lossy(c->job.codec))
		return front ? below(KVI_CHUNK_HEADER_BYTES) : n - 1 - below(n / 4);
	return below(front ? 1024 : n);
}

/* Flips one to three bits of a chunk in staging memory. */
static void damage(struct track_trial *x)
{
	const struct kvi_planned_chunk *all = x->p->chunks.p;
	const size_t i = below((uint32_t)x->p->chunks.n);
	const struct kvi_planned_chunk *c = &all[i];
	const uint32_t n = c->job.payload_bytes;
	uint8_t *payload = x->staging + c->job.payload;
	uint8_t *copy = malloc(n), *status = malloc(x->p->chunks.n);
	if (!copy || !status)
		abort();
	memcpy(copy, payload, n);
	for (uint32_t k = 1 + below(3); k-- > 0;)
		payload[damaged_byte(c, n)] ^= 1u << below(8);
	if (memcmp(payload, copy, n)) {
		t.damaged++;
		spread(x, i, status);
		decode_and_compare(x, status, "damaged");
	}
	memcpy(payload, copy, n);
	free(copy);
	free(status);
}

/* ----- whole archives ------------------------------------------------ */

/* What is made of the chunks of a plan. */
static void count_chunks(const struct kvarc_device_plan *p, const kvarc_device_plan_info *info)
{
	const struct kvi_planned_chunk *c = p->chunks.p;
	for (size_t i = 0; i < p->chunks.n; i++) {
		t.chunks++;
		t.host += c[i].host;
		t.linear += kvi_plan_is_linear(c[i].job.codec);
		t.lossy += kvi_codec_lossy(c[i].job.codec);
		t.unpacked += c[i].packed.at != 0;
		t.features += c[i].job.linear && !kvi_codec_predicts(c[i].job.codec);
		t.totals.elements += (uint64_t)c[i].job.tokens * c[i].job.heads *
		                     c[i].job.head_channels;
	}
	t.totals.chunks += info->chunks;
	t.totals.raw_bytes += info->raw_bytes;
	t.totals.payload_bytes += info->file_bytes;
}

static void check_plan(struct track_trial *x)
{
	kvarc_device_plan_info info;
	if (kvarc_device_plan_get_info(x->p, &info))
		abort();
	x->staging = memory(info.staging_bytes);
	x->work = memory(info.work_bytes);
	x->status = memory(info.status_bytes);
	uint8_t *status = calloc(1, x->p->chunks.n + 1);
	if (!status)
		abort();
	if (kvarc_device_stage(x->p, address(x->staging), NULL) ||
	    kvarc_device_place(x->p, x->views, address(x->work), address(x->status), NULL)) {
		wrong("staging: %s", trial.error.text);
	} else {
		if (kvarc_device_plan_get_info(x->p, &info))
			abort();
		t.direct += info.direct_bytes;
		count_chunks(x->p, &info);
		decode_and_compare(x, status, "whole");
		for (unsigned i = 0; i < t.damage && x->p->chunks.n; i++)
			damage(x);
	}
	free(status);
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
	free(x->staging);
}

/* A track that the library may not read: kernels are launched as far as planning and staging take
 * it, and must stay in their memory. Elements go nowhere. */
static void check_unread(struct track_trial *x, const kvarc_range *range)
{
	kvarc_device_plan_info info;
	if (kvarc_device_plan_read(&x->p, trial.d, x->r, range))
		return;
	if (kvarc_device_plan_get_info(x->p, &info))
		abort();
	x->staging = memory(info.staging_bytes);
	x->work = memory(info.work_bytes);
	x->status = memory(info.status_bytes);
	if (!kvarc_device_stage(x->p, address(x->staging), NULL) &&
	    !kvarc_device_place(x->p, x->views, address(x->work), address(x->status), NULL)) {
		if (kvarc_device_decode(x->p, info.layer0, UINT32_MAX, NULL))
			wrong("kernels: %s", trial.error.text);
		t.unread += x->p->engine.model != NULL;
	}
	free(x->staging);
	free(x->work);
	free(x->status);
	kvarc_device_plan_close(&x->p);
}

/* Part of a track. The engine takes it only where it begins with the first token and layer. */
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
		if (x->p->engine.model && (range->t0 || range->layer0))
			wrong("a part that the engine cannot take");
		t.engines += x->p->engine.model != NULL;
		check_plan(x);
	}
	kvarc_device_plan_close(&x->p);
	for (size_t i = 0; i < n; i++)
		if (x->views[i].base) {
			x->views[i].base -= range->t0 * x->views[i].token_stride;
			x->views[i].bytes += range->t0 * x->views[i].token_stride;
		}
}

/* Parts of a track that a model predicts. */
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
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
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
	if (x.tokens && trial.predictor)
		check_unread(&x, &range);
	if (x.tokens && (!accepts || read_track(&x) == KVARC_OK)) {
		if (kvarc_device_plan_read(&x.p, trial.d, r, &range))
			wrong("plan: %s", trial.error.text);
		else if (!accepts)
			check_refused(&x);
		else
			check_plan(&x);
		t.engines += x.p && x.p->engine.model;
		kvarc_device_plan_close(&x.p);
		if (trial.predictor)
			check_parts(&x);
		t.archives++;
	}
	for (size_t i = 0; i < n; i++) {
		free(x.raw[i]);
		free(x.elements[i]);
	}
	free(x.raw);
	free(x.elements);
	free(x.views);
}

/* Prints what the kernels have counted, in the stand-in. */
static void report_events(void)
{
	void *library = dlopen(DRIVER, RTLD_NOW);
	void *p = library ? dlsym(library, "stand_in_events") : NULL;
	void *(*events)(void);
	if (!p)
		abort();
	memcpy(&events, &p, sizeof p);
	event_report(t.counts, "decode", &t.totals, events());
	dlclose(library);
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
		else if (!strcmp(argv[i], "-c"))
			t.counts = argv[i + 1];
		else if (!strcmp(argv[i], "-f"))
			trial.cufile = argv[i + 1];
		else if (!strcmp(argv[i], "-r"))
			trial.reader_flags = atoi(argv[i + 1]) ? 0 : KVARC_READ_ALLOW_LOSSY;
		else
			t.damage = (unsigned)atoi(argv[i + 1]);
	trial_open(profile, 0);
	if (model)
		trial_open_model(model);
	trial_files(argv + i, (size_t)(argc - i), check_track);
	printf("%lu tracks, %lu refused, %lu plans with a model in the device, %lu unread; "
	       "%lu chunks, %lu of them linear, %lu lossy, %lu with exact tokens unpacked, "
	       "features of %lu others, %lu by the host; "
	       "%lu damaged, %lu predicted from them; %llu bytes by cuFile; %lu wrong\n",
	       t.archives, t.refused, t.engines, t.unread, t.chunks, t.linear, t.lossy, t.unpacked,
	       t.features, t.host, t.damaged, t.followed, t.direct, trial.wrong);
	if (t.counts)
		report_events();
	return trial_close();
}
