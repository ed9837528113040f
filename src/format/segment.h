/* SPDX-License-Identifier: BSD-3-Clause */
/* segment.h - SEGMENT content: tokens, ids, positions (spec 6) */
#ifndef KVI_SEGMENT_H
#define KVI_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/bytes.h"
#include "util/hash.h"

/* Most tokens of a segment. */
enum { KVI_SEGMENT_TOKENS = 256 };
/* Sizes of coded ids (spec tokens 1). */
enum {
	KVI_CODE_ID_BYTES = 6,
	KVI_CODE_END_BYTES = 8, /* most bytes of the end */
	KVI_CODE_BYTES_MAX = KVI_CODE_ID_BYTES * KVI_SEGMENT_TOKENS + KVI_CODE_END_BYTES
};

/* The content of a SEGMENT frame. */
struct kvi_segment {
	uint32_t track;
	uint32_t n;
	uint64_t t0;
	/* readers: n, or the number of tokens that a rewind has left (spec 6.2); sequence of the
	 * frame */
	uint32_t left;
	uint64_t sequence;
	uint32_t part; /* readers: index in a STOREREF frame; 0: a SEGMENT */
	bool has_ids;  /* ids are known */
	bool coded;    /* ids are coded in the file */
	int32_t positions[KVI_SEGMENT_TOKENS];
	int32_t ids[KVI_SEGMENT_TOKENS];
	bool has_chain;
	struct kvi_h128 chain; /* spec 5.3 */
	uint64_t check;        /* coded: check of the ids */
	uint32_t code_bytes;
	uint8_t code[KVI_CODE_BYTES_MAX];
};

/* The check of a segment's ids. */
uint64_t kvi_segment_ids_check(const struct kvi_segment *segment);
/* Appends the positions of the first n tokens as they are stored. Test out->failed afterwards. */
void kvi_segment_put_positions(struct kvi_out *out, const struct kvi_segment *segment, uint32_t n);
/* Appends a SEGMENT content. Test out->failed afterwards. */
void kvi_segment_put(struct kvi_out *out, const struct kvi_segment *segment);
/* Parses a SEGMENT content; coded ids are not known yet. The caller checks track and t0. False: it
 * is not valid. */
bool kvi_segment_parse(struct kvi_segment *segment, const uint8_t *content, size_t bytes);

#endif
