/* SPDX-License-Identifier: BSD-3-Clause */
/* append_util.h - archives that are appended to, on files that tear: for the append tests */
#ifndef APPEND_UTIL_H
#define APPEND_UTIL_H

#include "stream_util.h"

/* A file whose writes end at one of them: as after a crash, nothing comes behind it. */
struct torn {
	struct memfile f;
	long calls, fail_at; /* -1: none */
	unsigned part;       /* of the call that fails, the number of 16ths that are written */
	bool no_truncate, flush_fails, anywhere; /* anywhere: writes need not go forward */
	long flushes, truncates;
	size_t commits[512]; /* the size of the file behind each COMMIT frame */
	size_t n_commits;
};

void torn_free(struct torn *t);
/* A copy of the first n bytes of another file, that fails nowhere. */
void torn_copy(struct torn *t, const struct memfile *f, size_t n);
kvarc_sink torn_sink(struct torn *t);
kvarc_source torn_source(struct torn *t);

/* Ids that go on from 0 and positions that are those of a text: chain values are possible. */
void cache_as_text(struct cache *c);
/* Token t of `from` on, in every tensor of a track, comes from another cache of the same shape. */
void cache_mix(struct cache *to, const struct cache *from, uint32_t track, uint64_t t);

/* Opens a writer that appends; OK. */
kvarc_writer *append_open(struct torn *t, const kvarc_writer_options *o);
/* Appends tokens [t0, end) of a track of a cache. */
kvarc_ret append_tokens(kvarc_writer *w, const struct cache *c, uint32_t track, uint64_t t0,
                        uint64_t end);
/* The archive verifies, and holds exactly the first n[track] tokens of the cache: in order and by
 * range. checkpoint: that of the reader's options. Returns the state. */
kvarc_state append_check(struct memfile *f, const struct cache *c, const uint64_t *n,
                         uint64_t checkpoint);

#endif
