/* SPDX-License-Identifier: BSD-3-Clause */
/* identity.c - identity pairs (spec 5.1) */
#include "identity.h"

#include "util/string_field.h"

void kvi_identity_free(struct kvi_identity *id, const struct kvi_alloc *alloc)
{
	for (size_t i = 0; i < id->n; i++) {
		kvi_free(alloc, id->pairs[i].key);
		kvi_free(alloc, id->pairs[i].value);
	}
	kvi_free(alloc, id->pairs);
	*id = (struct kvi_identity){ 0 };
}

/* The index at which a key is, or would be inserted. */
static size_t find(const struct kvi_identity *id, const char *key, bool *there)
{
	size_t lo = 0, hi = id->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(id->pairs[mid].key, key);
		if (c == 0) {
			*there = true;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*there = false;
	return lo;
}

const char *kvi_identity_get(const struct kvi_identity *id, const char *key)
{
	bool there;
	size_t i = find(id, key, &there);
	return there ? id->pairs[i].value : NULL;
}

/* Takes key and value over, also on failure. The array grows by doubling: it
 * has memory for n pairs when n is not a power of two. */
static kvarc_ret insert(struct kvi_identity *id, const struct kvi_alloc *alloc, char *key,
                        char *value)
{
	bool there = false;
	size_t i = key && value ? find(id, key, &there) : 0;
	if (!key || !value)
		goto fail;
	if (there) {
		kvi_free(alloc, id->pairs[i].value);
		id->pairs[i].value = value;
		kvi_free(alloc, key);
		return KVARC_OK;
	}
	if ((id->n & (id->n - 1)) == 0) {
		struct kvi_pair *p = kvi_array(alloc, id->n ? 2 * id->n : 1, sizeof *p);
		if (!p)
			goto fail;
		if (id->n)
			memcpy(p, id->pairs, id->n * sizeof *p);
		kvi_free(alloc, id->pairs);
		id->pairs = p;
	}
	memmove(id->pairs + i + 1, id->pairs + i, (id->n - i) * sizeof *id->pairs);
	id->pairs[i] = (struct kvi_pair){ key, value };
	id->n++;
	return KVARC_OK;
fail:
	kvi_free(alloc, key);
	kvi_free(alloc, value);
	return kvi_alloc_error(alloc);
}

kvarc_ret kvi_identity_set(struct kvi_identity *id, const struct kvi_alloc *alloc, const char *key,
                           const char *value)
{
	if (!key || !value || !kvi_string_fits(key) || !kvi_string_fits(value))
		return KVARC_PROG;
	if (id->n >= KVI_IDENTITY_PAIRS && !kvi_identity_get(id, key))
		return KVARC_PROG;
	return insert(id, alloc, kvi_string_copy(alloc, key), kvi_string_copy(alloc, value));
}

void kvi_identity_put(struct kvi_out *out, const struct kvi_identity *id)
{
	kvi_put_varint(out, id->n);
	for (size_t i = 0; i < id->n; i++) {
		kvi_put_string(out, id->pairs[i].key);
		kvi_put_string(out, id->pairs[i].value);
	}
}

kvarc_ret kvi_identity_get_pairs(struct kvi_identity *id, const struct kvi_alloc *alloc,
                                 struct kvi_in *in, uint64_t max)
{
	uint64_t n = kvi_get_varint(in, max);
	for (uint64_t i = 0; i < n; i++) {
		char *key = kvi_get_string(in, alloc);
		char *value = key ? kvi_get_string(in, alloc) : NULL;
		if (in->bad ||
		    (key && value && id->n && strcmp(id->pairs[id->n - 1].key, key) >= 0)) {
			kvi_free(alloc, key);
			kvi_free(alloc, value);
			return KVARC_DATA;
		}
		kvarc_ret ret = insert(id, alloc, key, value);
		if (ret)
			return ret;
	}
	return in->bad ? KVARC_DATA : KVARC_OK;
}

kvarc_ret kvi_identity_parse(struct kvi_identity *id, const struct kvi_alloc *alloc,
                             const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	struct kvi_identity got = { 0 };
	kvarc_ret ret = kvi_identity_get_pairs(&got, alloc, &in, KVI_IDENTITY_PAIRS);
	if (ret == KVARC_OK && kvi_in_remaining(&in) != 0)
		ret = KVARC_DATA;
	for (size_t i = 0; i < got.n && ret == KVARC_OK; i++) {
		ret = kvi_identity_set(id, alloc, got.pairs[i].key, got.pairs[i].value);
		if (ret == KVARC_PROG)
			ret = KVARC_DATA; /* too many pairs in all frames together */
	}
	kvi_identity_free(&got, alloc);
	return ret;
}
