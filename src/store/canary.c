/* SPDX-License-Identifier: BSD-3-Clause */
/* canary.c - compares rows of a cache with those that an engine computes now */
#include "config.h"

#include "kvarc/canary.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/track_labels.h"
#include "util/bytes.h"
#include "util/hash.h"

enum { ROWS_MOST = 64, TRACKS_MOST = 8, LAYERS_MOST = 1024 };
enum { HEX_ROWS = 32, HEX_LAYER = 16, HEX_FIRST = 4 }; /* digits of digests */

/* ==== Rows of a cache ==== */

/* Memory for a row of a cache. */
struct row_memory {
	uint8_t *p;
	size_t bytes;
};

static size_t row_bytes(const kvarc_tensor *tensor)
{
	return (size_t)tensor->heads * tensor->channels * kvarc_dtype_bytes(tensor->dtype);
}

/* Reads a row of a tensor. Returns OK, MEM, IO. */
static kvarc_ret read_row(const kvarc_import *from, uint32_t tensor, uint64_t token,
                          struct row_memory *row)
{
	const kvarc_tensor *t = &kvarc_import_geometry(from)->tensors[tensor];
	const size_t bytes = row_bytes(t);
	if (row->bytes < bytes) {
		free(row->p);
		row->p = malloc(bytes);
		row->bytes = row->p ? bytes : 0;
		if (!row->p)
			return KVARC_MEM;
	}
	return kvarc_import_fetch((void *)(uintptr_t)from, tensor, 0, t->heads, token, 1, row->p)
	               ? KVARC_IO
	               : KVARC_OK;
}

/* Sides of attention: what it compares, and what it sums up. Planes of quantised blocks are either,
 * too. */
enum side { KEYS, VALUES, NEITHER };

static enum side side_of(const kvarc_tensor *tensor)
{
	switch (tensor->kind) {
	case KVARC_KEY:
	case KVARC_KV_PACKED:
	case KVARC_MLA_LATENT:
		return KEYS;
	case KVARC_VALUE:
		return VALUES;
	default:
		return NEITHER;
	}
}

/* The lowest layer of each track; a model whose layers with a window are kept apart has its first
 * one in one of them, and files do not say in which. Tracks behind the last of these have none. */
struct lowest_layers {
	uint32_t of[TRACKS_MOST];
};

static struct lowest_layers lowest_layers(const kvarc_geometry *geometry)
{
	struct lowest_layers lowest;
	for (unsigned i = 0; i < TRACKS_MOST; i++)
		lowest.of[i] = UINT32_MAX;
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];
		if (side_of(t) != NEITHER && t->track < TRACKS_MOST &&
		    t->layer < lowest.of[t->track])
			lowest.of[t->track] = t->layer;
	}
	return lowest;
}

static bool is_lowest(const struct lowest_layers *lowest, const kvarc_tensor *tensor)
{
	return tensor->track < TRACKS_MOST && lowest->of[tensor->track] == tensor->layer;
}

/* ==== Fingerprints: digests of rows, and the words behind them ==== */

/* "1 IDS ROWS KEYS VALUES FIRST WORDS", in hex and decimal: version; ids, comma between; digest of
 * all rows; of the keys and of the values of the lowest layer of each track; of position 0, one for
 * each layer; "id:logprob" of the words, comma between, or "-". */
struct fingerprint {
	int32_t ids[KVARC_CANARY_TOKENS];
	char rows[HEX_ROWS + 1];
	char keys[TRACKS_MOST * HEX_LAYER + 1], values[TRACKS_MOST * HEX_LAYER + 1];
	char first[LAYERS_MOST * HEX_FIRST + 1];
	kvarc_next_words next;
};

static void to_hex(char *out, struct kvi_h128 hash, size_t digits)
{
	static const char hex[] = "0123456789abcdef";
	uint8_t b[16];
	kvi_store_h128(b, hash);
	for (size_t i = 0; i < digits; i++)
		out[i] = hex[b[i / 2] >> (i % 2 ? 0 : 4) & 15];
	out[digits] = 0;
}

/* Whether the cache is of these tokens at the positions 0, 1, .. alone. */
static bool is_of(const kvarc_import *computed, const int32_t *ids)
{
	int32_t got[KVARC_CANARY_TOKENS], positions[KVARC_CANARY_TOKENS];
	if (kvarc_import_tokens(computed, 0) != KVARC_CANARY_TOKENS ||
	    kvarc_import_read_tokens(computed, 0, 0, KVARC_CANARY_TOKENS, got, positions))
		return false;
	for (int32_t i = 0; i < KVARC_CANARY_TOKENS; i++)
		if (positions[i] != i || (ids && got[i] != ids[i]))
			return false;
	return true;
}

/* Digests while rows pass: zeros, and for each row H128 of what there is and the row's H128. */
struct digests {
	struct kvi_h128 all;
	struct kvi_h128 lowest[2][TRACKS_MOST]; /* by enum side */
	struct kvi_h128 *first;                 /* of each layer */
};

static void add_digest(struct kvi_h128 *to, struct kvi_h128 row)
{
	uint8_t b[32];
	kvi_store_h128(b, *to);
	kvi_store_h128(b + 16, row);
	*to = kvi_h128(b, sizeof b);
}

static kvarc_ret hash_tensor(const kvarc_import *computed, uint32_t tensor,
                             const struct lowest_layers *lowest, struct digests *digests,
                             struct row_memory *row)
{
	const kvarc_tensor *t = &kvarc_import_geometry(computed)->tensors[tensor];
	const enum side side = side_of(t);
	const uint64_t tokens = kvarc_import_tokens(computed, t->track);
	for (uint64_t i = 0; i < tokens; i++) {
		kvarc_ret ret = read_row(computed, tensor, i, row);
		if (ret)
			return ret;
		const struct kvi_h128 hash = kvi_h128(row->p, row_bytes(t));
		add_digest(&digests->all, hash);
		if (side != NEITHER && is_lowest(lowest, t))
			add_digest(&digests->lowest[side][t->track], hash);
		if (side != NEITHER && i == 0 && t->layer < LAYERS_MOST)
			add_digest(&digests->first[t->layer], hash);
	}
	return KVARC_OK;
}

static void put_first(struct fingerprint *to, const struct digests *digests,
                      const kvarc_geometry *geometry)
{
	uint32_t layers = 0;
	char hex[HEX_ROWS + 1];
	for (size_t i = 0; i < geometry->n_tensors; i++)
		if (geometry->tensors[i].layer < LAYERS_MOST &&
		    geometry->tensors[i].layer >= layers)
			layers = geometry->tensors[i].layer + 1;
	for (uint32_t i = 0; i < layers; i++) {
		to_hex(hex, digests->first[i], HEX_FIRST);
		memcpy(to->first + (size_t)i * HEX_FIRST, hex, HEX_FIRST);
	}
	to->first[(size_t)layers * HEX_FIRST] = 0;
}

/* Puts the digests of lowest layers. Where a track has one side alone, it stands for both. */
static void put_lowest(struct fingerprint *to, const struct digests *digests,
                       const kvarc_geometry *geometry)
{
	const size_t tracks = geometry->n_tracks < TRACKS_MOST ? geometry->n_tracks : TRACKS_MOST;
	for (size_t i = 0; i < tracks; i++) {
		struct kvi_h128 keys = digests->lowest[KEYS][i];
		struct kvi_h128 values = digests->lowest[VALUES][i];
		if (!keys.lo && !keys.hi)
			keys = values;
		if (!values.lo && !values.hi)
			values = keys;
		to_hex(to->keys + i * HEX_LAYER, keys, HEX_LAYER);
		to_hex(to->values + i * HEX_LAYER, values, HEX_LAYER);
	}
}

/* Fills the digests of a fingerprint; ids and words stay. Returns OK, IO, MEM. */
static kvarc_ret take_digests(struct fingerprint *to, const kvarc_import *computed)
{
	const kvarc_geometry *g = kvarc_import_geometry(computed);
	const struct lowest_layers lowest = lowest_layers(g);
	struct digests d = { .first = calloc(LAYERS_MOST, sizeof *d.first) };
	struct row_memory row = { NULL, 0 };
	kvarc_ret ret = KVARC_OK;
	if (!d.first)
		return KVARC_MEM;
	/* how many checkpoints there are is a setting of the server */
	for (uint32_t i = 0; i < g->n_tensors && !ret; i++)
		if (!kvi_is_checkpoint_track(&g->tracks[g->tensors[i].track]))
			ret = hash_tensor(computed, i, &lowest, &d, &row);
	if (!ret) {
		to_hex(to->rows, d.all, HEX_ROWS);
		put_lowest(to, &d, g);
		put_first(to, &d, g);
	}
	free(d.first);
	free(row.p);
	return ret;
}

/* Reads a decimal number up to a byte that ends it, which is passed, too. */
static bool take_number(const char **text, char end, long *v)
{
	char *behind;
	if ((**text < '0' || **text > '9') && **text != '-')
		return false;
	*v = strtol(*text, &behind, 10);
	if (*behind != end)
		return false;
	*text = behind + 1;
	return true;
}

static bool take_hex(const char **text, char *to, size_t most)
{
	const size_t n = strspn(*text, "0123456789abcdef");
	if (!n || n > most || (*text)[n] != ' ')
		return false;
	memcpy(to, *text, n);
	to[n] = 0;
	*text += n + 1;
	return true;
}

static bool take_words(const char *text, kvarc_next_words *next)
{
	next->n = 0;
	if (strcmp(text, "-") == 0)
		return true;
	for (;;) {
		long id;
		char *behind;
		if (next->n == KVARC_CANARY_WORDS || !take_number(&text, ':', &id) || id < 0 ||
		    id > INT32_MAX)
			return false;
		next->ids[next->n] = (int32_t)id;
		/* millionths, so that no locale matters */
		const long millionths = strtol(text, &behind, 10);
		if (behind == text)
			return false;
		next->logprobs[next->n++] = (double)millionths / 1e6;
		if (!*behind)
			return true;
		if (*behind != ',')
			return false;
		text = behind + 1;
	}
}

static bool parse(struct fingerprint *f, const char *text)
{
	if (strncmp(text, "1 ", 2) != 0)
		return false;
	text += 2;
	for (unsigned i = 0; i < KVARC_CANARY_TOKENS; i++) {
		long id;
		if (!take_number(&text, i + 1 < KVARC_CANARY_TOKENS ? ',' : ' ', &id) || id < 0 ||
		    id > INT32_MAX)
			return false;
		f->ids[i] = (int32_t)id;
	}
	return take_hex(&text, f->rows, HEX_ROWS) &&
	       take_hex(&text, f->keys, TRACKS_MOST * HEX_LAYER) &&
	       take_hex(&text, f->values, TRACKS_MOST * HEX_LAYER) &&
	       take_hex(&text, f->first, LAYERS_MOST * HEX_FIRST) && take_words(text, &f->next);
}

kvarc_ret kvarc_canary_ids(int32_t ids[KVARC_CANARY_TOKENS], uint64_t vocabulary,
                           const char *recorded)
{
	/* Spread over the vocabulary; those at its begin have no text of their own. */
	enum { STEPS = 61, PASSED = 1000 };
	struct fingerprint *f;
	if (recorded) {
		f = malloc(sizeof *f);
		if (!f)
			return KVARC_MEM;
		kvarc_ret ret = parse(f, recorded) ? KVARC_OK : KVARC_DATA;
		if (!ret)
			memcpy(ids, f->ids, sizeof f->ids);
		free(f);
		return ret;
	}
	if (vocabulary < 2 * PASSED)
		return KVARC_PROG;
	for (uint64_t i = 0; i < KVARC_CANARY_TOKENS; i++)
		ids[i] = (int32_t)(PASSED + i * i * STEPS % (vocabulary - PASSED));
	return KVARC_OK;
}

static void put_text(char *to, size_t size, size_t *n, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	const int wrote = *n < size ? vsnprintf(to + *n, size - *n, format, args) : 0;
	va_end(args);
	*n += wrote > 0 ? (size_t)wrote : 0;
}

kvarc_ret kvarc_canary_record(kvarc_import *to, const kvarc_import *computed,
                              const kvarc_next_words *next)
{
	enum { TEXT = 8192 };
	int32_t ids[KVARC_CANARY_TOKENS];
	size_t n = 0;
	if (!to || !computed || (next && next->n > KVARC_CANARY_WORDS))
		return KVARC_PROG;
	if (!is_of(computed, NULL) ||
	    kvarc_import_read_tokens(computed, 0, 0, KVARC_CANARY_TOKENS, ids, NULL))
		return KVARC_OPTIONS;
	struct fingerprint *f = calloc(1, sizeof *f);
	char *text = malloc(TEXT);
	kvarc_ret ret = f && text ? take_digests(f, computed) : KVARC_MEM;
	if (!ret) {
		put_text(text, TEXT, &n, "1 ");
		for (unsigned i = 0; i < KVARC_CANARY_TOKENS; i++)
			put_text(text, TEXT, &n, "%s%d", i ? "," : "", (int)ids[i]);
		put_text(text, TEXT, &n, " %s %s %s %s ", f->rows, f->keys, f->values, f->first);
		for (unsigned i = 0; next && i < next->n; i++)
			put_text(text, TEXT, &n, "%s%d:%ld", i ? "," : "", (int)next->ids[i],
			         lround(next->logprobs[i] * 1e6));
		put_text(text, TEXT, &n, next && next->n ? "" : "-");
		ret = kvarc_import_identity(to, "canary", text);
	}
	free(f);
	free(text);
	return ret;
}

static void say(kvarc_canary_verdict *verdict, kvarc_belongs answer, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	verdict->answer = answer;
	vsnprintf(verdict->text, sizeof verdict->text, format, args);
	va_end(args);
}

/* The largest difference of the words that both have; those that one lacks do not count. */
static double words_apart(const kvarc_next_words *a, const kvarc_next_words *b)
{
	double most = 0;
	for (unsigned i = 0; i < a->n; i++)
		for (unsigned k = 0; k < b->n; k++)
			if (a->ids[i] == b->ids[k])
				most = fmax(most, fabs(a->logprobs[i] - b->logprobs[k]));
	return a->n && b->n && a->ids[0] != b->ids[0] && most == 0 ? INFINITY : most;
}

/* Rows are equal: what is left is the last layer behind its keys and values, and the output. */
static void judge_words(const struct fingerprint *then, const kvarc_next_words *now,
                        kvarc_canary_verdict *verdict)
{
	/* Words have six decimals. */
	static const double same = 1e-4, most = 0.25;
	if (!now || !now->n || !then->next.n) {
		say(verdict, KVARC_BELONGS_EXACT,
		    "%u fixed tokens come out bit for bit as when it was saved, all but what the "
		    "last layer makes of them",
		    verdict->tokens);
		return;
	}
	const double apart = words_apart(&then->next, now);
	if (apart <= same)
		say(verdict, KVARC_BELONGS_EXACT,
		    "%u fixed tokens come out bit for bit as when it was saved", verdict->tokens);
	else
		say(verdict, apart > most ? KVARC_BELONGS_NOT : KVARC_BELONGS_NEAR,
		    "%u fixed tokens come out bit for bit as when it was saved, but the words "
		    "after them are up to %.2g less or more likely (log): other weights of the "
		    "last layer or the output%s",
		    verdict->tokens, apart, apart > most ? "" : ", or other arithmetic");
}

/* The first layer whose position 0 differs; false: none does. */
static bool first_apart(const char *then, const char *now, uint32_t *layer)
{
	size_t i = 0;
	while (then[i] && then[i] == now[i])
		i++;
	*layer = (uint32_t)(i / HEX_FIRST);
	return then[i] || now[i];
}

/* The lowest layer of a track next to what it was. */
static bool lowest_equal(const char *then, const char *now, size_t track)
{
	return strncmp(then + track * HEX_LAYER, now + track * HEX_LAYER, HEX_LAYER) == 0;
}

static void judge_digests(const struct fingerprint *then, const struct fingerprint *now,
                          kvarc_canary_verdict *verdict)
{
	const size_t tracks = strlen(then->keys) / HEX_LAYER;
	bool keys = false, values = false; /* of the first layer, or of one that shows more */
	uint32_t layer;
	for (size_t i = 0; i < tracks && keys == values; i++) {
		const bool k = lowest_equal(then->keys, now->keys, i);
		const bool v = lowest_equal(then->values, now->values, i);
		if (k || v) {
			keys = k;
			values = v;
		}
	}
	if (keys != values)
		say(verdict, KVARC_BELONGS_NOT,
		    "of %u fixed tokens the %s of the first layer come out otherwise than when it "
		    "was saved, the %s as then: another %s",
		    verdict->tokens, keys ? "values" : "keys", keys ? "keys" : "values",
		    keys ? "adapter, or other weights" : "RoPE setting, or other weights");
	else if (!keys)
		say(verdict, KVARC_BELONGS_NEAR,
		    "%u fixed tokens come out otherwise than when it was saved, from the first "
		    "layer on: other weights, or other arithmetic",
		    verdict->tokens);
	else if (first_apart(then->first, now->first, &layer)) {
		say(verdict, KVARC_BELONGS_NOT,
		    "a fixed token at position 0 comes out otherwise than when it was saved, from "
		    "layer %u on: other weights, or an adapter",
		    layer);
		verdict->first_token_alone = 1;
	} else
		say(verdict, KVARC_BELONGS_NEAR,
		    "%u fixed tokens come out otherwise than when it was saved, but for the first "
		    "layer and the first token: another attention kernel, or other weights of "
		    "queries alone",
		    verdict->tokens);
}

kvarc_ret kvarc_canary_check(const char *recorded, const kvarc_import *computed,
                             const kvarc_next_words *next, kvarc_canary_verdict *verdict)
{
	if (!recorded || !computed || !verdict)
		return KVARC_PROG;
	*verdict = (kvarc_canary_verdict){ .tokens = KVARC_CANARY_TOKENS };
	struct fingerprint *then = calloc(2, sizeof *then), *now = then + 1;
	kvarc_ret ret = !then                         ? KVARC_MEM
	                : !parse(then, recorded)      ? KVARC_DATA
	                : !is_of(computed, then->ids) ? KVARC_OPTIONS
	                                              : take_digests(now, computed);
	if (!ret && strcmp(then->rows, now->rows) == 0)
		judge_words(then, next, verdict);
	else if (!ret)
		judge_digests(then, now, verdict);
	free(then);
	return ret;
}

/* ==== Rows of a cache without a fingerprint ==== */

/* How far rows are apart: the root of the squares of differences over those of the file's. */
struct apart {
	double difference, whole;
};

static double share(const struct apart *a)
{
	return a->whole > 0 ? sqrt(a->difference / a->whole) : a->difference > 0;
}

/* A computed cache next to the file: what kvarc_canary_compare looks at. */
struct distances {
	unsigned rows; /* that both have */
	unsigned head; /* rows from position 0 on that are equal in all tensors */
	bool equal;    /* all bits */
	bool measured; /* elements are numbers; else bits alone were compared */
	/* keys and values of the lowest layer of each track; INFINITY: not there */
	double lowest[TRACKS_MOST][2];
	bool one_side;     /* of one of these, keys or values alone are equal: */
	double telling[2]; /* that one */
	double first[2];   /* position 0, the most of all layers */
	double middle[2];  /* the median of all layers, without position 0 */
	double largest[2]; /* the same, the most of all layers */
	uint32_t layer;    /* the first one whose position 0 differs */
};

/* The index of each of the first positions in a track; UINT64_MAX: not there. Returns OK, IO, MEM,
 * OPTIONS (the file has no positions). */
static kvarc_ret find_positions(const kvarc_import *from, uint32_t track, unsigned rows,
                                uint64_t at[ROWS_MOST])
{
	enum { SOME = 4096 };
	const uint64_t tokens = kvarc_import_tokens(from, track);
	kvarc_ret ret = KVARC_OK;
	int32_t *positions = malloc(SOME * sizeof *positions);
	if (!positions)
		return KVARC_MEM;
	for (unsigned i = 0; i < rows; i++)
		at[i] = UINT64_MAX;
	for (uint64_t t0 = 0; t0 < tokens && !ret; t0 += SOME) {
		const uint64_t n = tokens - t0 < SOME ? tokens - t0 : SOME;
		ret = kvarc_import_read_tokens(from, track, t0, n, NULL, positions);
		for (uint64_t i = 0; i < n && !ret; i++)
			if (positions[i] >= 0 && (uint32_t)positions[i] < rows)
				at[positions[i]] = t0 + i;
	}
	free(positions);
	return ret;
}

static bool is_number(const kvarc_tensor *tensor)
{
	return tensor->role == KVARC_WHOLE &&
	       (tensor->dtype == KVARC_F16 || tensor->dtype == KVARC_BF16 ||
	        tensor->dtype == KVARC_F32);
}

static double number_at(const kvarc_tensor *tensor, const uint8_t *row, size_t i)
{
	enum { MANTISSA = 10, EXPONENTS = 31, BIAS = 15 };
	uint32_t bits;
	float f;
	if (tensor->dtype == KVARC_F16) {
		const unsigned h = kvi_load16(row + 2 * i);
		const int exponent = (int)(h >> MANTISSA & EXPONENTS);
		const int sum = (int)(h & ((1u << MANTISSA) - 1)) + (exponent ? 1 << MANTISSA : 0);
		const double size = exponent == EXPONENTS ? INFINITY
		                                          : ldexp(sum, (exponent ? exponent : 1) -
		                                                               BIAS - MANTISSA);
		return h >> 15 ? -size : size;
	}
	bits = tensor->dtype == KVARC_F32 ? kvi_load32(row + 4 * i)
	                                  : (uint32_t)kvi_load16(row + 2 * i) << 16;
	memcpy(&f, &bits, sizeof f);
	return (double)f;
}

static void add_row(struct apart *to, const kvarc_tensor *tensor, const uint8_t *file,
                    const uint8_t *computed)
{
	const size_t n = (size_t)tensor->heads * tensor->channels;
	for (size_t i = 0; i < n; i++) {
		const double x = number_at(tensor, file, i), y = number_at(tensor, computed, i);
		if (!isfinite(x) || !isfinite(y))
			continue;
		to->whole += x * x;
		to->difference += (y - x) * (y - x);
	}
}

/* Rows of one tensor, in both caches. */
struct tensor_rows {
	const kvarc_import *file, *computed;
	uint32_t tensor;
	unsigned rows;
	uint64_t in_file[ROWS_MOST], in_computed[ROWS_MOST];
};

/* Position 0, and those behind it. */
struct tensor_apart {
	unsigned rows; /* that both have */
	struct apart first, others;
};

static kvarc_ret compare_tensor(const struct tensor_rows *x, struct row_memory row[2],
                                struct distances *d, struct tensor_apart *apart)
{
	const kvarc_tensor *t = &kvarc_import_geometry(x->file)->tensors[x->tensor];
	*apart = (struct tensor_apart){ .rows = 0 };
	for (unsigned i = 0; i < x->rows; i++) {
		if (x->in_file[i] == UINT64_MAX || x->in_computed[i] == UINT64_MAX)
			continue;
		kvarc_ret ret = read_row(x->file, x->tensor, x->in_file[i], &row[0]);
		if (!ret)
			ret = read_row(x->computed, x->tensor, x->in_computed[i], &row[1]);
		if (ret)
			return ret;
		apart->rows++;
		struct apart *to = i ? &apart->others : &apart->first;
		if (memcmp(row[0].p, row[1].p, row_bytes(t)) != 0) {
			d->equal = false;
			d->head = i < d->head ? i : d->head;
			d->measured = d->measured && is_number(t);
			if (i == 0 && t->layer < d->layer)
				d->layer = t->layer;
			if (!is_number(t))
				to->difference++;
		}
		if (is_number(t))
			add_row(to, t, row[0].p, row[1].p);
	}
	d->rows = apart->rows > d->rows ? apart->rows : d->rows;
	return KVARC_OK;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof *values, by_size);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void note_tensor(struct distances *d, const kvarc_tensor *tensor,
                        const struct lowest_layers *lowest, const struct tensor_apart *apart)
{
	const enum side side = side_of(tensor);
	const struct apart both = { apart->first.difference + apart->others.difference,
		                    apart->first.whole + apart->others.whole };
	d->first[side] = fmax(d->first[side], share(&apart->first));
	if (apart->rows && is_lowest(lowest, tensor)) {
		double *of_track = &d->lowest[tensor->track][side];
		*of_track = isinf(*of_track) ? share(&both) : fmax(*of_track, share(&both));
	}
}

/* Whether a tensor is there and has a row for each token; checkpoints are left out, as what is
 * computed has others. */
static bool has_rows(const kvarc_geometry *geometry, size_t tensor)
{
	if (tensor >= geometry->n_tensors)
		return false;
	const kvarc_tensor *t = &geometry->tensors[tensor];
	return side_of(t) != NEITHER && !kvi_is_checkpoint_track(&geometry->tracks[t->track]);
}

/* Compares all tensors. Returns OK, IO, MEM. */
static kvarc_ret measure(const kvarc_import *file, const kvarc_canary_rows *computed,
                         struct distances *d)
{
	const kvarc_geometry *g = kvarc_import_geometry(file);
	const struct lowest_layers lowest = lowest_layers(g);
	struct tensor_rows x = { .file = file,
		                 .computed = computed->computed,
		                 .rows = computed->rows };
	struct row_memory row[2] = { { NULL, 0 }, { NULL, 0 } };
	double *shares[2] = { calloc(g->n_tensors + 1, sizeof(double)),
		              calloc(g->n_tensors + 1, sizeof(double)) };
	size_t n[2] = { 0, 0 };
	uint32_t track = UINT32_MAX; /* whose positions are known */
	kvarc_ret ret = shares[0] && shares[1] ? KVARC_OK : KVARC_MEM;
	*d = (struct distances){
		.head = UINT32_MAX, .equal = true, .measured = true, .layer = UINT32_MAX
	};
	for (unsigned i = 0; i < TRACKS_MOST; i++)
		d->lowest[i][0] = d->lowest[i][1] = INFINITY;
	for (uint32_t i = 0; i < g->n_tensors && !ret; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		const enum side side = side_of(t);
		struct tensor_apart apart;
		if (!has_rows(g, i) || t->track >= TRACKS_MOST)
			continue;
		if (t->track != track) {
			track = t->track;
			ret = find_positions(file, track, x.rows, x.in_file);
			if (!ret)
				ret = find_positions(x.computed, track, x.rows, x.in_computed);
		}
		x.tensor = i;
		if (!ret)
			ret = compare_tensor(&x, row, d, &apart);
		if (ret)
			break;
		note_tensor(d, t, &lowest, &apart);
		if (apart.others.whole > 0) {
			const double of_layer = share(&apart.others);
			shares[side][n[side]++] = of_layer;
			d->largest[side] = fmax(d->largest[side], of_layer);
		}
	}
	for (unsigned i = 0; i < 2 && !ret; i++)
		d->middle[i] = median(shares[i], n[i]);
	for (unsigned i = 0; i < TRACKS_MOST; i++) { /* tracks of keys alone */
		double *lowest_of = d->lowest[i];
		lowest_of[0] = isinf(lowest_of[0]) ? lowest_of[1] : lowest_of[0];
		lowest_of[1] = isinf(lowest_of[1]) ? lowest_of[0] : lowest_of[1];
	}
	for (unsigned i = 0; i < 2; i++) {
		free(shares[i]);
		free(row[i].p);
	}
	d->head = d->head < d->rows ? d->head : d->rows;
	return ret;
}

/* Shares up to which caches of two small models differed by nothing but the arithmetic, times 1.6
 * and more; keys, values. */
static const double lowest_most[2] = { .01, .03 }, first_most[2] = { .06, .18 },
		    middle_most[2] = { .07, .14 };
/* Keys of a cache that was shifted were rotated twice, in 16 bits; and position 0 on its own, with
 * weights of 16 bits, was computed by another kernel. */
static const double rounded = .001;
/* Values of position 0 this far apart are of another token. */
static const double another_token = .7;
/* Rows that are equal by no accident. */
enum { HEAD_LEAST = 16 };

static bool beyond(const double *share_of, const double *most)
{
	return share_of[0] > most[0] || share_of[1] > most[1];
}

/* Whether keys or values alone are equal, which no other arithmetic makes them. */
static bool one_side_equal(const double *lowest)
{
	return (lowest[1] == 0 && lowest[0] > rounded) || (lowest[0] == 0 && lowest[1] > 0);
}

/* Notes a lowest layer of which one side alone is equal, in any of the ways. */
static void note_one_side(struct distances *to, const struct distances *d)
{
	for (unsigned i = 0; i < TRACKS_MOST; i++)
		if (!isinf(d->lowest[i][0]) && one_side_equal(d->lowest[i])) {
			to->one_side = true;
			memcpy(to->telling, d->lowest[i], sizeof to->telling);
		}
}

/* The lowest layer that says most: one that has but one side equal, or the nearest one, which is
 * the model's first where that is there. */
static const double *telling_lowest(const struct distances *d)
{
	const double *nearest = d->lowest[0];
	if (d->one_side)
		return d->telling;
	for (unsigned i = 1; i < TRACKS_MOST; i++)
		if (d->lowest[i][0] + d->lowest[i][1] < nearest[0] + nearest[1])
			nearest = d->lowest[i];
	return nearest;
}

static void judge_near(const struct distances *nearest, kvarc_canary_verdict *verdict)
{
	say(verdict, KVARC_BELONGS_NEAR,
	    "its first %u tokens come out within %.2g and %.2g %% (keys, values) in all layers, as "
	    "with another kernel or machine; a change below that would not show",
	    nearest->rows, 100 * nearest->largest[0], 100 * nearest->largest[1]);
}

/* The first layer is equal, which no other arithmetic makes it: position 0 must be, too. */
static void judge_first(const struct distances *most, const struct distances *nearest,
                        kvarc_canary_verdict *verdict)
{
	const double first = fmax(most->first[0], most->first[1]);
	if (most->first[1] >= another_token)
		say(verdict, KVARC_BELONGS_MOVED,
		    "the cache was shifted: only the first layer could be compared, and fits");
	else if (first > rounded)
		say(verdict, KVARC_BELONGS_NOT,
		    "the token at position 0 comes out otherwise from layer %u on (by %.2g %%): "
		    "other weights, or an adapter",
		    most->layer, 100 * first);
	else if (beyond(nearest->middle, middle_most))
		say(verdict, KVARC_BELONGS_MOVED,
		    "the cache was pieced together: only the first layer and position 0 could be "
		    "compared, and fit");
	else
		judge_near(nearest, verdict);
}

/* Both halves of the first layer differ: other arithmetic, or much else. */
static void judge_by_size(const struct distances *most, const struct distances *nearest,
                          kvarc_canary_verdict *verdict)
{
	const bool first_equal = most->first[0] == 0 && most->first[1] == 0;
	const double *lowest = telling_lowest(most);
	if (beyond(lowest, lowest_most) || beyond(most->first, first_most))
		say(verdict, KVARC_BELONGS_NOT,
		    "its first %u tokens come out otherwise, by %.2g and %.2g %% of keys and "
		    "values of the first layer, %.2g and %.2g %% of position 0: other weights",
		    nearest->rows, 100 * lowest[0], 100 * lowest[1], 100 * most->first[0],
		    100 * most->first[1]);
	else if (beyond(nearest->middle, middle_most))
		say(verdict,
		    first_equal || most->first[1] > .4 ? KVARC_BELONGS_MOVED : KVARC_BELONGS_NOT,
		    "its first %u tokens come out otherwise, by %.2g and %.2g %% (keys, values)",
		    nearest->rows, 100 * nearest->middle[0], 100 * nearest->middle[1]);
	else
		judge_near(nearest, verdict);
}

/* Quantised caches: how far they are apart is not known. Keys that were shifted differ, too. */
static void judge_bits(const struct distances *most, kvarc_canary_verdict *verdict)
{
	const double *lowest = telling_lowest(most);
	const bool keys = lowest[0] == 0, values = lowest[1] == 0;
	const bool first = most->first[0] == 0 && most->first[1] == 0;
	if (keys && !values)
		say(verdict, KVARC_BELONGS_NOT,
		    "of its first %u tokens the values of the first layer come out otherwise, the "
		    "keys do not: other weights, or an adapter",
		    verdict->tokens);
	else if (keys && !first)
		say(verdict, KVARC_BELONGS_NOT,
		    "the token at position 0 comes out otherwise from layer %u on: other weights, "
		    "or an adapter",
		    most->layer);
	else
		say(verdict, KVARC_BELONGS_NEAR,
		    "its first %u tokens come out otherwise, by how much cannot be said of "
		    "quantised caches%s",
		    verdict->tokens,
		    values && !keys ? ": the cache was shifted, or it is of another RoPE setting"
		                    : "");
}

/* most: the largest distances of all ways; nearest: the way whose values are nearest. */
static void judge(const struct distances *most, const struct distances *nearest,
                  kvarc_canary_verdict *verdict)
{
	const double *lowest = telling_lowest(most);
	if (!most->measured)
		judge_bits(most, verdict);
	else if (lowest[1] == 0 && lowest[0] > rounded)
		say(verdict, KVARC_BELONGS_NOT,
		    "of its first %u tokens the keys of the first layer come out otherwise (by "
		    "%.2g %%), the values do not: another RoPE setting, or other weights",
		    nearest->rows, 100 * lowest[0]);
	else if (lowest[0] == 0 && lowest[1] > 0)
		say(verdict, KVARC_BELONGS_NOT,
		    "of its first %u tokens the values of the first layer come out otherwise (by "
		    "%.2g %%), the keys do not: other weights, or an adapter",
		    nearest->rows, 100 * lowest[1]);
	else if (lowest[1] == 0)
		judge_first(most, nearest, verdict);
	else
		judge_by_size(most, nearest, verdict);
}

/* Whether rows of one can be compared with rows of the other: tensors with rows of tokens have the
 * same numbers in both. */
static bool same_shape(const kvarc_geometry *a, const kvarc_geometry *b)
{
	for (size_t i = 0; i < a->n_tensors || i < b->n_tensors; i++) {
		const bool in_a = has_rows(a, i), in_b = has_rows(b, i);
		if (in_a != in_b)
			return false;
		if (!in_a)
			continue;
		const kvarc_tensor *x = &a->tensors[i], *y = &b->tensors[i];
		if (x->layer != y->layer || x->kind != y->kind || x->role != y->role ||
		    x->dtype != y->dtype || x->track != y->track || row_bytes(x) != row_bytes(y))
			return false;
	}
	return true;
}

static void widen(struct distances *most, const struct distances *d)
{
	for (unsigned side = 0; side < 2; side++) {
		most->first[side] = fmax(most->first[side], d->first[side]);
		for (unsigned i = 0; i < TRACKS_MOST; i++)
			most->lowest[i][side] = fmax(most->lowest[i][side], d->lowest[i][side]);
	}
	note_one_side(most, d);
	most->measured = most->measured && d->measured;
	most->layer = d->layer < most->layer ? d->layer : most->layer;
}

kvarc_ret kvarc_canary_compare(const kvarc_import *file, const kvarc_canary_rows *computed,
                               size_t n, kvarc_canary_verdict *verdict)
{
	struct distances d, most = { .measured = true, .layer = UINT32_MAX }, nearest = { 0 };
	if (!file || !verdict || (n && !computed))
		return KVARC_PROG;
	*verdict = (kvarc_canary_verdict){ .answer = KVARC_BELONGS_UNKNOWN };
	for (size_t i = 0; i < n; i++) {
		if (computed[i].rows > ROWS_MOST || !computed[i].computed)
			return KVARC_PROG;
		if (!same_shape(kvarc_import_geometry(file),
		                kvarc_import_geometry(computed[i].computed))) {
			say(verdict, KVARC_BELONGS_UNKNOWN,
			    "its caches have other layers or types than what is computed now");
			return KVARC_OK;
		}
		kvarc_ret ret = measure(file, &computed[i], &d);
		if (ret)
			return ret;
		if (!d.rows)
			continue;
		verdict->tokens = d.rows > verdict->tokens ? d.rows : verdict->tokens;
		if (d.equal && verdict->answer != KVARC_BELONGS_EXACT)
			say(verdict, KVARC_BELONGS_EXACT,
			    "its first %u tokens come out bit for bit", d.rows);
		else if (d.head >= HEAD_LEAST && telling_lowest(&d)[1] == 0 &&
		         telling_lowest(&d)[0] <= rounded &&
		         verdict->answer == KVARC_BELONGS_UNKNOWN)
			say(verdict, KVARC_BELONGS_MOVED,
			    "its first %u tokens come out bit for bit; the cache was shifted or "
			    "pieced together behind them",
			    d.head);
		widen(&most, &d);
		if (!nearest.rows || d.middle[1] < nearest.middle[1])
			nearest = d;
	}
	if (nearest.rows && verdict->answer == KVARC_BELONGS_UNKNOWN)
		judge(&most, &nearest, verdict);
	else if (!nearest.rows)
		say(verdict, KVARC_BELONGS_UNKNOWN,
		    "it lacks its first rows, which could be "
		    "compared");
	return KVARC_OK;
}
