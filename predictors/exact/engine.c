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

static void *own(struct kvi_engine *engine, size_t bytes)
{
	size_t all;
	if (kvi_add(bytes, sizeof(struct memory_part), &all))
		return NULL;
	struct memory_part *p = kvi_malloc(engine->alloc, all);
	if (!p)
		return NULL;
	p->next = engine->memory;
	engine->memory = p;
	return p + 1;
}

static uint64_t file_row(const struct kvi_row_order *order, uint64_t row)
{
	if (!order->head_channels || order->interleaved)
		return row;
	uint64_t c = row % order->head_channels;
	if (c < order->rotary)
		c = c / 2 + (c & 1 ? order->rotary / 2 : 0);
	return row - row % order->head_channels + c;
}

struct building {
	struct kvi_engine *e;
	struct kvi_pool *pool;
	kvarc_error *error;
	uint32_t layer;
	const char *name;        /* name of the matrix, for messages */
	struct kvi_h128 chain;   /* hash of all matrices so far */
	kvarc_progress progress; /* NULL: none */
	void *progress_opaque;
	uint64_t done, total; /* weights */
};

static kvarc_ret not_finite(const struct building *building)
{
	return kvi_fail(building->error, KVARC_DATA,
	                "the model's %s (layer %u) has numbers that are not "
	                "finite: get the file again",
	                building->name, (unsigned)building->layer);
}

static uint64_t weights_of(const struct kvi_matrix *matrix)
{
	return matrix->data ? matrix->rows * matrix->columns : 0;
}

static kvarc_ret progress(struct building *building, const struct kvi_matrix *matrix)
{
	building->done += weights_of(matrix);
	if (!building->progress ||
	    !building->progress(building->progress_opaque, building->done, building->total))
		return KVARC_OK;
	return kvi_fail(building->error, KVARC_IO, "stopped while the model was opened");
}

/* Fails for FP8 of a quantised matrix, whose numbers would be quantised twice. */
static kvarc_ret not_floats(const struct building *building)
{
	return kvi_fail(building->error, KVARC_OPTIONS,
	                "the model's %s (layer %u) are quantised already: "
	                "fp8 needs floats, so use its f16 or bf16 file, or w8a8",
	                building->name, (unsigned)building->layer);
}

enum { ROWS_STEP = 16 }; /* a block of an operand */

/* Label of a matrix in the digest: without it, models with the same rows in other matrices would
 * share a digest. */
struct matrix_label {
	uint32_t number; /* number of the matrix in spec/arithmetic.md 9 */
	uint64_t rows, columns;
	struct kvi_number_groups groups; /* groups as the rows are hashed: none of fp32 */
};

enum { LABEL_BYTES = 16 };

/* H64 of n fp32 numbers and of `bytes` bytes behind them, with the numbers as files have them; they
 * are of no use afterwards. */
static uint64_t hash_numbers(float *x, size_t n, size_t bytes)
{
	kvi_to_little_32(x, n);
	return kvi_h64(x, n * sizeof *x + bytes);
}

/* chain := H128(chain || label || H128(row hashes)); hashes are of no use afterwards. */
static void hash_matrix(struct building *building, const struct matrix_label *label,
                        uint64_t *hashes)
{
	uint8_t chain[16], link[LABEL_BYTES + sizeof(struct kvi_h128)];
	kvi_store_h128(chain, building->chain);
	for (uint64_t i = 0; i < label->rows; i++)
		kvi_store64(&hashes[i], hashes[i]);
	kvi_store32(link, label->number);
	kvi_store32(link + 4, (uint32_t)label->rows);
	kvi_store32(link + 8, (uint32_t)label->columns);
	kvi_store32(link + 12, label->groups.group + (label->groups.minima ? 256u : 0));
	kvi_store_h128(link + LABEL_BYTES, kvi_h128(hashes, label->rows * sizeof *hashes));
	building->chain = kvi_h128_2(chain, sizeof chain, link, sizeof link);
}

/* The rows of a matrix by all workers. row: takes one with `row_bytes` of memory for itself and
 * sets its hash; false: a number is not finite. */
struct row_job {
	bool (*row)(const void *opaque, uint64_t row, float *memory, uint64_t *hash);
	const void *opaque;
	struct matrix_label label;
	size_t row_bytes;
	uint8_t *memory; /* memory of each worker */
	bool *bad;       /* flag of each worker */
	uint64_t *hashes;
};

static void some_rows(void *opaque, size_t i, unsigned worker)
{
	const struct row_job *j = opaque;
	float *memory = (float *)(void *)(j->memory + worker * j->row_bytes);
	size_t end = (i + 1) * ROWS_STEP;
	for (size_t r = i * ROWS_STEP; r < end && r < j->label.rows; r++)
		j->bad[worker] |= !j->row(j->opaque, r, memory, &j->hashes[r]);
}

/* Runs a job, whose buffers are made here, and adds its hashes to the chain. */
static kvarc_ret all_rows(struct building *building, struct row_job *job)
{
	const struct kvi_alloc *alloc = building->e->alloc;
	unsigned workers = kvi_pool_workers(building->pool);
	kvarc_ret ret = KVARC_OK;
	job->memory = kvi_array(alloc, workers, job->row_bytes);
	job->hashes = kvi_array(alloc, job->label.rows, sizeof *job->hashes);
	job->bad = kvi_calloc(alloc, workers, sizeof *job->bad);
	if (job->memory && job->hashes && job->bad) {
		kvi_parallel(building->pool, (job->label.rows + ROWS_STEP - 1) / ROWS_STEP,
		             some_rows, job);
		for (unsigned i = 0; i < workers && !ret; i++)
			if (job->bad[i])
				ret = not_finite(building);
		hash_matrix(building, &job->label, job->hashes);
	} else {
		ret = kvi_alloc_error(alloc);
	}
	kvi_free(alloc, job->memory);
	kvi_free(alloc, job->hashes);
	kvi_free(alloc, job->bad);
	return ret;
}

/* A matrix on its way to an operand. */
struct converting {
	const struct kvi_matrix *from;
	struct kvi_operand *to;
	struct kvi_row_order order;
	struct kvi_number_groups native;
	size_t groups; /* groups of a row of integers */
};

/* Converts a row; x: memory for its scales, minima and integers, or its floats. */
static bool convert_row(const void *opaque, uint64_t row, float *x, uint64_t *hash)
{
	const struct converting *c = opaque;
	size_t n = c->to->columns, groups = c->groups;
	/* consecutive, because the hash covers them in this order */
	float *scale = x, *minimum = x + groups;
	int8_t *q = (int8_t *)(minimum + (c->native.minima ? groups : 0));
	const int8_t *const planes[2] = { q, NULL };
	uint64_t from = file_row(&c->order, row);
	bool good;
	if (c->native.group) {
		good = kvi_matrix_integers(c->from, from, q, scale, minimum);
		kvi_operand_put(c->to, row, planes, scale, c->native.minima ? minimum : NULL);
		*hash = hash_numbers(x, (size_t)((float *)(void *)q - x), n);
	} else {
		good = kvi_matrix_row(c->from, from, x);
		if (c->to->e4m3)
			kvi_e4m3_put(c->to, row, x);
		else
			kvi_operand_put_floats(c->to, row, x);
		*hash = hash_numbers(x, n, 0);
	}
	return good;
}

static kvarc_ret make_operand(struct building *building, const struct kvi_engine_part *part,
                              const struct kvi_part_form *form)
{
	struct converting c = { .from = part->from,
		                .to = part->operand,
		                .order = part->order,
		                .native = kvi_number_groups(part->from->type) };
	if (form->e4m3 && c.native.group)
		return not_floats(building);
	if (form->group)
		c.groups = kvi_groups(part->from->columns, form->group);
	struct row_job j = { .row = convert_row,
		             .opaque = &c,
		             .label = { part->number, c.to->rows, c.to->columns, c.native },
		             .row_bytes = (c.to->columns + 64) * 2 * sizeof(float) };
	return all_rows(building, &j);
}

/* Gains and biases, in fp32; those of queries and keys in slots. */
static kvarc_ret make_vector(struct building *building, const struct kvi_engine_part *part)
{
	size_t n = part->from->columns;
	float *x = *part->vector;
	float *raw = kvi_array(building->e->alloc, n, sizeof *raw);
	if (!raw)
		return kvi_alloc_error(building->e->alloc);
	bool good = kvi_matrix_row(part->from, 0, raw);
	for (size_t i = 0; i < n; i++)
		x[i] = raw[file_row(&part->order, i)] + part->plus;
	memcpy(raw, x, n * sizeof *x);
	uint64_t hash = hash_numbers(raw, n, 0);
	kvi_free(building->e->alloc, raw);
	hash_matrix(building, &(struct matrix_label){ part->number, 1, n, { 0 } }, &hash);
	return good ? KVARC_OK : not_finite(building);
}

static kvarc_ret make_part(struct building *building, const struct kvi_engine_part *part)
{
	struct kvi_part_form f;
	building->name = part->name;
	if (!kvi_engine_part_form(building->e, part, &f))
		return KVARC_MEM;
	void *memory = own(building->e, f.bytes);
	if (!memory)
		return kvi_alloc_error(building->e->alloc);
	memset(memory, 0, f.bytes);
	kvi_engine_part_at(part, &f, memory);
	kvarc_ret ret = part->vector ? make_vector(building, part)
	                             : make_operand(building, part, &f);
	return ret ? ret : progress(building, part->from);
}

static kvarc_ret make_layer(struct building *building)
{
	struct kvi_engine_part parts[KVI_LAYER_PARTS];
	size_t n = kvi_engine_parts(building->e, building->layer, parts);
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; !ret && i < n; i++)
		ret = make_part(building, &parts[i]);
	return ret;
}

/* A row of a matrix that stays in its file. */
static bool hash_row(const void *opaque, uint64_t row, float *x, uint64_t *hash)
{
	const struct kvi_matrix *m = opaque;
	bool good = kvi_matrix_row(m, row, x);
	*hash = hash_numbers(x, m->columns, 0);
	return good;
}

static kvarc_ret hash_rows(struct building *building, uint32_t number,
                           const struct kvi_matrix *matrix)
{
	struct row_job j = { .row = hash_row,
		             .opaque = matrix,
		             .label = { number, matrix->rows, matrix->columns, { 0 } },
		             .row_bytes = matrix->columns * sizeof(float) };
	return all_rows(building, &j);
}

/* The numbers that shape the arithmetic. */
static kvarc_ret hash_shape(struct building *building)
{
	const struct kvi_model_file *m = building->e->file;
	const struct kvi_alloc *alloc = building->e->alloc;
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
	kvi_to_little_32(head + 32, 3);
	kvi_store32(head + 32 + sizeof numbers, m->n_ropes ? m->ropes[0].rotary : 0);
	for (size_t l = 0; l < m->n_layers; l++)
		kvi_store32(head + 64 + 4 * l, m->layers[l].window);
	building->chain = kvi_h128(head, bytes);
	kvi_free(alloc, head);
	return KVARC_OK;
}

/* Shape and embeddings. */
static kvarc_ret hash_head(struct building *building)
{
	const struct kvi_model_file *m = building->e->file;
	const struct kvi_matrix *rows[KVI_EMBEDDINGS] = { &m->embedding, &m->positions };
	kvarc_ret ret = hash_shape(building);
	building->name = "embedding";
	for (uint32_t i = 0; !ret && i < KVI_EMBEDDINGS; i++)
		if (rows[i]->data) {
			ret = hash_rows(building, i, rows[i]);
			ret = ret ? ret : progress(building, rows[i]);
		}
	return ret;
}

static uint64_t all_weights(struct kvi_engine *engine)
{
	struct kvi_engine_part parts[KVI_LAYER_PARTS];
	uint64_t n = weights_of(&engine->file->embedding) + weights_of(&engine->file->positions);
	for (uint32_t l = 0; l < engine->file->n_layers; l++)
		for (size_t i = kvi_engine_parts(engine, l, parts); i-- > 0;)
			n += weights_of(parts[i].from);
	return n;
}

/* Converts all parts from the files of the model. */
static kvarc_ret convert_all(struct kvi_engine *engine, const struct kvi_engine_options *options)
{
	struct building b = { .e = engine,
		              .pool = options->pool,
		              .error = options->error,
		              .progress = options->progress,
		              .progress_opaque = options->progress_opaque,
		              .total = all_weights(engine) };
	kvarc_ret ret = hash_head(&b);
	for (; !ret && b.layer < engine->file->n_layers; b.layer++)
		ret = make_layer(&b);
	engine->digest = b.chain;
	return ret;
}

/* Makes an engine whose layers have no parts yet; NULL: no memory. */
static struct kvi_engine *empty_engine(const struct kvi_engine_options *options)
{
	const struct kvi_model_file *m = options->file;
	struct kvi_engine *e = kvi_calloc(options->alloc, 1, sizeof *e);
	if (!e)
		return NULL;
	e->alloc = options->alloc;
	e->file = m;
	e->arithmetic = options->arithmetic;
	e->layers = kvi_calloc(options->alloc, m->n_layers, sizeof *e->layers);
	if (!e->layers)
		kvi_engine_close(&e);
	for (uint32_t i = 0; e && i < m->n_layers; i++) {
		const struct kvi_model_layer *l = &m->layers[i];
		e->layers[i].window = l->window;
		e->layers[i].rope = l->rope < m->n_ropes ? &m->ropes[l->rope] : NULL;
	}
	return e;
}

kvarc_ret kvi_engine_begin(struct kvi_engine **out, const struct kvi_engine_options *options)
{
	*out = NULL;
	kvarc_ret ret = kvi_engine_check(options->file, options->error);
	if (ret)
		return ret;
	*out = empty_engine(options);
	return *out ? KVARC_OK : kvi_fail_alloc(options->error, options->alloc);
}

kvarc_ret kvi_engine_convert(struct kvi_engine **engine, const struct kvi_engine_options *options)
{
	uint64_t mode = kvi_fp_exact();
	kvarc_ret ret = convert_all(*engine, options);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(options->error, options->alloc);
	if (ret)
		kvi_engine_close(engine);
	kvi_fp_restore(mode);
	return ret;
}

kvarc_ret kvi_engine_make(struct kvi_engine **engine, const struct kvi_engine_options *options)
{
	kvarc_ret ret = kvi_engine_begin(engine, options);
	return ret ? ret : kvi_engine_convert(engine, options);
}

kvarc_ret kvi_engine_open(struct kvi_engine **engine, const struct kvi_alloc *alloc,
                          const struct kvi_model_file *file,
                          const struct kvi_arithmetic *arithmetic, struct kvi_pool *pool,
                          kvarc_error *error)
{
	const struct kvi_engine_options o = { .alloc = alloc,
		                              .file = file,
		                              .arithmetic = *arithmetic,
		                              .pool = pool,
		                              .error = error };
	return kvi_engine_make(engine, &o);
}

static kvarc_ret make_head(struct building *building)
{
	struct kvi_engine *e = building->e;
	const struct kvi_model_file *m = e->file;
	uint8_t start[32] = { 0 };
	kvi_store_h128(start, e->digest);
	memcpy(start + 16, &m->logit_cap, sizeof m->logit_cap);
	kvi_to_little_32(start + 16, 1);
	building->chain = kvi_h128(start, sizeof start);
	struct kvi_engine_part parts[] = {
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
	uint32_t first = kvi_engine_part_number(m->n_layers, 0);
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; !ret && i < sizeof parts / sizeof *parts; i++) {
		parts[i].number = first + i;
		if (parts[i].from->data)
			ret = make_part(building, &parts[i]);
	}
	return ret;
}

kvarc_ret kvi_engine_add_head(struct kvi_engine *engine, struct kvi_pool *pool, kvarc_error *error)
{
	struct building b = {
		.e = engine, .pool = pool, .error = error, .layer = engine->file->n_layers
	};
	kvarc_ret ret = kvi_engine_check_head(engine->file, error);
	if (ret)
		return ret;
	uint64_t mode = kvi_fp_exact();
	ret = make_head(&b);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(error, engine->alloc);
	engine->head_digest = b.chain;
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
	e->cached = NULL;
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
	if (e->cached)
		munmap((void *)(uintptr_t)e->cached, e->cached_bytes);
	if (!e->base)
		kvi_free(e->alloc, e->layers);
	kvi_free(e->alloc, e);
	*engine = NULL;
}

const struct kvi_model_file *kvi_engine_model(const struct kvi_engine *engine)
{
	return engine->file;
}

struct kvi_h128 kvi_engine_digest(const struct kvi_engine *engine)
{
	return engine->digest;
}

struct kvi_h128 kvi_engine_head_digest(const struct kvi_engine *engine)
{
	return engine->head_digest;
}
