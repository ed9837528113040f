/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * feed.h - the words of a stream for a vector decoder, which reads ahead
 *
 * A step consumes at most FEED_STEP bytes and reads at most FEED_AHEAD beyond
 * them. Near the end of the stream the remaining words are copied to a padded
 * buffer, so that steps need one comparison and no other care.
 */
#ifndef KVI_FEED_H
#define KVI_FEED_H

#include "scalar.h"

/* Sizes in bytes. */
enum {
	FEED_STEP = 3 * KVI_LANES * 2, /* symbol, raw bits, escape a lane */
	FEED_AHEAD = 64,
	FEED_NEED = FEED_STEP + FEED_AHEAD
};

/* The end of a stream; the decoder has the position itself. Of one thread. */
struct kvi_feed {
	const uint8_t *safe; /* a step may start up to here */
	const uint8_t *end;  /* end of the words, without padding */
	bool last;           /* pad holds the remaining words */
	uint8_t pad[2 * FEED_NEED];
};

/*
 * Called when the position p has passed safe: copies the remaining words to the
 * padded buffer. Returns the position there, or NULL when p was there already:
 * the stream needs more words than it has.
 */
static inline const uint8_t *kvi_feed_move(struct kvi_feed *feed, const uint8_t *p)
{
	size_t left = (size_t)(feed->end - p);
	if (feed->last)
		return NULL;
	if (left)
		memcpy(feed->pad, p, left);
	memset(feed->pad + left, 0, sizeof(feed->pad) - left);
	feed->end = feed->safe = feed->pad + left;
	feed->last = true;
	return feed->pad;
}

/* Begins with the words of *stream, which stay the caller's and must outlive the feed. Returns the
 * position of the first one, never NULL. */
static inline const uint8_t *kvi_feed_open(struct kvi_feed *feed, const struct kvi_stream *stream)
{
	const uint8_t *p = stream->words;
	size_t bytes = 2 * stream->n_words;
	feed->last = false;
	feed->end = bytes ? p + bytes : p;
	if (bytes < FEED_NEED)
		return kvi_feed_move(feed, p);
	feed->safe = feed->end - FEED_NEED;
	return p;
}

/* The last test of a decoder (spec rans 1): all words up to p are consumed and all states are
 * 2^16. The words of a valid stream end in the padded buffer. */
static inline bool kvi_feed_done(const struct kvi_feed *feed, const uint8_t *p,
                                 const uint32_t state[KVI_LANES])
{
	uint32_t diff = 0;
	for (unsigned l = 0; l < KVI_LANES; l++)
		diff |= state[l] ^ KVI_RANS_LOW;
	return diff == 0 && p == feed->end;
}

/* Checks the words before each step of a decoder whose position is p; returns 0 from the caller
 * when they do not suffice. */
#define KVI_FEED_CHECK(f, p)                                \
	do {                                                \
		if (__builtin_expect((p) > (f)->safe, 0)) { \
			(p) = kvi_feed_move((f), (p));      \
			if (!(p))                           \
				return 0;                   \
		}                                           \
	} while (0)

#endif
