/* SPDX-License-Identifier: BSD-3-Clause */
/* counted.h - a sink that counts, so that totals hold the closing frames too */
#ifndef KVI_COUNTED_H
#define KVI_COUNTED_H

#include <stdint.h>

#include "kvarc.h"

/* A sink that counts the bytes which it passes on. */
struct kvi_counted {
	kvarc_sink to;
	uint64_t bytes, end; /* end: of the furthest write */
};

/* A sink that writes to counted->to. */
kvarc_sink kvi_counted_sink(struct kvi_counted *counted);
/* Commits and closes a writer on that sink, or aborts it when ret is not OK,
 * and returns what came out of it all. stats may be NULL. */
kvarc_ret kvi_counted_close(struct kvi_counted *counted, kvarc_writer **w, kvarc_ret ret,
                            kvarc_writer_stats *stats);

#endif
