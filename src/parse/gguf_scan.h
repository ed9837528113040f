/* SPDX-License-Identifier: BSD-3-Clause */
/* gguf_scan.h - header and metadata pairs of GGUF files, versions 2 and 3 */
#ifndef KVI_GGUF_SCAN_H
#define KVI_GGUF_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scan.h"

/* Value types of the format. */
enum kvi_gguf_type {
	KVI_GGUF_U8,
	KVI_GGUF_I8,
	KVI_GGUF_U16,
	KVI_GGUF_I16,
	KVI_GGUF_U32,
	KVI_GGUF_I32,
	KVI_GGUF_F32,
	KVI_GGUF_BOOL,
	KVI_GGUF_STRING,
	KVI_GGUF_ARRAY,
	KVI_GGUF_U64,
	KVI_GGUF_I64,
	KVI_GGUF_F64,
	KVI_GGUF_TYPES
};

/* The value of a metadata pair. */
struct kvi_gguf_value {
	uint32_t type;
	double number;  /* value of a number, else 0 */
	char text[128]; /* value of a string, cut; else empty */
	/* array: type and number of its elements, offset of the first one */
	uint32_t of;
	uint64_t n, at;
};

/* Reads magic, version and counts. Returns OK, FORMAT (not a GGUF), OPTIONS (version), DATA, IO. */
kvarc_ret kvi_gguf_scan_head(struct kvi_scan *scan, uint64_t *tensors, uint64_t *pairs);
/* Reads the key and value of a pair; a key is cut to its buffer. False: damaged, or scan->io. */
bool kvi_gguf_scan_pair(struct kvi_scan *scan, char *key, size_t capacity,
                        struct kvi_gguf_value *value);
/* Bytes of a number, 0 for other types. */
unsigned kvi_gguf_type_bytes(uint32_t type);
/* The number at raw, of a type that is one. */
double kvi_gguf_number(uint32_t type, const uint8_t *raw);

#endif
