/* SPDX-License-Identifier: BSD-3-Clause */
/* stored_util.h - a store that holds the segments of a cache, for the tests of stored segments */
#ifndef STORED_UTIL_H
#define STORED_UTIL_H

#include "append_util.h"

/* Tokens of a cache by segment, under the keys that the archive has for them. */
struct shelf {
	const struct cache *c;
	const char *ns;        /* the namespace that must be asked for; NULL: any */
	unsigned asked;        /* how often it was */
	uint64_t asked_t0[256]; /* which, in order */
	uint64_t gone;         /* no segment that begins here is there; UINT64_MAX: all are */
	uint64_t wrong;        /* a bit of that one is wrong: of ids, positions or elements */
	enum { OF_IDS, OF_POSITIONS, OF_ELEMENTS } wrong_of;
	bool no_ids, fails;
	bool busy; /* in a call */
};

#define SHELF(c_)                                                            \
	{                                                                    \
		.c = (c_), .ns = "", .gone = UINT64_MAX, .wrong = UINT64_MAX \
	}

/* A kvarc_stored_read of a struct shelf. */
int shelf_read(void *shelf, const kvarc_stored *segment, const char *ns, int32_t *ids,
               int32_t *positions, const kvarc_view *views);
/* Reader options with a shelf. */
kvarc_reader_options shelf_options(struct shelf *s, unsigned threads);

/* The segments of tokens [t0, t0 + n) of a track, at most `most` tokens each, with the digests of
 * the cache; text: with chain values behind *chain, which becomes the last one. Returns their
 * number. */
size_t stored_segments(const struct cache *c, uint32_t track, uint64_t t0, uint64_t n,
                       uint32_t most, bool text, uint8_t chain[16], kvarc_stored *to);
/* Opens a writer of an archive with parts in a store, with geometry and the identity model and,
 * where it is not "", namespace. */
kvarc_writer *stored_writer(struct torn *t, const struct cache *c, const char *ns,
                            kvarc_writer_options o);
/* The root of the chain values of such an archive. */
void stored_root(const struct cache *c, const char *ns, uint8_t root[16]);
/* Appends stored segments of tokens [t0, t0 + n) of a track of a cache: OK. */
void put_stored(kvarc_writer *w, const struct cache *c, uint32_t track, uint64_t t0, uint64_t n,
                uint32_t most, bool text, uint8_t chain[16]);

#endif
