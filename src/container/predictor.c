/* SPDX-License-Identifier: BSD-3-Clause */
/* predictor.c - parses and writes PREDICTOR and PROFILE content (spec 5.2) */
#include "container/predictor.h"

#include "container/frame.h"
#include "container/string.h"

static kvarc_ret parse_profile(struct kvi_predictor *p,
                               const struct kvi_alloc *alloc,
                               const uint8_t *params, size_t bytes)
{
	struct kvi_in in = kvi_in_make(params, bytes);
	uint8_t where = kvi_get8(&in);
	p->embedded = where == 1;
	p->level = kvi_get8(&in);
	const uint8_t *digest = kvi_get_bytes(&in, 16);
	if (digest)
		p->digest = kvi_load_h128(digest);
	p->name = kvi_get_string(&in, alloc);
	if (!p->name)
		return in.bad ? KVARC_DATA : kvi_alloc_error(alloc);
	if (p->embedded)
		p->content_bytes = kvi_get_varint(&in, KVI_PROFILE_EMBED_MAX);
	return in.bad || kvi_in_left(&in) || where > 1 || p->level < 2 ||
	       p->level > 3 || (p->embedded && p->content_bytes == 0)
	       ? KVARC_DATA : KVARC_OK;
}

kvarc_ret kvi_predictor_parse(struct kvi_predictor *p,
                              const struct kvi_alloc *alloc,
                              const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	*p = (struct kvi_predictor){ .kind = kvi_get8(&in) };
	uint64_t n = kvi_get_varint(&in, bytes);
	const uint8_t *params = kvi_get_bytes(&in, (size_t)n);
	if (in.bad || kvi_in_left(&in) != 0)
		return KVARC_DATA;
	if (p->kind == KVI_PREDICTOR_NONE)
		return n == 0 ? KVARC_OK : KVARC_DATA;
	if (p->kind != KVI_PREDICTOR_PROFILE)
		return KVARC_OPTIONS;
	kvarc_ret ret = parse_profile(p, alloc, params, (size_t)n);
	if (ret)
		kvi_predictor_free(p, alloc);
	return ret;
}

void kvi_predictor_free(struct kvi_predictor *p, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, p->name);
	*p = (struct kvi_predictor){ 0 };
}

/* Bytes of a varint. */
static size_t varint_bytes(uint64_t v)
{
	size_t n = 1;
	while (v >>= 7)
		n++;
	return n;
}

void kvi_predictor_put(struct kvi_out *out, const struct kvi_predictor *p)
{
	size_t name = p->name ? strlen(p->name) : 0;
	uint8_t digest[16];
	kvi_put8(out, p->kind);
	if (p->kind == KVI_PREDICTOR_NONE) {
		kvi_put_varint(out, 0);
		return;
	}
	kvi_put_varint(out, 2 + sizeof digest + varint_bytes(name) + name +
	               (p->embedded ? varint_bytes(p->content_bytes) : 0));
	kvi_put8(out, p->embedded);
	kvi_put8(out, p->level);
	kvi_store_h128(digest, p->digest);
	kvi_put_bytes(out, digest, sizeof digest);
	kvi_put_string(out, p->name);
	if (p->embedded)
		kvi_put_varint(out, p->content_bytes);
}

bool kvi_profile_part_parse(struct kvi_profile_part *p, const uint8_t *content,
                            size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	p->offset = kvi_get_varint(&in, KVI_PROFILE_EMBED_MAX);
	p->data = in.p;
	p->bytes = kvi_in_left(&in);
	return !in.bad && p->bytes > 0;
}

void kvi_profile_part_put_head(struct kvi_out *out, uint64_t offset)
{
	kvi_put_varint(out, offset);
}
