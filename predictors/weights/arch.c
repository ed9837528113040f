/* SPDX-License-Identifier: BSD-3-Clause */
/* arch.c - architectures: what they always have, and the names and shapes of their tensors */
#include "model_internal.h"

#include <stdio.h>
#include <string.h>

static const struct arch {
	const char *name;
	uint8_t activation;
	bool layer_norm, interleaved, plus_one;
} archs[KVI_ARCHS] = {
	[KVI_ARCH_LLAMA] = { "llama", KVI_SILU, false, true, false },
	[KVI_ARCH_QWEN2] = { "qwen2", KVI_SILU, false, false, false },
	[KVI_ARCH_QWEN3] = { "qwen3", KVI_SILU, false, false, false },
	[KVI_ARCH_GEMMA3] = { "gemma3", KVI_GELU, false, false, true },
	[KVI_ARCH_GPT2] = { "gpt2", KVI_GELU, true, false, false },
};

int kvi_arch_find(const char *name, bool safetensors, kvarc_error *error)
{
	char shown[KVI_SHOWN_BYTES];
	static const struct {
		const char *name;
		int arch;
	} also[] = { { "mistral", KVI_ARCH_LLAMA }, { "gemma3_text", KVI_ARCH_GEMMA3 } };
	for (int i = 0; i < KVI_ARCHS; i++)
		if (!strcmp(name, archs[i].name))
			return i;
	for (size_t i = 0; safetensors && i < sizeof also / sizeof *also; i++)
		if (!strcmp(name, also[i].name))
			return also[i].arch;
	kvi_fail(error, KVARC_OPTIONS,
	         "a model of architecture %s cannot be run: known are llama "
	         "(also Mistral and SmolLM), qwen2, qwen3, gemma3 and gpt2",
	         kvi_shown(shown, name, strlen(name)));
	return -1;
}

void kvi_arch_begin(struct kvi_model_file *file, int arch, bool safetensors)
{
	const struct arch *a = &archs[arch];
	snprintf(file->arch, sizeof file->arch, "%s", a->name);
	file->activation = a->activation;
	file->layer_norm = a->layer_norm;
	file->interleaved = a->interleaved && !safetensors;
	file->norm_plus_one = a->plus_one && safetensors;
	file->embedding_scale = 1;
	file->first_token = -1;
}

/* Sizes that shapes are made of. */
enum size { ONE, WIDTH, Q, KV, QKV, HEAD, FFN, VOCABULARY, ANY };

enum {
	LLAMA = 1 << KVI_ARCH_LLAMA,
	QWEN2 = 1 << KVI_ARCH_QWEN2,
	QWEN3 = 1 << KVI_ARCH_QWEN3,
	GEMMA3 = 1 << KVI_ARCH_GEMMA3,
	GPT2 = 1 << KVI_ARCH_GPT2,
	HALF = LLAMA | QWEN2 | QWEN3, /* norms before each half of a layer */
	GATED = HALF | GEMMA3,
	ALL = GATED | GPT2
};

/* A tensor: its names in both kinds of file, the offset of its member, its shape, which
 * architectures must and which may have it. */
struct slot {
	const char *gguf, *safetensors;
	size_t place;
	uint8_t rows, columns, needed, allowed;
	bool turned; /* columns and rows are swapped in safetensors */
};

#define L(field) offsetof(struct kvi_model_layer, field)
static const struct slot layer_slots[] = {
	{ "attn_norm.weight", "input_layernorm.weight", L(input_norm), ONE, WIDTH, GATED, GATED,
	  false },
	{ "attn_q.weight", "self_attn.q_proj.weight", L(q), Q, WIDTH, GATED, GATED, false },
	{ "attn_k.weight", "self_attn.k_proj.weight", L(k), KV, WIDTH, GATED, GATED, false },
	{ "attn_v.weight", "self_attn.v_proj.weight", L(v), KV, WIDTH, GATED, GATED, false },
	{ "attn_output.weight", "self_attn.o_proj.weight", L(o), WIDTH, Q, GATED, GATED, false },
	{ "attn_q.bias", "self_attn.q_proj.bias", L(q_bias), ONE, Q, QWEN2, GATED, false },
	{ "attn_k.bias", "self_attn.k_proj.bias", L(k_bias), ONE, KV, QWEN2, GATED, false },
	{ "attn_v.bias", "self_attn.v_proj.bias", L(v_bias), ONE, KV, QWEN2, GATED, false },
	{ "attn_output.bias", "self_attn.o_proj.bias", L(o_bias), ONE, WIDTH, 0, GATED, false },
	{ "attn_q_norm.weight", "self_attn.q_norm.weight", L(q_norm), ONE, HEAD, QWEN3 | GEMMA3,
	  QWEN3 | GEMMA3, false },
	{ "attn_k_norm.weight", "self_attn.k_norm.weight", L(k_norm), ONE, HEAD, QWEN3 | GEMMA3,
	  QWEN3 | GEMMA3, false },
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", L(after_attention_norm),
	  ONE, WIDTH, GEMMA3, GEMMA3, false },
	{ "ffn_norm.weight", "post_attention_layernorm.weight", L(ffn_norm), ONE, WIDTH, HALF, HALF,
	  false },
	{ "ffn_norm.weight", "pre_feedforward_layernorm.weight", L(ffn_norm), ONE, WIDTH, GEMMA3,
	  GEMMA3, false },
	{ "ffn_gate.weight", "mlp.gate_proj.weight", L(gate), FFN, WIDTH, GATED, GATED, false },
	{ "ffn_up.weight", "mlp.up_proj.weight", L(up), FFN, WIDTH, GATED, GATED, false },
	{ "ffn_down.weight", "mlp.down_proj.weight", L(down), WIDTH, FFN, GATED, GATED, false },
	{ "post_ffw_norm.weight", "post_feedforward_layernorm.weight", L(after_ffn_norm), ONE,
	  WIDTH, GEMMA3, GEMMA3, false },

	{ "attn_norm.weight", "ln_1.weight", L(input_norm), ONE, WIDTH, GPT2, GPT2, false },
	{ "attn_norm.bias", "ln_1.bias", L(input_norm_bias), ONE, WIDTH, GPT2, GPT2, false },
	{ "attn_qkv.weight", "attn.c_attn.weight", L(q), QKV, WIDTH, GPT2, GPT2, true },
	{ "attn_qkv.bias", "attn.c_attn.bias", L(q_bias), ONE, QKV, GPT2, GPT2, false },
	{ "attn_output.weight", "attn.c_proj.weight", L(o), WIDTH, Q, GPT2, GPT2, true },
	{ "attn_output.bias", "attn.c_proj.bias", L(o_bias), ONE, WIDTH, GPT2, GPT2, false },
	{ "ffn_norm.weight", "ln_2.weight", L(ffn_norm), ONE, WIDTH, GPT2, GPT2, false },
	{ "ffn_norm.bias", "ln_2.bias", L(ffn_norm_bias), ONE, WIDTH, GPT2, GPT2, false },
	{ "ffn_up.weight", "mlp.c_fc.weight", L(up), FFN, WIDTH, GPT2, GPT2, true },
	{ "ffn_up.bias", "mlp.c_fc.bias", L(up_bias), ONE, FFN, GPT2, GPT2, false },
	{ "ffn_down.weight", "mlp.c_proj.weight", L(down), WIDTH, FFN, GPT2, GPT2, true },
	{ "ffn_down.bias", "mlp.c_proj.bias", L(down_bias), ONE, WIDTH, GPT2, GPT2, false },
};

/* "" before a name: it stands before the prefix of the layers' names. */
#define M(field) offsetof(struct kvi_model_file, field)
static const struct slot model_slots[] = {
	{ "token_embd.weight", "embed_tokens.weight", M(embedding), ANY, WIDTH, GATED, GATED,
	  false },
	{ "token_embd.weight", "wte.weight", M(embedding), ANY, WIDTH, GPT2, GPT2, false },
	{ "position_embd.weight", "wpe.weight", M(positions), ANY, WIDTH, GPT2, GPT2, false },
	{ "output_norm.weight", "norm.weight", M(output_norm), ONE, WIDTH, 0, GATED, false },
	{ "output_norm.weight", "ln_f.weight", M(output_norm), ONE, WIDTH, 0, GPT2, false },
	{ "output_norm.bias", "ln_f.bias", M(output_norm_bias), ONE, WIDTH, 0, GPT2, false },
};

/* Tensors of layers that are not weights: constants that some writers leave there. */
static const char *const ignored[] = { "attn_rot_embd.weight", "self_attn.rotary_emb.inv_freq",
	                               "attn.bias", "attn.masked_bias" };

struct binder {
	struct kvi_model_file *m;
	const struct kvi_model_spec *spec;
	struct kvi_weights *tensors;
	kvarc_error *error;
	unsigned arch;      /* architecture as a bit */
	const char *prefix; /* prefix of all names */
	const char *layers; /* second prefix of names in layers */
};

static uint64_t size_of(const struct kvi_model_file *file, unsigned size)
{
	uint64_t q = (uint64_t)file->heads * file->head_channels;
	uint64_t kv = (uint64_t)file->kv_heads * file->head_channels;
	switch (size) {
	case WIDTH:
		return file->width;
	case Q:
		return q;
	case KV:
		return kv;
	case QKV:
		return q + 2 * kv;
	case HEAD:
		return file->head_channels;
	case FFN:
		return file->ffn;
	case VOCABULARY:
		return file->vocabulary;
	case ANY:
		return 0;
	default:
		return 1;
	}
}

static kvarc_ret fail_shape(const struct binder *binder, const struct kvi_weight *w, uint64_t rows,
                            uint64_t columns)
{
	char shown[KVI_SHOWN_BYTES];
	return kvi_fail(binder->error, KVARC_DATA,
	                "tensor %s has %llu x %llu numbers, but the model's "
	                "sizes ask for %llu x %llu: the file is damaged",
	                kvi_shown(shown, w->name, w->name_n), (unsigned long long)w->rows,
	                (unsigned long long)w->columns, (unsigned long long)rows,
	                (unsigned long long)columns);
}

static kvarc_ret check_type(const struct binder *binder, const struct kvi_weight *w, bool floats)
{
	char shown[KVI_SHOWN_BYTES];
	kvi_shown(shown, w->name, w->name_n);
	if (!w->plain)
		return kvi_fail(binder->error, KVARC_DATA,
		                "tensor %s has more than two axes: the file is damaged", shown);
	if (w->type == KVI_NUM_NONE)
		return kvi_fail(binder->error, KVARC_OPTIONS,
		                "tensor %s has numbers of type %s: known are %s", shown,
		                w->type_name, kvi_number_names);
	if (floats && kvi_number_groups(w->type).group)
		return kvi_fail(binder->error, KVARC_OPTIONS,
		                "tensor %s is quantised (%s), where F32, F16 or BF16 is known",
		                shown, w->type_name);
	return KVARC_OK;
}

static kvarc_ret bind(const struct binder *binder, const char *name, const struct slot *slot,
                      struct kvi_matrix *out)
{
	struct kvi_weight *w = kvi_weights_find(binder->tensors, name);
	uint64_t rows = size_of(binder->m, slot->rows), columns = size_of(binder->m, slot->columns);
	bool turned = slot->turned && binder->spec->safetensors;
	char shown[KVI_SHOWN_BYTES];
	if (!w && !(slot->needed & binder->arch))
		return KVARC_OK;
	if (!w)
		return kvi_fail(binder->error, KVARC_DATA,
		                "the model has no tensor %s: a part is "
		                "missing, or it is of another architecture than %s",
		                kvi_shown(shown, name, strlen(name)), binder->m->arch);
	kvarc_ret ret = check_type(binder, w, slot->rows == ONE || turned);
	if (ret)
		return ret;
	if (slot->rows == ANY)
		rows = w->rows;
	if (turned ? w->rows != columns || w->columns != rows
	           : w->rows != rows || w->columns != columns)
		return fail_shape(binder, w, turned ? columns : rows, turned ? rows : columns);
	w->used = true;
	*out = (struct kvi_matrix){ w->type, turned, rows, columns, w->columns, w->data };
	return KVARC_OK;
}

/* Rows [first, first + rows) of a matrix. */
static struct kvi_matrix cut(const struct kvi_matrix *from, uint64_t first, uint64_t rows)
{
	const struct kvi_number_info *t = kvi_number_info(from->type);
	struct kvi_matrix m = *from;
	m.rows = rows;
	m.data += from->transposed ? first * t->bytes
	                           : from->columns / t->elements * t->bytes * first;
	return m;
}

/* gpt2 has the three in one: heads of queries, then of keys, then of values. */
static void split_qkv(const struct kvi_model_file *file, struct kvi_model_layer *layer)
{
	uint64_t q = size_of(file, Q), kv = size_of(file, KV);
	struct kvi_matrix all = layer->q, bias = layer->q_bias;
	unsigned bytes = kvi_number_info(bias.type)->bytes;
	layer->q = cut(&all, 0, q);
	layer->k = cut(&all, q, kv);
	layer->v = cut(&all, q + kv, kv);
	layer->q_bias.columns = q;
	layer->k_bias = layer->v_bias = bias;
	layer->k_bias.columns = layer->v_bias.columns = kv;
	layer->k_bias.data += q * bytes;
	layer->v_bias.data += (q + kv) * bytes;
}

static kvarc_ret bind_layer(const struct binder *binder, uint32_t i)
{
	struct kvi_model_layer *l = &binder->m->layers[i];
	char name[160];
	for (size_t k = 0; k < sizeof layer_slots / sizeof *layer_slots; k++) {
		const struct slot *s = &layer_slots[k];
		if (!(s->allowed & binder->arch))
			continue;
		snprintf(name, sizeof name, "%s%s%u.%s", binder->prefix, binder->layers,
		         (unsigned)i, binder->spec->safetensors ? s->safetensors : s->gguf);
		kvarc_ret ret = bind(binder, name, s,
		                     (struct kvi_matrix *)(void *)((char *)l + s->place));
		if (ret)
			return ret;
	}
	if (binder->arch == GPT2)
		split_qkv(binder->m, l);
	bool sliding = binder->spec->sliding && binder->spec->sliding[i];
	l->window = sliding ? binder->spec->window : 0;
	l->rope = sliding && binder->m->n_ropes > 1;
	return KVARC_OK;
}

/* The head stands outside of the prefix, and may be the embedding; then files may have a copy
 * that nobody uses. */
static kvarc_ret bind_output(const struct binder *binder)
{
	static const struct slot slot = { NULL, NULL, 0, VOCABULARY, WIDTH, 0, ALL, false };
	static const char *const names[] = { "output.weight", "lm_head.weight",
		                             "language_model.lm_head.weight" };
	if (binder->spec->tied != KVI_TIED_NO)
		binder->m->output = binder->m->embedding;
	if (binder->spec->tied == KVI_TIED_YES)
		return KVARC_OK;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		kvarc_ret ret = binder->spec->safetensors == (i > 0)
		                        ? bind(binder, names[i], &slot, &binder->m->output)
		                        : KVARC_OK;
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

static kvarc_ret bind_model(const struct binder *binder)
{
	char name[160];
	struct kvi_model_file *m = binder->m;
	for (size_t k = 0; k < sizeof model_slots / sizeof *model_slots; k++) {
		const struct slot *s = &model_slots[k];
		if (!(s->allowed & binder->arch))
			continue;
		snprintf(name, sizeof name, "%s%s", binder->prefix,
		         binder->spec->safetensors ? s->safetensors : s->gguf);
		kvarc_ret ret = bind(binder, name, s,
		                     (struct kvi_matrix *)(void *)((char *)m + s->place));
		if (ret)
			return ret;
	}
	if (m->embedding.rows < 1 || m->embedding.rows > KVI_MODEL_VOCABULARY_MAX ||
	    (m->positions.data && m->positions.rows < 1) ||
	    m->positions.rows > KVI_MODEL_VOCABULARY_MAX)
		return kvi_fail(binder->error, KVARC_DATA,
		                "the model has an embedding of no rows, or "
		                "of more than %d: the file is damaged",
		                KVI_MODEL_VOCABULARY_MAX);
	m->vocabulary = (uint32_t)m->embedding.rows;
	if (m->first_token >= 0 && (uint32_t)m->first_token >= m->vocabulary)
		m->first_token = -1;
	return bind_output(binder);
}

/* A tensor of a layer that is not used would be left out of the sum in silence. */
static kvarc_ret check_all_used(const struct binder *binder)
{
	char start[160], shown[KVI_SHOWN_BYTES];
	int n = snprintf(start, sizeof start, "%s%s", binder->prefix, binder->layers);
	for (size_t i = 0; i < binder->tensors->n; i++) {
		const struct kvi_weight *w = &binder->tensors->w[i];
		bool known = w->used || w->name_n <= (size_t)n ||
		             memcmp(w->name, start, (size_t)n) != 0;
		for (size_t k = 0; !known && k < sizeof ignored / sizeof *ignored; k++) {
			size_t len = strlen(ignored[k]);
			known = w->name_n > len && w->name[w->name_n - len - 1] == '.' &&
			        !memcmp(w->name + w->name_n - len, ignored[k], len);
		}
		if (!known)
			return kvi_fail(binder->error, KVARC_OPTIONS,
			                "tensor %s is not one that models "
			                "of architecture %s are known to have: the model cannot be "
			                "run",
			                kvi_shown(shown, w->name, w->name_n), binder->m->arch);
	}
	return KVARC_OK;
}

/* Names begin differently, by which class wrote them. */
static void find_prefix(struct binder *binder)
{
	static const char *const prefixes[] = { "model.", "", "transformer.",
		                                "language_model.model.", "model.language_model." };
	char name[160];
	binder->prefix = "";
	binder->layers = !binder->spec->safetensors ? "blk."
	                 : binder->arch == GPT2     ? "h."
	                                            : "layers.";
	for (size_t i = 0; binder->spec->safetensors && i < sizeof prefixes / sizeof *prefixes;
	     i++) {
		snprintf(name, sizeof name, "%s%s", prefixes[i],
		         binder->arch == GPT2 ? "wte.weight" : "embed_tokens.weight");
		if (kvi_weights_find(binder->tensors, name)) {
			binder->prefix = prefixes[i];
			return;
		}
	}
}

static kvarc_ret check_sizes(const struct binder *binder)
{
	const struct kvi_model_file *m = binder->m;
	uint64_t q = size_of(m, Q);
	const char *wrong = m->n_layers < 1 || m->n_layers > KVI_MODEL_LAYERS_MAX ||
	                                    m->n_layers > binder->tensors->n
	                            ? "layers"
	                    : m->width < 1 || m->width > KVI_MODEL_WIDTH_MAX ? "channels"
	                    : m->heads < 1 || m->heads > KVI_MODEL_HEADS_MAX || m->kv_heads < 1 ||
	                                    m->heads % m->kv_heads
	                            ? "heads"
	                    : m->head_channels < 1 || q > KVI_MODEL_WIDTH_MAX ? "channels of a head"
	                    : m->ffn < 1 || m->ffn > KVI_MODEL_WIDTH_MAX ? "feed-forward channels"
	                                                                 : NULL;
	if (wrong)
		return kvi_fail(binder->error, KVARC_DATA,
		                "the number of %s of the model is missing, or not possible", wrong);
	if (!(m->norm_epsilon >= 0) || !(m->norm_epsilon < 1) || !(m->attention_scale > 0) ||
	    !(m->attention_scale < 1e6f) || !(m->embedding_scale > 0) ||
	    !(m->embedding_scale < 1e6f) || !(m->logit_cap >= 0) || !(m->logit_cap < 1e6f))
		return kvi_fail(binder->error, KVARC_DATA,
		                "the epsilon of the norms of the model, or "
		                "one of its scales, is missing or not possible");
	return KVARC_OK;
}

kvarc_ret kvi_arch_bind(struct kvi_model_file *file, int arch, const struct kvi_model_spec *spec,
                        struct kvi_weights *tensors, kvarc_error *error)
{
	struct binder b = { file, spec, tensors, error, 1u << arch, NULL, NULL };
	kvarc_ret ret = check_sizes(&b);
	if (!ret)
		ret = kvi_rope_bind(file, spec, tensors, error);
	if (ret)
		return ret;
	file->layers = kvi_calloc(file->alloc, file->n_layers, sizeof *file->layers);
	if (!file->layers)
		return kvi_fail_alloc(error, file->alloc);
	find_prefix(&b);
	ret = bind_model(&b);
	for (uint32_t i = 0; i < file->n_layers && !ret; i++)
		ret = bind_layer(&b, i);
	return ret ? ret : check_all_used(&b);
}
