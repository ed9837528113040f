/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c - a model's weights as operands (spec/arithmetic.md 2, 7, 9, 11) */
#include <stdio.h>
#include <string.h>

#include "container/frame.h"
#include "exact/engine_internal.h"
#include "exact/float8.h"
#include "exact/fpmode.h"
#include "exact/head.h"
#include "stream/error.h"
#include "util/bytes.h"
#include "util/ckd.h"

/* Parts of an engine's memory form a chain. */
struct part {
	struct part *next;
	uint8_t to_align[64 - sizeof(struct part *)];
};

static void *own(struct kvi_engine *e, size_t bytes)
{
	size_t all;
	if (kvi_add(bytes, sizeof(struct part), &all))
		return NULL;
	struct part *p = kvi_malloc(e->alloc, all);
	if (!p)
		return NULL;
	p->next = e->memory;
	e->memory = p;
	return p + 1;
}

/* How the rows of a matrix of queries or keys are found: by slots of heads. */
struct order {
	uint32_t head_channels; /* 0: as they are */
	uint32_t rotary;
	bool interleaved;
};

static uint64_t file_row(const struct order *o, uint64_t row)
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
	const char *name;      /* of the matrix, for messages */
	struct kvi_h128 chain; /* of all matrices so far */
};

static kvarc_ret not_finite(const struct building *b)
{
	return kvi_fail(b->error, KVARC_DATA, KVARC_UNKNOWN, KVARC_UNKNOWN,
	                "the model's %s (layer %u) has numbers that are not "
	                "finite: get the file again", b->name,
	                (unsigned)b->layer);
}

/* Their blocks have scales of their own: FP8 of them would be a copy of a copy. */
static kvarc_ret not_floats(const struct building *b)
{
	return kvi_fail(b->error, KVARC_OPTIONS, KVARC_UNKNOWN, KVARC_UNKNOWN,
	                "the model's %s (layer %u) are quantised already: fp8 is "
	                "made of floats, so take its f16 or bf16 file, or w8a8",
	                b->name, (unsigned)b->layer);
}

/* A matrix on its way to an operand. */
struct converting {
	const struct kvi_matrix *from;
	struct kvi_operand *to;
	struct order order;
	struct kvi_number_groups native;
	size_t groups;        /* of a row of integers */
	uint8_t *memory;      /* a row's integers, scales, minima, floats; by worker */
	size_t row_bytes;
	uint64_t *hashes;     /* of rows */
	bool *bad;            /* by worker */
};

enum { ROWS_STEP = 16 }; /* one block of an operand */

static void convert_row(const struct converting *c, uint64_t row,
                        unsigned worker)
{
	size_t n = c->to->columns, groups = c->groups;
	float *x = (float *)(void *)(c->memory + worker * c->row_bytes);
	/* one after the other: that is what is hashed */
	float *scale = x, *minimum = x + groups;
	int8_t *q = (int8_t *)(minimum + (c->native.minima ? groups : 0));
	const int8_t *const planes[2] = { q, NULL };
	uint64_t from = file_row(&c->order, row);
	if (c->native.group) {
		c->bad[worker] |= !kvi_matrix_integers(c->from, from, q, scale,
		                                       minimum);
		kvi_operand_put(c->to, row, planes, scale,
		                c->native.minima ? minimum : NULL);
		c->hashes[row] = kvi_h64(x, (size_t)(q - (int8_t *)x) + n);
	} else {
		c->bad[worker] |= !kvi_matrix_row(c->from, from, x);
		if (c->to->e4m3)
			kvi_e4m3_put(c->to, row, x);
		else
			kvi_operand_put_floats(c->to, row, x);
		c->hashes[row] = kvi_h64(x, n * sizeof *x);
	}
}

static void convert_some(void *opaque, size_t i, unsigned worker)
{
	const struct converting *c = opaque;
	size_t end = (i + 1) * ROWS_STEP;
	for (size_t r = i * ROWS_STEP; r < end && r < c->to->rows; r++)
		convert_row(c, r, worker);
}

/* chain := H128(chain || H128(row hashes)) */
static void hash_matrix(struct building *b, const uint64_t *hashes, size_t n)
{
	struct kvi_h128 h = kvi_h128(hashes, n * sizeof *hashes);
	b->chain = kvi_h128_2(&b->chain, sizeof b->chain, &h, sizeof h);
}

static kvarc_ret convert(struct building *b, struct converting *c)
{
	const struct kvi_alloc *alloc = b->e->alloc;
	unsigned workers = kvi_pool_workers(b->pool);
	size_t n = c->to->columns;
	/* Room for a row of floats, or of integers with scales and minima. */
	c->row_bytes = (n + 64) * 2 * sizeof(float);
	c->memory = kvi_array(alloc, workers, c->row_bytes);
	c->hashes = kvi_array(alloc, c->to->rows, sizeof *c->hashes);
	c->bad = kvi_calloc(alloc, workers, sizeof *c->bad);
	kvarc_ret ret = KVARC_OK;
	if (!c->memory || !c->hashes || !c->bad) {
		ret = kvi_alloc_error(alloc);
	} else {
		kvi_parallel(b->pool, (c->to->rows + ROWS_STEP - 1) / ROWS_STEP,
		             convert_some, c);
		for (unsigned i = 0; i < workers && !ret; i++)
			if (c->bad[i])
				ret = not_finite(b);
		hash_matrix(b, c->hashes, c->to->rows);
	}
	kvi_free(alloc, c->memory);
	kvi_free(alloc, c->hashes);
	kvi_free(alloc, c->bad);
	return ret;
}

static kvarc_ret make_operand(struct building *b, const char *name,
                              const struct kvi_matrix *m,
                              enum kvi_matrix_kind kind, struct order order,
                              struct kvi_operand *w)
{
	struct converting c = { .from = m, .to = w, .order = order,
		                .native = kvi_number_groups(m->type) };
	bool wide = b->e->arithmetic.wide_weights >> kind & 1;
	bool fp8 = b->e->arithmetic.fp8;
	unsigned group = c.native.group ? c.native.group : 64;
	unsigned planes = !c.native.group && wide ? 2 : 1;
	size_t bytes;
	if (!m->data)
		return KVARC_OK;
	b->name = name;
	if (fp8 && c.native.group)
		return not_floats(b);
	if (fp8 ? !kvi_e4m3_bytes(m->rows, m->columns, &bytes)
	        : !kvi_operand_bytes(m->rows, m->columns, group, planes,
	                             c.native.minima, &bytes))
		return KVARC_MEM;
	void *memory = own(b->e, bytes);
	if (!memory)
		return kvi_alloc_error(b->e->alloc);
	if (fp8)
		kvi_e4m3_init(w, memory, m->rows, m->columns);
	else
		kvi_operand_init(w, memory, m->rows, m->columns, group, planes,
		                 c.native.minima);
	c.groups = kvi_groups(m->columns, group);
	return convert(b, &c);
}

/* Gains and biases, in fp32; those of queries and keys in slots. */
static kvarc_ret make_vector(struct building *b, const char *name,
                             const struct kvi_matrix *m, struct order order,
                             float plus, float **to)
{
	size_t n = m->columns;
	if (!m->data)
		return KVARC_OK;
	float *x = own(b->e, n * sizeof *x);
	float *raw = kvi_array(b->e->alloc, n, sizeof *raw);
	if (!x || !raw) {
		kvi_free(b->e->alloc, raw);
		return kvi_alloc_error(b->e->alloc);
	}
	b->name = name;
	bool good = kvi_matrix_row(m, 0, raw);
	for (size_t i = 0; i < n; i++)
		x[i] = raw[file_row(&order, i)] + plus;
	kvi_free(b->e->alloc, raw);
	uint64_t hash = kvi_h64(x, n * sizeof *x);
	hash_matrix(b, &hash, 1);
	*to = x;
	return good ? KVARC_OK : not_finite(b);
}

static kvarc_ret make_vectors(struct building *b,
                              const struct kvi_model_layer *from,
                              struct order slots, struct kvi_engine_layer *l)
{
	const struct order plain = { 0 };
	float plus = b->e->file->norm_plus_one ? 1 : 0;
	const struct {
		const char *name;
		const struct kvi_matrix *m;
		float **to;
		bool slots;
		float plus;
	} v[] = {
		{ "input norm", &from->input_norm, &l->norm, false, plus },
		{ "input norm bias", &from->input_norm_bias, &l->norm_bias,
		  false, 0 },
		{ "query bias", &from->q_bias, &l->q_bias, true, 0 },
		{ "key bias", &from->k_bias, &l->k_bias, true, 0 },
		{ "value bias", &from->v_bias, &l->v_bias, false, 0 },
		{ "output bias", &from->o_bias, &l->o_bias, false, 0 },
		{ "query norm", &from->q_norm, &l->q_norm, true, plus },
		{ "key norm", &from->k_norm, &l->k_norm, true, plus },
		{ "norm after attention", &from->after_attention_norm,
		  &l->after_attention, false, plus },
		{ "feed-forward norm", &from->ffn_norm, &l->ffn_norm, false,
		  plus },
		{ "feed-forward norm bias", &from->ffn_norm_bias,
		  &l->ffn_norm_bias, false, 0 },
		{ "up bias", &from->up_bias, &l->up_bias, false, 0 },
		{ "down bias", &from->down_bias, &l->down_bias, false, 0 },
		{ "norm after feed-forward", &from->after_ffn_norm,
		  &l->after_ffn, false, plus },
	};
	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		kvarc_ret ret = make_vector(b, v[i].name, v[i].m,
		                            v[i].slots ? slots : plain,
		                            v[i].plus, v[i].to);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret make_layer(struct building *b)
{
	const struct kvi_model_file *m = b->e->file;
	const struct kvi_model_layer *from = &m->layers[b->layer];
	struct kvi_engine_layer *l = &b->e->layers[b->layer];
	const struct order plain = { 0 };
	l->window = from->window;
	l->rope = from->rope < m->n_ropes ? &m->ropes[from->rope] : NULL;
	const struct order slots = {
		m->head_channels, l->rope ? l->rope->rotary : 0, m->interleaved
	};
	const struct {
		const char *name;
		const struct kvi_matrix *m;
		enum kvi_matrix_kind kind;
		struct order order;
		struct kvi_operand *to;
	} w[] = {
		{ "queries", &from->q, KVI_MATRIX_Q, slots, &l->q },
		{ "keys", &from->k, KVI_MATRIX_KV, slots, &l->k },
		{ "values", &from->v, KVI_MATRIX_KV, plain, &l->v },
		{ "attention output", &from->o, KVI_MATRIX_O, plain, &l->o },
		{ "gate", &from->gate, KVI_MATRIX_FFN, plain, &l->gate },
		{ "up", &from->up, KVI_MATRIX_FFN, plain, &l->up },
		{ "down", &from->down, KVI_MATRIX_DOWN, plain, &l->down },
	};
	kvarc_ret ret = make_vectors(b, from, slots, l);
	for (size_t i = 0; !ret && i < sizeof w / sizeof *w; i++)
		ret = make_operand(b, w[i].name, w[i].m, w[i].kind, w[i].order,
		                   w[i].to);
	return ret;
}

struct hashing {
	const struct kvi_matrix *m;
	float *rows;          /* by worker */
	uint64_t *hashes;
	bool *bad;            /* by worker */
};

static void hash_some(void *opaque, size_t i, unsigned worker)
{
	const struct hashing *h = opaque;
	size_t n = h->m->columns, end = (i + 1) * ROWS_STEP;
	float *x = h->rows + worker * n;
	for (size_t r = i * ROWS_STEP; r < end && r < h->m->rows; r++) {
		h->bad[worker] |= !kvi_matrix_row(h->m, r, x);
		h->hashes[r] = kvi_h64(x, n * sizeof *x);
	}
}

/* Of a matrix that stays in its file. */
static kvarc_ret hash_rows(struct building *b, const struct kvi_matrix *m)
{
	const struct kvi_alloc *alloc = b->e->alloc;
	unsigned workers = kvi_pool_workers(b->pool);
	struct hashing h = {
		m, kvi_array(alloc, workers, m->columns * sizeof(float)),
		kvi_array(alloc, m->rows, sizeof *h.hashes),
		kvi_calloc(alloc, workers, sizeof *h.bad)
	};
	kvarc_ret ret = KVARC_OK;
	if (h.rows && h.hashes && h.bad) {
		kvi_parallel(b->pool, (m->rows + ROWS_STEP - 1) / ROWS_STEP,
		             hash_some, &h);
		hash_matrix(b, h.hashes, m->rows);
		for (unsigned i = 0; i < workers && !ret; i++)
			if (h.bad[i])
				ret = not_finite(b);
	} else {
		ret = kvi_alloc_error(alloc);
	}
	kvi_free(alloc, h.rows);
	kvi_free(alloc, h.hashes);
	kvi_free(alloc, h.bad);
	return ret;
}

/* The numbers that shape the arithmetic. */
static kvarc_ret hash_shape(struct building *b)
{
	const struct kvi_model_file *m = b->e->file;
	const struct kvi_alloc *alloc = b->e->alloc;
	float numbers[3] = { m->norm_epsilon, m->attention_scale,
		             m->embedding_scale };
	uint32_t shape[8] = { m->n_layers, m->width, m->heads, m->kv_heads,
		              m->head_channels, m->ffn, m->vocabulary,
		              (uint32_t)m->layer_norm << 8 | m->activation };
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
		if (rows[i]->data)
			ret = hash_rows(b, rows[i]);
	return ret;
}

kvarc_ret kvi_engine_open(struct kvi_engine **out,
                          const struct kvi_alloc *alloc,
                          const struct kvi_model_file *file,
                          const struct kvi_arithmetic *arithmetic,
                          struct kvi_pool *pool, kvarc_error *error)
{
	*out = NULL;
	kvarc_ret ret = kvi_engine_check(file, error);
	if (ret)
		return ret;
	struct kvi_engine *e = kvi_calloc(alloc, 1, sizeof *e);
	uint64_t mode = kvi_fp_exact();
	*out = e;
	if (e) {
		e->alloc = alloc;
		e->file = file;
		e->arithmetic = *arithmetic;
		e->layers = kvi_calloc(alloc, file->n_layers,
		                       sizeof *e->layers);
	}
	struct building b = { .e = e, .pool = pool, .error = error };
	ret = e && e->layers ? hash_head(&b) : kvi_alloc_error(alloc);
	for (; !ret && b.layer < file->n_layers; b.layer++)
		ret = make_layer(&b);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(error, alloc);
	if (ret)
		kvi_engine_close(out);
	else
		e->digest = b.chain;
	kvi_fp_restore(mode);
	return ret;
}

static kvarc_ret make_head(struct building *b)
{
	struct kvi_engine *e = b->e;
	const struct kvi_model_file *m = e->file;
	const struct order plain = { 0 };
	uint8_t start[32] = { 0 };
	kvi_store_h128(start, e->digest);
	memcpy(start + 16, &m->logit_cap, sizeof m->logit_cap);
	b->chain = kvi_h128(start, sizeof start);
	kvarc_ret ret = make_vector(b, "output norm", &m->output_norm, plain,
	                            m->norm_plus_one ? 1 : 0,
	                            &e->output_norm);
	if (!ret)
		ret = make_vector(b, "output norm bias", &m->output_norm_bias,
		                  plain, 0, &e->output_norm_bias);
	if (!ret)
		ret = make_operand(b, "output", &m->output, KVI_MATRIX_HEAD,
		                   plain, &e->output);
	return ret;
}

kvarc_ret kvi_engine_add_head(struct kvi_engine *e, struct kvi_pool *pool,
                              kvarc_error *error)
{
	struct building b = { .e = e, .pool = pool, .error = error,
		              .layer = e->file->n_layers };
	kvarc_ret ret = kvi_engine_check_head(e->file, error);
	if (ret)
		return ret;
	uint64_t mode = kvi_fp_exact();
	e->arithmetic.wide_weights |= 1 << KVI_MATRIX_HEAD;
	e->arithmetic.wide_activations |= 1 << KVI_MATRIX_HEAD;
	ret = make_head(&b);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		kvi_fail_alloc(error, e->alloc);
	e->head_digest = b.chain;
	kvi_fp_restore(mode);
	return ret;
}

void kvi_engine_close(struct kvi_engine **engine)
{
	struct kvi_engine *e = *engine;
	if (!e)
		return;
	for (struct part *p = e->memory, *next; p; p = next) {
		next = p->next;
		kvi_free(e->alloc, p);
	}
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
