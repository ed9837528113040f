/* SPDX-License-Identifier: BSD-3-Clause */
/* gguf_model.c - metadata and tensors of a GGUF file */
#include "model_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parse/gguf_scan.h"
#include "util/ckd.h"

/* Numbers that are needed, by the name after "ARCH." or "tokenizer.". */
enum key {
	K_LAYERS,
	K_WIDTH,
	K_FFN,
	K_HEADS,
	K_KV_HEADS,
	K_KEY,
	K_VALUE,
	K_ATTENTION_SCALE,
	K_RMS_EPSILON,
	K_EPSILON,
	K_WINDOW,
	K_PERIOD,
	K_ROTARY,
	K_THETA,
	K_THETA_SLIDING,
	K_LINEAR,
	K_LINEAR_OLD,
	K_EXPERTS,
	K_LOGIT_CAP,
	K_FIRST_TOKEN,
	N_KEYS
};
static const char *const keys[N_KEYS] = { "block_count",
	                                  "embedding_length",
	                                  "feed_forward_length",
	                                  "attention.head_count",
	                                  "attention.head_count_kv",
	                                  "attention.key_length",
	                                  "attention.value_length",
	                                  "attention.scale",
	                                  "attention.layer_norm_rms_epsilon",
	                                  "attention.layer_norm_epsilon",
	                                  "attention.sliding_window",
	                                  "attention.sliding_window_pattern",
	                                  "rope.dimension_count",
	                                  "rope.freq_base",
	                                  "rope.freq_base_swa",
	                                  "rope.scaling.factor",
	                                  "rope.scale_linear",
	                                  "expert_count",
	                                  "final_logit_softcapping",
	                                  "ggml.bos_token_id" };

struct pairs {
	char arch[32], scaling[32];
	double n[N_KEYS];
	bool has[N_KEYS], differs[N_KEYS]; /* differs: an array by layer, of more than one number */
	double alignment, parts;
};

struct loader {
	struct kvi_model_file *m;
	struct kvi_map file;
	struct kvi_scan *scan;
	struct pairs pairs;
	struct kvi_weights tensors;
	uint8_t *sliding;
	kvarc_error *error;
};

static int64_t map_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct kvi_map *map = opaque;
	if (offset >= map->n)
		return 0;
	size_t n = map->n - (size_t)offset < bytes ? map->n - (size_t)offset : bytes;
	memcpy(buf, map->p + offset, n);
	return (int64_t)n;
}

static kvarc_ret fail_damaged(const struct loader *loader)
{
	return kvi_fail_at(loader->error, KVARC_DATA, loader->scan->at, KVARC_UNKNOWN,
	                   "the header of the GGUF is damaged, or the file is cut: copy or "
	                   "download it again");
}

/* The number of a value; of an array the one that all elements are. */
static void take_number(struct loader *loader, enum key key, const struct kvi_gguf_value *value)
{
	struct pairs *p = &loader->pairs;
	unsigned bytes = kvi_gguf_type_bytes(value->of);
	const uint8_t *first = loader->file.p + value->at;
	p->has[key] = true;
	p->n[key] = value->number;
	p->differs[key] = false;
	if (value->type != KVI_GGUF_ARRAY)
		return;
	p->differs[key] = value->n == 0 || bytes == 0;
	for (uint64_t i = 1; i < value->n && !p->differs[key]; i++)
		p->differs[key] = memcmp(first, first + i * bytes, bytes) != 0;
	if (!p->differs[key])
		p->n[key] = kvi_gguf_number(value->of, first);
}

static void show_text(char *dst, size_t capacity, const char *text)
{
	char shown[KVI_SHOWN_BYTES];
	size_t n = strlen(text);
	snprintf(dst, capacity, "%s", kvi_shown(shown, text, n));
}

/* gemma3's layers by a list instead of a period. */
static kvarc_ret take_pattern(struct loader *loader, const struct kvi_gguf_value *value)
{
	if (value->of != KVI_GGUF_BOOL || value->n == 0 || value->n > KVI_MODEL_LAYERS_MAX)
		return fail_damaged(loader);
	kvi_free(loader->m->alloc, loader->sliding);
	loader->sliding = kvi_calloc(loader->m->alloc, KVI_MODEL_LAYERS_MAX, 1);
	if (!loader->sliding)
		return kvi_fail_alloc(loader->error, loader->m->alloc);
	for (uint64_t i = 0; i < value->n; i++)
		loader->sliding[i] = loader->file.p[value->at + i] != 0;
	return KVARC_OK;
}

static kvarc_ret take(struct loader *loader, const char *key, const struct kvi_gguf_value *value)
{
	struct pairs *p = &loader->pairs;
	if (!strcmp(key, "general.architecture"))
		show_text(p->arch, sizeof p->arch, value->text);
	else if (!strcmp(key, "general.name"))
		show_text(loader->m->name, sizeof loader->m->name, value->text);
	else if (!strcmp(key, "general.alignment"))
		p->alignment = value->number;
	else if (!strcmp(key, "split.count"))
		p->parts = value->number;
	/* The rest begins with the architecture. */
	const char *dot = strchr(key, '.');
	if (!dot)
		return KVARC_OK;
	dot++;
	if (!strcmp(dot, "rope.scaling.type"))
		show_text(p->scaling, sizeof p->scaling, value->text);
	if (!strcmp(dot, keys[K_PERIOD]) && value->type == KVI_GGUF_ARRAY)
		return take_pattern(loader, value);
	for (int i = 0; i < N_KEYS; i++)
		if (!strcmp(dot, keys[i]))
			take_number(loader, (enum key)i, value);
	return KVARC_OK;
}

static kvarc_ret read_pairs(struct loader *loader, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		char key[96];
		struct kvi_gguf_value v;
		if (!kvi_gguf_scan_pair(loader->scan, key, sizeof key, &v))
			return fail_damaged(loader);
		kvarc_ret ret = take(loader, key, &v);
		if (ret)
			return ret;
	}
	if (loader->pairs.parts > 1)
		return kvi_fail(loader->error, KVARC_OPTIONS,
		                "this is one of %.0f parts of a model: "
		                "merge them first (llama-gguf-split --merge)",
		                loader->pairs.parts);
	return KVARC_OK;
}

/* Name, axes (innermost first), type and offset; the offset goes to *offset. */
static kvarc_ret read_tensor(struct loader *loader, struct kvi_weight *w, uint64_t *offset)
{
	struct kvi_scan *s = loader->scan;
	uint64_t axes[4] = { 1, 1, 1, 1 };
	w->name_n = (size_t)kvi_scan64(s);
	w->name = (const char *)loader->file.p + s->at;
	kvi_scan_skip(s, w->name_n);
	uint32_t n_axes = kvi_scan32(s);
	if (s->bad || n_axes > 4)
		return fail_damaged(loader);
	for (uint32_t i = 0; i < n_axes; i++)
		axes[i] = kvi_scan64(s);
	uint32_t type = kvi_scan32(s);
	*offset = kvi_scan64(s);
	if (s->bad)
		return fail_damaged(loader);
	const struct kvi_number_info *t = kvi_number_info(type);
	w->columns = axes[0];
	w->rows = axes[1];
	w->plain = axes[2] == 1 && axes[3] == 1;
	w->type = t ? (uint8_t)type : KVI_NUM_NONE;
	if (t)
		snprintf(w->type_name, sizeof w->type_name, "%s", t->name);
	else
		snprintf(w->type_name, sizeof w->type_name, "%u", (unsigned)type);
	/* Tensors of unknown types, or of more than two axes, are never read. */
	if (!t || !w->plain) {
		w->type = KVI_NUM_NONE;
		return KVARC_OK;
	}
	if (w->columns % t->elements ||
	    kvi_mul(w->columns / t->elements * t->bytes, w->rows, &w->bytes) ||
	    w->columns > UINT64_MAX / 8)
		return fail_damaged(loader);
	return KVARC_OK;
}

/* Offsets are from the first multiple of the alignment after the header. */
static kvarc_ret place_tensors(struct loader *loader, const uint64_t *offsets)
{
	char shown[KVI_SHOWN_BYTES];
	uint64_t a = loader->pairs.alignment >= 1 && loader->pairs.alignment <= 65536
	                     ? (uint64_t)loader->pairs.alignment
	                     : 0;
	if (a == 0 || (a & (a - 1)))
		return fail_damaged(loader);
	uint64_t start = (loader->scan->at + a - 1) / a * a;
	for (size_t i = 0; i < loader->tensors.n; i++) {
		struct kvi_weight *w = &loader->tensors.w[i];
		if (offsets[i] % a)
			return fail_damaged(loader);
		if (start > loader->file.n || offsets[i] > loader->file.n - start ||
		    w->bytes > loader->file.n - start - offsets[i])
			return kvi_fail(loader->error, KVARC_DATA,
			                "the file ends before the end of "
			                "tensor %s: copy or download it again",
			                kvi_shown(shown, w->name, w->name_n));
		w->data = loader->file.p + start + offsets[i];
	}
	return KVARC_OK;
}

static kvarc_ret read_tensors(struct loader *loader, uint64_t n)
{
	const struct kvi_alloc *alloc = loader->m->alloc;
	if (n > KVI_MODEL_TENSORS_MAX || n > kvi_scan_remaining(loader->scan) / 24)
		return fail_damaged(loader);
	if (n == 0)
		return kvi_weights_sort(&loader->tensors, loader->error);
	uint64_t *offsets = kvi_array(alloc, (size_t)n, sizeof *offsets);
	loader->tensors.w = kvi_calloc(alloc, (size_t)n, sizeof *loader->tensors.w);
	loader->tensors.n = (size_t)n;
	kvarc_ret ret = KVARC_OK;
	if (!offsets || !loader->tensors.w)
		ret = kvi_fail_alloc(loader->error, alloc);
	for (size_t i = 0; i < n && !ret; i++)
		ret = read_tensor(loader, &loader->tensors.w[i], &offsets[i]);
	if (!ret)
		ret = place_tensors(loader, offsets);
	kvi_free(alloc, offsets);
	return ret ? ret : kvi_weights_sort(&loader->tensors, loader->error);
}

/* The value of a key as a count, `missing` where there is none; 0: it is no count, which the checks
 * of sizes find. */
static uint32_t count(const struct loader *loader, enum key key, uint32_t missing)
{
	double n = loader->pairs.n[key];
	if (!loader->pairs.has[key])
		return missing;
	return n >= 1 && n <= 1 << 24 ? (uint32_t)n : 0;
}

static double number(const struct loader *loader, enum key key, double missing)
{
	return loader->pairs.has[key] ? loader->pairs.n[key] : missing;
}

/* Fails for settings that the engine does not implement. */
static kvarc_ret check_known(const struct loader *loader)
{
	const struct pairs *p = &loader->pairs;
	for (int i = 0; i < N_KEYS; i++)
		if (p->differs[i])
			return kvi_fail(loader->error, KVARC_OPTIONS,
			                "%s of the model differs by "
			                "layer: such models cannot be run",
			                keys[i]);
	if (p->has[K_EXPERTS] && p->n[K_EXPERTS] > 0)
		return kvi_fail(loader->error, KVARC_OPTIONS,
		                "the model is a mixture of experts: such models cannot be run");
	if (p->scaling[0] && strcmp(p->scaling, "none") && strcmp(p->scaling, "linear"))
		return kvi_fail(loader->error, KVARC_OPTIONS,
		                "the model scales its rotary embedding by "
		                "\"%s\": known are none, linear and llama 3's factors",
		                p->scaling);
	if (p->has[K_VALUE] && count(loader, K_VALUE, 0) != loader->m->head_channels)
		return kvi_fail(loader->error, KVARC_OPTIONS,
		                "values of the model have other channels "
		                "than keys: such models cannot be run");
	return KVARC_OK;
}

static void take_sizes(struct loader *loader, int arch)
{
	struct kvi_model_file *m = loader->m;
	m->n_layers = count(loader, K_LAYERS, 0);
	m->width = count(loader, K_WIDTH, 0);
	m->ffn = count(loader, K_FFN, 0);
	m->heads = count(loader, K_HEADS, 0);
	m->kv_heads = count(loader, K_KV_HEADS, m->heads);
	m->head_channels = count(loader, K_KEY, m->heads ? m->width / m->heads : 0);
	m->norm_epsilon = (float)number(loader, m->layer_norm ? K_EPSILON : K_RMS_EPSILON, -1);
	/* The largest gemma3 has another scale, which files do not say. */
	double scaled = m->head_channels;
	if (arch == KVI_ARCH_GEMMA3 && m->n_layers == 62 && m->heads)
		scaled = m->width / m->heads;
	m->attention_scale = (float)number(loader, K_ATTENTION_SCALE,
	                                   scaled > 0 ? 1 / sqrt(scaled) : 0);
	if (arch == KVI_ARCH_GEMMA3)
		m->embedding_scale = sqrtf((float)m->width);
}

/* Reads the settings of the head and of its users. */
static void take_head(const struct loader *loader, int arch)
{
	struct kvi_model_file *m = loader->m;
	double id = number(loader, K_FIRST_TOKEN, -1);
	if (id >= 0 && id <= 1 << 24)
		m->first_token = (int32_t)id;
	if (arch == KVI_ARCH_GEMMA3)
		m->logit_cap = (float)number(loader, K_LOGIT_CAP, 0);
}

static void take_rope(const struct loader *loader, struct kvi_rope_rule *r)
{
	double linear = number(loader, K_LINEAR, number(loader, K_LINEAR_OLD, 1));
	r->rotary = count(loader, K_ROTARY, loader->m->head_channels);
	r->theta = number(loader, K_THETA, 10000);
	if (r->theta == 0) /* 0 means none to others */
		r->theta = -1;
	if (strcmp(loader->pairs.scaling, "none") && linear != 1 && linear != 0) {
		r->scaling = KVI_ROPE_LINEAR;
		r->factor = linear;
	}
}

/* Every PERIOD-th layer sees all, the others a window with a rope of their own. */
static kvarc_ret take_windows(struct loader *loader, struct kvi_model_spec *spec)
{
	uint32_t period = count(loader, K_PERIOD, 6);
	spec->window = count(loader, K_WINDOW, 0);
	if (!spec->window)
		return KVARC_OK;
	if (!loader->sliding) {
		loader->sliding = kvi_calloc(loader->m->alloc, KVI_MODEL_LAYERS_MAX, 1);
		if (!loader->sliding)
			return kvi_fail_alloc(loader->error, loader->m->alloc);
		for (uint32_t i = 0; i < KVI_MODEL_LAYERS_MAX; i++)
			loader->sliding[i] = !period || i % period != period - 1;
	}
	spec->sliding = loader->sliding;
	spec->ropes[1] = (struct kvi_rope_rule){ .rotary = spec->ropes[0].rotary,
		                                 .theta = number(loader, K_THETA_SLIDING, 10000) };
	return KVARC_OK;
}

static kvarc_ret build(struct loader *loader)
{
	struct kvi_model_spec spec = { .safetensors = false };
	if (!loader->pairs.arch[0])
		return kvi_fail(loader->error, KVARC_DATA,
		                "the GGUF does not name an architecture: it is not a model");
	int arch = kvi_arch_find(loader->pairs.arch, false, loader->error);
	if (arch < 0)
		return KVARC_OPTIONS;
	kvi_arch_begin(loader->m, arch, false);
	take_sizes(loader, arch);
	take_head(loader, arch);
	kvarc_ret ret = check_known(loader);
	if (!ret && arch != KVI_ARCH_GPT2)
		take_rope(loader, &spec.ropes[0]);
	if (!ret && arch == KVI_ARCH_GEMMA3)
		ret = take_windows(loader, &spec);
	return ret ? ret : kvi_arch_bind(loader->m, arch, &spec, &loader->tensors, loader->error);
}

static kvarc_ret load(struct loader *loader)
{
	uint64_t tensors, pairs;
	kvarc_ret ret = kvi_gguf_scan_head(loader->scan, &tensors, &pairs);
	if (ret == KVARC_FORMAT)
		return kvi_fail(loader->error, ret,
		                "this is neither a GGUF file nor a folder with "
		                "config.json and safetensors");
	if (ret == KVARC_OPTIONS)
		return kvi_fail(loader->error, ret,
		                "the version of the GGUF is not known: known are 2 and 3");
	if (ret)
		return fail_damaged(loader);
	ret = read_pairs(loader, pairs);
	if (!ret)
		ret = read_tensors(loader, tensors);
	return ret ? ret : build(loader);
}

kvarc_ret kvi_gguf_model(struct kvi_model_file *model, struct kvi_map file, kvarc_error *error)
{
	kvarc_source src = { .read = map_read, .size = file.n };
	struct loader g = { .m = model, .file = file, .error = error };
	src.opaque = &g.file;
	g.pairs.alignment = 32;
	g.scan = kvi_scan_open(model->alloc, &src);
	if (!g.scan)
		return kvi_fail_alloc(error, model->alloc);
	kvarc_ret ret = load(&g);
	kvi_free(model->alloc, g.scan);
	kvi_free(model->alloc, g.tensors.w);
	kvi_free(model->alloc, g.sliding);
	return ret;
}
