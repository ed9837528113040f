/* SPDX-License-Identifier: BSD-3-Clause */
/* raw_pages.c - raw pages of engines, described by a text */
#include "config.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "kvarc.h"
#include "parse/json_text.h"
#include "util/alloc.h"
#include "util/ckd.h"
#include "util/error.h"
#include "util/source.h"

#ifdef HAVE_JANSSON
#include "util/jansson_calls.h"
#endif

/* ==== The text that describes raw pages, and what a file's size adds to it ==== */

/* Axes, outermost first: 2 (keys, then values), L layers, P pages, B tokens of a page, T tokens,
 * H heads, D channels. */
#define RAW_LETTERS "2LPBTHD"
/* Most axes; bytes of a word in a message. */
enum { RAW_AXES_MAX = sizeof RAW_LETTERS - 1, RAW_SHOWN = 41 };

/* "bf16,2LTHD,L=30,H=3,D=64": type, order of the axes, extents. */
struct raw_description {
	uint8_t dtype;                 /* kvarc_dtype */
	char order[RAW_AXES_MAX + 1];  /* letters of RAW_LETTERS, each at most once */
	uint64_t extent[RAW_AXES_MAX]; /* by index in order; 0: follows from the size */
};

/* The first n bytes of a text, cut and without control characters, as a message has them: to. */
static const char *raw_shown(char to[RAW_SHOWN], const char *text, size_t n)
{
	size_t i = 0;
	for (; i < n && i < RAW_SHOWN - 1; i++)
		to[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
	to[i] = '\0';
	return to;
}

static bool parse_dtype(const char *p, size_t n, uint8_t *dtype)
{
	for (unsigned d = KVARC_F32; d <= KVARC_U8; d++) {
		const char *name = kvarc_dtype_name(d);
		if (strlen(name) == n && !strncmp(name, p, n)) {
			*dtype = (uint8_t)d;
			return true;
		}
	}
	return false;
}

/* Parses the order: known letters, each once, with tokens and channels. False: not valid. */
static bool take_order(const char *p, size_t n, struct raw_description *r)
{
	if (n == 0 || n > RAW_AXES_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!strchr(RAW_LETTERS, p[i]) || strchr(r->order, p[i]))
			return false;
		r->order[i] = p[i];
		r->extent[i] = p[i] == '2' ? 2 : 0;
	}
	const bool t = strchr(r->order, 'T'), b = strchr(r->order, 'B');
	return strchr(r->order, 'D') && t != b && (b || !strchr(r->order, 'P'));
}

/* Parses "L=30", for an axis that has no extent yet. */
static bool take_extent(const char *p, size_t n, struct raw_description *r)
{
	const char *at = n > 2 && p[1] == '=' && p[0] != '2' ? strchr(r->order, p[0]) : NULL;
	uint64_t v = 0;
	if (!at || !*at || r->extent[at - r->order])
		return false;
	for (size_t i = 2; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(p[i] - '0');
		if (v > UINT32_MAX)
			return false;
	}
	r->extent[at - r->order] = v;
	return v > 0;
}

/* Parses a description: D, and one of T and B, are among the axes, P with B only; at most one
 * extent is missing. Returns OK, PROG: the error says what is wrong. error may be NULL. */
static kvarc_ret raw_parse(struct raw_description *r, const char *text, kvarc_error *error)
{
	*r = (struct raw_description){ 0 };
	for (unsigned k = 0; *text || k < 2; k++) {
		const size_t n = strcspn(text, ",");
		char shown[RAW_SHOWN];
		raw_shown(shown, text, n);
		if (k == 0 && !parse_dtype(text, n, &r->dtype))
			return kvi_fail(error, KVARC_PROG,
			                "raw pages: '%s' is no type of elements; give bf16, f16, "
			                "f32, e4m3, e5m2, i8 or u8",
			                shown);
		if (k == 1 && !take_order(text, n, r))
			return kvi_fail(error, KVARC_PROG,
			                "raw pages: '%s' is no order of axes; give letters "
			                "of %s once each, with D and with T or B",
			                shown, RAW_LETTERS);
		if (k > 1 && !take_extent(text, n, r))
			return kvi_fail(error, KVARC_PROG,
			                "raw pages: '%s' is no extent; give one for each axis of "
			                "'%s', like D=64",
			                shown, r->order);
		text += n + (text[n] == ',');
	}
	size_t missing = 0;
	for (size_t i = 0; r->order[i]; i++)
		missing += r->extent[i] == 0;
	if (missing > 1)
		return kvi_fail(error, KVARC_PROG,
		                "raw pages: %zu axes of '%s' have no extent; one of them follows "
		                "from the size of the file, give the others",
		                missing, r->order);
	return KVARC_OK;
}

/* Puts the missing extent in, for a file of this size. Returns OK, GEOMETRY: the size is not
 * that of whole axes. error may be NULL. */
static kvarc_ret raw_fit(struct raw_description *r, uint64_t bytes, kvarc_error *error)
{
	uint64_t unit = kvarc_dtype_bytes(r->dtype);
	size_t missing = RAW_AXES_MAX;
	for (size_t i = 0; r->order[i]; i++) {
		if (r->extent[i] == 0)
			missing = i;
		else if (kvi_mul(unit, r->extent[i], &unit))
			unit = UINT64_MAX;
	}
	if (missing < RAW_AXES_MAX && bytes && bytes % unit == 0) {
		r->extent[missing] = bytes / unit;
		return KVARC_OK;
	}
	if (missing < RAW_AXES_MAX)
		return kvi_fail(error, KVARC_GEOMETRY,
		                "raw pages: the file has %" PRIu64 " bytes, which is not a number "
		                "of times the %" PRIu64 " bytes of one %c",
		                bytes, unit, r->order[missing]);
	if (bytes != unit)
		return kvi_fail(error, KVARC_GEOMETRY,
		                "raw pages: the file has %" PRIu64 " bytes, and the axes '%s' have "
		                "%" PRIu64,
		                bytes, r->order, unit);
	return KVARC_OK;
}

/* ==== Descriptions of raw pages of engines by name, with what a config.json adds ==== */

#define CONFIG_NEEDS "config.json cannot be read: it needs " JANSSON_MISSING
/* A config.json of this size takes 23 MB at most. */
enum { CONFIG_MAX = 256 << 10, GROUP_MAX = 4096 };

/* Orders of the axes in files of engines. */
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

/* Known type and extents of a file; extents by index in RAW_LETTERS, 0: not known. */
struct known {
	const char *dtype; /* NULL: not known */
	uint64_t extent[RAW_AXES_MAX];
};

/* The short name of a type, "torch.bfloat16" -> "bf16"; NULL: another type. */
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

/* Takes the type from a name, "MODEL@...@bfloat16.pt", as LMCache writes some. */
static void take_name(struct known *known, const char *path)
{
	const char *base = strrchr(path, '/');
	base = base ? base + 1 : path;
	for (const char *p = strchr(base, '@'); p; p = strchr(p + 1, '@')) {
		const char *dtype = dtype_of(p + 1, strcspn(p + 1, "@."));
		known->dtype = dtype ? dtype : known->dtype;
	}
}

#ifdef HAVE_JANSSON

static void set(struct known *known, char letter, int64_t n)
{
	if (n > 0 && n <= UINT32_MAX)
		known->extent[strchr(RAW_LETTERS, letter) - RAW_LETTERS] = (uint64_t)n;
}

/* The group of layers in a path, ".../hh_g1/HASH.bin"; 0: the path has none. */
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

static void take_layout_dtype(struct known *known, const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));
	const char *dtype = text ? dtype_of(text, strlen(text)) : NULL;
	known->dtype = dtype ? dtype : known->dtype;
}

/* The config.json of vLLM's file system tier. */
static void take_tier(struct known *known, const json_t *root, const json_t *groups,
                      const char *path)
{
	const json_t *group = json_array_get(groups, group_of(path));
	const int64_t tokens = number(group, "tokens_per_block");
	const int64_t blocks = number(root, "blocks_per_file");
	const int64_t pages = blocks > 0 && blocks <= UINT32_MAX ? blocks : 1;
	take_layout_dtype(known, root, "dtype");
	set(known, 'L', (int64_t)json_array_size(json_object_get(group, "layer_names")));
	set(known, 'P', pages);
	set(known, 'B', tokens);
	if (tokens > 0 && tokens <= UINT32_MAX / pages)
		set(known, 'T', tokens * pages);
}

/* The config.json of a model. */
static void take_model(struct known *known, const json_t *root)
{
	const json_t *o = json_object_get(root, "text_config");
	o = json_is_object(o) ? o : root;
	const int64_t query = number(o, "num_attention_heads"), hidden = number(o, "hidden_size");
	const int64_t heads = number(o, "num_key_value_heads"), channels = number(o, "head_dim");
	take_layout_dtype(known, root, "torch_dtype");
	take_layout_dtype(known, root, "dtype");
	set(known, 'L', number(o, "num_hidden_layers"));
	set(known, 'H', heads > 0 ? heads : query);
	set(known, 'D', channels > 0 ? channels : query > 0 ? hidden / query : 0);
}

static kvarc_ret take_config(struct known *known, const kvarc_source *config, const char *path,
                             kvarc_error *error)
{
	json_t *root = NULL;
	if (config->size > CONFIG_MAX)
		return kvi_fail(error, KVARC_DATA, "config.json is longer than 256 KiB");
	if (!kvi_jansson(NULL))
		return kvi_fail(error, KVARC_OPTIONS, CONFIG_NEEDS);
	struct kvi_alloc alloc;
	kvi_alloc_init(&alloc, NULL, 2 * CONFIG_MAX);
	char *text = kvi_malloc(&alloc, (size_t)config->size + 1);
	if (!text)
		return kvi_fail_alloc(error, &alloc);
	kvarc_ret ret = KVARC_OK;
	if (kvi_source_read(config, text, (size_t)config->size, 0))
		ret = KVARC_IO;
	uint64_t budget = (uint64_t)CONFIG_MAX * KVI_JSON_COST;
	/* a text that is not JSON has no root */
	if (!ret)
		(void)!kvi_json_parse(text, (size_t)config->size, &budget, &root);
	kvi_free(&alloc, text);
	if (ret)
		return kvi_fail(error, ret, "reading config.json failed");
	if (!json_is_object(root)) {
		json_decref(root);
		return kvi_fail(error, KVARC_DATA, "config.json is not a JSON object");
	}
	const json_t *groups = json_object_get(root, "kv_cache_groups");
	if (json_is_array(groups))
		take_tier(known, root, groups, path);
	else
		take_model(known, root);
	json_decref(root);
	return KVARC_OK;
}

#else

static kvarc_ret take_config(struct known *known, const kvarc_source *config, const char *path,
                             kvarc_error *error)
{
	(void)known;
	(void)config;
	(void)path;
	return kvi_fail(error, KVARC_OPTIONS, CONFIG_NEEDS);
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

/* Splits the type off the other words: "bf16,D=64" -> "bf16" and ",D=64". */
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
	char dtype[16], rest[128], shown[RAW_SHOWN];
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
		                raw_shown(shown, layout, strlen(layout)));
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
		const uint64_t v = k.extent[strchr(RAW_LETTERS, *p) - RAW_LETTERS];
		if (v && *p != '2' && !is_given(words, *p))
			at += (size_t)snprintf(raw + at, bytes - at, ",%c=%" PRIu64, *p, v);
	}
	if (at >= bytes)
		return kvi_fail(error, KVARC_PROG, "the description needs a longer buffer");
	struct raw_description r;
	return raw_parse(&r, raw, error);
}

/* ==== Raw pages as tensors: strides follow from the order of the axes ==== */

/* An axis of the file; one that is not there has extent 1. */
struct raw_axis {
	uint64_t extent, stride; /* bytes */
	size_t index;            /* index in the order; RAW_AXES_MAX: not there */
};

struct raw_shape {
	struct raw_axis kv, layer, page, token, head, channel;
	uint64_t tokens;
};

static struct raw_axis axis_of(const struct raw_description *r, char letter)
{
	const char *at = strchr(r->order, letter);
	struct raw_axis a = { 1, 0, RAW_AXES_MAX };
	if (!at)
		return a;
	a.index = (size_t)(at - r->order);
	a.extent = r->extent[a.index];
	/* the stride cannot overflow: the product of all extents is the size of the file */
	a.stride = kvarc_dtype_bytes(r->dtype);
	for (size_t i = a.index + 1; r->order[i]; i++)
		a.stride *= r->extent[i];
	return a;
}

/* Pages that follow each other like their tokens are one run of tokens. */
static void join_pages(struct raw_shape *shape)
{
	shape->tokens = shape->page.extent * shape->token.extent;
	if (shape->page.extent > 1 &&
	    shape->page.stride != shape->token.extent * shape->token.stride)
		return;
	shape->token.extent = shape->tokens;
	shape->page = (struct raw_axis){ 1, 0, RAW_AXES_MAX };
}

/* Why a shape cannot be described; NULL: it can. */
static const char *why_not(const struct raw_shape *shape)
{
	const size_t page = shape->page.index;
	if (shape->page.extent > 1 &&
	    ((shape->token.index < page) || (shape->head.extent > 1 && shape->head.index < page) ||
	     (shape->channel.extent > 1 && shape->channel.index < page)))
		return "P has to stand in front of B, H and D";
	if (shape->tokens > UINT32_MAX)
		return "there are more tokens than an archive can hold";
	if (shape->head.extent > 65535 || shape->channel.extent > KVI_IMPORT_WIDTH_MAX ||
	    (shape->head.index < RAW_AXES_MAX && shape->channel.extent > 65535) ||
	    shape->head.extent * shape->channel.extent > KVI_IMPORT_WIDTH_MAX)
		return "heads or channels are more than an archive can describe";
	if (shape->layer.extent > KVI_IMPORT_TENSORS_MAX / shape->kv.extent)
		return "there are more layers than an archive can describe";
	return NULL;
}

static kvarc_ret read_shape(kvarc_import *im, uint64_t bytes, struct raw_description *r,
                            struct raw_shape *shape)
{
	kvarc_ret ret = raw_parse(r, im->options.raw, im->error);
	if (!ret)
		ret = raw_fit(r, bytes, im->error);
	if (ret)
		return ret;
	*shape = (struct raw_shape){ .kv = axis_of(r, '2'),
		                     .layer = axis_of(r, 'L'),
		                     .page = axis_of(r, 'P'),
		                     .token = axis_of(r, strchr(r->order, 'T') ? 'T' : 'B'),
		                     .head = axis_of(r, 'H'),
		                     .channel = axis_of(r, 'D') };
	join_pages(shape);
	const char *why = why_not(shape);
	return why ? kvi_fail(im->error, KVARC_GEOMETRY, "raw pages '%s': %s", r->order, why)
	           : KVARC_OK;
}

static kvarc_ret add_tensor(kvarc_import *im, const struct raw_shape *shape, uint8_t dtype,
                            uint64_t layer, uint64_t kv, uint64_t offset)
{
	struct kvi_imp_tensor *t = kvi_import_add_tensor(im);
	if (!t)
		return kvi_import_full(im);
	const bool pairs = shape->kv.index < RAW_AXES_MAX;
	const uint64_t width = shape->head.extent * shape->channel.extent;
	t->pub.layer = (uint32_t)layer;
	t->pub.kind = !pairs ? KVARC_MLA_LATENT : kv ? KVARC_VALUE : KVARC_KEY;
	t->pub.flags = (uint8_t)(kv ? 0 : KVARC_TENSOR_POST_ROPE);
	t->pub.dtype = dtype;
	if (shape->head.index < RAW_AXES_MAX) {
		t->pub.heads = (uint32_t)shape->head.extent;
		t->pub.channels = (uint32_t)shape->channel.extent;
	} else {
		kvi_import_shape(&t->pub, width, pairs && im->gguf.present ? im->gguf.heads : 0);
	}
	snprintf(t->name, sizeof t->name, "layers.%u.%s", (unsigned)layer,
	         !pairs ? "latent"
	         : kv   ? "value"
	                : "key");
	const bool one = shape->head.extent == 1 ||
	                 shape->head.stride == shape->channel.extent * shape->channel.stride;
	t->at.offset = offset;
	t->at.token_stride = shape->token.stride;
	t->at.elem_stride = shape->channel.stride;
	t->at.block_elems = (uint32_t)(one ? width : shape->channel.extent);
	t->at.block_stride = one ? shape->token.stride : shape->head.stride;
	return KVARC_OK;
}

/* The number of steps of an axis inside the pages, of which a group of areas has all, or of one in
 * front of them, of which it has one. */
static uint64_t inside(const struct raw_axis *axis, const struct raw_shape *shape)
{
	return shape->page.extent > 1 && axis->index < shape->page.index ? 1 : axis->extent;
}

/* Tensors of the area that begins at `from`, the rest of whose axes are inside of it. */
static kvarc_ret add_tensors(kvarc_import *im, const struct raw_shape *shape, uint8_t dtype,
                             uint64_t from)
{
	const uint64_t kvs = inside(&shape->kv, shape), layers = inside(&shape->layer, shape);
	const uint64_t kv0 = kvs < shape->kv.extent ? from / shape->kv.stride % shape->kv.extent
	                                            : 0;
	const uint64_t l0 = layers < shape->layer.extent
	                            ? from / shape->layer.stride % shape->layer.extent
	                            : 0;
	kvarc_ret ret = KVARC_OK;
	for (uint64_t l = 0; l < layers && !ret; l++)
		for (uint64_t k = 0; k < kvs && !ret; k++)
			ret = add_tensor(im, shape, dtype, l0 + l, kv0 + k,
			                 l * shape->layer.stride + k * shape->kv.stride);
	return ret;
}

/* Pages are areas one after another, for each layer and kind that stands in front of them. */
static kvarc_ret add_areas(kvarc_import *im, uint32_t item, const struct raw_shape *shape,
                           uint8_t dtype, uint64_t bytes)
{
	const uint64_t pages = shape->page.extent;
	const uint64_t step = pages > 1 ? shape->page.stride : bytes;
	for (uint64_t at = 0; at < bytes; at += pages * step) {
		struct kvi_imp_area *a = kvi_import_add_area(im, item, 0, at, step);
		if (!a)
			return kvi_import_full(im);
		a->n_tokens = shape->token.extent;
		kvarc_ret ret = add_tensors(im, shape, dtype, at);
		for (uint64_t p = 1; p < pages && !ret; p++)
			if (!kvi_import_add_part(im, at + p * step, step, p * shape->token.extent,
			                         shape->token.extent))
				ret = kvi_import_full(im);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

kvarc_ret kvi_import_raw(kvarc_import *im, uint32_t item)
{
	struct raw_description r;
	struct raw_shape s = { 0 };
	const uint64_t bytes = im->items[item].src.size;
	kvarc_ret ret = read_shape(im, bytes, &r, &s);
	if (ret)
		return ret;
	if (!kvi_import_add_track(im, s.tokens))
		return kvi_import_full(im);
	ret = add_areas(im, item, &s, r.dtype, bytes);
	if (ret)
		return ret;
	im->items[item].kind = KVI_ITEM_OTHER;
	snprintf(im->layout, sizeof im->layout, "%s", r.order);
	snprintf(im->format, sizeof im->format, "raw pages, %s %s, %" PRIu64 " tokens",
	         kvarc_dtype_name(r.dtype), r.order, s.tokens);
	return kvi_import_find_ropes(im);
}
