/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_work.h - work memory for streams of a chunk that are coded at the same time */
#ifndef KVI_STREAM_WORK_H
#define KVI_STREAM_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/coder.h"

/* Work memory for as many streams as a chunk has, memory of the coder (KVI_SCRATCH_WORK). */
struct kvi_stream_work {
	uint8_t *memory;
	size_t each;      /* bytes for a stream */
	atomic_uint busy; /* a bit for each that is in use */
};
/* Gets `each` bytes for every stream. False: no memory. */
bool kvi_stream_work_open(struct kvi_stream_work *work, struct kvi_coder *coder, unsigned streams,
                          size_t each);
/* Takes the first memory that nobody uses, which one thread alone finds in its cache; 16-aligned.
 * Returns its number, which kvi_stream_work_give_back wants; from any thread. */
unsigned kvi_stream_work_take(struct kvi_stream_work *work, uint8_t **memory);
/* Gives memory back; from any thread. */
void kvi_stream_work_give_back(struct kvi_stream_work *work, unsigned number);

#endif
