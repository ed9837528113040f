/* SPDX-License-Identifier: BSD-3-Clause */
/* kv_rules.c - which tensors of a file are keys and values: rules, their tests, axes by name */
#include "config.h"

#include "kv_rules.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "import_internal.h"
#include "named_tensors.h"
#include "util/error.h"

/* ==== The axes of a named tensor by letters ==== */

/* The index of a letter among n, n: not found. */
static size_t index_of(const char *letters, size_t n, char letter)
{
	const char *p = memchr(letters, letter, n);
	return p ? (size_t)(p - letters) : n;
}

bool kvi_axes_known(const char *letters)
{
	size_t n = strlen(letters);
	const size_t stacked = kvi_axes_stacked(letters);
	if (kvi_axes_of_state(letters))
		return true;
	if (n < stacked + 2 || n > KVI_NAMED_AXES_MAX)
		return false;
	letters += stacked;
	n -= stacked;
	if (stacked == 2 && (strchr(letters, '2') || letters[n - 1] != 'c'))
		return false;
	char last = letters[n - 1];
	size_t tokens = index_of(letters, n, 't');
	if ((last != 'c' && last != 'p' && last != 'm') || tokens == n ||
	    (last != 'c' && memchr(letters, '2', n)))
		return false;
	for (size_t i = 0; i + 1 < n; i++) {
		if (!strchr("b2th1", letters[i]) || (letters[i] == 'b' && i > 0))
			return false;
		if (letters[i] != '1' && memchr(letters + i + 1, letters[i], n - i - 1))
			return false;
	}
	return true;
}

static bool fits(const struct kvi_axes *axes)
{
	return axes->batch && axes->tokens && axes->heads && axes->channels &&
	       axes->tokens <= UINT32_MAX && axes->heads <= 65535 && axes->channels <= 65535 &&
	       axes->heads * axes->channels <= KVI_IMPORT_WIDTH_MAX;
}

/* The file has that many elements: products of its axes do not overflow. */
static bool take_axis(struct kvi_axes *axes, char letter, uint64_t size, uint64_t stride)
{
	switch (letter) {
	case 'b':
		axes->batch = size;
		return true;
	case '2':
		axes->parts = 2;
		axes->part_stride = stride;
		return size == 2;
	case 't':
		axes->tokens = size;
		axes->token_stride = stride;
		return true;
	case 'h':
		axes->heads = size;
		axes->head_stride = stride;
		return true;
	case 'p':
		axes->parts = 2;
		axes->channels = axes->part_stride = size / 2;
		return size % 2 == 0;
	case 'm':
		axes->is_latent = true;
		axes->channels = size;
		return true;
	case 'c':
		axes->channels = size;
		return true;
	default:
		return size == 1;
	}
}

/* Rows of a matrix for each head, of a convolution the last inputs. */
static bool take_state(const struct kvi_named *named, struct kvi_axes *axes)
{
	if (named->n_axes < 2)
		return false;
	const uint64_t channels = named->shape[named->n_axes - 1];
	*axes = (struct kvi_axes){ .batch = 1, .parts = 1, .tokens = 1, .heads = 1, .stacked = 1 };
	axes->is_state = true;
	axes->channels = axes->token_stride = axes->head_stride = channels;
	for (size_t i = 0; i + 1 < named->n_axes; i++)
		axes->tokens *= named->shape[i];
	axes->is_conv = named->n_axes <= 3 && named->shape[named->n_axes - 2] < channels;
	return fits(axes);
}

bool kvi_axes_take(const struct kvi_named *named, const char *letters, struct kvi_axes *axes)
{
	size_t n = strlen(letters);
	uint64_t stride = 1;
	if (kvi_axes_of_state(letters))
		return take_state(named, axes);
	if (n != named->n_axes || !kvi_axes_known(letters))
		return false;
	const size_t stacked = kvi_axes_stacked(letters);
	*axes = (struct kvi_axes){ .batch = 1, .parts = 1, .heads = 1, .stacked = 1 };
	for (size_t i = 0; i < stacked; i++) {
		if (!named->shape[i] || named->shape[i] > KVI_IMPORT_LAYER_MAX ||
		    (letters[i] == '2' && named->shape[i] != 2))
			return false;
		axes->stacked *= named->shape[i];
	}
	for (size_t i = n; i-- > stacked;) {
		if (!named->shape[i] || !take_axis(axes, letters[i], named->shape[i], stride))
			return false;
		stride *= named->shape[i];
	}
	letters += stacked;
	n -= stacked;
	size_t tokens = index_of(letters, n, 't'), heads = index_of(letters, n, 'h');
	size_t part = index_of(letters, n, '2');
	axes->heads_first = heads < tokens;
	axes->parts_apart = part < tokens && (heads == n || part < heads);
	if (heads == n || axes->heads == 1)
		axes->head_stride = axes->channels;
	return fits(axes);
}

/* ==== Rules by which named tensors of files are keys, values and states ==== */

enum { NUMBER_MAX = 65535 };

/* Caches of mlx-lm and of engines on top of it with keys and values [batch, head, token, channel],
 * by the names of their classes. */
#define MLX_CLASSES                                                               \
	"KVCache|RotatingKVCache|ChunkedKVCache|ConcatenateKVCache|BatchKVCache|" \
	"BatchRotatingKVCache"

/* Classes that hold states of layers without keys and values, each an array of its own. */
#define MLX_STATES "ArraysCache|MambaCache"

static const struct kvi_rule default_rules[] = {
	/* mlx-lm 0.32.2 saves the user's metadata, classes, scalars; before: states, the user's
	 * metadata, classes. Other classes keep states and parts of quantised caches under names of
	 * the same form. */
	{ "{layer}.{0|1}", "bhtc", "1.{layer}", MLX_CLASSES, false, "mlx-lm" },
	{ "{layer}.{0|1}", "bhtc", "2.{layer}", MLX_CLASSES, false, "mlx-lm" },
	/* caches in a CacheList, before 0.32.2 */
	{ "{layer}.{number}.{0|1}", "bhtc", "0.{layer}.0.{number}", MLX_CLASSES, false, "mlx-lm" },
	/* from 0.32.2 on: beside the state of each cache, its class as a tensor */
	{ "{layer}.{number}.0.{0|1}", "bhtc", "@{layer}.{number}.1", MLX_CLASSES, false, "mlx-lm" },
	/* states, in a CacheList, too */
	{ "{layer}.0.{number}", "s", "1.{layer}", MLX_STATES, false, "mlx-lm" },
	{ "{layer}.{number}.0.0.{number}", "s", "@{layer}.{number}.1", MLX_STATES, false,
	  "mlx-lm" },
	{ "{layer}.{number}", "s", "2.{layer}", MLX_STATES, false, "mlx-lm" },
	{ "{layer}.{number}.{0|1}", "s", "0.{layer}.0.{number}", MLX_STATES, false, "mlx-lm" },
	/* words, scales and biases */
	{ "{layer}.{number}.{0|1}", "-", "1.{layer}", "QuantizedKVCache", false, NULL },
	{ "{layer}.{number}.{0|1}", "-", "2.{layer}", "QuantizedKVCache", false, NULL },
	/* SSD blocks of oMLX, formats 3 and 2 */
	{ "layer_{layer}_state_{0|1}", "bhtc", "layer_cache_types[{layer}]", MLX_CLASSES, false,
	  "oMLX" },
	{ "layer_{layer}_sub_{number}_state_{0|1}", "bhtc",
	  "layer_{layer}_sub_{number}_state_class_name", MLX_CLASSES, false, "oMLX" },
	{ "layer_{layer}_{keys|values}", "bhtc", "layer_cache_types[{layer}]", MLX_CLASSES, false,
	  "oMLX" },
	{ "layer_{layer}_state_{number}", "s", "layer_cache_types[{layer}]", MLX_STATES, false,
	  "oMLX" },
	{ "layer_{layer}_sub_{number}_state_{0|1}", "s",
	  "layer_{layer}_sub_{number}_state_class_name", MLX_STATES, false, "oMLX" },
	{ "layer_{layer}_{keys|values}", "s", "layer_cache_types[{layer}]", MLX_STATES, false,
	  "oMLX" },
	/* vmlx and others that have no word for their tensors in the metadata; not oMLX */
	{ "layer_{layer}_{keys|values}", NULL, "omlx_cache_format_version", "", true, NULL },
	{ "layer_{layer}_sub_{number}_{keys|values}", NULL, "omlx_cache_format_version", "", true,
	  NULL },
	/* a layer in a file of vLLM's ExampleConnector: keys and values, packed or one after the
	 * other; latents of MLA */
	{ "kv_cache", "2tc", NULL, NULL, false, "vLLM" },
	{ "kv_cache", "2thc", NULL, NULL, false, "vLLM" },
	{ "kv_cache", "thp", NULL, NULL, false, "vLLM" },
	{ "kv_cache", "tm", NULL, NULL, false, "vLLM" },
	/* states of a DynamicCache of transformers, as kvarc's Python package names them, too */
	{ .pattern = "layers.{layer}.{conv_states|recurrent_states}", .axes = "s" },
	{ .pattern = "layers.{layer}.{conv_states|recurrent_states}.{number}", .axes = "s" },
	{ .pattern = "states.{layer}.{conv_states|recurrent_states}.{number}", .axes = "s" },
	/* latents of MLA; their keys with RoPE are keys of one head */
	{ .pattern = "*{layer}.{kv_c|compressed_kv}", .axes = "tm|1tm|btm|b1tm" },
	{ .pattern = "*{layer}.self_attn.{kv_c|compressed_kv}", .axes = "tm|1tm|btm|b1tm" },
	{ .pattern = "*{layer}.k_pe" },
	{ .pattern = "*{layer}.k_rope" },
	{ .pattern = "*{layer}.self_attn.k_pe" },
	{ .pattern = "*{layer}.self_attn.k_rope" },
	/* usual names */
	{ .pattern = "*layers.{layer}.{key|value}" },
	{ .pattern = "*layers.{layer}.{keys|values}" },
	{ .pattern = "*layers.{layer}.{k|v}" },
	{ .pattern = "*layers.{layer}.{k_cache|v_cache}" },
	{ .pattern = "*layers.{layer}.{key_cache|value_cache}" },
	{ .pattern = "*layers.{layer}.self_attn.{key|value}" },
	{ .pattern = "*layers.{layer}.self_attn.{k|v}" },
	{ .pattern = "*layers.{layer}.self_attn.{k_cache|v_cache}" },
	{ .pattern = "*layers.{layer}.self_attn.{key_cache|value_cache}" },
	{ .pattern = "*layers.{layer}.attn.{k|v}" },
	{ .pattern = "*layers.{layer}.attn.{k_cache|v_cache}" },
	{ .pattern = "*layer.{layer}.{key|value}" },
	{ .pattern = "*layer.{layer}.{k|v}" },
	{ .pattern = "*layer_{layer}_{key|value}" },
	{ .pattern = "*layer_{layer}_{k|v}" },
	{ .pattern = "*layer_{layer}.{key|value}" },
	{ .pattern = "*layer_{layer}.{keys|values}" },
	{ .pattern = "*layer_{layer}.{k|v}" },
	{ .pattern = "past_key_values.{layer}.{key|value}" },
	{ .pattern = "past_key_values.{layer}.{0|1}" },
	{ .pattern = "past_{key|value}_{layer}" },
	{ .pattern = "past_{key|value}.{layer}" },
	{ .pattern = "present.{layer}.{key|value}" },
	{ .pattern = "*{key|value}_cache.{layer}" },
	{ .pattern = "*{key|value}_cache_{layer}" },
	{ .pattern = "*{k|v}_cache.{layer}" },
	{ .pattern = "*{k|v}_cache_{layer}" },
	{ .pattern = "*{keys|values}.{layer}" },
	{ .pattern = "*{keys|values}_{layer}" },
	{ .pattern = "{key|value}.{layer}" },
	{ .pattern = "{key|value}_{layer}" },
	{ .pattern = "{k|v}.{layer}" },
	{ .pattern = "{k|v}_{layer}" },
	{ .pattern = "{layer}.{key|value}" },
	{ .pattern = "{layer}.{k|v}" },
	/* llama.cpp's own names */
	{ .pattern = "cache_{k|v}_l{layer}" },
	{ .pattern = "{k|v}_l{layer}" },
	/* pairs of keys and values, of programs that say nothing in the metadata */
	{ .pattern = "{layer}.{0|1}", .key = "" },
	/* all layers in one tensor */
	{ .pattern = "{keys|values}", .axes = "lbhtc|lhtc|lbthc" },
	{ .pattern = "{key_cache|value_cache}", .axes = "lbhtc|lhtc|lbthc" },
	{ .pattern = "{k_cache|v_cache}", .axes = "lbhtc|lhtc|lbthc" },
	{ .pattern = "{k|v}", .axes = "lbhtc|lhtc|lbthc" },
	{ .pattern = "kv_cache", .axes = "l2htc|l2bhtc|2lhtc|2lbhtc" },
	{ .pattern = "past_key_values", .axes = "l2htc|l2bhtc|2lhtc|2lbhtc" },
	{ .pattern = "kv", .axes = "l2htc|l2bhtc|2lhtc|2lbhtc" },
};

/* ----- patterns -------------------------------------------------------- */

/* Matches one of two words "A|B}" at *name and moves past it. */
static bool match_word(const char **rule, const char **name, bool *value)
{
	const char *bar = strchr(*rule, '|'), *close = strchr(*rule, '}');
	if (!bar || !close || bar > close)
		return false;
	size_t a = (size_t)(bar - *rule), b = (size_t)(close - bar - 1);
	bool is_a = a && !strncmp(*name, *rule, a);
	bool is_b = b && !strncmp(*name, bar + 1, b);
	if (is_a && is_b) /* both match: the longer word */
		is_a = a > b;
	if (!is_a && !is_b)
		return false;
	*value = !is_a;
	*name += is_a ? a : b;
	*rule = close + 1;
	return true;
}

static bool match_number(const char **name, uint32_t *number)
{
	const char *p = *name;
	*number = 0;
	for (; *p >= '0' && *p <= '9'; p++) {
		*number = *number * 10 + (uint32_t)(*p - '0');
		if (*number > NUMBER_MAX)
			return false;
	}
	if (p == *name)
		return false;
	*name = p;
	return true;
}

/* As kvi_rule_match, of a pattern without the star. */
static bool match_all(const char *pattern, const char *name, struct kvi_rule_match *match)
{
	bool has_number = false;
	uint32_t number;
	*match = (struct kvi_rule_match){ 0 };
	while (*pattern) {
		if (!strncmp(pattern, "{layer}", 7)) {
			if (!match_number(&name, &match->layer))
				return false;
			match->has_layer = true;
			pattern += 7;
		} else if (!strncmp(pattern, "{number}", 8)) {
			if (!match_number(&name, &number))
				return false;
			if (!has_number)
				match->number = number;
			has_number = true;
			pattern += 8;
		} else if (*pattern == '{') {
			pattern++;
			if (!match_word(&pattern, &name, &match->value))
				return false;
		} else if (*pattern++ != *name++) {
			return false;
		}
	}
	return *name == '\0';
}

bool kvi_rule_match(const char *pattern, const char *name, struct kvi_rule_match *match)
{
	if (*pattern != '*')
		return match_all(pattern, name, match);
	bool found = match_all(++pattern, name, match);
	while (!found && *(name += strcspn(name, "./:")))
		found = match_all(pattern, ++name, match);
	return found;
}

bool kvi_rule_layer_of_file(const char *name, uint32_t *layer)
{
	const char *slash = strrchr(name, '/');
	size_t found = 0;
	for (const char *p = slash ? slash + 1 : name; *p;) {
		const char *end = p;
		uint32_t n;
		if (match_number(&end, &n) && (*end == '.' || *end == '\0')) {
			*layer = n;
			found++;
		}
		p += strcspn(p, ".");
		p += *p == '.';
	}
	return found == 1;
}

/* ----- rules of a user ------------------------------------------------- */

/* Ends the word at *p and goes to the next one; NULL: no more words. */
static char *take_word(char **p)
{
	char *word = *p + strspn(*p, " \t\r");
	size_t n = strcspn(word, " \t\r");
	if (n == 0)
		return NULL;
	*p = word + n;
	if (**p)
		*(*p)++ = '\0';
	return word;
}

/* Whether a text is a pattern: literal text and {layer}, {number}, {A|B} of two different words. */
static bool is_pattern(const char *p)
{
	while (*p) {
		if (*p == '}')
			return false;
		if (*p++ != '{')
			continue;
		const char *close = strchr(p, '}'), *bar = strchr(p, '|');
		if (!close || memchr(p, '{', (size_t)(close - p)))
			return false;
		bool number = !strncmp(p, "layer}", 6) || !strncmp(p, "number}", 7);
		if (!number && (!bar || bar > close || bar == p || bar + 1 == close))
			return false;
		p = close + 1;
	}
	return true;
}

/* Parses a test, "KEY=VALUES" or "KEY?=VALUES". */
static bool take_test(struct kvi_rule *rule, char *text)
{
	char *equal = text ? strchr(text, '=') : NULL;
	if (!equal || equal == text)
		return false;
	rule->may_lack = equal[-1] == '?';
	equal[rule->may_lack ? -1 : 0] = '\0';
	rule->key = text;
	rule->values = equal + 1;
	return *text != '\0';
}

/* A line without its end, which is cut into words. */
static bool take_rule(struct kvi_rule *rule, char *line)
{
	char *word = take_word(&line);
	*rule = (struct kvi_rule){ .pattern = word };
	if (!is_pattern(word))
		return false;
	word = take_word(&line);
	if (word && strcmp(word, "if") != 0) {
		rule->axes = word;
		if (strcmp(word, "-") != 0 && !kvi_axes_known(word))
			return false;
		word = take_word(&line);
	}
	if (word && (strcmp(word, "if") != 0 || !take_test(rule, take_word(&line))))
		return false;
	return !take_word(&line);
}

/* The next line of *at, which goes behind it; NULL: no more lines. */
static char *next_line(char **at)
{
	char *line = *at;
	if (*line == '\0')
		return NULL;
	char *end = line + strcspn(line, "\n");
	*at = *end ? end + 1 : end;
	*end = '\0';
	return line;
}

static bool says_nothing(const char *line)
{
	line += strspn(line, " \t\r");
	return *line == '\0' || *line == '#';
}

/* Parses the lines of r->text. source: the text as it was given, for the message. */
static kvarc_ret take_lines(struct kvi_rules *r, const char *source, kvarc_error *error)
{
	char *at = r->text, *line;
	while ((line = next_line(&at))) {
		const char *given = source + (line - r->text);
		if (says_nothing(line))
			continue;
		if (r->n_own >= KVI_RULES_MAX)
			return kvi_fail(error, KVARC_PROG, "more than %d rules for tensor names",
			                KVI_RULES_MAX);
		size_t n = strcspn(given, "\n");
		if (!take_rule(&r->own[r->n_own], line))
			return kvi_fail(error, KVARC_PROG,
			                "'%.*s' is no rule for tensor names: give PATTERN [AXES] "
			                "[if KEY=VALUES], axes by letters (" KVI_AXES_LEGEND ")",
			                n > 80 ? 80 : (int)n, given);
		r->n_own++;
	}
	return KVARC_OK;
}

kvarc_ret kvi_rules_parse(struct kvi_rules *r, const struct kvi_alloc *alloc, const char *text,
                          kvarc_error *error)
{
	*r = (struct kvi_rules){ 0 };
	if (!text)
		return KVARC_OK;
	size_t n = strlen(text) + 1;
	if (n > KVI_RULES_BYTES_MAX)
		return kvi_fail(error, KVARC_PROG, "more than %d bytes of rules for tensor names",
		                KVI_RULES_BYTES_MAX);
	r->text = kvi_malloc(alloc, n);
	r->own = kvi_array(alloc, KVI_RULES_MAX, sizeof *r->own);
	kvarc_ret ret = KVARC_OK;
	if (!r->text || !r->own) {
		ret = kvi_fail_alloc(error, alloc);
	} else {
		memcpy(r->text, text, n);
		ret = take_lines(r, text, error);
	}
	if (ret)
		kvi_rules_free(r, alloc);
	return ret;
}

void kvi_rules_free(struct kvi_rules *r, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, r->own);
	kvi_free(alloc, r->text);
	*r = (struct kvi_rules){ 0 };
}

const struct kvi_rule *kvi_rules_at(const struct kvi_rules *r, size_t i)
{
	if (i < r->n_own)
		return &r->own[i];
	i -= r->n_own;
	return i < sizeof default_rules / sizeof *default_rules ? &default_rules[i] : NULL;
}

/* ==== A rule for a name that none has ==== */

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The words for keys and values that begin with the n bytes at p, a whole word; NULL: none. */
static const char *pair_of(const char *p, size_t n)
{
	static const char *const pairs[][3] = { { "keys", "values", "{keys|values}" },
		                                { "key", "value", "{key|value}" },
		                                { "K", "V", "{K|V}" },
		                                { "k", "v", "{k|v}" } };
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		for (size_t k = 0; k < 2; k++)
			if (strlen(pairs[i][k]) == n && !strncmp(pairs[i][k], p, n))
				return pairs[i][2];
	return NULL;
}

/* A text that grows up to its size, and then no more. */
struct bounded {
	char *p;
	size_t n, size;
};

static void put(struct bounded *text, const char *p, size_t n)
{
	if (n < text->size - text->n)
		memcpy(text->p + text->n, p, n);
	text->n = n < text->size - text->n ? text->n + n : text->size;
}

/* Parts that a pattern has. */
struct pattern_has {
	bool layer, pair; /* a number, and words for keys and values */
};

/* Writes the pattern of a name. */
static struct pattern_has put_pattern(struct bounded *text, const char *name)
{
	struct pattern_has has = { false, false };
	while (*name) {
		const char *word = NULL;
		size_t digits = strspn(name, "0123456789"), letters = 0;
		while (is_letter(name[letters]))
			letters++;
		if (digits) {
			put(text, has.layer ? "{number}" : "{layer}", has.layer ? 8 : 7);
			has.layer = true;
		} else if (letters && !has.pair && (word = pair_of(name, letters))) {
			put(text, word, strlen(word));
			has.pair = true;
		} else {
			put(text, name, letters ? letters : 1);
		}
		name += digits ? digits : letters ? letters : 1;
	}
	return has;
}

/* Letters for the axes; NULL: no idea. */
static const char *suggest_axes(const struct kvi_named *named, struct pattern_has has)
{
	static const char *const one[] = { "tc", "htc", "bhtc" };
	const size_t n = named->n_axes;
	const bool first = named->shape[0] == 2, second = n > 1 && named->shape[1] == 2;
	if (has.layer || (has.pair && n < 4)) { /* a tensor of a layer */
		if (!has.pair && first && (n == 3 || n == 4))
			return n == 3 ? "2tc" : "2thc";
		return n < 2 || n > 4 ? NULL : one[n - 2];
	}
	if (has.pair)
		return n == 4 ? "lhtc" : n == 5 ? "lbhtc" : NULL;
	if (n == 5)
		return second ? "l2htc" : first ? "2lhtc" : NULL;
	return n != 6 ? NULL : second ? "l2bhtc" : first ? "2lbhtc" : NULL;
}

bool kvi_rule_suggest(char rule[KVI_RULE_SUGGESTED], const struct kvi_named *named)
{
	struct bounded text = { rule, 0, KVI_RULE_SUGGESTED };
	if (strpbrk(named->name, "{}| \t\r\n'"))
		return false;
	const char *letters = suggest_axes(named, put_pattern(&text, named->name));
	if (!letters)
		return false;
	put(&text, " ", 1);
	put(&text, letters, strlen(letters) + 1);
	return text.n < text.size;
}

/* ==== What the metadata of a file say about a tensor ==== */

enum { KEY_BYTES = 160 };

/* A part of a text. */
struct text_part {
	const char *p;
	size_t n;
};

/* The key with the numbers of the name. False: it is too long. */
static bool write_key(char *dst, const char *key, const struct kvi_rule_match *match)
{
	size_t n = 0;
	while (*key) {
		bool layer = !strncmp(key, "{layer}", 7);
		bool number = !strncmp(key, "{number}", 8);
		if (n + 12 > KEY_BYTES)
			return false;
		if (layer || number) {
			n += (size_t)snprintf(dst + n, KEY_BYTES - n, "%u",
			                      (unsigned)(layer ? match->layer : match->number));
			key += layer ? 7 : 8;
		} else {
			dst[n++] = *key++;
		}
	}
	dst[n] = '\0';
	return true;
}

static size_t blanks(const char *p)
{
	return strspn(p, " \t\r\n");
}

/* Notes where the elements of ["A", "B"] are; none of a text of another form. */
static void read_list(struct kvi_text_list *list, const char *text)
{
	const char *p = text + blanks(text);
	list->text = text;
	list->n = 0;
	if (strnlen(text, KVI_TEXT_LIST_BYTES) == KVI_TEXT_LIST_BYTES || *p++ != '[')
		return;
	for (size_t n = 0; n < KVI_TEXT_LIST_MAX; n++) {
		p += blanks(p);
		if (*p++ != '"')
			return;
		size_t bytes = strcspn(p, "\"\\");
		if (p[bytes] != '"')
			return;
		list->at[n] = (uint16_t)(p - text);
		list->bytes[n] = (uint16_t)bytes;
		p += bytes + 1;
		p += blanks(p);
		if (*p == ']') {
			list->n = n + 1;
			return;
		}
		if (*p++ != ',')
			return;
	}
}

static bool element(struct kvi_rule_tests *tests, const char *text, uint32_t i,
                    struct text_part *part)
{
	if (tests->list.text != text)
		read_list(&tests->list, text);
	if (i >= tests->list.n)
		return false;
	*part = (struct text_part){ text + tests->list.at[i], tests->list.bytes[i] };
	return true;
}

/* The text in a tensor. */
static bool find_spelled(struct kvi_rule_tests *tests, const char *name, struct text_part *part)
{
	const struct kvi_metadata *m = tests->metadata;
	if (!m || !m->spell || !m->spell(m->opaque, name, tests->spelled))
		return false;
	*part = (struct text_part){ tests->spelled, strlen(tests->spelled) };
	return true;
}

/* Finds the text at a key, which may end with [N], or begin with @. */
static bool find(struct kvi_rule_tests *tests, char *key, struct text_part *part)
{
	if (key[0] == '@')
		return find_spelled(tests, key + 1, part);
	char *open = strrchr(key, '[');
	size_t n = strlen(key);
	unsigned i;
	char close;
	bool indexed = open && key[n - 1] == ']' && sscanf(open, "[%5u%c", &i, &close) == 2;
	if (indexed)
		*open = '\0';
	const char *text = tests->metadata ? tests->metadata->get(tests->metadata->opaque, key)
	                                   : NULL;
	if (!text)
		return false;
	if (indexed)
		return element(tests, text, i, part);
	*part = (struct text_part){ text, strlen(text) };
	return true;
}

static bool is_one_of(const struct text_part *part, const char *words)
{
	while (*words) {
		size_t n = strcspn(words, "|");
		if (n == part->n && !memcmp(words, part->p, n))
			return true;
		words += n + (words[n] == '|');
	}
	return false;
}

bool kvi_rule_holds(struct kvi_rule_tests *tests, const struct kvi_rule *rule,
                    const struct kvi_rule_match *match)
{
	char key[KEY_BYTES];
	struct text_part x;
	if (!rule->key)
		return true;
	if (!*rule->key)
		return !tests->metadata || !tests->metadata->says;
	if (!write_key(key, rule->key, match))
		return false;
	if (!find(tests, key, &x))
		return rule->may_lack;
	snprintf(tests->seen, sizeof tests->seen, "%.*s", x.n < 40 ? (int)x.n : 40, x.p);
	return is_one_of(&x, rule->values);
}
