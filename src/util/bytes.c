/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.c - bounded readers and growing buffers */
#include "bytes.h"

#include "ckd.h"

const uint8_t *kvi_get_bytes(struct kvi_in *in, size_t n)
{
	if (in->bad || kvi_in_remaining(in) < n) {
		in->bad = true;
		return NULL;
	}
	const uint8_t *p = in->p;
	in->p += n;
	return p;
}

uint8_t kvi_get8(struct kvi_in *in)
{
	const uint8_t *p = kvi_get_bytes(in, 1);
	return p ? *p : 0;
}

uint16_t kvi_get16(struct kvi_in *in)
{
	const uint8_t *p = kvi_get_bytes(in, 2);
	return p ? kvi_load16(p) : 0;
}

uint32_t kvi_get32(struct kvi_in *in)
{
	const uint8_t *p = kvi_get_bytes(in, 4);
	return p ? kvi_load32(p) : 0;
}

uint64_t kvi_get64(struct kvi_in *in)
{
	const uint8_t *p = kvi_get_bytes(in, 8);
	return p ? kvi_load64(p) : 0;
}

uint64_t kvi_get_varint(struct kvi_in *in, uint64_t max)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 7 * KVI_VARINT_BYTES; shift += 7) {
		uint8_t b = kvi_get8(in);
		v |= (uint64_t)(b & 0x7f) << shift;
		if (b & 0x80)
			continue;
		if ((b == 0 && shift != 0) || v > max || v > KVI_NUMBER_MAX)
			break;
		return in->bad ? 0 : v;
	}
	in->bad = true;
	return 0;
}

int64_t kvi_get_zigzag(struct kvi_in *in)
{
	uint64_t z = kvi_get_varint(in, KVI_NUMBER_MAX);
	return (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
}

bool kvi_get_extensions(struct kvi_in *in)
{
	uint64_t least = 0;
	while (!in->bad && kvi_in_remaining(in)) {
		const uint64_t id = kvi_get_varint(in, KVI_NUMBER_MAX);
		const uint64_t bytes = kvi_get_varint(in, kvi_in_remaining(in));
		if (in->bad || id < least || bytes > kvi_in_remaining(in))
			return false;
		kvi_get_bytes(in, (size_t)bytes);
		least = id + 1;
	}
	return !in->bad;
}

void kvi_out_init(struct kvi_out *out, const struct kvi_alloc *alloc)
{
	*out = (struct kvi_out){ .alloc = alloc };
}

void kvi_out_free(struct kvi_out *out)
{
	kvi_free(out->alloc, out->p);
	*out = (struct kvi_out){ .alloc = out->alloc };
}

uint8_t *kvi_out_reserve(struct kvi_out *out, size_t n)
{
	size_t need, cap;
	if (out->failed)
		return NULL;
	if (kvi_add(out->n, n, &need) || kvi_add(need, need / 2 + 64, &cap)) {
		out->failed = true;
		return NULL;
	}
	if (need <= out->cap && out->p)
		return out->p + out->n;
	uint8_t *p = kvi_malloc(out->alloc, cap);
	if (!p) {
		out->failed = true;
		return NULL;
	}
	if (out->n)
		memcpy(p, out->p, out->n);
	kvi_free(out->alloc, out->p);
	out->p = p;
	out->cap = cap;
	return p + out->n;
}

void kvi_put_bytes(struct kvi_out *out, const void *p, size_t n)
{
	uint8_t *to = kvi_out_reserve(out, n);
	if (to && n) {
		memcpy(to, p, n);
		out->n += n;
	}
}

void kvi_put8(struct kvi_out *out, uint8_t v)
{
	kvi_put_bytes(out, &v, 1);
}

void kvi_put16(struct kvi_out *out, uint16_t v)
{
	uint8_t b[2];
	kvi_store16(b, v);
	kvi_put_bytes(out, b, sizeof b);
}

void kvi_put32(struct kvi_out *out, uint32_t v)
{
	uint8_t b[4];
	kvi_store32(b, v);
	kvi_put_bytes(out, b, sizeof b);
}

void kvi_put64(struct kvi_out *out, uint64_t v)
{
	uint8_t b[8];
	kvi_store64(b, v);
	kvi_put_bytes(out, b, sizeof b);
}

void kvi_put_varint(struct kvi_out *out, uint64_t v)
{
	do {
		uint8_t b = v & 0x7f;
		v >>= 7;
		kvi_put8(out, v ? b | 0x80 : b);
	} while (v);
}

void kvi_put_zigzag(struct kvi_out *out, int64_t v)
{
	kvi_put_varint(out, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}
