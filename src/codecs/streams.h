/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.h - how the tokens of a chunk are cut into streams, coded and decoded in threads */
#ifndef KVI_STREAMS_H
#define KVI_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "codecs/codec.h"
#include "codecs/mask.h"
#include "format/chunk_header.h"
#include "kernels/rans.h"
#include "util/bytes.h"

/* Sizes that the format fixes (spec rans 4). */
enum {
	KVI_STREAMS_MAX = 8,
	KVI_STREAM_ALIGN = 16,
	KVI_STREAM_ENTRY = 16 + 4 * KVI_LANES /* bytes of a stream's table entry and states */
};

/* The cut of a chunk's remaining tokens into streams. */
struct kvi_streams {
	unsigned size, n;    /* b; number of streams */
	size_t rows, tokens; /* remaining tokens; those of each stream but the last */
};

/* The streams of a chunk of which `rows` tokens remain; size: b. false: a single stream, or
 * none, with a b that is not KVI_ONE_STREAM. */
bool kvi_streams_cut(struct kvi_streams *streams, unsigned size, size_t rows);

/* The first remaining token of stream i; of the one behind the last: all of them. */
static inline size_t kvi_stream_first(const struct kvi_streams *streams, unsigned i)
{
	size_t first = i * streams->tokens;
	return first < streams->rows ? first : streams->rows;
}

/* A run of remaining tokens that one stream codes. */
struct kvi_stream_part {
	size_t first, rows;
};
/* The remaining tokens of stream i. */
static inline struct kvi_stream_part kvi_stream_part_of(const struct kvi_streams *streams,
                                                        unsigned i)
{
	const size_t first = kvi_stream_first(streams, i);
	return (struct kvi_stream_part){ first, kvi_stream_first(streams, i + 1) - first };
}

/*
 * The check of the elements of a chunk, T x C of the mask in raw: their hash or, with several
 * streams, the hash of check[], which is filled with the hashes of their tokens.
 */
uint64_t kvi_streams_check(const struct kvi_streams *streams, const struct kvi_mask *mask,
                           const uint8_t *raw, uint64_t check[KVI_STREAMS_MAX]);
/* The check of a chunk of several streams, from the checks of its streams alone. */
uint64_t kvi_streams_check_of(const struct kvi_streams *streams,
                              const uint64_t check[KVI_STREAMS_MAX]);

/* Streams that were read: where their words are in the payload, and their checks. */
struct kvi_streams_in {
	struct kvi_stream stream[KVI_STREAMS_MAX];
	uint64_t check[KVI_STREAMS_MAX];
	unsigned first, end; /* the streams first .. end - 1 are decoded */
};
/* The fewest streams, but one, that hold tokens.first to tokens.end - 1, into
 * in->first and end; returns the tokens that they have. */
struct kvi_tokens kvi_streams_choose(struct kvi_streams_in *in, const struct kvi_streams *streams,
                                     const struct kvi_mask *mask, struct kvi_tokens tokens);
/* Reads the zeros behind the section, the table, the states and the words. false: not valid. */
bool kvi_streams_get(struct kvi_streams_in *streams_in, const struct kvi_streams *streams,
                     size_t section_bytes, struct kvi_in *in);
/* Reads stored states (spec rans 1). false: they are not valid. */
bool kvi_states_get(struct kvi_in *in, uint32_t state[KVI_LANES]);
/* Reads the zeros behind n bytes of a payload, to a multiple of KVI_STREAM_ALIGN. */
bool kvi_get_padding(struct kvi_in *in, size_t n);
/* Writes zeros behind n bytes, to a multiple of KVI_STREAM_ALIGN; returns their end. */
static inline uint8_t *kvi_put_padding(uint8_t *to, size_t n)
{
	for (; n % KVI_STREAM_ALIGN; n++)
		*to++ = 0;
	return to;
}

struct kvi_coder_job;

/* The decoder of a chunk's streams. Several threads call `some` at once, for different streams; it
 * takes no memory of a coder. */
struct kvi_streams_decoder {
	void *opaque;
	/* Decodes n streams from `first` on to the job's `decoded`. false: one is not valid. */
	bool (*some)(void *opaque, unsigned first, unsigned n);
	unsigned most;    /* most streams that one call of `some` decodes */
	unsigned helpers; /* threads that are known to help, or soon will */
	size_t work;      /* of all streams (kvi_job.work) */
};
/*
 * Decodes the streams of a job that are wanted, puts their elements into job->whole and compares
 * their checks, with the help of workers of the coder's pool that have nothing to do. Returns OK,
 * DATA.
 */
kvarc_ret kvi_streams_decode(const struct kvi_coder *coder, const struct kvi_coder_job *job,
                             const struct kvi_streams_decoder *decoder);

/* The encoder of a chunk's streams. */
struct kvi_streams_encoder {
	void *opaque;
	/* Writes the words of a part downwards from `end`; returns their number. state: the
	 * kernel's after the last one. Several threads call it at once, for different parts. */
	size_t (*part)(void *opaque, const struct kvi_stream_part *p, uint16_t *end,
	               uint32_t state[KVI_LANES]);
	/* Two parts, each in words and with a state of its own. NULL: one after the other is as
	 * fast. */
	void (*two)(void *opaque, const struct kvi_stream_part p[2], uint16_t *const end[2],
	            size_t n[2], uint32_t *const state[2]);
	/* Called before parts of `rows` tokens, the last one of `last`; NULL: not wanted. */
	void (*begin)(void *opaque, size_t rows, size_t last);
	size_t trial;       /* tokens from whose words all are estimated; whole steps */
	size_t token_words; /* most words of a token */
	size_t plane_bytes; /* bytes of the planes of all elements */
};
/* Words that a kernel may need beyond those of its elements. */
enum { KVI_SPARE_WORDS = 64 };
/*
 * Chooses how to cut streams->rows tokens and encodes them, with the help of workers of the pool
 * that have nothing to do, downwards from `end`, which is aligned to KVI_STREAM_ALIGN, with table
 * and states in front. In front of `end` there are at least KVI_STREAMS_EXTRA bytes and token_words
 * of all tokens. Returns the begin of the table. Checks are zeros; kvi_streams_set_checks.
 */
uint8_t *kvi_streams_encode(struct kvi_pool *pool, struct kvi_streams *streams,
                            const struct kvi_streams_encoder *encoder, uint8_t *end);
/* Writes the checks into the table. */
void kvi_streams_set_checks(const struct kvi_streams *streams, uint8_t *table,
                            const uint64_t check[KVI_STREAMS_MAX]);
/* Bytes that streams take beside their words, at most, with padding, and while they are made. */
enum {
	KVI_STREAMS_EXTRA = KVI_STREAMS_MAX *
	                    (KVI_STREAM_ENTRY + 2 * KVI_STREAM_ALIGN + 2 * KVI_SPARE_WORDS)
};

#endif
