/* SPDX-License-Identifier: BSD-3-Clause */
/* parity.h - PARITY payloads, and arithmetic of their rows (frames.md 12.2) */
#ifndef KVI_PARITY_H
#define KVI_PARITY_H

#include "frame.h"
#include "util/alloc.h"

/* Sizes of a PARITY payload: bytes in front of the pieces, and of each piece; most pieces and rows
 * of a group together. */
enum { KVI_PARITY_HEAD_BYTES = 16, KVI_PARITY_PIECE_BYTES = 32, KVI_PARITY_MOST = 256 };
#define KVI_PARITY_PIECE_MAX ((uint32_t)1 << 28)

/* Bytes of the file. */
struct kvi_parity_piece {
	uint64_t offset;
	uint32_t bytes;
	struct kvi_h128 check;
};

/* The head of a PARITY payload. */
struct kvi_parity_head {
	uint16_t pieces, row, rows;
	uint32_t row_bytes;
};

/* Bytes of head and pieces, in front of the row. */
static inline size_t kvi_parity_table_bytes(unsigned pieces)
{
	return KVI_PARITY_HEAD_BYTES + (size_t)pieces * KVI_PARITY_PIECE_BYTES;
}
/* Writes head and pieces, which ascend, to out: kvi_parity_table_bytes. */
void kvi_parity_put(uint8_t *out, const struct kvi_parity_head *head,
                    const struct kvi_parity_piece *pieces);
/* Piece i of a payload that was parsed. */
struct kvi_parity_piece kvi_parity_get(const uint8_t *payload, unsigned i);
/* Whether the payload of a frame at an offset is as rules R12.12 and R12.13 want it. */
bool kvi_parity_parse(struct kvi_parity_head *head, const uint8_t *payload, uint32_t bytes,
                      uint64_t offset);
/* Whether two payloads are rows of one group (rule R12.14). */
bool kvi_parity_same_group(const uint8_t *a, const uint8_t *b, unsigned pieces);

/* The product of two elements of GF(2^8). */
uint8_t kvi_gf_times(uint8_t a, uint8_t b);
/* The inverse of an element; 0: 0. */
uint8_t kvi_gf_inverse(uint8_t a);
/* c(r, j) of a group of k pieces. */
uint8_t kvi_parity_factor(unsigned k, unsigned r, unsigned j);

/* to += factor * from, n bytes: the definition in portable C. */
void kvi_parity_add_portable(uint8_t *to, uint8_t factor, const uint8_t *from, size_t n);
/* kvi_parity_add_portable, with ISA-L where it is built in. */
void kvi_parity_add(uint8_t *to, uint8_t factor, const uint8_t *from, size_t n);
/* Inverts an n x n matrix in memory of n x 2n bytes: the left half holds the matrix, the right half
 * gets the inverse. False: it has none. */
bool kvi_parity_invert(uint8_t *rows, unsigned n);

#endif
