/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_model.c - reads a model that was loaded from memory to its end */
#include "fuzz_model.h"

void fuzz_model_begin(struct kvi_model_file **m, struct kvi_alloc *alloc, struct fuzz_env *env)
{
	kvi_alloc_init(alloc, &env->allocator, FUZZ_MEMLIMIT);
	*m = kvi_calloc(alloc, 1, sizeof **m);
	if (*m)
		(*m)->alloc = alloc;
	else
		FUZZ_CHECK(env->failing);
}

struct bounds {
	const uint8_t *p;
	size_t n;
};

static uint64_t bytes_of(const struct kvi_matrix *m)
{
	const struct kvi_number_info *t = kvi_number_info(m->type);
	FUZZ_CHECK(t);
	if (!m->transposed)
		return m->columns / t->elements * t->bytes * m->rows;
	return ((m->columns - 1) * m->stride + m->rows) * t->bytes;
}

static void check_matrix(const struct bounds *b, const struct kvi_matrix *m, uint64_t rows,
                         uint64_t columns)
{
	struct kvi_number_groups g = kvi_number_groups(m->type);
	if (!m->data)
		return;
	FUZZ_CHECK(m->rows == rows && m->columns == columns && rows && columns);
	FUZZ_CHECK(bytes_of(m) <= b->n && m->data >= b->p &&
	           (size_t)(m->data - b->p) <= b->n - bytes_of(m));
	FUZZ_CHECK(!m->transposed || !g.group);
	float *x = malloc(columns * 3 * sizeof *x);
	int8_t *q = malloc(columns);
	FUZZ_CHECK(x && q);
	for (uint64_t r = 0; r < rows; r++) {
		bool finite = kvi_matrix_row(m, r, x);
		FUZZ_CHECK(!g.group || !finite ||
		           kvi_matrix_integers(m, r, q, x + columns, x + 2 * columns));
	}
	free(x);
	free(q);
}

static void check_layer(const struct bounds *b, const struct kvi_model_file *m,
                        const struct kvi_model_layer *l)
{
	uint64_t q = (uint64_t)m->heads * m->head_channels, width = m->width;
	uint64_t kv = (uint64_t)m->kv_heads * m->head_channels, ffn = m->ffn;
	FUZZ_CHECK(l->rope < (m->n_ropes ? m->n_ropes : 1));
	FUZZ_CHECK(l->input_norm.data && l->q.data && l->k.data && l->v.data && l->o.data &&
	           l->ffn_norm.data && l->up.data && l->down.data);
	check_matrix(b, &l->input_norm, 1, width);
	check_matrix(b, &l->input_norm_bias, 1, width);
	check_matrix(b, &l->q, q, width);
	check_matrix(b, &l->k, kv, width);
	check_matrix(b, &l->v, kv, width);
	check_matrix(b, &l->o, width, q);
	check_matrix(b, &l->q_bias, 1, q);
	check_matrix(b, &l->k_bias, 1, kv);
	check_matrix(b, &l->v_bias, 1, kv);
	check_matrix(b, &l->o_bias, 1, width);
	check_matrix(b, &l->q_norm, 1, m->head_channels);
	check_matrix(b, &l->k_norm, 1, m->head_channels);
	check_matrix(b, &l->after_attention_norm, 1, width);
	check_matrix(b, &l->ffn_norm, 1, width);
	check_matrix(b, &l->ffn_norm_bias, 1, width);
	check_matrix(b, &l->gate, ffn, width);
	check_matrix(b, &l->up, ffn, width);
	check_matrix(b, &l->down, width, ffn);
	check_matrix(b, &l->up_bias, 1, ffn);
	check_matrix(b, &l->down_bias, 1, width);
	check_matrix(b, &l->after_ffn_norm, 1, width);
}

static void check_model(const struct bounds *b, const struct kvi_model_file *m)
{
	FUZZ_CHECK(m->n_layers && m->width && m->heads && m->kv_heads &&
	           m->heads % m->kv_heads == 0 && m->head_channels && m->ffn && m->vocabulary);
	FUZZ_CHECK(m->embedding.data && m->output.data);
	check_matrix(b, &m->embedding, m->vocabulary, m->width);
	check_matrix(b, &m->positions, m->positions.rows, m->width);
	check_matrix(b, &m->output_norm, 1, m->width);
	check_matrix(b, &m->output_norm_bias, 1, m->width);
	check_matrix(b, &m->output, m->vocabulary, m->width);
	for (unsigned i = 0; i < m->n_ropes; i++)
		FUZZ_CHECK(m->ropes[i].rotary <= m->head_channels && m->ropes[i].rotary % 2 == 0 &&
		           m->ropes[i].freq);
	for (uint32_t i = 0; i < m->n_layers; i++)
		check_layer(b, m, &m->layers[i]);
}

void fuzz_model_end(struct kvi_model_file **m, kvarc_ret ret, const uint8_t *p, size_t n,
                    struct fuzz_env *env)
{
	struct bounds b = { p, n };
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_FORMAT || ret == KVARC_DATA ||
	           ret == KVARC_OPTIONS || ret == KVARC_MEMLIMIT ||
	           (ret == KVARC_MEM && env->failing));
	FUZZ_CHECK(!ret || (env->error.code == ret && env->error.text[0]));
	if (!ret)
		check_model(&b, *m);
	kvi_model_file_close(m);
}
