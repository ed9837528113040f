/* SPDX-License-Identifier: BSD-3-Clause */
/* st_header.h - JSON of bounded cost, and the entries of a safetensors header */
#ifndef KVI_ST_HEADER_H
#define KVI_ST_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json_text.h"

/* Limits. */
enum {
	KVI_ST_AXES_MAX = 8,           /* most axes that are stored */
	KVI_ST_HEADER_MAX = 100000000, /* bytes; limit of the format */
};

/* A tensor of a safetensors file as its header describes it. */
struct kvi_st_entry {
	const char *dtype; /* memory of the JSON */
	size_t axes;       /* number of axes, also beyond KVI_ST_AXES_MAX */
	uint64_t shape[KVI_ST_AXES_MAX];
	uint64_t elements;
	uint64_t begin, end; /* offsets in the data */
};

/* kvi_json_parse for a file of a model or a layout whose root is an object. name: of the file, for
 * messages. Returns OK, DATA (too large, damaged), MEMLIMIT. */
kvarc_ret kvi_json_load(const uint8_t *p, size_t n, const char *name, uint64_t *budget,
                        struct json_t **root, kvarc_error *error);
/* Reads {"dtype": "F16", "shape": [..], "data_offsets": [begin, end]}, which ends within
 * data_bytes; entry->dtype points into v. False: it is not valid. */
bool kvi_st_entry(const struct json_t *v, uint64_t data_bytes, struct kvi_st_entry *entry);

#endif
