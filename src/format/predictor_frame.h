/* SPDX-License-Identifier: BSD-3-Clause */
/* predictor_frame.h - PREDICTOR and PROFILE content (spec 5.2) */
#ifndef KVI_PREDICTOR_FRAME_H
#define KVI_PREDICTOR_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/bytes.h"
#include "util/hash.h"

/* Kinds of predictors. */
enum { KVI_PREDICTOR_NONE = 0, KVI_PREDICTOR_PROFILE = 1, KVI_PREDICTOR_MODEL = 2 };
/* Content of an embedded profile, and of one PROFILE frame that a writer makes. */
enum { KVI_PROFILE_EMBED_MAX = 1 << 30, KVI_PROFILE_FRAME_BYTES = 1 << 20 };

/* The content of a PREDICTOR frame (spec 5.2). */
struct kvi_predictor {
	uint8_t kind;
	bool unknown;  /* the kind, or its arithmetic, is one of a later version: there is a name */
	uint8_t level; /* models of the profile: 2, 3; 4..8 with kind 2 */
	bool embedded;
	struct kvi_h128 digest; /* digest of the profile */
	char *name;             /* name of the profile; NULL for kind 0 */
	/* kind 2 (spec model 1) */
	bool closed;
	bool fp8; /* FP8 operands: only those of attention can be wide */
	uint8_t wide_weights, wide_activations;
	struct kvi_h128 weights;
	bool codes_ids; /* token ids are coded with `head` (spec tokens) */
	struct kvi_h128 head;
	char *model_name;
	uint64_t content_bytes; /* embedded: bytes of the profile's content */
};

/* Parses a PREDICTOR content; kvi_predictor_free frees its names. Returns OK, MEM, MEMLIMIT,
 * DATA. */
kvarc_ret kvi_predictor_parse(struct kvi_predictor *predictor, const struct kvi_alloc *alloc,
                              const uint8_t *content, size_t bytes);
/* Frees the names; NULL names are fine. */
void kvi_predictor_free(struct kvi_predictor *predictor, const struct kvi_alloc *alloc);
/* Appends a PREDICTOR content. Test out->failed afterwards. */
void kvi_predictor_put(struct kvi_out *out, const struct kvi_predictor *predictor);

/* A PROFILE frame: part of the content of the PREDICTOR before it. */
struct kvi_profile_part {
	uint64_t offset;
	const uint8_t *data; /* memory of the content */
	size_t bytes;        /* 1 or more */
};
/* Parses the content of a PROFILE frame; data points into it. False: not valid. */
bool kvi_profile_part_parse(struct kvi_profile_part *part, const uint8_t *content, size_t bytes);
/* Appends the head of a PROFILE content; the bytes follow. */
static inline void kvi_profile_part_put_head(struct kvi_out *out, uint64_t offset)
{
	kvi_put_varint(out, offset);
}

#endif
