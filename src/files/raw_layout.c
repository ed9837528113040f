/* SPDX-License-Identifier: BSD-3-Clause */
/* raw_layout.c - descriptions of raw pages of engines by name, with what a config.json adds */
#include "config.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarc.h"
#include "parse/json_text.h"
#include "raw_pages.h"
#include "util/alloc.h"
#include "util/error.h"
#include "util/source.h"
#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"
#endif

#define CONFIG_NEEDS "config.json cannot be read: it needs " JANSSON_MISSING
/* A config.json of this size takes 23 MB at most. */
enum { CONFIG_MAX = 256 << 10, GROUP_MAX = 4096 };

/* In the order in which an engine's file has them. */
static const struct {
	const char *name, *order;
} layouts[] = {
	{ "vllm", "LTH2D" },
	{ "vllm:hnd", "LPHB2D" },
	{ "vllm:split", "LP2BHD" },
	{ "vllm:mla", "LTD" },
	{ "sglang:layer_first", "2LTHD" },
	{ "sglang:page_first", "2TLHD" },
	{ "sglang:page_first_direct", "2LTHD" },
	{ "sglang:page_head", "2HTLD" },
	{ "lmcache", "2LTHD" },
	{ "lmcache:t2d", "T2HD" },
	{ "lmcache:mla", "LTD" },
};

/* What is known of a file; extents by index in KVI_RAW_LETTERS, 0: not known. */
struct known {
	const char *dtype; /* NULL: not known */
	uint64_t extent[KVI_RAW_AXES_MAX];
};

/* "torch.bfloat16" -> "bf16"; NULL: another type. */
static const char *dtype_of(const char *text, size_t n)
{
	static const char *const names[][2] = {
		{ "bfloat16", "bf16" },    { "float16", "f16" },   { "half", "f16" },
		{ "float32", "f32" },      { "float", "f32" },     { "float8_e4m3fn", "e4m3" },
		{ "float8_e5m2", "e5m2" }, { "fp8_e4m3", "e4m3" }, { "fp8_e5m2", "e5m2" },
		{ "int8", "i8" },          { "uint8", "u8" },
	};
	if (n > 6 && !strncmp(text, "torch.", 6)) {
		text += 6;
		n -= 6;
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strlen(names[i][0]) == n && !strncmp(names[i][0], text, n))
			return names[i][1];
	return NULL;
}

/* "MODEL@...@bfloat16.pt": LMCache has the type in some of its names. */
static void take_name(struct known *k, const char *path)
{
	const char *base = strrchr(path, '/');
	base = base ? base + 1 : path;
	for (const char *p = strchr(base, '@'); p; p = strchr(p + 1, '@')) {
		const char *dtype = dtype_of(p + 1, strcspn(p + 1, "@."));
		k->dtype = dtype ? dtype : k->dtype;
	}
}

#ifdef HAVE_JANSSON

static void set(struct known *k, char letter, int64_t n)
{
	if (n > 0 && n <= UINT32_MAX)
		k->extent[strchr(KVI_RAW_LETTERS, letter) - KVI_RAW_LETTERS] = (uint64_t)n;
}

/* ".../hh_g1/HASH.bin": the group of layers; 0 where the path has none. */
static size_t group_of(const char *path)
{
	size_t group = 0;
	for (const char *p = strstr(path, "_g"); p; p = strstr(p + 2, "_g")) {
		char *end;
		const unsigned long v = strtoul(p + 2, &end, 10);
		if (end > p + 2 && *end == '/' && v < GROUP_MAX)
			group = v;
	}
	return group;
}

static int64_t number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void take_dtype(struct known *k, const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));
	const char *dtype = text ? dtype_of(text, strlen(text)) : NULL;
	k->dtype = dtype ? dtype : k->dtype;
}

/* The config.json of vLLM's file system tier. */
static void take_tier(struct known *k, const json_t *root, const json_t *groups, const char *path)
{
	const json_t *group = json_array_get(groups, group_of(path));
	const int64_t tokens = number(group, "tokens_per_block");
	const int64_t blocks = number(root, "blocks_per_file");
	const int64_t pages = blocks > 0 && blocks <= UINT32_MAX ? blocks : 1;
	take_dtype(k, root, "dtype");
	set(k, 'L', (int64_t)json_array_size(json_object_get(group, "layer_names")));
	set(k, 'P', pages);
	set(k, 'B', tokens);
	if (tokens > 0 && tokens <= UINT32_MAX / pages)
		set(k, 'T', tokens * pages);
}

/* The config.json of a model. */
static void take_model(struct known *k, const json_t *root)
{
	const json_t *o = json_object_get(root, "text_config");
	o = json_is_object(o) ? o : root;
	const int64_t query = number(o, "num_attention_heads"), hidden = number(o, "hidden_size");
	const int64_t heads = number(o, "num_key_value_heads"), channels = number(o, "head_dim");
	take_dtype(k, root, "torch_dtype");
	take_dtype(k, root, "dtype");
	set(k, 'L', number(o, "num_hidden_layers"));
	set(k, 'H', heads > 0 ? heads : query);
	set(k, 'D', channels > 0 ? channels : query > 0 ? hidden / query : 0);
}

static kvarc_ret take_config(struct known *k, const kvarc_source *config, const char *path,
                             kvarc_error *e)
{
	json_t *root = NULL;
	if (config->size > CONFIG_MAX)
		return kvi_fail(e, KVARC_DATA, "config.json is longer than 256 KiB");
	if (!kvi_jansson(NULL))
		return kvi_fail(e, KVARC_OPTIONS, CONFIG_NEEDS);
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, NULL, 2 * CONFIG_MAX);
	char *text = kvi_malloc(&alloc, (size_t)config->size + 1);
	if (!text)
		return kvi_fail_alloc(e, &alloc);
	kvarc_ret ret = KVARC_OK;
	if (kvi_source_read(config, text, (size_t)config->size, 0))
		ret = KVARC_IO;
	uint64_t budget = (uint64_t)CONFIG_MAX * KVI_JSON_COST;
	/* what is no JSON has no root */
	if (!ret)
		(void)!kvi_json_parse(text, (size_t)config->size, &budget, &root);
	kvi_free(&alloc, text);
	if (ret)
		return kvi_fail(e, ret, "reading config.json failed");
	if (!json_is_object(root)) {
		json_decref(root);
		return kvi_fail(e, KVARC_DATA, "config.json is not a JSON object");
	}
	const json_t *groups = json_object_get(root, "kv_cache_groups");
	if (json_is_array(groups))
		take_tier(k, root, groups, path);
	else
		take_model(k, root);
	json_decref(root);
	return KVARC_OK;
}

#else

static kvarc_ret take_config(struct known *k, const kvarc_source *config, const char *path,
                             kvarc_error *e)
{
	(void)k;
	(void)config;
	(void)path;
	return kvi_fail(e, KVARC_OPTIONS, CONFIG_NEEDS);
}

#endif

static const char *find_order(const char *layout, size_t n)
{
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
		if (strlen(layouts[i].name) == n && !strncmp(layouts[i].name, layout, n))
			return layouts[i].order;
	return NULL;
}

/* Whether the words behind the name, "bf16,D=64", give this letter themselves. */
static bool is_given(const char *words, char letter)
{
	for (; *words; words += *words == ',') {
		if (words[0] == letter && words[1] == '=')
			return true;
		words += strcspn(words, ",");
	}
	return false;
}

/* The type among the words, which is taken out of them: "bf16,D=64" -> "D=64". */
static void split_words(const char *words, char *dtype, size_t dtype_bytes, char *rest,
                        size_t rest_bytes)
{
	*dtype = *rest = '\0';
	while (*words) {
		const size_t n = strcspn(words, ",");
		if (n > 1 && words[1] == '=') {
			const size_t at = strlen(rest);
			snprintf(rest + at, rest_bytes - at, ",%.*s", (int)n, words);
		} else if (n < dtype_bytes) {
			snprintf(dtype, dtype_bytes, "%.*s", (int)n, words);
		}
		words += n + (words[n] == ',');
	}
}

kvarc_ret kvarc_raw_layout(const char *layout, const char *path, const kvarc_source *config,
                           char *raw, size_t bytes, kvarc_error *error)
{
	struct known k = { 0 };
	char dtype[16], rest[128], shown[KVI_RAW_SHOWN];
	if (!layout || !raw || !bytes)
		return KVARC_PROG;
	*raw = '\0';
	const size_t n = strcspn(layout, ",");
	const char *order = find_order(layout, n), *words = layout + n + (layout[n] == ',');
	if (!order || strlen(words) >= sizeof rest - 1)
		return kvi_fail(error, KVARC_PROG,
		                "'%s' is no layout; give vllm, vllm:hnd, vllm:split, vllm:mla, "
		                "sglang:layer_first, sglang:page_first, sglang:page_first_direct, "
		                "sglang:page_head, lmcache, lmcache:t2d or lmcache:mla",
		                kvi_raw_shown(shown, layout, strlen(layout)));
	kvarc_ret ret = config ? take_config(&k, config, path ? path : "", error) : KVARC_OK;
	if (ret)
		return ret;
	take_name(&k, path ? path : "");
	split_words(words, dtype, sizeof dtype, rest, sizeof rest);
	if (!*dtype && !k.dtype)
		return kvi_fail(error, KVARC_PROG,
		                "layout %.*s: nothing says which type the elements have; give it, "
		                "like %.*s,bf16",
		                (int)n, layout, (int)n, layout);
	size_t at = (size_t)snprintf(raw, bytes, "%s,%s%s", *dtype ? dtype : k.dtype, order, rest);
	for (const char *p = order; *p && at < bytes; p++) {
		const uint64_t v = k.extent[strchr(KVI_RAW_LETTERS, *p) - KVI_RAW_LETTERS];
		if (v && *p != '2' && !is_given(words, *p))
			at += (size_t)snprintf(raw + at, bytes - at, ",%c=%" PRIu64, *p, v);
	}
	if (at >= bytes)
		return kvi_fail(error, KVARC_PROG, "the description needs a longer buffer");
	struct kvi_raw r;
	return kvi_raw_parse(&r, raw, error);
}
