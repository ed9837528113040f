/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.h - tokens of an archive into another one: decoded and coded again, or as they are */
#ifndef KVI_TRANSFER_H
#define KVI_TRANSFER_H

#include <pthread.h>
#include <stdbool.h>

#include "archive_copy.h"
#include "kvarc.h"
#include "util/alloc.h"

/*
 * Tokens of one track of a reader that go to one track of a writer, which has a geometry. The
 * caller fills in the first part; what it points to must stay until kvi_transfer_end.
 */
struct kvi_transfer {
	kvarc_reader *r;
	kvarc_writer *w;
	kvarc_range range;           /* of the reader, settled */
	uint32_t track;              /* of the writer */
	const kvarc_tensor *tensors; /* the writer's */
	size_t n_tensors;
	const uint32_t *source; /* tensor i of the writer is this one of the reader */
	const uint32_t
		*to_of; /* tensor i of the reader is this one of the writer, or KVI_COPY_OUT */
	uint32_t segment_tokens; /* of the writer's options */
	bool short_segments;     /* several may lie in one of the writer */

	const struct kvi_alloc *alloc;
	kvarc_view *views; /* one a tensor of the reader, all NULL */
	uint32_t batch;    /* tokens that are appended at once */
	/* Where blocks need others to be decoded, or lie in several segments: all tensors of a
	 * batch, so that each is decoded once. */
	uint8_t *ahead; /* NULL: each block is read when it is asked for */
	uint64_t ahead_t0;
	bool ids;
	struct kvi_copy *copy; /* of segments with lossy chunks; NULL: in salvage */
	int32_t *tokens;       /* ids, then positions, of a batch */
	kvarc_ret failed;      /* of the reader, in fetch */
	kvarc_error error;     /* why */
	pthread_mutex_t lock;  /* a reader serves one thread at a time */
};

/* Memory, and what the copies of segments need. kvi_transfer_end follows, also after a failure.
 * Returns OK, MEM, MEMLIMIT, and what opening a reader does. */
kvarc_ret kvi_transfer_begin(struct kvi_transfer *c);
/* Tokens at .. end - 1 of the range, of which the writer's track has the first `at`. ids: they have
 * token ids. Returns what readers and writers return; LOSSY: a lossy tier changed tokens that
 * cannot be copied as they are, and the reader does not allow that. */
kvarc_ret kvi_transfer_tokens(struct kvi_transfer *c, uint64_t at, uint64_t end, bool ids);
/* Frees what begin made; the reader's kvarc_error is filled where fetch failed. */
void kvi_transfer_end(struct kvi_transfer *c);

/* The identity of the reader, and one more pair (key NULL: none), becomes that of the writer.
 * Returns what kvarc_writer_identity does. */
kvarc_ret kvi_transfer_identity(kvarc_reader *r, kvarc_writer *w, const char *key,
                                const char *value);

#endif
