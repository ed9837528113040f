/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/stored.h - segments that lie in a store: their keys, and how a reader asks for them */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_STORED_H
#define KVARC_STORED_H

/* A segment of a track, by itself or as it lies in a store (spec/frames.md 12.3). */
typedef struct kvarc_stored {
	uint32_t track, n; /* n tokens, 1..256, */
	uint64_t t0;       /* from this one of the track on */
	uint64_t bytes;    /* of the elements of all tensors of the track, for these tokens */
	int has_chain;
	uint8_t chain[16];  /* the chain value, where there is one */
	uint8_t digest[16]; /* the content digest; zero where the archive has the elements */
	/* from kvarc_reader_segment_at: tokens that later segments have left of it, 1..n; writers
	 * ignore it */
	uint32_t left;
	uint64_t reserved[4]; /* zero */
} kvarc_stored;
#define KVARC_STORED_INIT KVARC_ZERO

/*
 * Asked of a store for one segment. The key is segment->chain, or segment->digest where there is no
 * chain value; ns is the namespace of the archive, "" where it names none. Fills ids with n token
 * ids, and leaves them alone where the segment has none; n positions; and the views of the tensors
 * of the track, one a tensor of the geometry in its order, packed and token-major. Views of other
 * tensors have no data. The reader computes the content digest of what it gets and compares it with
 * segment->digest before anybody sees it.
 * Returns 0; 1: the store has nothing under the key; another value: it failed, with errno as for a
 * source. Called in the thread of a call of the reader, which it must not call itself.
 */
typedef int (*kvarc_stored_read)(void *opaque, const kvarc_stored *segment, const char *ns,
                                 int32_t *ids, int32_t *positions, const kvarc_view *views);

/*
 * Keys of segments. Chain values (spec 5.3) begin with a root, which depends on the geometry and of
 * the identity pairs on those that elements depend on (model, namespace, ...); others are ignored,
 * and of a key that is given twice the last value counts.
 * Returns OK, MEM, GEOMETRY (values out of range), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_chain_root(const kvarc_geometry *geometry, size_t n,
                                                      const char *const keys[],
                                                      const char *const values[], uint8_t root[16]);

/* The chain value of a segment of n tokens, 1..256, behind those of the value before, or behind the
 * root. Returns OK, MEM, PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_chain_next(const uint8_t before[16], uint32_t track,
                                                      uint32_t n, const int32_t *ids,
                                                      const int32_t *positions, uint8_t chain[16]);

/*
 * The content digest of n tokens of a track, 1..256, from row 0 of views on; ids may be NULL. It
 * depends on their ids, positions and elements and on the shapes of the tensors, and not on where
 * they are. views has one entry a tensor of the geometry, those of other tracks are not looked at.
 * Returns OK, MEM, GEOMETRY (no such track, values out of range), PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret
kvarc_content_digest(const kvarc_geometry *geometry, uint32_t track, uint32_t n, const int32_t *ids,
                     const int32_t *positions, const kvarc_view *views, uint8_t digest[16]);

#endif
