/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.h - little-endian loads and stores, bounded readers, growing buffers */
#ifndef KVI_BYTES_H
#define KVI_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "alloc.h"

/* The little-endian number at p, which need not be aligned. */
static inline uint16_t kvi_load16(const void *p)
{
	const uint8_t *b = p;
	return (uint16_t)(b[0] | b[1] << 8);
}

/* The little-endian number of 32 bits at p, which need not be aligned. */
static inline uint32_t kvi_load32(const void *p)
{
	const uint8_t *b = p;
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* The little-endian number of 64 bits at p, which need not be aligned. */
static inline uint64_t kvi_load64(const void *p)
{
	const uint8_t *b = p;
	return kvi_load32(b) | (uint64_t)kvi_load32(b + 4) << 32;
}

/* Stores v at p, little-endian; p need not be aligned. */
static inline void kvi_store16(void *p, uint16_t v)
{
	uint8_t *b = p;
	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
}

/* Stores 32 bits at p, little-endian; p need not be aligned. */
static inline void kvi_store32(void *p, uint32_t v)
{
	kvi_store16(p, (uint16_t)v);
	kvi_store16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

/* Stores 64 bits at p, little-endian; p need not be aligned. */
static inline void kvi_store64(void *p, uint64_t v)
{
	kvi_store32(p, (uint32_t)v);
	kvi_store32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

/* Makes n numbers of 32 bits at p, which need not be aligned, little-endian, where they are. */
static inline void kvi_to_little_32(void *p, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	for (size_t i = 0; i < n; i++) {
		uint32_t v;
		memcpy(&v, (uint8_t *)p + 4 * i, sizeof v);
		kvi_store32((uint8_t *)p + 4 * i, v);
	}
#else
	(void)p;
	(void)n;
#endif
}

/*
 * A window on untrusted bytes. Every get past the end, every over-long varint
 * sets bad and returns 0; parse a whole record, then test bad once.
 */
struct kvi_in {
	const uint8_t *p, *end;
	bool bad;
};

/* A reader of the given bytes, which the caller keeps. */
static inline struct kvi_in kvi_in_make(const void *p, size_t bytes)
{
	struct kvi_in in = { p, (const uint8_t *)p + bytes, false };
	return in;
}

/* Bytes that have not been read yet. */
static inline size_t kvi_in_remaining(const struct kvi_in *in)
{
	return (size_t)(in->end - in->p);
}

/* n bytes, or NULL (and bad) when fewer are left. */
const uint8_t *kvi_get_bytes(struct kvi_in *in, size_t n);
/* The next little-endian number; 0, and bad, past the end. */
uint8_t kvi_get8(struct kvi_in *in);
uint16_t kvi_get16(struct kvi_in *in);
uint32_t kvi_get32(struct kvi_in *in);
uint64_t kvi_get64(struct kvi_in *in);
/* Numbers of the format are below 2^53, so that every language has them exactly (spec 1.2). */
#define KVI_NUMBER_MAX (((uint64_t)1 << 53) - 1)
/* Bytes of the longest varint. */
enum { KVI_VARINT_BYTES = 8 };
/* A varint (spec 1.2); a value above max or KVI_NUMBER_MAX sets bad. */
uint64_t kvi_get_varint(struct kvi_in *in, uint64_t max);
/* A varint that stands for a signed number (spec 1.2); bad as kvi_get_varint. */
int64_t kvi_get_zigzag(struct kvi_in *in);
/* Reads the extension fields that may follow the last field of a content, up to its end (spec 1.9).
 * Version 1.0 knows none of them. False: they are not valid, or in is bad. */
bool kvi_get_extensions(struct kvi_in *in);

/* A growing output buffer. A failed allocation sets failed; puts are then
 * ignored, test once at the end. */
struct kvi_out {
	const struct kvi_alloc *alloc;
	uint8_t *p;
	size_t n, cap;
	bool failed;
};

/* Starts an empty buffer that grows with alloc. */
void kvi_out_init(struct kvi_out *out, const struct kvi_alloc *alloc);
/* Frees the bytes; the buffer is empty then and may be used again. */
void kvi_out_free(struct kvi_out *out);
/* Reserves n more bytes at out->p + out->n, NULL on failure. out->n is not advanced. */
uint8_t *kvi_out_reserve(struct kvi_out *out, size_t n);
/* Appends n bytes. */
void kvi_put_bytes(struct kvi_out *out, const void *p, size_t n);
/* Append a number, little-endian. */
void kvi_put8(struct kvi_out *out, uint8_t v);
void kvi_put16(struct kvi_out *out, uint16_t v);
void kvi_put32(struct kvi_out *out, uint32_t v);
void kvi_put64(struct kvi_out *out, uint64_t v);
/* Appends a varint in its shortest form (spec 1.2). v: at most KVI_NUMBER_MAX. */
void kvi_put_varint(struct kvi_out *out, uint64_t v);
/* Appends a signed number as a varint (spec 1.2). */
void kvi_put_zigzag(struct kvi_out *out, int64_t v);

#endif
