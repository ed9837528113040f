/* SPDX-License-Identifier: BSD-3-Clause */
/* predictor_frame.c - parses and writes PREDICTOR and PROFILE content (spec 5.2) */
#include "predictor_frame.h"

#include "frame.h"
#include "levels.h"
#include "util/string_field.h"

enum {
	CLOSED = 1,
	EMBEDDED = 2,
	FP8 = 4,
	CODES_IDS = 8,
	ARITHMETIC = 0xf0,
	KINDS = 0xff,
	KINDS_OF_ATTENTION = 0xe0
};
/* Bits of attention, of both masks. */
enum { KEYS = 0x20, SHARES = 0x40, TWELVE = 0x80 };

static struct kvi_h128 get_digest(struct kvi_in *in)
{
	const uint8_t *digest = kvi_get_bytes(in, 16);
	return digest ? kvi_load_h128(digest) : (struct kvi_h128){ 0 };
}

/* Spec model 1: one width each for keys and queries, and for probabilities. */
static bool one_width(uint8_t weights, uint8_t activations)
{
	return !(weights & TWELVE && (weights | activations) & KEYS) &&
	       !(activations & TWELVE && activations & SHARES);
}

/* Spec model 1, up to the names. */
static bool parse_model(struct kvi_predictor *predictor, struct kvi_in *in)
{
	uint8_t flags = kvi_get8(in);
	predictor->closed = flags & CLOSED;
	predictor->embedded = flags & EMBEDDED;
	predictor->fp8 = flags & FP8;
	predictor->level = kvi_get8(in);
	predictor->wide_weights = kvi_get8(in);
	predictor->wide_activations = kvi_get8(in);
	predictor->weights = get_digest(in);
	predictor->digest = get_digest(in);
	predictor->codes_ids = flags & CODES_IDS;
	if (predictor->codes_ids)
		predictor->head = get_digest(in);
	uint8_t wide = predictor->fp8 ? KINDS_OF_ATTENTION : KINDS;
	return !(flags & ~(CLOSED | EMBEDDED | FP8 | CODES_IDS)) &&
	       predictor->level >= KVI_LEVEL_MODEL && predictor->level <= KVI_LEVEL_PREDICTED &&
	       !(predictor->wide_weights & ~wide) && !(predictor->wide_activations & ~wide) &&
	       one_width(predictor->wide_weights, predictor->wide_activations);
}

static bool parse_linear(struct kvi_predictor *predictor, struct kvi_in *in)
{
	uint8_t where = kvi_get8(in);
	predictor->embedded = where == 1;
	predictor->level = kvi_get8(in);
	predictor->digest = get_digest(in);
	return where <= 1 &&
	       (predictor->level == KVI_LEVEL_PROFILE || predictor->level == KVI_LEVEL_LOWER ||
	        predictor->level == KVI_LEVEL_BASIS);
}

static kvarc_ret parse_params(struct kvi_predictor *predictor, const struct kvi_alloc *alloc,
                              const uint8_t *params, size_t bytes)
{
	struct kvi_in in = kvi_in_make(params, bytes);
	bool good = predictor->kind == KVI_PREDICTOR_MODEL ? parse_model(predictor, &in)
	                                                   : parse_linear(predictor, &in);
	if (predictor->kind == KVI_PREDICTOR_MODEL) {
		predictor->model_name = kvi_get_string(&in, alloc);
		if (!predictor->model_name)
			return in.bad ? KVARC_DATA : kvi_alloc_error(alloc);
	}
	predictor->name = kvi_get_string(&in, alloc);
	if (!predictor->name)
		return in.bad ? KVARC_DATA : kvi_alloc_error(alloc);
	if (predictor->embedded)
		predictor->content_bytes = kvi_get_varint(&in, KVI_PROFILE_EMBED_MAX);
	return in.bad || kvi_in_remaining(&in) || !good ||
	                       (predictor->embedded && predictor->content_bytes == 0)
	               ? KVARC_DATA
	               : KVARC_OK;
}

kvarc_ret kvi_predictor_parse(struct kvi_predictor *predictor, const struct kvi_alloc *alloc,
                              const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	*predictor = (struct kvi_predictor){ .kind = kvi_get8(&in) };
	uint64_t n = kvi_get_varint(&in, bytes);
	const uint8_t *params = kvi_get_bytes(&in, (size_t)n);
	if (!kvi_get_extensions(&in))
		return KVARC_DATA;
	if (predictor->kind == KVI_PREDICTOR_NONE)
		return n == 0 ? KVARC_OK : KVARC_DATA;
	predictor->unknown = predictor->kind > KVI_PREDICTOR_MODEL ||
	                     (predictor->kind == KVI_PREDICTOR_MODEL && n &&
	                      params[0] & ARITHMETIC);
	if (predictor->unknown) {
		predictor->name = kvi_string_copy(alloc, "unknown");
		return predictor->name ? KVARC_OK : kvi_alloc_error(alloc);
	}
	kvarc_ret ret = parse_params(predictor, alloc, params, (size_t)n);
	if (ret)
		kvi_predictor_free(predictor, alloc);
	return ret;
}

void kvi_predictor_free(struct kvi_predictor *predictor, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, predictor->name);
	kvi_free(alloc, predictor->model_name);
	*predictor = (struct kvi_predictor){ 0 };
}

/* Bytes of a varint. */
static size_t varint_bytes(uint64_t v)
{
	size_t n = 1;
	while (v >>= 7)
		n++;
	return n;
}

static size_t string_bytes(const char *s)
{
	size_t n = s ? strlen(s) : 0;
	return varint_bytes(n) + n;
}

static void put_digest(struct kvi_out *out, struct kvi_h128 digest)
{
	uint8_t bytes[16];
	kvi_store_h128(bytes, digest);
	kvi_put_bytes(out, bytes, sizeof bytes);
}

void kvi_predictor_put(struct kvi_out *out, const struct kvi_predictor *predictor)
{
	bool model = predictor->kind == KVI_PREDICTOR_MODEL;
	kvi_put8(out, predictor->kind);
	if (predictor->kind == KVI_PREDICTOR_NONE) {
		kvi_put_varint(out, 0);
		return;
	}
	kvi_put_varint(out,
	               (model ? 4 + 32 + (predictor->codes_ids ? 16 : 0) +
	                                string_bytes(predictor->model_name)
	                      : 2 + 16) +
	                       string_bytes(predictor->name) +
	                       (predictor->embedded ? varint_bytes(predictor->content_bytes) : 0));
	kvi_put8(out, !model ? predictor->embedded
	                     : (uint8_t)((predictor->closed ? CLOSED : 0) |
	                                 (predictor->embedded ? EMBEDDED : 0) |
	                                 (predictor->fp8 ? FP8 : 0) |
	                                 (predictor->codes_ids ? CODES_IDS : 0)));
	kvi_put8(out, predictor->level);
	if (model) {
		kvi_put8(out, predictor->wide_weights);
		kvi_put8(out, predictor->wide_activations);
		put_digest(out, predictor->weights);
	}
	put_digest(out, predictor->digest);
	if (model && predictor->codes_ids)
		put_digest(out, predictor->head);
	if (model)
		kvi_put_string(out, predictor->model_name);
	kvi_put_string(out, predictor->name);
	if (predictor->embedded)
		kvi_put_varint(out, predictor->content_bytes);
}

bool kvi_profile_part_parse(struct kvi_profile_part *part, const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	part->offset = kvi_get_varint(&in, KVI_PROFILE_EMBED_MAX);
	part->data = in.p;
	part->bytes = kvi_in_remaining(&in);
	return !in.bad && part->bytes > 0;
}
