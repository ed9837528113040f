/* SPDX-License-Identifier: BSD-3-Clause */
/* gguf_scan.c - header and metadata pairs of GGUF files */
#include "gguf_scan.h"

#include <string.h>

#include "util/ckd.h"

enum {
	GGUF_MAGIC = 0x46554747, /* "GGUF" */
	PAIRS_MAX = 1 << 16,
	DEPTH_MAX = 4 /* depth of arrays in arrays */
};

static const uint8_t type_bytes[KVI_GGUF_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

unsigned kvi_gguf_type_bytes(uint32_t type)
{
	return type < KVI_GGUF_TYPES ? type_bytes[type] : 0;
}

kvarc_ret kvi_gguf_scan_head(struct kvi_scan *scan, uint64_t *tensors, uint64_t *pairs)
{
	if (kvi_scan32(scan) != GGUF_MAGIC)
		return scan->io ? KVARC_IO : KVARC_FORMAT;
	uint32_t version = kvi_scan32(scan);
	if (version != 2 && version != 3)
		return scan->io ? KVARC_IO : KVARC_OPTIONS;
	*tensors = kvi_scan64(scan);
	*pairs = kvi_scan64(scan);
	if (scan->io)
		return KVARC_IO;
	return scan->bad || *pairs > PAIRS_MAX ? KVARC_DATA : KVARC_OK;
}

/* The head of an array, of which the elements follow. */
static bool scan_array(struct kvi_scan *scan, uint32_t *of, uint64_t *n)
{
	*of = kvi_scan32(scan);
	*n = kvi_scan64(scan);
	return !scan->bad && *of < KVI_GGUF_TYPES && *n <= kvi_scan_remaining(scan);
}

static bool skip_value(struct kvi_scan *scan, uint32_t type, int depth);

static bool skip_elements(struct kvi_scan *scan, uint32_t of, uint64_t n, int depth)
{
	uint64_t bytes;
	if (type_bytes[of]) {
		if (kvi_mul(n, type_bytes[of], &bytes))
			return false;
		kvi_scan_skip(scan, bytes);
	}
	/* an element takes 8 bytes or more, or sets bad: n is bounded */
	for (uint64_t i = 0; !type_bytes[of] && i < n && !scan->bad; i++)
		if (!skip_value(scan, of, depth + 1))
			return false;
	return !scan->bad;
}

/* Skips a string or an array. */
static bool skip_value(struct kvi_scan *scan, uint32_t type, int depth)
{
	uint32_t of;
	uint64_t n;
	if (type == KVI_GGUF_STRING)
		kvi_scan_skip(scan, kvi_scan64(scan));
	else if (type != KVI_GGUF_ARRAY || depth >= DEPTH_MAX || !scan_array(scan, &of, &n) ||
	         !skip_elements(scan, of, n, depth))
		return false;
	return !scan->bad;
}

/* A string into a fixed buffer, cut if it is longer. */
static void scan_text(struct kvi_scan *scan, char *dst, size_t capacity)
{
	uint64_t n = kvi_scan64(scan);
	size_t keep = n < capacity - 1 ? (size_t)n : capacity - 1;
	dst[0] = '\0';
	if (n > kvi_scan_remaining(scan) || !kvi_scan_bytes(scan, dst, keep)) {
		scan->bad = true;
		return;
	}
	dst[keep] = '\0';
	kvi_scan_skip(scan, n - keep);
}

double kvi_gguf_number(uint32_t type, const uint8_t *raw)
{
	uint64_t bits = 0;
	unsigned n = kvi_gguf_type_bytes(type);
	for (unsigned i = 0; i < n; i++)
		bits |= (uint64_t)raw[i] << (8 * i);
	if (type == KVI_GGUF_F32) {
		uint32_t low = (uint32_t)bits;
		float f;
		memcpy(&f, &low, sizeof f);
		return (double)f;
	}
	if (type == KVI_GGUF_F64) {
		double d;
		memcpy(&d, &bits, sizeof d);
		return d;
	}
	bool minus = (type == KVI_GGUF_I8 || type == KVI_GGUF_I16 || type == KVI_GGUF_I32 ||
	              type == KVI_GGUF_I64) &&
	             bits >> (8 * n - 1);
	if (minus && n < 8)
		bits |= UINT64_MAX << (8 * n);
	return minus ? -(double)(0 - bits) : (double)bits;
}

bool kvi_gguf_scan_pair(struct kvi_scan *scan, char *key, size_t capacity,
                        struct kvi_gguf_value *value)
{
	uint8_t raw[8];
	memset(value, 0, sizeof *value);
	scan_text(scan, key, capacity);
	value->type = kvi_scan32(scan);
	if (scan->bad)
		return false;
	if (value->type == KVI_GGUF_STRING) {
		scan_text(scan, value->text, sizeof value->text);
		return !scan->bad;
	}
	if (value->type == KVI_GGUF_ARRAY) {
		if (!scan_array(scan, &value->of, &value->n))
			return false;
		value->at = scan->at;
		return skip_elements(scan, value->of, value->n, 0);
	}
	unsigned n = kvi_gguf_type_bytes(value->type);
	if (!n || !kvi_scan_bytes(scan, raw, n))
		return false;
	value->number = kvi_gguf_number(value->type, raw);
	return true;
}
