/* SPDX-License-Identifier: BSD-3-Clause */
/* gguf.c - the few metadata of a GGUF model file that describe its caches */
#include "gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "import/scan.h"
#include "model/rope_search.h"
#include "util/ckd.h"

enum {
	GGUF_MAGIC = 0x46554747, /* "GGUF" */
	PAIRS_MAX = 1 << 16,
	DEPTH_MAX = 4            /* of arrays in arrays */
};

/* Value types of the format. */
enum {
	T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_STRING,
	T_ARRAY, T_U64, T_I64, T_F64, N_TYPES
};
static const uint8_t type_bytes[N_TYPES] = {
	1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8
};

/* Architectures whose RoPE turns channel 2i with 2i + 1; all others are half. */
static const char *const interleaved[] = {
	"llama", "llama4", "deci", "baichuan", "starcoder", "internlm2",
	"minicpm", "xverse", "command-r", "cohere2", "olmo", "arctic",
	"deepseek", "deepseek2", "plm", "chatglm", "granite", "granitemoe",
	"granitehybrid", "chameleon", "bailingmoe", "smollm3", "arcee",
	"ernie4_5", "ernie4_5-moe", "mistral3", "mistral4", "apertus",
};

struct value {
	uint32_t type;
	double number;
	char text[128];
};

static bool skip_value(struct kvi_scan *s, uint32_t type, int depth)
{
	if (type < N_TYPES && type_bytes[type]) {
		kvi_scan_skip(s, type_bytes[type]);
	} else if (type == T_STRING) {
		kvi_scan_skip(s, kvi_scan64(s));
	} else if (type == T_ARRAY && depth < DEPTH_MAX) {
		uint32_t of = kvi_scan32(s);
		uint64_t n = kvi_scan64(s), bytes;
		if (s->bad || of >= N_TYPES || n > kvi_scan_left(s))
			return false;
		if (type_bytes[of]) {
			if (kvi_mul(n, type_bytes[of], &bytes))
				return false;
			kvi_scan_skip(s, bytes);
		}
		/* each takes 8 bytes or more, or sets bad */
		for (uint64_t i = 0; !type_bytes[of] && i < n && !s->bad; i++)
			if (!skip_value(s, of, depth + 1))
				return false;
	} else {
		return false;
	}
	return !s->bad;
}

/* A string into a fixed buffer, cut if it is longer. */
static void scan_text(struct kvi_scan *s, char *dst, size_t room)
{
	uint64_t n = kvi_scan64(s);
	size_t keep = n < room - 1 ? (size_t)n : room - 1;
	dst[0] = '\0';
	if (n > kvi_scan_left(s) || !kvi_scan_bytes(s, dst, keep)) {
		s->bad = true;
		return;
	}
	dst[keep] = '\0';
	kvi_scan_skip(s, n - keep);
}

static double as_float(uint64_t bits, uint32_t type)
{
	if (type == T_F32) {
		uint32_t low = (uint32_t)bits;
		float f;
		memcpy(&f, &low, sizeof f);
		return (double)f;
	}
	double d;
	memcpy(&d, &bits, sizeof d);
	return d;
}

static bool scan_value(struct kvi_scan *s, struct value *v)
{
	uint8_t raw[8] = { 0 };
	v->number = 0;
	v->text[0] = '\0';
	if (v->type == T_STRING) {
		scan_text(s, v->text, sizeof v->text);
		return !s->bad;
	}
	if (v->type >= N_TYPES || !type_bytes[v->type])
		return skip_value(s, v->type, 0);
	if (!kvi_scan_bytes(s, raw, type_bytes[v->type]))
		return false;
	uint64_t bits = (uint64_t)raw[0] | (uint64_t)raw[1] << 8 |
	                (uint64_t)raw[2] << 16 | (uint64_t)raw[3] << 24 |
	                (uint64_t)raw[4] << 32 | (uint64_t)raw[5] << 40 |
	                (uint64_t)raw[6] << 48 | (uint64_t)raw[7] << 56;
	v->number = v->type == T_F32 || v->type == T_F64
	            ? as_float(bits, v->type) : (double)bits;
	return true;
}

static uint32_t as_count(const struct value *v)
{
	return v->number >= 1 && v->number <= 65535 ? (uint32_t)v->number : 0;
}

/* What is needed on the way: embedding / heads gives the default head size. */
struct extra {
	uint32_t embedding, query_heads;
};

static void take(struct kvi_gguf *g, struct extra *x, const char *key,
                 const struct value *v)
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
	if (kvi_scan32(s) != GGUF_MAGIC)
		return s->io ? KVARC_IO : KVARC_FORMAT;
	uint32_t version = kvi_scan32(s);
	if (version != 2 && version != 3)
		return KVARC_OPTIONS;
	(void)kvi_scan64(s); /* tensors: not looked at */
	uint64_t n = kvi_scan64(s);
	if (s->bad || n > PAIRS_MAX)
		return KVARC_DATA;
	struct extra x = { 0, 0 };
	for (uint64_t i = 0; i < n; i++) {
		char key[96];
		struct value v;
		scan_text(s, key, sizeof key);
		v.type = kvi_scan32(s);
		if (s->bad || !scan_value(s, &v))
			return s->io ? KVARC_IO : KVARC_DATA;
		take(g, &x, key, &v);
	}
	settle(g, &x);
	return KVARC_OK;
}

kvarc_ret kvi_gguf_read(struct kvi_gguf *g, const struct kvi_alloc *alloc,
                        const kvarc_source *src)
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
