/* SPDX-License-Identifier: BSD-3-Clause */
/* raw_pages.h - pages of an engine: elements without a header, in an order that the caller knows */
#ifndef KVI_RAW_PAGES_H
#define KVI_RAW_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/* Axes, outermost first: 2 (keys, then values), L layers, P pages, B tokens of a page, T tokens,
 * H heads, D channels. */
#define KVI_RAW_LETTERS "2LPBTHD"
/* Most axes; bytes of a word in a message. */
enum { KVI_RAW_AXES_MAX = sizeof KVI_RAW_LETTERS - 1, KVI_RAW_SHOWN = 41 };

/* "bf16,2LTHD,L=30,H=3,D=64": type, order of the axes, extents. */
struct kvi_raw {
	uint8_t dtype;                     /* kvarc_dtype */
	char order[KVI_RAW_AXES_MAX + 1];  /* of KVI_RAW_LETTERS, each at most once */
	uint64_t extent[KVI_RAW_AXES_MAX]; /* by index in order; 0: follows from the size */
};

/* The first n bytes of a text, cut and without control characters, as a message has them: to. */
const char *kvi_raw_shown(char to[KVI_RAW_SHOWN], const char *text, size_t n);

/* Parses a description: D, and one of T and B, are among the axes, P with B only; at most one
 * extent is missing. Returns OK, PROG: the error says what is wrong. e may be NULL. */
kvarc_ret kvi_raw_parse(struct kvi_raw *r, const char *text, kvarc_error *e);

/* Puts the missing extent in, for a file of this size. Returns OK, GEOMETRY: the size is not
 * that of whole axes. e may be NULL. */
kvarc_ret kvi_raw_fit(struct kvi_raw *r, uint64_t bytes, kvarc_error *e);

#endif
