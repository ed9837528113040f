/* SPDX-License-Identifier: BSD-3-Clause */
/* vector_store.h - the store of the vectors: a folder of archives (spec/vectors/README.md) */
#ifndef TESTS_VECTOR_STORE_H
#define TESTS_VECTOR_STORE_H

#include <kvarc.h>

/* A folder, and the geometry of the archive that refers to it; both are the caller's. */
struct vector_store {
	const char *folder;
	const kvarc_geometry *geometry;
	unsigned asked; /* how often it was */
};

/*
 * A kvarc_stored_read of a struct vector_store: the segment of the object with the digest that is
 * asked for, whatever rewinds have left of it there; else any that has the same number of tokens
 * and shapes of tensors, which a reader must refuse.
 */
int vector_store_read(void *opaque, const kvarc_stored *segment, const char *ns, int32_t *ids,
                      int32_t *positions, const kvarc_view *views);

#endif
