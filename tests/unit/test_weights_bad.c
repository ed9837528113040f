/* SPDX-License-Identifier: BSD-3-Clause */
/* test_weights_bad.c - models that are damaged, lie, or are not known */
#include "config.h"

#include "models_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/gguf_scan.h"
#include "util/bytes.h"

/* Any result but a wrong one. */
#define ANY KVARC_PROG

static struct kvi_alloc alloc;
static char found[MODEL_TEXT_MAX];

/* Where a text ends; it must be there. */
static size_t after(const struct blob *b, const char *text)
{
	size_t n = strlen(text);
	for (size_t i = 0; i + n <= b->n; i++)
		if (!memcmp(b->p + i, text, n))
			return i + n;
	fail_msg("no %s in the file", text);
	return 0;
}

static void replace(struct blob *b, const char *from, const char *to)
{
	size_t end = after(b, from), n = strlen(to), old = strlen(from);
	uint8_t *p = malloc(b->n + n + 1);
	assert_non_null(p);
	memcpy(p, b->p, end - old);
	memcpy(p + end - old, to, n);
	memcpy(p + end - old + n, b->p + end, b->n - end);
	free(b->p);
	b->p = p;
	b->n += n - old;
}

/* A failure of a load is one line that says so; what loads can be read to its end. */
static void expect(kvarc_ret ret, const kvarc_error *e, struct kvi_model_file *m, kvarc_ret code,
                   const char *text)
{
	if (!ret) {
		model_text(m, found);
		unload(&m);
	}
	assert_int_equal(alloc.used, 0);
	if (ret != code || (text && !strstr(e->text, text)))
		fail_msg("\"%s\" (%d) is not \"%s\" (%d)", e->text, ret, text ? text : "", code);
	assert_true(!ret || (e->code == ret && e->text[0]));
	for (const char *c = e->text; *c; c++)
		assert_true(*c >= 32 && *c < 127);
}

static kvarc_ret try_gguf(const struct blob *b, kvarc_ret code, const char *text)
{
	struct kvi_model_file *m;
	kvarc_error e = { .text = "" };
	kvi_alloc_init(&alloc, NULL, 1 << 22);
	kvarc_ret ret = load_gguf(&m, &alloc, b, &e);
	expect(ret, &e, m, code == ANY ? ret : code, text);
	return ret;
}

static kvarc_ret try_folder(const struct model_folder *f, kvarc_ret code, const char *text)
{
	struct kvi_model_file *m;
	kvarc_error e = { .text = "" };
	kvi_alloc_init(&alloc, NULL, 1 << 22);
	kvarc_ret ret = load_folder(&m, &alloc, f, &e);
	expect(ret, &e, m, code == ANY ? ret : code, text);
	return ret;
}

/* ------------------------------------------------------------------- GGUF */

/* Bytes that are changed, from the end of a text on: of a key u32 type then the value, of a
 * tensor u32 axes, u64 columns, u64 rows (if two), u32 type, u64 offset. "": the factors of
 * the rope. */
struct edit {
	const char *at;
	int skip;
	unsigned bytes;
	uint64_t value;
	kvarc_ret code;
	const char *text;
};
#define F32_NAN 0x7fc00000
#define Q "blk.0.attn_q.weight"
static const struct edit llama_edits[] = {
	{ "GGUF", 0, 4, 1, KVARC_OPTIONS, "version" },
	{ "GGUF", 0, 4, 4, KVARC_OPTIONS, "version" },
	{ "GGU", 0, 1, 'X', KVARC_FORMAT, "neither" },
	{ "GGUF", 4, 8, 0, KVARC_DATA, "no tensors" },
	{ "GGUF", 4, 8, 400, KVARC_DATA, "header" },
	{ "GGUF", 4, 8, 1 << 20, KVARC_DATA, "header" },
	{ "GGUF", 4, 8, UINT64_MAX, KVARC_DATA, "header" },
	{ "GGUF", 12, 8, UINT64_MAX, KVARC_DATA, "header" },
	{ "GGUF", 12, 8, 60000, KVARC_DATA, "header" },
	{ "general.architecture", 12, 5, 0x336968702d, KVARC_OPTIONS, "known are" },
	{ "general.architecture", 12, 1, '\n', KVARC_OPTIONS, "architecture ?lama" },
	{ "general.architecture", 0, 4, 4, KVARC_DATA, "header" },
	{ "llama.block_count", 4, 4, 0, KVARC_DATA, "number of layers" },
	{ "llama.block_count", 4, 4, 2, KVARC_DATA, "no tensor blk.1.attn_norm" },
	{ "llama.block_count", 4, 4, 65536, KVARC_DATA, "number of layers" },
	{ "llama.block_count", 4, 4, UINT32_MAX, KVARC_DATA, "number of layers" },
	{ "llama.embedding_length", 4, 4, 64, KVARC_DATA, "token_embd.weight has" },
	{ "llama.embedding_length", 4, 4, 0, KVARC_DATA, "channels" },
	{ "llama.embedding_length", 4, 4, 1 << 22, KVARC_DATA, "channels" },
	{ "llama.feed_forward_length", 4, 4, 33, KVARC_DATA, "ffn_gate" },
	{ "llama.feed_forward_length", 4, 4, 0, KVARC_DATA, "feed-forward" },
	{ "llama.attention.head_count", 4, 4, 0, KVARC_DATA, "heads" },
	{ "llama.attention.head_count", 4, 4, 3, KVARC_DATA, "" },
	{ "llama.attention.head_count", 4, 4, 70000, KVARC_DATA, "heads" },
	{ "llama.attention.head_count_kv", 4, 4, 2, KVARC_DATA, "attn_k" },
	{ "llama.attention.head_count_kv", 4, 4, 4, KVARC_DATA, "heads" },
	{ "llama.rope.dimension_count", 4, 4, 15, KVARC_DATA, "cannot turn" },
	{ "llama.rope.dimension_count", 4, 4, 18, KVARC_DATA, "cannot turn" },
	{ "llama.rope.dimension_count", 4, 4, 0, KVARC_DATA, "cannot turn" },
	{ "llama.rope.dimension_count", 4, 4, 8, KVARC_DATA, "rope_freqs.weight" },
	{ "llama.rope.freq_base", 4, 4, F32_NAN, KVARC_DATA, "rotary" },
	{ "llama.rope.freq_base", 4, 4, 0, KVARC_DATA, "rotary" },
	{ "layer_norm_rms_epsilon", 4, 4, F32_NAN, KVARC_DATA, "epsilon" },
	{ "layer_norm_rms_epsilon", 4, 4, 0xbf800000, KVARC_DATA, "epsilon" },
	{ Q, 0, 4, 5, KVARC_DATA, "header" },
	{ Q, 4, 8, 31, KVARC_DATA, "header" },
	{ Q, 4, 8, 0, KVARC_DATA, Q " has" },
	{ Q, 4, 8, (uint64_t)1 << 63, KVARC_DATA, "header" },
	{ Q, 4, 8, (uint64_t)1 << 60, KVARC_DATA, "header" },
	{ Q, 12, 8, 16, KVARC_DATA, Q " has 16 x 32" },
	{ Q, 12, 8, 64, KVARC_DATA, "overlap" },
	{ Q, 12, 8, 320, KVARC_DATA, "overlap" },
	{ Q, 12, 8, 32000, KVARC_DATA, "file ends before the end of tensor " Q },
	{ Q, 12, 8, UINT64_MAX, KVARC_DATA, "header" },
	{ Q, 20, 4, 23, KVARC_OPTIONS, Q " has numbers of type 23: known are F32" },
	{ Q, 20, 4, 4, KVARC_OPTIONS, "type 4:" },
	{ Q, 20, 4, 0, KVARC_DATA, "overlap" },
	{ Q, 24, 8, 1, KVARC_DATA, "header" },
	{ Q, 24, 8, UINT64_MAX - 31, KVARC_DATA, "end of tensor " Q },
	{ Q, 24, 8, 0, KVARC_DATA, "overlap" },
	{ "blk.0.attn_k.wei", 0, 1, 'X', KVARC_DATA, "no tensor blk.0.attn_k.weight" },
	{ "blk.0.attn_k.weight", -8, 1, 'v', KVARC_DATA, "attn_v.weight is there twice" },
	{ "token_embd.weigh", 0, 1, 'X', KVARC_DATA, "no tensor token_embd" },
	{ "blk.0.attn_norm.weight", 4, 8, (uint64_t)1 << 62, KVARC_DATA, "header" },
	{ "token_embd.weight", 12, 8, 0, KVARC_DATA, "embedding of no rows" },
	{ "output_norm.weight", 0, 4, 2, KVARC_DATA, "header" },
	{ "", 0, 4, 0, KVARC_DATA, "rope_freqs.weight has a factor" },
};

static void edit(struct blob *b, const struct edit *e)
{
	size_t at = e->at[0] ? after(b, e->at) + (size_t)e->skip : 0;
	static const uint8_t factors[] = { 0, 0, 128, 63, 0, 0, 128, 63, 0, 0, 192, 63 };
	for (size_t i = 0; !e->at[0] && i + sizeof factors <= b->n; i++)
		if (!memcmp(b->p + i, factors, sizeof factors))
			at = i;
	assert_true(at + e->bytes <= b->n);
	for (unsigned i = 0; i < e->bytes; i++)
		b->p[at + i] = (uint8_t)(e->value >> (8 * i));
}

static void test_gguf_edits(void **state)
{
	struct blob b = blob_load("../models/llama.gguf");
	(void)state;
	try_gguf(&b, KVARC_OK, NULL);
	for (size_t i = 0; i < sizeof llama_edits / sizeof *llama_edits; i++) {
		struct blob c = blob_copy(&b);
		edit(&c, &llama_edits[i]);
		try_gguf(&c, llama_edits[i].code, llama_edits[i].text);
		blob_free(&c);
	}
	blob_free(&b);
}

static void test_gguf_others(void **state)
{
	static const struct {
		const char *file;
		struct edit edit;
	} cases[] = {
		{ "qwen2", { "general.alignment", 4, 4, 3, KVARC_DATA, "header" } },
		{ "qwen2", { "general.alignment", 4, 4, 0, KVARC_DATA, "header" } },
		{ "qwen2", { "general.alignment", 4, 4, (uint32_t)1 << 31, KVARC_DATA, "header" } },
		{ "qwen2",
		  { "qwen2.rope.scaling.type", 12, 1, 'y', KVARC_OPTIONS,
		    "\"yinear\": known are none, linear" } },
		{ "qwen2", { "qwen2.rope.scaling.factor", 4, 4, F32_NAN, KVARC_DATA, "rotary" } },
		{ "qwen2",
		  { "qwen2.rope.scaling.factor", 4, 4, 0x3f000000, KVARC_DATA, "rotary" } },
		{ "qwen2",
		  { "blk.1.attn_q.bia", 0, 1, 'X', KVARC_DATA, "no tensor blk.1.attn_q.bias" } },
		{ "qwen2", { "blk.0.attn_q.bias", 12, 4, 2, KVARC_DATA, "" } },
		{ "qwen3",
		  { "blk.0.attn_q_norm.weight", 4, 8, 5, KVARC_DATA,
		    "attn_q_norm.weight has 1 x 5" } },
		{ "qwen3",
		  { "qwen3.attention.value_length", 4, 4, 5, KVARC_OPTIONS, "other channels" } },
		{ "qwen3", { "blk.0.attn_q_norm.weigh", 0, 1, 'X', KVARC_DATA, "no tensor" } },
		{ "gemma3",
		  { "general.architecture", 12, 6, 0x31346574746c, KVARC_OPTIONS, "known are" } },
		{ "gemma3", { "blk.3.post_ffw_norm.weigh", 0, 1, 'X', KVARC_DATA, "no tensor" } },
		{ "gpt2", { "position_embd.weight", 12, 8, 1 << 25, KVARC_DATA, "position_embd" } },
		{ "gpt2",
		  { "blk.0.attn_qkv.weight", 12, 8, 95, KVARC_DATA,
		    "attn_qkv.weight has 95 x 32" } },
		{ "gpt2", { "gpt2.attention.head_count_kv", 4, 4, 1, KVARC_DATA, "attn_qkv" } },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char path[64];
		snprintf(path, sizeof path, "../models/%s.gguf", cases[i].file);
		struct blob b = blob_load(path);
		edit(&b, &cases[i].edit);
		try_gguf(&b, cases[i].edit.code, cases[i].edit.text);
		blob_free(&b);
	}
}

/* Adds a pair in front of the others, and one more, so that data stay aligned. */
static struct blob with_pair(const struct blob *b, const char *key, uint32_t type,
                             const void *value, size_t bytes)
{
	size_t one = 8 + strlen(key) + 4 + bytes, fill = (256 - one - 13) % 32;
	struct blob c = { NULL, b->n + one + 13 + fill, 0, -1 };
	c.p = calloc(1, c.n);
	assert_non_null(c.p);
	memcpy(c.p, b->p, 24);
	kvi_store64(c.p + 16, kvi_load64(b->p + 16) + 2);
	uint8_t *p = c.p + 24;
	kvi_store64(p, strlen(key));
	memcpy(p + 8, key, strlen(key));
	kvi_store32(p + one - bytes - 4, type);
	memcpy(p + one - bytes, value, bytes);
	kvi_store64(p + one, fill);
	memset(p + one + 8, 'x', fill);
	memcpy(p + one + 13 + fill, b->p + 24, b->n - 24);
	return c;
}

static void test_gguf_pairs(void **state)
{
	static const uint8_t three[8] = { 3 }, wide[8] = { 0, 0, 64 };
	static const uint8_t differ[] = { 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2 };
	static const uint8_t same[] = { 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 16, 16 };
	static const uint8_t deep[] = { 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0,
		                        0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
		                        9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0,
		                        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	static const uint8_t endless[] = { 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 127 };
	static const struct {
		const char *key;
		uint32_t type;
		const void *value;
		size_t bytes;
		kvarc_ret code;
		const char *text;
	} cases[] = {
		{ "harmless", KVI_GGUF_I64, three, 8, KVARC_OK, NULL },
		{ "split.count", KVI_GGUF_U16, three, 2, KVARC_OPTIONS,
		  "one of 3 parts of a model: merge" },
		{ "llama.expert_count", KVI_GGUF_U32, three, 4, KVARC_OPTIONS, "mixture" },
		{ "llama.rope.scaling.type", KVI_GGUF_STRING, "\4\0\0\0\0\0\0\0yarn", 12,
		  KVARC_OPTIONS, "\"yarn\"" },
		{ "llama.rope.scaling.type", KVI_GGUF_STRING, "\4\0\0\0\0\0\0\0none", 12, KVARC_OK,
		  NULL },
		{ "llama.attention.key_length", KVI_GGUF_ARRAY, differ, 14, KVARC_OPTIONS,
		  "differs by layer" },
		{ "llama.attention.key_length", KVI_GGUF_ARRAY, same, 14, KVARC_OK, NULL },
		{ "llama.attention.value_length", KVI_GGUF_U32, three, 4, KVARC_OPTIONS,
		  "other channels" },
		{ "llama.attention.key_length", KVI_GGUF_U32, wide, 4, KVARC_DATA,
		  "channels of a head" },
		{ "deep", KVI_GGUF_ARRAY, deep, sizeof deep, KVARC_DATA, "header" },
		{ "endless", KVI_GGUF_ARRAY, endless, sizeof endless, KVARC_DATA, "header" },
		{ "endless", KVI_GGUF_STRING, endless, 8, KVARC_DATA, "header" },
		{ "unknown", 13, three, 8, KVARC_DATA, "header" },
	};
	struct blob b = blob_load("../models/llama.gguf");
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct blob c = with_pair(&b, cases[i].key, cases[i].type, cases[i].value,
		                          cases[i].bytes);
		try_gguf(&c, cases[i].code, cases[i].text);
		blob_free(&c);
	}
	blob_free(&b);
}

/* Whatever length is left: an error, and no read after the end. */
static void test_gguf_cut(void **state)
{
	struct blob b = blob_load("../models/llama.gguf");
	size_t n = b.n;
	(void)state;
	for (b.n = 0; b.n < n; b.n += b.n < 3000 ? 1 : 97) {
		kvarc_ret ret = try_gguf(&b, ANY, NULL);
		assert_true(ret == KVARC_DATA || ret == KVARC_OPTIONS || ret == KVARC_FORMAT);
	}
	blob_free(&b);
}

/* Whatever byte changes: an error, or a model that can be read. */
static void flip_gguf(const char *file, size_t header)
{
	static const uint8_t flips[] = { 1, 128, 255 };
	struct blob b = blob_load(file);
	if (header > b.n)
		header = b.n;
	for (size_t i = 0; i < header; i++)
		for (size_t k = 0; k < sizeof flips; k++) {
			b.p[i] ^= flips[k];
			try_gguf(&b, ANY, NULL);
			b.p[i] ^= flips[k];
		}
	blob_free(&b);
}

static void test_gguf_flips(void **state)
{
	(void)state;
	flip_gguf("../models/llama.gguf", 1500);
	flip_gguf("../models/qwen3.gguf", SIZE_MAX);
}

/* ---------------------------------------------------------------- folders */

/* A change of config.json, or of the header of a part. */
struct change {
	const char *folder;
	int part; /* -1: config.json */
	const char *from, *to;
	kvarc_ret code;
	const char *text;
};
#define LLAMA(from, to, code, text)               \
	{                                         \
		"llama", -1, from, to, code, text \
	}
static const struct change changes[] = {
	LLAMA("\"llama\",\n", "\"phi3\",\n", KVARC_OPTIONS, "phi3 cannot be run: known"),
	LLAMA("\"llama\",\n", "1,\n", KVARC_DATA, "no \"model_type\""),
	LLAMA("layers\": 2", "layers\": 3", KVARC_DATA, "no tensor model.layers.2."),
	LLAMA("layers\": 2", "layers\": 1", KVARC_OPTIONS, "not one that models"),
	LLAMA("layers\": 2", "layers\": 0", KVARC_DATA, "layers"),
	LLAMA("layers\": 2", "layers\": -2", KVARC_DATA, "num_hidden_layers"),
	LLAMA("layers\": 2", "layers\": 2.5", KVARC_DATA, "num_hidden_layers"),
	LLAMA("layers\": 2", "layers\": \"2\"", KVARC_DATA, "num_hidden_layers"),
	LLAMA("layers\": 2", "layers\": 99999999", KVARC_DATA, "num_hidden_layers"),
	LLAMA("layers\": 2", "layers\": 60000", KVARC_DATA, "layers"),
	LLAMA("size\": 8", "size\": 16", KVARC_DATA, "embed_tokens.weight has"),
	LLAMA("heads\": 2", "heads\": null", KVARC_DATA, "heads"),
	LLAMA("head_dim\": 8", "head_dim\": 7", KVARC_DATA, "cannot turn"),
	LLAMA("head_dim\": 8", "head_dim\": 4", KVARC_DATA, "q_proj.weight has"),
	LLAMA("\"silu\"", "\"relu\"", KVARC_OPTIONS, "known is silu"),
	LLAMA("\"llama3\"", "\"yarn\"", KVARC_OPTIONS, "rope_type"),
	LLAMA("or\": 8.0", "or\": 0.1", KVARC_DATA, "scaling"),
	LLAMA("or\": 8.0", "or\": true", KVARC_DATA, "\"factor\""),
	LLAMA("500000.0", "0.5", KVARC_DATA, "base"),
	LLAMA("500000.0", "0", KVARC_DATA, "base"),
	LLAMA("500000.0", "1e400", KVARC_DATA, "config.json is damaged"),
	LLAMA("1e-05", "2", KVARC_DATA, "epsilon"),
	LLAMA("\"hidden_act\"", "\"quantization_config\": {}, \"hidden_act\"", KVARC_OPTIONS,
	      "quantization_config"),
	LLAMA("\"hidden_act\"", "\"partial_rotary_factor\": 2, \"hidden_act\"", KVARC_DATA,
	      "partial_rotary_factor"),
	LLAMA("\"hidden_act\"", "\"model_type\": 1, \"hidden_act\"", KVARC_DATA,
	      "config.json is damaged"),
	LLAMA("{", "[", KVARC_DATA, "config.json is damaged"),
	LLAMA("a/llama", "a\\nllama", KVARC_OK, NULL),
	{ "mistral", -1, "window\": 3", "window\": null", KVARC_OK, NULL },
	{ "mistral", -1, "window\": 3", "window\": -3", KVARC_DATA, "sliding_window" },
	{ "qwen2", -1, "true", "\"true\"", KVARC_DATA, "use_sliding_window" },
	{ "gemma3", -1, "\"full_attention\",", "\"chunked_attention\",", KVARC_OPTIONS,
	  "layer_types" },
	{ "gemma3", -1, "\"full_attention\",", "", KVARC_DATA, "layer_types" },
	{ "gemma3", -1, "\"head_dim\"", "\"attn_logit_softcapping\": 50, \"head_dim\"",
	  KVARC_OPTIONS, "attn_logit_softcapping" },
	{ "gemma3", -1, "scalar\": 16", "scalar\": 0", KVARC_DATA, "scales" },
	{ "gpt2", -1, "gelu_new", "relu", KVARC_OPTIONS, "activation_function" },
	{ "gpt2", -1, "\"n_inner\"",
	  "\"scale_attn_by_inverse_layer_idx\": true, "
	  "\"n_inner\"",
	  KVARC_OPTIONS, "inverse" },
	{ "llama", 0, "\"BF16\",\"shape\":[5,8]", "\"F8_E4M3\",\"shape\":[5,8]", KVARC_OPTIONS,
	  "embed_tokens.weight has numbers of type F8_E4M3" },
	{ "llama", 0, "\"BF16\",\"shape\":[5,8]", "\"F32\",\"shape\":[5,8]", KVARC_DATA,
	  "embed_tokens.weight is not valid" },
	{ "llama", 0, "[5,8]", "[8,5]", KVARC_DATA, "embed_tokens.weight has 8 x 5" },
	{ "llama", 0, "[5,8]", "[5,1,8]", KVARC_DATA, "more than two axes" },
	{ "llama", 0, "[5,8]", "[5,-8]", KVARC_DATA, "not valid" },
	{ "llama", 0, "[5,8]", "[4294967296,4294967296,5,8]", KVARC_DATA, "not valid" },
	{ "llama", 0, "[0,80]", "[80,0]", KVARC_DATA, "not valid" },
	{ "llama", 0, "[0,80]", "[1000000,1000080]", KVARC_DATA, "part 1 ends" },
	{ "llama", 0, "[0,80]", "[80,160]", KVARC_DATA, "overlap" },
	{ "llama", 0, "embed_tokens", "Embed_tokens", KVARC_DATA, "no tensor" },
	{ "llama", 0, "{\"dtype\"", "{\"type\"", KVARC_DATA, "not valid" },
	{ "llama", 0, "{", "[", KVARC_DATA, "part 1 is damaged" },
	{ "llama", 1, "model.norm", "model.embed_tokens", KVARC_DATA, "twice" },
	{ "llama", 1, "model.norm", "model.layers.0.norm", KVARC_OPTIONS,
	  "model.layers.0.norm.weight is not one" },
	{ "llama", 1, "model.norm", "model.layers.0.\\n\\u00e9", KVARC_OPTIONS,
	  "model.layers.0.???.weight is not one" },
};

static void test_folder_changes(void **state)
{
	(void)state;
	if (!reads_safetensors())
		skip();
	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
		const struct change *c = &changes[i];
		struct model_folder f = folder_load(c->folder);
		struct blob *b = c->part < 0 ? &f.config : &f.parts[c->part];
		size_t before = b->n;
		replace(b, c->from, c->to);
		if (c->part >= 0) /* the length of the header */
			kvi_store64(b->p, kvi_load64(b->p) + b->n - before);
		try_folder(&f, c->code, c->text);
		folder_free(&f);
	}
}

static void test_folder_cut(void **state)
{
	(void)state;
	if (!reads_safetensors())
		skip();
	struct model_folder f = folder_load("llama");
	for (int part = -1; part < 2; part++) {
		struct blob *b = part < 0 ? &f.config : &f.parts[part];
		size_t n = b->n;
		size_t header = part < 0 ? 0 : 8 + (size_t)kvi_load64(b->p);
		for (b->n = 0; b->n < n; b->n++)
			try_folder(&f, KVARC_DATA,
			           part < 0        ? "config.json is damaged"
			           : b->n < header ? "or it is cut"
			                           : " ends before");
	}
	folder_free(&f);
}

static void test_folder_flips(void **state)
{
	(void)state;
	if (!reads_safetensors())
		skip();
	struct model_folder f = folder_load("gemma3");
	for (int part = -1; part < 1; part++) {
		struct blob *b = part < 0 ? &f.config : &f.parts[0];
		size_t n = b->n;
		for (size_t i = 0; i < n; i++)
			for (unsigned bit = 0; bit < 8; bit += 3) {
				b->p[i] ^= (uint8_t)(1 << bit);
				try_folder(&f, ANY, NULL);
				b->p[i] ^= (uint8_t)(1 << bit);
			}
	}
	folder_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gguf_edits), cmocka_unit_test(test_gguf_others),
		cmocka_unit_test(test_gguf_pairs), cmocka_unit_test(test_gguf_cut),
		cmocka_unit_test(test_gguf_flips), cmocka_unit_test(test_folder_changes),
		cmocka_unit_test(test_folder_cut), cmocka_unit_test(test_folder_flips),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
