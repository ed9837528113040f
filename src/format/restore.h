/* SPDX-License-Identifier: BSD-3-Clause */
/* restore.h - RESTORE and BLOB content: how a file is made of pieces (spec 10) */
#ifndef KVI_RESTORE_H
#define KVI_RESTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/bytes.h"

/* LOST is never in a file: salvage puts it where a RESTORE frame was damaged,
 * so that the items behind it keep their numbers; it has no name and no pieces. */
enum {
	KVI_ITEM_LOST = 0,
	KVI_ITEM_OPAQUE = 1,
	KVI_ITEM_LLAMA_SEQ = 2,
	KVI_ITEM_LLAMA_SESSION = 3,
	KVI_ITEM_SAFETENSORS = 4,
	KVI_ITEM_NPY = 5,
	KVI_ITEM_CONTEXT = 6, /* context checkpoint of an engine */
	KVI_ITEM_MEDIA = 7,
	KVI_ITEM_WORKSPACE = 8,
	KVI_ITEM_OTHER = 255
};
/* Types of pieces: literal bytes, elements of tensors, literal bytes of an earlier item. */
enum { KVI_PIECE_LITERAL = 0, KVI_PIECE_AREA = 1, KVI_PIECE_REFERENCE = 2 };
/* Most bytes of literals in one BLOB frame that a writer makes. */
#define KVI_BLOB_BYTES ((size_t)1 << 20)

/* Element (token t0 + t, channel c) is at byte offset + t*token_stride +
 * (c / block_elems)*block_stride + (c % block_elems)*elem_stride of the area. */
struct kvi_area_view {
	uint32_t tensor;
	uint32_t block_elems;
	uint64_t offset, token_stride, block_stride, elem_stride;
};

/* A piece of a file: bytes from the item's BLOB frames, or elements of tensors. */
struct kvi_piece {
	uint8_t type;   /* KVI_PIECE_* */
	uint32_t track; /* the rest: areas only */
	uint64_t bytes;
	uint64_t t0, n_tokens;
	size_t n_views;
	struct kvi_area_view *views;
	uint64_t item, from; /* references: number of the item, offset in its literal bytes */
};

/* The pieces of a packed file, which follow each other without gaps. */
struct kvi_restore {
	uint16_t kind; /* KVI_ITEM_* */
	char *name;    /* never NULL, terminated */
	uint64_t file_bytes;
	size_t n_pieces;
	struct kvi_piece *pieces;
};

/*
 * Parses and checks a content: canonical form, sums, and that every element of
 * every view lies inside its area (geometry gives widths and dtypes). Whether
 * the tracks have that many tokens, and where references lead, is for the caller. On failure
 * *r is empty.
 * Returns OK, MEM, MEMLIMIT, DATA.
 */
kvarc_ret kvi_restore_parse(struct kvi_restore *r, const struct kvi_alloc *alloc,
                            const kvarc_geometry *geometry, const uint8_t *content, size_t bytes);
/* Whether a struct that a writer made passes the checks of kvi_restore_parse. */
bool kvi_restore_valid(const struct kvi_restore *r, const kvarc_geometry *geometry);
/* Appends a RESTORE content. Test out->failed afterwards. */
void kvi_restore_put(struct kvi_out *out, const struct kvi_restore *r);
/* Frees name, pieces and views, which came from alloc one by one. */
void kvi_restore_free(struct kvi_restore *r, const struct kvi_alloc *alloc);
/* Sum of the literals: bytes that the item's BLOBs hold. */
uint64_t kvi_restore_literal_bytes(const struct kvi_restore *r);

/* The content of a BLOB frame: literal bytes of an item from an offset on. */
struct kvi_blob {
	uint64_t item, offset;
	const uint8_t *data; /* memory of the content */
	size_t bytes;
};
/* Parses the content of a BLOB frame; data points into it. False: it is not valid. */
bool kvi_blob_parse(struct kvi_blob *blob, const uint8_t *content, size_t bytes);
/* Appends the two varints of a BLOB content; the bytes follow. */
void kvi_blob_put_head(struct kvi_out *out, uint64_t item, uint64_t offset);

#endif
