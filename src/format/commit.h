/* SPDX-License-Identifier: BSD-3-Clause */
/* commit.h - COMMIT and FOOTER payloads (spec 9.1, 9.3) */
#ifndef KVI_COMMIT_H
#define KVI_COMMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/bytes.h"
#include "util/hash.h"

/* The name of a state of the file (spec 9.1); number 0: the COMMIT is no checkpoint. */
struct kvi_checkpoint {
	uint64_t number;
	uint64_t time;        /* milliseconds since 1970, UTC; 0: not known */
	const uint8_t *label; /* label_bytes, in the payload */
	size_t label_bytes;
};

/* A COMMIT payload but its token counts. */
struct kvi_commit {
	uint64_t frames; /* frames before this one */
	uint64_t offset; /* offset of this frame */
	struct kvi_checkpoint checkpoint;
};

/* Appends a COMMIT payload; tokens: n_tracks counts. Test out->failed afterwards. */
void kvi_commit_put(struct kvi_out *out, const struct kvi_commit *commit, const uint64_t *tokens,
                    size_t n_tracks);
/* tokens takes n_tracks counts. False: not valid, or another number of tracks. */
bool kvi_commit_parse(struct kvi_commit *commit, uint64_t *tokens, size_t n_tracks,
                      const uint8_t *payload, size_t bytes);

/* Sizes of a FOOTER payload, and of its whole frame. */
enum { KVI_FOOTER_BYTES = 32, KVI_FOOTER_FRAME_BYTES = 80 };

/* A FOOTER payload. */
struct kvi_footer {
	uint64_t index, commit;             /* offsets */
	uint64_t frames;                    /* frames before this one */
	uint32_t index_bytes, commit_bytes; /* sizes of the frames */
};

/* Writes a FOOTER payload. */
void kvi_footer_write(uint8_t out[KVI_FOOTER_BYTES], const struct kvi_footer *footer);
/* Parses a FOOTER payload. False: not valid. */
bool kvi_footer_parse(struct kvi_footer *footer, const uint8_t *payload, size_t bytes);

#endif
