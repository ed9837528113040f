/* SPDX-License-Identifier: BSD-3-Clause */
/* models_util.c - models in memory for tests, and what is in them as text */
#include "models_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"

static uint8_t *held[MODEL_PARTS + 1];

struct model_folder folder_load(const char *name)
{
	struct model_folder f = { .n = 1 };
	char path[128];
	snprintf(path, sizeof path, "../models/%s/config.json", name);
	f.config = blob_load(path);
	if (!strcmp(name, "llama"))
		f.n = 2;
	for (unsigned i = 0; i < f.n; i++) {
		if (f.n == 1)
			snprintf(path, sizeof path, "../models/%s/model.safetensors", name);
		else
			snprintf(path, sizeof path, "../models/%s/model-%05u-of-%05u.safetensors",
			         name, i + 1, f.n);
		f.parts[i] = blob_load(path);
	}
	return f;
}

void folder_free(struct model_folder *f)
{
	blob_free(&f->config);
	for (unsigned i = 0; i < f->n; i++)
		blob_free(&f->parts[i]);
}

/* A copy that ends where its memory ends. */
static struct kvi_map hold(unsigned slot, const struct blob *b)
{
	held[slot] = malloc(b->n ? b->n : 1);
	assert_non_null(held[slot]);
	if (b->n)
		memcpy(held[slot], b->p, b->n);
	return (struct kvi_map){ held[slot], b->n };
}

void unload(struct kvi_model_file **m)
{
	kvi_model_file_close(m);
	for (unsigned i = 0; i <= MODEL_PARTS; i++) {
		free(held[i]);
		held[i] = NULL;
	}
}

static kvarc_ret begin(struct kvi_model_file **m, const struct kvi_alloc *alloc)
{
	*m = kvi_calloc(alloc, 1, sizeof **m);
	if (!*m)
		return kvi_alloc_error(alloc);
	(*m)->alloc = alloc;
	return KVARC_OK;
}

kvarc_ret load_gguf(struct kvi_model_file **m, const struct kvi_alloc *alloc, const struct blob *b,
                    kvarc_error *error)
{
	kvarc_ret ret = begin(m, alloc);
	if (!ret)
		ret = kvi_gguf_model(*m, hold(0, b), error);
	if (ret)
		unload(m);
	return ret;
}

kvarc_ret load_folder(struct kvi_model_file **m, const struct kvi_alloc *alloc,
                      const struct model_folder *f, kvarc_error *error)
{
	static char names[MODEL_PARTS][8] = { "part 1", "part 2" };
	struct kvi_model_part parts[MODEL_PARTS];
	kvarc_ret ret = begin(m, alloc);
	for (unsigned i = 0; i < f->n && !ret; i++) {
		parts[i].name = names[i];
		parts[i].map = hold(i + 1, &f->parts[i]);
	}
	if (!ret)
		ret = kvi_safetensors_model(*m, hold(0, &f->config), parts, f->n, error);
	if (ret)
		unload(m);
	return ret;
}

/* ------------------------------------------------------------------- text */

struct out {
	char *text;
	size_t n;
};

static void put(struct out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct out *o, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(o->text + o->n, MODEL_TEXT_MAX - o->n, format, args);
	va_end(args);
	if (n > 0)
		o->n += (size_t)n;
	if (o->n > MODEL_TEXT_MAX - 1)
		o->n = MODEL_TEXT_MAX - 1;
}

static unsigned bits(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

/* The integers of a row make the same numbers. */
static void check_integers(const struct kvi_matrix *m, uint64_t r, const float *x)
{
	struct kvi_number_groups g = kvi_number_groups(m->type);
	float *scale = malloc(m->columns * sizeof *scale);
	float *minimum = malloc(m->columns * sizeof *minimum);
	int8_t *q = malloc(m->columns);
	assert_true(scale && minimum && q);
	bool finite = kvi_matrix_integers(m, r, q, scale, minimum);
	for (uint64_t c = 0; c < m->columns && finite; c++) {
		float y = (float)q[c] * scale[c / g.group];
		if (g.minima)
			y = y + minimum[c / g.group];
		assert_true(bits(x[c]) == bits(y));
	}
	free(scale);
	free(minimum);
	free(q);
}

uint64_t matrix_hash(const struct kvi_matrix *m)
{
	uint64_t hash = 0xcbf29ce484222325;
	bool finite = true;
	float *x = malloc(m->columns * sizeof *x);
	assert_non_null(x);
	for (uint64_t r = 0; r < m->rows; r++) {
		finite &= kvi_matrix_row(m, r, x);
		for (uint64_t c = 0; c < m->columns * 4; c++)
			hash = (hash ^ (bits(x[c / 4]) >> (8 * (c % 4)) & 255)) * 0x100000001b3;
		if (kvi_number_groups(m->type).group)
			check_integers(m, r, x);
	}
	free(x);
	return finite ? hash : 0;
}

static void put_matrix(struct out *o, const char *name, const struct kvi_matrix *m)
{
	if (m->data)
		put(o, "%s %u %llux%llu %016llx\n", name, m->type, (unsigned long long)m->rows,
		    (unsigned long long)m->columns, (unsigned long long)matrix_hash(m));
}

static void put_layer(struct out *o, const struct kvi_model_layer *l, unsigned i)
{
	char name[64];
	put(o, "layer %u window %u rope %u\n", i, (unsigned)l->window, l->rope);
#define PUT(field)                                       \
	snprintf(name, sizeof name, "%u.%s", i, #field); \
	put_matrix(o, name, &l->field)
	PUT(input_norm);
	PUT(input_norm_bias);
	PUT(q);
	PUT(k);
	PUT(v);
	PUT(o);
	PUT(q_bias);
	PUT(k_bias);
	PUT(v_bias);
	PUT(o_bias);
	PUT(q_norm);
	PUT(k_norm);
	PUT(after_attention_norm);
	PUT(ffn_norm);
	PUT(ffn_norm_bias);
	PUT(gate);
	PUT(up);
	PUT(down);
	PUT(up_bias);
	PUT(down_bias);
	PUT(after_ffn_norm);
#undef PUT
}

void model_text(const struct kvi_model_file *m, char text[MODEL_TEXT_MAX])
{
	static const char *const flags[] = { "layer-norm", "plus-one", "interleaved", "gelu" };
	const bool has[] = { m->layer_norm, m->norm_plus_one, m->interleaved,
		             m->activation == KVI_GELU };
	struct out o = { text, 0 };
	text[0] = '\0';
	put(&o, "%s \"%s\" %u %u %u %u %u %u %u", m->arch, m->name, m->n_layers, m->width, m->heads,
	    m->kv_heads, m->head_channels, m->ffn, m->vocabulary);
	put(&o, " eps %08x attention %08x embedding %08x ", bits(m->norm_epsilon),
	    bits(m->attention_scale), bits(m->embedding_scale));
	bool first = true;
	for (unsigned i = 0; i < 4; i++)
		if (has[i]) {
			put(&o, "%s%s", first ? "" : " ", flags[i]);
			first = false;
		}
	put(&o, "\n");
	for (unsigned i = 0; i < m->n_ropes; i++) {
		put(&o, "rope %u", m->ropes[i].rotary);
		for (uint32_t k = 0; k < m->ropes[i].rotary / 2; k++) {
			assert_int_equal(m->ropes[i].freq[k] & 65535, 0);
			put(&o, " %llx", (unsigned long long)m->ropes[i].freq[k] >> 16);
		}
		put(&o, "\n");
	}
	put_matrix(&o, "embedding", &m->embedding);
	put_matrix(&o, "positions", &m->positions);
	put_matrix(&o, "output_norm", &m->output_norm);
	put_matrix(&o, "output_norm_bias", &m->output_norm_bias);
	put_matrix(&o, "output", &m->output);
	for (uint32_t i = 0; i < m->n_layers; i++)
		put_layer(&o, &m->layers[i], i);
}
