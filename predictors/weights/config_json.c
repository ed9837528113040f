/* SPDX-License-Identifier: BSD-3-Clause */
/* config_json.c - what config.json says about a model */
#include "config.h"

#include "model_internal.h"
#include "parse/st_header.h"

#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
	const json_t *o; /* the object of the text model */
	int arch;
	bool mistral;
	kvarc_error *error;
	kvarc_ret ret; /* the first failure */
};

/* Defaults of the architectures' classes for values that a file lacks; 0: the file must have
 * them. */
struct defaults {
	uint32_t heads, kv_heads, head_channels, window, window_from;
	double theta, epsilon;
};
static const struct defaults defaults[KVI_ARCHS] = {
	[KVI_ARCH_LLAMA] = { 0, 0, 0, 0, 0, 10000, 1e-6 },
	[KVI_ARCH_QWEN2] = { 0, 0, 0, 4096, 28, 10000, 1e-6 },
	[KVI_ARCH_QWEN3] = { 0, 0, 128, 4096, 28, 10000, 1e-6 },
	[KVI_ARCH_GEMMA3] = { 8, 4, 256, 4096, 0, 1000000, 1e-6 },
	[KVI_ARCH_GPT2] = { 12, 0, 0, 0, 0, 0, 1e-5 },
};

static void fail_value(struct reader *r, const char *key)
{
	if (!r->ret)
		r->ret = kvi_fail(r->error, KVARC_DATA,
		                  "config.json: \"%s\" has a value that is not possible", key);
}

static void fail_known(struct reader *r, const char *key, const char *known)
{
	if (!r->ret)
		r->ret = kvi_fail(r->error, KVARC_OPTIONS,
		                  "config.json: \"%s\" asks for what is not known; known is %s",
		                  key, known);
}

/* The value of a key; NULL: it is absent, or null. */
static const json_t *get(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	return json_is_null(v) ? NULL : v;
}

static double get_number(struct reader *r, const json_t *o, const char *key, double missing)
{
	const json_t *v = get(o, key);
	if (!v)
		return missing;
	if (!json_is_number(v))
		fail_value(r, key);
	return json_number_value(v);
}

static uint32_t get_count(struct reader *r, const char *key, uint32_t missing)
{
	const json_t *v = get(r->o, key);
	if (!v)
		return missing;
	json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || n > 1 << 24) {
		fail_value(r, key);
		return 0;
	}
	return (uint32_t)n;
}

static bool get_bool(struct reader *r, const char *key, bool missing)
{
	const json_t *v = get(r->o, key);
	if (v && !json_is_boolean(v))
		fail_value(r, key);
	return v ? json_is_true(v) : missing;
}

/* Fails unless the value of a key, if it is there, is `text`. */
static void need_text(struct reader *r, const char *key, const char *text)
{
	const json_t *v = get(r->o, key);
	const char *is = json_string_value(v);
	if (v && (!is || strcmp(is, text) != 0))
		fail_known(r, key, text);
}

static void take_sizes(struct reader *r, struct kvi_model_file *file)
{
	const struct defaults *d = &defaults[r->arch];
	bool gpt2 = r->arch == KVI_ARCH_GPT2;
	file->n_layers = get_count(r, gpt2 ? "n_layer" : "num_hidden_layers", 0);
	file->width = get_count(r, gpt2 ? "n_embd" : "hidden_size", 0);
	file->heads = get_count(r, gpt2 ? "n_head" : "num_attention_heads", d->heads);
	file->kv_heads = gpt2 ? file->heads
	                      : get_count(r, "num_key_value_heads",
	                                  d->kv_heads  ? d->kv_heads
	                                  : r->mistral ? 8
	                                               : file->heads);
	file->ffn = gpt2 ? get_count(r, "n_inner", 4 * file->width)
	                 : get_count(r, "intermediate_size", 0);
	file->head_channels = file->heads ? file->width / file->heads : 0;
	if (!gpt2)
		file->head_channels = get_count(r, "head_dim",
		                                !json_object_get(r->o, "head_dim") &&
		                                                d->head_channels
		                                        ? d->head_channels
		                                        : file->head_channels);
	file->norm_epsilon = (float)get_number(
		r, r->o, gpt2 ? "layer_norm_epsilon" : "rms_norm_eps", d->epsilon);
}

static void take_scales(struct reader *r, struct kvi_model_file *file)
{
	double scaled = file->head_channels;
	if (r->arch == KVI_ARCH_GEMMA3) {
		scaled = get_number(r, r->o, "query_pre_attn_scalar", 256);
		file->embedding_scale = (float)sqrt((double)file->width);
	}
	file->attention_scale = scaled > 0 ? (float)(1 / sqrt(scaled)) : 0;
	if (!get_bool(r, "scale_attn_weights", true))
		file->attention_scale = 1;
}

/* Reads the settings of the head and of its users. */
static void take_head(struct reader *r, struct kvi_model_file *file, struct kvi_model_spec *spec)
{
	const json_t *first = get(r->o, "bos_token_id");
	json_int_t id = json_integer_value(first);
	if (json_is_integer(first) && id >= 0 && id <= 1 << 24)
		file->first_token = (int32_t)id;
	if (get(r->o, "tie_word_embeddings"))
		spec->tied = get_bool(r, "tie_word_embeddings", true) ? KVI_TIED_YES : KVI_TIED_NO;
	if (r->arch == KVI_ARCH_GEMMA3)
		file->logit_cap = (float)get_number(r, r->o, "final_logit_softcapping", 0);
}

/* Fails for settings that the engine does not implement. */
static void check_known(struct reader *r)
{
	bool gemma3 = r->arch == KVI_ARCH_GEMMA3;
	if (r->arch == KVI_ARCH_GPT2)
		need_text(r, "activation_function", "gelu_new");
	else if (gemma3)
		need_text(r, "hidden_activation", "gelu_pytorch_tanh");
	else
		need_text(r, "hidden_act", "silu");
	if (get_bool(r, "scale_attn_by_inverse_layer_idx", false))
		fail_known(r, "scale_attn_by_inverse_layer_idx", "false");
	if (get_bool(r, "add_cross_attention", false))
		fail_known(r, "add_cross_attention", "false");
	if (get_bool(r, "use_bidirectional_attention", false))
		fail_known(r, "use_bidirectional_attention", "false");
	if (get(r->o, "attn_logit_softcapping"))
		fail_known(r, "attn_logit_softcapping", "null");
	if (get(r->o, "quantization_config"))
		fail_known(r, "quantization_config", "tensors of F32, F16 or BF16");
}

/* Reads a rope. p: object with its parameters; NULL: there is none. */
static void take_rope(struct reader *r, const struct kvi_model_file *file, const json_t *p,
                      const char *theta_key, double theta, struct kvi_rope_rule *rule)
{
	const json_t *type = get(p, "rope_type");
	const char *name = json_string_value(type ? type : get(p, "type"));
	theta = get_number(r, r->o, theta_key, theta);
	rule->theta = get_number(r, p, "rope_theta", theta);
	if (rule->theta == 0) /* 0 means none to others */
		rule->theta = -1;
	double part = get_number(r, r->o, "partial_rotary_factor", 1);
	part = get_number(r, p, "partial_rotary_factor", part);
	if (!(part > 0) || !(part <= 1))
		fail_value(r, "partial_rotary_factor");
	else
		rule->rotary = (uint32_t)(part * file->head_channels);
	if (!name || !strcmp(name, "default"))
		return;
	rule->factor = get_number(r, p, "factor", 0);
	rule->scaling = KVI_ROPE_LINEAR;
	if (!strcmp(name, "llama3")) {
		rule->scaling = KVI_ROPE_LLAMA3;
		rule->low = get_number(r, p, "low_freq_factor", 0);
		rule->high = get_number(r, p, "high_freq_factor", 0);
		rule->context = get_number(r, p, "original_max_position_embeddings", 0);
	} else if (strcmp(name, "linear") != 0) {
		fail_known(r, "rope_type", "default, linear and llama3");
	}
}

/* New files have rope_parameters, which hold all; older ones rope_scaling beside
 * rope_theta. gemma3 has one for each kind of layer. */
static void take_ropes(struct reader *r, const struct kvi_model_file *file,
                       struct kvi_model_spec *spec)
{
	double theta = defaults[r->arch].theta;
	const json_t *p = get(r->o, "rope_parameters");
	const json_t *full = p ? p : get(r->o, "rope_scaling"), *sliding = NULL;
	if (full && !json_is_object(full))
		fail_value(r, p ? "rope_parameters" : "rope_scaling");
	if (r->arch == KVI_ARCH_GEMMA3 && p) {
		full = get(p, "full_attention");
		sliding = get(p, "sliding_attention");
	}
	take_rope(r, file, full, "rope_theta", theta, &spec->ropes[0]);
	if (r->arch == KVI_ARCH_GEMMA3)
		take_rope(r, file, sliding, "rope_local_base_freq", 10000, &spec->ropes[1]);
}

static void list_sliding(struct reader *r, const json_t *list, uint32_t layers, uint8_t *sliding)
{
	if (!json_is_array(list) || json_array_size(list) != layers)
		fail_value(r, "layer_types");
	for (uint32_t i = 0; i < layers && !r->ret; i++) {
		const char *type = json_string_value(json_array_get(list, i));
		if (!type)
			fail_value(r, "layer_types");
		else if (!strcmp(type, "sliding_attention"))
			sliding[i] = 1;
		else if (strcmp(type, "full_attention") != 0)
			fail_known(r, "layer_types", "full_attention and sliding_attention");
	}
}

/* Reads the layers that see a window, and its length. */
static void take_windows(struct reader *r, const struct kvi_model_file *file,
                         struct kvi_model_spec *spec, uint8_t *sliding)
{
	const struct defaults *d = &defaults[r->arch];
	const json_t *list = get(r->o, "layer_types");
	bool gemma3 = r->arch == KVI_ARCH_GEMMA3;
	/* A null is not a missing value: there is no window. */
	bool stated = json_object_get(r->o, "sliding_window") != NULL;
	uint32_t window = stated       ? get_count(r, "sliding_window", 0)
	                  : r->mistral ? 4096
	                               : d->window;
	if (!gemma3 && !r->mistral && !get_bool(r, "use_sliding_window", false))
		window = 0;
	if (!window)
		return;
	uint32_t period = get_count(r, "sliding_window_pattern", 6);
	uint32_t from = r->mistral || gemma3 ? 0
	                                     : get_count(r, "max_window_layers", d->window_from);
	if (!period)
		fail_value(r, "sliding_window_pattern");
	else if (list && !r->mistral)
		list_sliding(r, list, file->n_layers, sliding);
	else
		for (uint32_t i = from; i < file->n_layers; i++)
			sliding[i] = !gemma3 || (i + 1) % period;
	spec->window = window;
	spec->sliding = sliding;
}

/* Text models inside of others are under text_config. */
static kvarc_ret find_arch(struct reader *r, const json_t *root)
{
	r->o = root;
	const char *type = json_string_value(json_object_get(root, "model_type"));
	const json_t *text = get(root, "text_config");
	if (type && !strcmp(type, "gemma3") && json_is_object(text)) {
		r->o = text;
		type = "gemma3_text";
	}
	if (!type)
		return kvi_fail(r->error, KVARC_DATA,
		                "config.json names no \"model_type\": it is not of a model");
	r->mistral = !strcmp(type, "mistral");
	r->arch = kvi_arch_find(type, true, r->error);
	return r->arch < 0 ? KVARC_OPTIONS : KVARC_OK;
}

static kvarc_ret read_all(struct reader *r, const json_t *root, struct kvi_model_file *file,
                          struct kvi_model_spec *spec, uint8_t **sliding)
{
	kvarc_ret ret = find_arch(r, root);
	if (ret)
		return ret;
	const char *name = json_string_value(get(root, "_name_or_path"));
	char shown[KVI_SHOWN_BYTES];
	if (name)
		snprintf(file->name, sizeof file->name, "%s", kvi_shown(shown, name, strlen(name)));
	kvi_arch_begin(file, r->arch, true);
	take_sizes(r, file);
	take_scales(r, file);
	take_head(r, file, spec);
	check_known(r);
	if (r->ret)
		return r->ret;
	if (file->n_layers < 1 || file->n_layers > KVI_MODEL_LAYERS_MAX)
		return kvi_fail(r->error, KVARC_DATA,
		                "config.json: the number of layers is missing, or not possible");
	*sliding = kvi_calloc(file->alloc, file->n_layers, 1);
	if (!*sliding)
		return kvi_fail_alloc(r->error, file->alloc);
	if (r->arch != KVI_ARCH_GPT2)
		take_ropes(r, file, spec);
	if (r->arch != KVI_ARCH_GPT2 && (r->arch != KVI_ARCH_LLAMA || r->mistral))
		take_windows(r, file, spec, *sliding);
	return r->ret;
}

kvarc_ret kvi_config_json(struct kvi_model_file *file, struct kvi_map config, int *arch,
                          struct kvi_model_spec *spec, uint8_t **sliding, kvarc_error *error)
{
	struct reader r = { .error = error };
	uint64_t capacity = file->alloc->limit;
	json_t *root;
	kvarc_ret ret = kvi_json_load(config.p, config.n, "config.json", &capacity, &root, error);
	if (ret)
		return ret;
	ret = read_all(&r, root, file, spec, sliding);
	*arch = r.arch;
	json_decref(root);
	return ret;
}

#endif
