/* SPDX-License-Identifier: BSD-3-Clause */
/* gguf_import.c - the few metadata of a GGUF model file that describe its caches */
#include "gguf_import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parse/gguf_scan.h"
#include "numeric/rope_search.h"

/* Architectures whose RoPE turns channel 2i with 2i + 1; all others are half. */
static const char *const interleaved[] = {
	"llama",         "llama4",    "deci",       "baichuan", "starcoder", "internlm2",
	"minicpm",       "xverse",    "command-r",  "cohere2",  "olmo",      "arctic",
	"deepseek",      "deepseek2", "plm",        "chatglm",  "granite",   "granitemoe",
	"granitehybrid", "chameleon", "bailingmoe", "smollm3",  "arcee",     "ernie4_5",
	"ernie4_5-moe",  "mistral3",  "mistral4",   "apertus",
};

static uint32_t as_count(const struct kvi_gguf_value *v)
{
	return v->number >= 1 && v->number <= 65535 ? (uint32_t)v->number : 0;
}

/* What is needed on the way: embedding / heads gives the default head size. */
struct extra {
	uint32_t embedding, query_heads;
};

static void take(struct kvi_gguf *g, struct extra *x, const char *key,
                 const struct kvi_gguf_value *v)
{
	if (!strcmp(key, "general.architecture"))
		snprintf(g->arch, sizeof g->arch, "%.31s", v->text);
	else if (!strcmp(key, "general.name"))
		snprintf(g->name, sizeof g->name, "%s", v->text);
	/* The rest begins with the architecture. */
	const char *dot = strchr(key, '.');
	if (!dot)
		return;
	dot++;
	if (!strcmp(dot, "block_count"))
		g->blocks = as_count(v);
	else if (!strcmp(dot, "embedding_length"))
		x->embedding = as_count(v);
	else if (!strcmp(dot, "attention.head_count"))
		x->query_heads = as_count(v);
	else if (!strcmp(dot, "attention.head_count_kv"))
		g->heads = as_count(v);
	else if (!strcmp(dot, "attention.key_length"))
		g->key_channels = as_count(v);
	else if (!strcmp(dot, "attention.value_length"))
		g->value_channels = as_count(v);
	else if (!strcmp(dot, "rope.dimension_count"))
		g->rotary = as_count(v);
	else if (!strcmp(dot, "rope.freq_base"))
		g->theta = v->number;
	else if (!strcmp(dot, "rope.scaling.type"))
		g->scaled = strcmp(v->text, "none") && strcmp(v->text, "linear");
	else if (!strcmp(dot, "rope.scaling.factor") && v->number >= 1)
		g->linear = v->number;
}

static void settle(struct kvi_gguf *g, const struct extra *x)
{
	if (!g->key_channels && x->query_heads)
		g->key_channels = x->embedding / x->query_heads;
	if (!g->value_channels)
		g->value_channels = g->key_channels;
	if (!g->heads)
		g->heads = x->query_heads;
	if (!g->rotary)
		g->rotary = g->key_channels;
	if (!(g->theta > 1) || !isfinite(g->theta))
		g->theta = 10000;
	g->pairing = KVARC_ROPE_HALF;
	for (size_t i = 0; i < sizeof interleaved / sizeof *interleaved; i++)
		if (!strcmp(g->arch, interleaved[i]))
			g->pairing = KVARC_ROPE_INTERLEAVED;
	g->present = true;
}

static kvarc_ret read_pairs(struct kvi_gguf *g, struct kvi_scan *s)
{
	uint64_t tensors, n;
	kvarc_ret ret = kvi_gguf_scan_head(s, &tensors, &n);
	if (ret)
		return ret;
	struct extra x = { 0, 0 };
	for (uint64_t i = 0; i < n; i++) {
		char key[96];
		struct kvi_gguf_value v;
		if (!kvi_gguf_scan_pair(s, key, sizeof key, &v))
			return s->io ? KVARC_IO : KVARC_DATA;
		take(g, &x, key, &v);
	}
	settle(g, &x);
	return KVARC_OK;
}

kvarc_ret kvi_gguf_read(struct kvi_gguf *g, const struct kvi_alloc *alloc, const kvarc_source *src)
{
	memset(g, 0, sizeof *g);
	g->linear = 1;
	if (src->size == KVARC_UNKNOWN)
		return KVARC_OPTIONS;
	struct kvi_scan *s = kvi_scan_open(alloc, src);
	if (!s)
		return kvi_alloc_error(alloc);
	kvarc_ret ret = read_pairs(g, s);
	kvi_free(alloc, s);
	return ret;
}
