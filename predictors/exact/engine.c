/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c - a model's weights as operands (spec/arithmetic.md 2, 7, 9, 11) */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "util/hash.h"
#include "exact/float8.h"
#include "util/fpmode.h"
#include "exact/head.h"
#include "tensor_parts.h"
#include "util/error.h"
#include "util/bytes.h"
#include "util/ckd.h"

/* Parts of an engine's memory form a chain. */
struct memory_part {
	struct memory_part *next;
	uint8_t to_align[64 - sizeof(struct memory_part *)];
};

static void *own(struct kvi_engine *e, size_t bytes)
{
	size_t all;
	if (kvi_add(bytes, sizeof(struct memory_part), &all))
		return NULL;
	struct memory_part *p = kvi_malloc(e->alloc, all);
	if (!p)
		return NULL;
	p->next = e->memory;
	e->memory = p;
	return p + 1;
}

static uint64_t file_row(const struct kvi_row_order *o, uint64_t row)
{
	if (!o->head_channels || o->interleaved)
		return row;
	uint64_t c = row % o->head_channels;
	if (c < o->rotary)
		c = c / 2 + (c & 1 ? o->rotary / 2 : 0);
	return row - row % o->head_channels + c;
}

struct building {
	struct kvi_engine *e;
	struct kvi_pool *pool;
	kvarc_error *error;
	uint32_t layer;
	const char *name;        /* of the matrix, for messages */
	struct kvi_h128 chain;   /* of all matrices so far */
	kvarc_progress progress; /* NULL: none */
	void *progress_opaque;
	uint64_t done, total; /* weights */
};

static kvarc_ret not_finite(const struct building *b)
{
	return kvi_fail(b->error, KVARC_DATA,
	                "the model's %s (layer %u) has numbers that are not "
	                "finite: get the file again",
	                b->name, (unsigned)b->layer);
}

static uint64_t weights_of(const struct kvi_matrix *m)
{
	return m->data ? m->rows * m->columns : 0;
}

static kvarc_ret progress(struct building *b, const struct kvi_matrix *m)
{
	b->done += weights_of(m);
	if (!b->progress || !b->progress(b->progress_opaque, b->done, b->total))
		return KVARC_OK;
	return kvi_fail(b->error, KVARC_IO, "stopped while the model was opened");
}

/* Their blocks have scales of their own: FP8 of them would be a copy of a copy. */
static kvarc_ret not_floats(const struct building *b)
{
	return kvi_fail(b->error, KVARC_OPTIONS,
	                "the model's %s (layer %u) are quantised already: "
	                "fp8 needs floats, so use its f16 or bf16 file, or w8a8",
	                b->name, (unsigned)b->layer);
}

enum { ROWS_STEP = 16 }; /* one block of an operand */

/* chain := H128(chain || H128(row hashes)) */
static void hash_matrix(struct building *b, const uint64_t *hashes, size_t n)
{
	struct kvi_h128 h = kvi_h128(hashes, n * sizeof *hashes);
	b->chain = kvi_h128_2(&b->chain, sizeof b->chain, &h, sizeof h);
}

/* The rows of a matrix by all workers. row: takes one with `row_bytes` of memory for itself and
 * sets its hash; false: a number is not finite. */
struct row_job {
	bool (*row)(const void *opaque, uint64_t row, float *memory, uint64_t *hash);
	const void *opaque;
	size_t rows, row_bytes;
	uint8_t *memory; /* by worker */
	bool *bad;       /* by worker */
	uint64_t *hashes;
};

static void some_rows(void *opaque, size_t i, unsigned worker)
{
	const struct row_job *j = opaque;
	float *memory = (float *)(void *)(j->memory + worker * j->row_bytes);
	size_t end = (i + 1) * ROWS_STEP;
	for (size_t r = i * ROWS_STEP; r < end && r < j->rows; r++)
		j->bad[worker] |= !j->row(j->opaque, r, memory, &j->hashes[r]);
}

/* Runs a job, whose buffers are made here, and adds its hashes to the chain. */
static kvarc_ret all_rows(struct building *b, struct row_job *j)
{
	const struct kvi_alloc *alloc = b->e->alloc;
	unsigned workers = kvi_pool_workers(b->pool);
	kvarc_ret ret = KVARC_OK;
	j->memory = kvi_array(alloc, workers, j->row_bytes);
	j->hashes = kvi_array(alloc, j->rows, sizeof *j->hashes);
	j->bad = kvi_calloc(alloc, workers, sizeof *j->bad);
	if (j->memory && j->hashes && j->bad) {
		kvi_parallel(b->pool, (j->rows + ROWS_STEP - 1) / ROWS_STEP, some_rows, j);
		for (unsigned i = 0; i < workers && !ret; i++)
			if (j->bad[i])
				ret = not_finite(b);
		hash_matrix(b, j->hashes, j->rows);
	} else {
		ret = kvi_alloc_error(alloc);
	}
	kvi_free(alloc, j->memory);
	kvi_free(alloc, j->hashes);
	kvi_free(alloc, j->bad);
	return ret;
}

/* A matrix on its way to an operand. */
struct converting {
	const struct kvi_matrix *from;
	struct kvi_operand *to;
	struct kvi_row_order order;
	struct kvi_number_groups native;
	size_t groups; /* of a row of integers */
};

/* x: a row's integers, scales, minima, floats */
static bool convert_row(const void *opaque, uint64_t row, float *x, uint64_t *hash)
{
	const struct converting *c = opaque;
	size_t n = c->to->columns, groups = c->groups;
	/* one after the other: that is what is hashed */
	float *scale = x, *minimum = x + groups;
	int8_t *q = (int8_t *)(minimum + (c->native.minima ? groups : 0));
	const int8_t *const planes[2] = { q, NULL };
	uint64_t from = file_row(&c->order, row);
	bool good;
	if (c->native.group) {
		good = kvi_matrix_integers(c->from, from, q, scale, minimum);
		kvi_operand_put(c->to, row, planes, scale, c->native.minima ? minimum : NULL);
		*hash = kvi_h64(x, (size_t)(q - (int8_t *)x) + n);
	} else {
		good = kvi_matrix_row(c->from, from, x);
		if (c->to->e4m3)
			kvi_e4m3_put(c->to, row, x);
		else
			kvi_operand_put_floats(c->to, row, x);
		*hash = kvi_h64(x, n * sizeof *x);
	}
	return good;
}

static kvarc_ret make_operand(struct building *b, const struct kvi_engine_part *p,
                              const struct kvi_part_form *f)
{
	struct converting c = { .from = p->from,
		                .to = p->operand,
		                .order = p->order,
		                .native = kvi_number_groups(p->from->type) };
	if (f->e4m3 && c.native.group)
		return not_floats(b);
	if (f->group)
		c.groups = kvi_groups(p->from->columns, f->group);
	struct row_job j = { .row = convert_row,
		             .opaque = &c,
		             .rows = c.to->rows,
		             .row_bytes = (c.to->columns + 64) * 2 * sizeof(float) };
	return all_rows(b, &j);
}

/* Gains and biases, in fp32; those of queries and keys in slots. */
static kvarc_ret make_vector(struct building *b, const struct kvi_engine_part *p)
{
	size_t n = p->from->columns;
	float *x = *p->vector;
	float *raw = kvi_array(b->e->alloc, n, sizeof *raw);
	if (!raw)
		return kvi_alloc_error(b->e->alloc);
	bool good = kvi_matrix_row(p->from, 0, raw);
	for (size_t i = 0; i < n; i++)
		x[i] = raw[file_row(&p->order, i)] + p->plus;
	kvi_free(b->e->alloc, raw);
	uint64_t hash = kvi_h64(x, n * sizeof *x);
	hash_matrix(b, &hash, 1);
	return good ? KVARC_OK : not_finite(b);
}

static kvarc_ret make_part(struct building *b, const struct kvi_engine_part *p)
{
	struct kvi_part_form f;
	b->name = p->name;
	if (!kvi_engine_part_form(b->e, p, &f))
		return KVARC_MEM;
	void *memory = own(b->e, f.bytes);
	if (!memory)
		return kvi_alloc_error(b->e->alloc);
	memset(memory, 0, f.bytes);
	kvi_engine_part_at(p, &f, memory);
	kvarc_ret ret = p->vector ? make_vector(b, p) : make_operand(b, p, &f);
	return ret ? ret : progress(b, p->from);
}

static kvarc_ret make_layer(struct building *b)
{
	struct kvi_engine_part parts[KVI_LAYER_PARTS];
	size_t n = kvi_engine_parts(b->e, b->layer, parts);
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; !ret && i < n; i++)
		ret = make_part(b, &parts[i]);
	return ret;
}

/* A row of a matrix that stays in its file. */
static bool hash_row(const void *opaque, uint64_t row, float *x, uint64_t *hash)
{
	const struct kvi_matrix *m = opaque;
	bool good = kvi_matrix_row(m, row, x);
	*hash = kvi_h64(x, m->columns * sizeof *x);
	return good;
}

static kvarc_ret hash_rows(struct building *b, const struct kvi_matrix *m)
{
	struct row_job j = { .row = hash_row,
		             .opaque = m,
		             .rows = m->rows,
		             .row_bytes = m->columns * sizeof(float) };
	return all_rows(b, &j);
}

/* The numbers that shape the arithmetic. */
static kvarc_ret hash_shape(struct building *b)
{
	const struct kvi_model_file *m = b->e->file;
	const struct kvi_alloc *alloc = b->e->alloc;
	float numbers[3] = { m->norm_epsilon, m->attention_scale, m->embedding_scale };
	uint32_t shape[8] = { m->n_layers,      m->width,
		              m->heads,         m->kv_heads,
		              m->head_channels, m->ffn,
		              m->vocabulary,    (uint32_t)m->layer_norm << 8 | m->activation };
	size_t bytes;
	if (kvi_mul(m->n_layers, 4, &bytes) || kvi_add(bytes, 64, &bytes))
		return KVARC_MEM;
	uint8_t *head = kvi_calloc(alloc, bytes, 1);
	if (!head)
		return kvi_alloc_error(alloc);
	for (size_t i = 0; i < 8; i++)
		kvi_store32(head + 4 * i, shape[i]);
	memcpy(head + 32, numbers, sizeof numbers);
	for (size_t l = 0; l < m->n_layers; l++)
		kvi_store32(head + 64 + 4 * l, m->layers[l].window);
	b->chain = kvi_h128(head, bytes);
	kvi_free(alloc, head);
	return KVARC_OK;
}

/* Shape and embeddings. */
static kvarc_ret hash_head(struct building *b)
{
	const struct kvi_model_file *m = b->e->file;
	const struct kvi_matrix *rows[2] = { &m->embedding, &m->positions };
	kvarc_ret ret = hash_shape(b);
	b->name = "embedding";
	for (size_t i = 0; !ret && i < 2; i++)
		if (rows[i]->data) {
			ret = hash_rows(b, rows[i]);
			ret = ret ? ret : progress(b, rows[i]);
		}
	return ret;
}

static uint64_t all_weights(struct kvi_engine *e)
{
	struct kvi_engine_part parts[KVI_LAYER_PARTS];
	uint64_t n = weights_of(&e->file->embedding) + weights_of(&e->file->positions);
	for (uint32_t l = 0; l < e->file->n_layers; l++)
		for (size_t i = kvi_engine_parts(e, l, parts); i-- > 0;)
			n += weights_of(parts[i].from);
	return n;
}

/* From the files of the model. */
static kvarc_ret convert_all(struct kvi_engine *e, const struct kvi_engine_options *o)
{
	struct building b = { .e = e,
		              .pool = o->pool,
		              .error = o->error,
		              .progress = o->progress,
		              .progress_opaque = o->progress_opaque,
		              .total = all_weights(e) };
	kvarc_ret ret = hash_head(&b);
	for (; !ret && b.layer < e->file->n_layers; b.layer++)
		ret = make_layer(&b);
	e->digest = b.chain;
	return ret;
}

/* With layers that have no parts yet. */
static struct kvi_engine *empty_engine(const struct kvi_engine_options *o)
{
	const struct kvi_model_file *m = o->file;
	struct kvi_engine *e = kvi_calloc(o->alloc, 1, sizeof *e);
	if (!e)
		return NULL;
	e->alloc = o->alloc;
	e->file = m;
	e->arithmetic = o->arithmetic;
	e->layers = kvi_calloc(o->alloc, m->n_layers, sizeof *e->layers);
	if (!e->layers)
		kvi_engine_close(&e);
	for (uint32_t i = 0; e && i < m->n_layers; i++) {
		const struct kvi_model_layer *l = &m->layers[i];
		e->layers[i].window = l->window;
		e->layers[i].rope = l->rope < m->n_ropes ? &m->ropes[l->rope] : NULL;
	}
	return e;
}

kvarc_ret kvi_engine_begin(struct kvi_engine **out, const struct kvi_engine_options *o)
{
	*out = NULL;
	kvarc_ret ret = kvi_engine_check(o->file, o->error);
	if (ret)
		return ret;
	*out = empty_engine(o);
	return *out ? KVARC_OK : kvi_fail_alloc(o->error, o->alloc);
}

kvarc_ret kvi_engine_convert(struct kvi_engine **e, const struct kvi_engine_options *o)
{
	uint64_t mode = kvi_fp_exact();
	kvarc_ret ret = convert_all(*e, o);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(o->error, o->alloc);
	if (ret)
		kvi_engine_close(e);
	kvi_fp_restore(mode);
	return ret;
}

kvarc_ret kvi_engine_make(struct kvi_engine **e, const struct kvi_engine_options *o)
{
	kvarc_ret ret = kvi_engine_begin(e, o);
	return ret ? ret : kvi_engine_convert(e, o);
}

kvarc_ret kvi_engine_open(struct kvi_engine **e, const struct kvi_alloc *alloc,
                          const struct kvi_model_file *file,
                          const struct kvi_arithmetic *arithmetic, struct kvi_pool *pool,
                          kvarc_error *error)
{
	const struct kvi_engine_options o = { .alloc = alloc,
		                              .file = file,
		                              .arithmetic = *arithmetic,
		                              .pool = pool,
		                              .error = error };
	return kvi_engine_make(e, &o);
}

static kvarc_ret make_head(struct building *b)
{
	struct kvi_engine *e = b->e;
	const struct kvi_model_file *m = e->file;
	uint8_t start[32] = { 0 };
	kvi_store_h128(start, e->digest);
	memcpy(start + 16, &m->logit_cap, sizeof m->logit_cap);
	b->chain = kvi_h128(start, sizeof start);
	const struct kvi_engine_part parts[] = {
		{ .name = "output norm",
		  .from = &m->output_norm,
		  .vector = &e->output_norm,
		  .plus = m->norm_plus_one ? 1 : 0 },
		{ .name = "output norm bias",
		  .from = &m->output_norm_bias,
		  .vector = &e->output_norm_bias },
		{ .name = "output",
		  .from = &m->output,
		  .kind = KVI_MATRIX_HEAD,
		  .operand = &e->output },
	};
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; !ret && i < sizeof parts / sizeof *parts; i++)
		if (parts[i].from->data)
			ret = make_part(b, &parts[i]);
	return ret;
}

kvarc_ret kvi_engine_add_head(struct kvi_engine *e, struct kvi_pool *pool, kvarc_error *error)
{
	struct building b = { .e = e, .pool = pool, .error = error, .layer = e->file->n_layers };
	kvarc_ret ret = kvi_engine_check_head(e->file, error);
	if (ret)
		return ret;
	uint64_t mode = kvi_fp_exact();
	ret = make_head(&b);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(error, e->alloc);
	e->head_digest = b.chain;
	kvi_fp_restore(mode);
	return ret;
}

kvarc_ret kvi_engine_with_head(struct kvi_engine **out, const struct kvi_engine *base,
                               struct kvi_pool *pool, kvarc_error *error)
{
	struct kvi_engine *e = kvi_malloc(base->alloc, sizeof *e);
	*out = e;
	if (!e)
		return kvi_fail_alloc(error, base->alloc);
	*e = *base;
	e->base = base;
	e->memory = NULL;
	e->kept = NULL;
	kvarc_ret ret = kvi_engine_add_head(e, pool, error);
	if (ret)
		kvi_engine_close(out);
	return ret;
}

void kvi_engine_close(struct kvi_engine **engine)
{
	struct kvi_engine *e = *engine;
	if (!e)
		return;
	for (struct memory_part *p = e->memory, *next; p; p = next) {
		next = p->next;
		kvi_free(e->alloc, p);
	}
	if (e->kept)
		munmap((void *)(uintptr_t)e->kept, e->kept_bytes);
	if (!e->base)
		kvi_free(e->alloc, e->layers);
	kvi_free(e->alloc, e);
	*engine = NULL;
}

const struct kvi_model_file *kvi_engine_model(const struct kvi_engine *e)
{
	return e->file;
}

struct kvi_h128 kvi_engine_digest(const struct kvi_engine *e)
{
	return e->digest;
}

struct kvi_h128 kvi_engine_head_digest(const struct kvi_engine *e)
{
	return e->head_digest;
}
