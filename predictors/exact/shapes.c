/* SPDX-License-Identifier: BSD-3-Clause */
/* shapes.c - whether a model is one that the engine computes as it is meant (spec/arithmetic.md
 * 8) */
#include "exact/engine_internal.h"
#include "exact/head.h"
#include "exact/matmul.h"
#include "util/error.h"

/* Limits of loaders; a product of two of them does not overflow. */
enum { SIZE_LIMIT = 1 << 20, COUNT_LIMIT = 65535, ROWS_LIMIT = 1 << 24 };

/* Parts that a model must have, may have, or cannot have. */
enum presence { NEVER, MAYBE, ALWAYS };

struct engine_shape {
	const char *name;
	const struct kvi_matrix *m;
	uint64_t rows, columns;
	enum presence presence;
};

static kvarc_ret fail_sizes(kvarc_error *error, const char *what)
{
	return kvi_fail(error, KVARC_DATA,
	                "the number of %s of the model is not valid: get the file again", what);
}

static kvarc_ret check_sizes(const struct kvi_model_file *file, kvarc_error *error)
{
	uint64_t q = (uint64_t)file->heads * file->head_channels;
	if (file->n_layers < 1 || file->n_layers > COUNT_LIMIT)
		return fail_sizes(error, "layers");
	if (file->width < 1 || file->width > SIZE_LIMIT)
		return fail_sizes(error, "channels");
	if (file->ffn < 1 || file->ffn > SIZE_LIMIT)
		return fail_sizes(error, "feed-forward channels");
	if (file->heads < 1 || file->heads > COUNT_LIMIT || file->kv_heads < 1 ||
	    file->heads % file->kv_heads)
		return fail_sizes(error, "heads");
	if (file->head_channels < 1 || q > SIZE_LIMIT)
		return fail_sizes(error, "channels of a head");
	/* A key is one group of an operand. */
	if (file->head_channels > KVI_GROUP_MAX)
		return kvi_fail(error, KVARC_OPTIONS,
		                "heads of the model have %u channels: at most %d are supported",
		                (unsigned)file->head_channels, KVI_GROUP_MAX);
	return KVARC_OK;
}

static bool is_scale(float x)
{
	return x > 0 && x < 1e6f; /* false for NaN */
}

static kvarc_ret check_numbers(const struct kvi_model_file *file, kvarc_error *error)
{
	if (!(file->norm_epsilon >= 0) || !(file->norm_epsilon < 1) ||
	    !is_scale(file->attention_scale) || !is_scale(file->embedding_scale))
		return kvi_fail(error, KVARC_DATA,
		                "the epsilon of the norms of the model, or one "
		                "of its scales, is not valid: get the file again");
	if (file->activation > KVI_GELU)
		return kvi_fail(error, KVARC_OPTIONS,
		                "the model's activation function is unknown: "
		                "silu and gelu are supported");
	return KVARC_OK;
}

static kvarc_ret check_ropes(const struct kvi_model_file *file, kvarc_error *error)
{
	bool good = file->n_ropes <= 2;
	for (unsigned i = 0; good && i < file->n_ropes; i++)
		good = file->ropes[i].rotary % 2 == 0 &&
		       file->ropes[i].rotary <= file->head_channels &&
		       (file->ropes[i].freq || !file->ropes[i].rotary);
	for (uint32_t i = 0; good && file->n_ropes && i < file->n_layers; i++)
		good = file->layers[i].rope < file->n_ropes;
	return good ? KVARC_OK
	            : kvi_fail(error, KVARC_DATA,
	                       "the model's rotary embedding does not fit its "
	                       "heads and layers: get the file again");
}

static bool fits(const struct engine_shape *shape)
{
	if (!shape->m->data)
		return shape->presence != ALWAYS;
	return shape->presence != NEVER && shape->m->rows == shape->rows &&
	       shape->m->columns == shape->columns &&
	       !(shape->m->transposed && kvi_number_groups(shape->m->type).group);
}

static kvarc_ret check_shapes(const struct engine_shape *shape, size_t n, uint32_t layer,
                              kvarc_error *error)
{
	for (size_t i = 0; i < n; i++)
		if (!fits(&shape[i]))
			return kvi_fail(error, KVARC_DATA,
			                "the model's %s (layer %u) is missing, "
			                "or not of the shape that its sizes ask for: get the file "
			                "again",
			                shape[i].name, (unsigned)layer);
	return KVARC_OK;
}

static kvarc_ret check_layer(const struct kvi_model_file *file, uint32_t layer, kvarc_error *error)
{
	const struct kvi_model_layer *l = &file->layers[layer];
	uint64_t w = file->width, hc = file->head_channels, f = file->ffn;
	uint64_t q = file->heads * hc, kv = file->kv_heads * hc;
	/* LayerNorm has a bias, RMSNorm has none; nor have norms of heads and of the outputs
	 * of attention and feed-forward part. */
	enum presence bias = file->layer_norm ? ALWAYS : NEVER;
	enum presence inner = file->layer_norm ? NEVER : MAYBE;
	const struct engine_shape shapes[] = {
		{ "input norm", &l->input_norm, 1, w, ALWAYS },
		{ "input norm bias", &l->input_norm_bias, 1, w, bias },
		{ "queries", &l->q, q, w, ALWAYS },
		{ "keys", &l->k, kv, w, ALWAYS },
		{ "values", &l->v, kv, w, ALWAYS },
		{ "attention output", &l->o, w, q, ALWAYS },
		{ "query bias", &l->q_bias, 1, q, MAYBE },
		{ "key bias", &l->k_bias, 1, kv, MAYBE },
		{ "value bias", &l->v_bias, 1, kv, MAYBE },
		{ "output bias", &l->o_bias, 1, w, MAYBE },
		{ "query norm", &l->q_norm, 1, hc, inner },
		{ "key norm", &l->k_norm, 1, hc, inner },
		{ "norm after attention", &l->after_attention_norm, 1, w, inner },
		{ "feed-forward norm", &l->ffn_norm, 1, w, ALWAYS },
		{ "feed-forward norm bias", &l->ffn_norm_bias, 1, w, bias },
		{ "gate", &l->gate, f, w, MAYBE },
		{ "up", &l->up, f, w, ALWAYS },
		{ "down", &l->down, w, f, ALWAYS },
		{ "up bias", &l->up_bias, 1, f, MAYBE },
		{ "down bias", &l->down_bias, 1, w, MAYBE },
		{ "norm after feed-forward", &l->after_ffn_norm, 1, w, inner },
	};
	return check_shapes(shapes, sizeof shapes / sizeof *shapes, layer, error);
}

kvarc_ret kvi_engine_check_head(const struct kvi_model_file *file, kvarc_error *error)
{
	const struct engine_shape shapes[] = {
		{ "output norm", &file->output_norm, 1, file->width, ALWAYS },
		{ "output norm bias", &file->output_norm_bias, 1, file->width,
		  file->layer_norm ? ALWAYS : NEVER },
		{ "output", &file->output, file->vocabulary, file->width, ALWAYS },
	};
	if (!file->output_norm.data || !file->output.data)
		return kvi_fail(error, KVARC_OPTIONS,
		                "the model lacks its output matrix or the "
		                "norm before it: it can predict caches, but no tokens");
	if (file->logit_cap != 0 && !is_scale(file->logit_cap))
		return kvi_fail(error, KVARC_DATA,
		                "the logit cap of the model is not valid: get the file again");
	return check_shapes(shapes, sizeof shapes / sizeof *shapes, file->n_layers, error);
}

kvarc_ret kvi_engine_check(const struct kvi_model_file *file, kvarc_error *error)
{
	kvarc_ret ret = check_sizes(file, error);
	if (!ret)
		ret = check_numbers(file, error);
	if (!ret)
		ret = check_ropes(file, error);
	if (ret)
		return ret;
	if (file->vocabulary < 1 || file->vocabulary > ROWS_LIMIT ||
	    file->positions.rows > ROWS_LIMIT)
		return fail_sizes(error, "tokens or positions");
	const struct engine_shape rows[] = {
		{ "embedding", &file->embedding, file->vocabulary, file->width, ALWAYS },
		{ "positions", &file->positions, file->positions.rows, file->width, MAYBE },
	};
	ret = check_shapes(rows, 2, 0, error);
	for (uint32_t i = 0; !ret && i < file->n_layers; i++)
		ret = check_layer(file, i, error);
	return ret;
}
