/* SPDX-License-Identifier: BSD-3-Clause */
/* named_axes.h - the axes of a named tensor by letters */
#ifndef KVI_NAMED_AXES_H
#define KVI_NAMED_AXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "named_tensors.h"

/*
 * The axes of a tensor of rows, tokens, heads and channels. Strides count elements. A part is a
 * tensor of keys, of values or of both.
 */
struct kvi_axes {
	uint64_t batch, parts;            /* rows, which are outermost; 2: keys, then values */
	uint64_t tokens, heads, channels; /* of one part */
	uint64_t token_stride, head_stride, part_stride;
	bool heads_first; /* before the tokens */
	bool parts_apart; /* all keys of a row are before its values */
	bool is_latent;   /* of MLA: neither keys nor values */
	bool is_state;    /* it has no tokens: its rows of channels are numbered as tokens */
	bool is_conv;     /* by its shape a state of a convolution: fewer rows than channels */
};

/*
 * Letters, one an axis, from the outermost one on: b rows of a batch (first), 2 keys and values, t
 * tokens, h heads, 1 an axis of that size, and last one of c channels, p channels of the keys and
 * as many of the values, m channels of the latent of MLA. Or s alone: a state of two axes or more,
 * of which the last one has the channels. False: not letters in such an order.
 */
bool kvi_axes_known(const char *letters);
/* Whether they are those of a state. */
bool kvi_axes_of_state(const char *letters);
/* Reads a shape by known letters. False: it does not fit them, or is empty or too large. */
bool kvi_axes_take(const struct kvi_named *named, const char *letters, struct kvi_axes *axes);

#endif
