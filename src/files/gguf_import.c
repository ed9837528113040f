/* SPDX-License-Identifier: BSD-3-Clause */
/* gguf_import.c - the few metadata of a GGUF model file that describe its caches */
#include "gguf_import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parse/gguf_scan.h"
#include "numeric/rope_search.h"

/* Architectures whose RoPE pairs channel 2i with 2i + 1; all others pair halves. */
static const char *const interleaved[] = {
	"llama",         "llama4",    "deci",       "baichuan", "starcoder", "internlm2",
	"minicpm",       "xverse",    "command-r",  "cohere2",  "olmo",      "arctic",
	"deepseek",      "deepseek2", "plm",        "chatglm",  "granite",   "granitemoe",
	"granitehybrid", "chameleon", "bailingmoe", "smollm3",  "arcee",     "ernie4_5",
	"ernie4_5-moe",  "mistral3",  "mistral4",   "apertus",
};

static uint32_t as_count(const struct kvi_gguf_value *value)
{
	return value->number >= 1 && value->number <= 65535 ? (uint32_t)value->number : 0;
}

/* Values for defaults: embedding / heads gives the default head size. */
struct extra {
	uint32_t embedding, query_heads;
};

static void take(struct kvi_gguf *gguf, struct extra *extra, const char *key,
                 const struct kvi_gguf_value *value)
{
	if (!strcmp(key, "general.architecture"))
		snprintf(gguf->arch, sizeof gguf->arch, "%.31s", value->text);
	else if (!strcmp(key, "general.name"))
		snprintf(gguf->name, sizeof gguf->name, "%s", value->text);
	/* All other keys begin with the architecture. */
	const char *dot = strchr(key, '.');
	if (!dot)
		return;
	dot++;
	if (!strcmp(dot, "block_count"))
		gguf->blocks = as_count(value);
	else if (!strcmp(dot, "embedding_length"))
		extra->embedding = as_count(value);
	else if (!strcmp(dot, "attention.head_count"))
		extra->query_heads = as_count(value);
	else if (!strcmp(dot, "attention.head_count_kv"))
		gguf->heads = as_count(value);
	else if (!strcmp(dot, "attention.key_length"))
		gguf->key_channels = as_count(value);
	else if (!strcmp(dot, "attention.value_length"))
		gguf->value_channels = as_count(value);
	else if (!strcmp(dot, "rope.dimension_count"))
		gguf->rotary = as_count(value);
	else if (!strcmp(dot, "rope.freq_base"))
		gguf->theta = value->number;
	else if (!strcmp(dot, "rope.scaling.type"))
		gguf->scaled = strcmp(value->text, "none") && strcmp(value->text, "linear");
	else if (!strcmp(dot, "rope.scaling.factor") && value->number >= 1)
		gguf->linear = value->number;
}

static void fill_defaults(struct kvi_gguf *gguf, const struct extra *extra)
{
	if (!gguf->key_channels && extra->query_heads)
		gguf->key_channels = extra->embedding / extra->query_heads;
	if (!gguf->value_channels)
		gguf->value_channels = gguf->key_channels;
	if (!gguf->heads)
		gguf->heads = extra->query_heads;
	if (!gguf->rotary)
		gguf->rotary = gguf->key_channels;
	if (!(gguf->theta > 1) || !isfinite(gguf->theta))
		gguf->theta = 10000;
	gguf->pairing = KVARC_ROPE_HALF;
	for (size_t i = 0; i < sizeof interleaved / sizeof *interleaved; i++)
		if (!strcmp(gguf->arch, interleaved[i]))
			gguf->pairing = KVARC_ROPE_INTERLEAVED;
	gguf->present = true;
}

static kvarc_ret read_pairs(struct kvi_gguf *gguf, struct kvi_scan *scan)
{
	uint64_t tensors, n;
	kvarc_ret ret = kvi_gguf_scan_head(scan, &tensors, &n);
	if (ret)
		return ret;
	struct extra x = { 0, 0 };
	for (uint64_t i = 0; i < n; i++) {
		char key[96];
		struct kvi_gguf_value v;
		if (!kvi_gguf_scan_pair(scan, key, sizeof key, &v))
			return scan->io ? KVARC_IO : KVARC_DATA;
		take(gguf, &x, key, &v);
	}
	fill_defaults(gguf, &x);
	return KVARC_OK;
}

kvarc_ret kvi_gguf_read(struct kvi_gguf *gguf, const struct kvi_alloc *alloc,
                        const kvarc_source *src)
{
	memset(gguf, 0, sizeof *gguf);
	gguf->linear = 1;
	if (src->size == KVARC_UNKNOWN)
		return KVARC_OPTIONS;
	struct kvi_scan *s = kvi_scan_open(alloc, src);
	if (!s)
		return kvi_alloc_error(alloc);
	kvarc_ret ret = read_pairs(gguf, s);
	kvi_free(alloc, s);
	return ret;
}
