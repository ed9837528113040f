/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_store.h - the store of the vectors for the targets that read archives */
#ifndef FUZZ_STORE_H
#define FUZZ_STORE_H

#include "../tests/reference/vector_store.h"
#include "fuzz_common.h"

/* Of one reader, whose geometry is set once it is open. */
struct fuzz_store {
	char folder[4096];
	struct vector_store vectors;
};
/* The reader of these options asks the store in $srcdir/spec/vectors, which has what the seeds
 * refer to, and checks what it is asked with. *s must outlive the reader. */
void fuzz_store_use(struct fuzz_store *s, kvarc_reader_options *o);
/* The kvarc_stored_read of a struct fuzz_store. */
int fuzz_store_read(void *opaque, const kvarc_stored *segment, const char *ns, int32_t *ids,
                    int32_t *positions, const kvarc_view *views);

#endif
