/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_trial.c - a sequence through an engine by the kernels of gpu/ on the host */
#include "config.h"

#include "engine_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exact/engine_internal.h"
#include "exact_host_run.h"
#include "exact_run.h"
#include "numeric/rope_angles.h"

enum { TRIAL_ROPES = 2, TRIAL_TABLES = 4 };

struct engine_trial {
	struct kvi_gpu_exact_model m;
	struct kvi_gpu_exact_run run;
	size_t layer;
	void *state, **layers, *turns[TRIAL_ROPES], *tables[TRIAL_TABLES];
};

/* Memory, aligned as kernels want it, of bytes that are no numbers. */
static void *memory(size_t bytes)
{
	void *p = NULL;
	if (posix_memalign(&p, 64, bytes ? bytes : 1)) {
		fputs("check_engine: out of memory\n", stderr);
		exit(2);
	}
	return memset(p, 0xff, bytes);
}

static uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* All rows of a matrix in fp32; NULL: it has none. */
static float *table_of(const struct kvi_matrix *m)
{
	float *x = m->data ? memory(m->rows * m->columns * sizeof(float)) : NULL;
	for (uint64_t r = 0; x && r < m->rows; r++)
		if (!kvi_matrix_row(m, r, x + r * m->columns)) {
			fputs("check_engine: a row of the embedding is not finite\n", stderr);
			exit(2);
		}
	return x;
}

static void *copy(const void *p, size_t bytes)
{
	return memcpy(memory(bytes), p, bytes);
}

static kvarc_ret run_step(void *opaque, const struct kvi_gpu_exact_step *s)
{
	(void)opaque;
	switch (s->kind) {
	case KVI_GPU_EXACT_QUANTISE:
		kvi_gpu_host_quantise(&s->job.quantise);
		break;
	case KVI_GPU_EXACT_VALUES:
		kvi_gpu_host_values(&s->job.values);
		break;
	case KVI_GPU_EXACT_PRODUCT:
		kvi_gpu_host_product(&s->job.product);
		break;
	case KVI_GPU_EXACT_EMBED:
		kvi_gpu_host_embed(&s->job.embed);
		break;
	case KVI_GPU_EXACT_NORM:
		kvi_gpu_host_norm(&s->job.norm);
		break;
	case KVI_GPU_EXACT_ROTATE:
		kvi_gpu_host_rotate(&s->job.rotate);
		break;
	case KVI_GPU_EXACT_ROWS:
		kvi_gpu_host_rows(&s->job.rows);
		break;
	case KVI_GPU_EXACT_ATTENTION:
		kvi_gpu_host_attention(&s->job.attention);
		break;
	}
	return KVARC_OK;
}

static void open_model(struct engine_trial *t, const struct kvi_engine *e)
{
	const struct kvi_model_file *m = kvi_engine_model(e);
	if (!kvi_gpu_exact_model_of(&t->m, e)) {
		fputs("check_engine: a model that kernels do not take\n", stderr);
		exit(2);
	}
	t->m.embedding = address(t->tables[0] = table_of(&m->embedding));
	t->m.positions = address(t->tables[1] = table_of(&m->positions));
	t->m.layers = memory(m->n_layers * sizeof *t->m.layers);
	t->layers = memory(m->n_layers * sizeof *t->layers);
	for (size_t l = 0; l < m->n_layers; l++) {
		t->layers[l] = memory(kvi_gpu_exact_layer_bytes(e, l));
		kvi_gpu_exact_layer_fill(&t->m.layers[l], e, l, t->layers[l],
		                         address(t->layers[l]));
	}
}

static void open_turns(struct engine_trial *t, const struct kvi_model_file *m,
                       const int32_t *positions, size_t n)
{
	struct kvi_rotations turns;
	for (unsigned i = 0; i < m->n_ropes; i++) {
		const struct kvi_model_rope *r = &m->ropes[i];
		const kvarc_rope rope = { .rotary = r->rotary, .freq = r->freq };
		t->turns[i] = memory(kvi_rotations_bytes(r->rotary / 2, n));
		kvi_rotations_make(&turns, t->turns[i], &rope, positions, n);
		t->run.turns[i] = address(turns.turn);
		t->run.capacity = (uint32_t)turns.tokens_capacity;
	}
}

struct engine_trial *engine_trial_open(const struct kvi_engine *e, const int32_t *ids,
                                       const int32_t *positions, size_t n)
{
	struct engine_trial *t = calloc(1, sizeof *t);
	if (!t)
		abort();
	open_model(t, e);
	open_turns(t, kvi_engine_model(e), positions, n);
	t->run.m = &t->m;
	t->run.tokens = (uint32_t)n;
	t->run.ids = address(t->tables[2] = copy(ids, n * sizeof *ids));
	t->run.positions = address(t->tables[3] = copy(positions, n * sizeof *positions));
	t->run.run_step = run_step;
	t->state = memory(kvi_gpu_exact_place(&t->run, 0));
	kvi_gpu_exact_place(&t->run, address(t->state));
	kvi_gpu_exact_begin(&t->run);
	return t;
}

void engine_trial_close(struct engine_trial *t)
{
	for (size_t l = 0; l < t->m.n_layers; l++)
		free(t->layers[l]);
	for (size_t i = 0; i < TRIAL_TABLES; i++)
		free(t->tables[i]);
	for (size_t i = 0; i < TRIAL_ROPES; i++)
		free(t->turns[i]);
	free(t->m.layers);
	free(t->layers);
	free(t->state);
	free(t);
}

static const struct kvi_gpu_exact_layer *layer_of(const struct engine_trial *t)
{
	return &t->m.layers[t->layer];
}

static float *rows_at(uint64_t x)
{
	return (float *)(uintptr_t)x;
}

struct kvi_predicted engine_trial_predict(struct engine_trial *t)
{
	kvi_gpu_exact_predict(&t->run, layer_of(t));
	return (struct kvi_predicted){ rows_at(t->run.k), rows_at(t->run.v), t->run.kv };
}

struct kvi_hidden engine_trial_hidden(struct engine_trial *t)
{
	return (struct kvi_hidden){ rows_at(t->run.h), rows_at(t->run.root), t->run.width };
}

void engine_trial_rotate(struct engine_trial *t, float *k, size_t stride)
{
	kvi_gpu_exact_turn(&t->run, layer_of(t), address(k), (uint32_t)stride);
}

void engine_trial_advance(struct engine_trial *t, const float *k, const float *v, size_t stride,
                          bool corrected)
{
	kvi_gpu_exact_advance(&t->run, layer_of(t), address(k), address(v), (uint32_t)stride,
	                      corrected);
	t->layer++;
}
