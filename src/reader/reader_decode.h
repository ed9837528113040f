/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.h - decodes a chunk: frame, payload, raw_check, features; repeats and references */
#ifndef KVI_READER_DECODE_H
#define KVI_READER_DECODE_H

#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "format/frame_input.h"
#include "reader/reader_state.h"

struct kvi_coder;

/* Decodes a chunk that others name, which names none itself, to raw. */
kvarc_ret kvi_reader_decode_target(kvarc_reader *r, struct kvi_coder *coder,
                                   const struct kvi_frame *f, uint8_t *raw, kvarc_error *e);

#endif
