/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.h - decodes a chunk: frame, payload, raw_check, features; repeats and references */
#ifndef KVI_READER_DECODE_H
#define KVI_READER_DECODE_H

#include "format/frame_input.h"
#include "util/bytes.h"
#include "kvarc.h"

struct kvi_coder;
struct kvi_decode_task;

/*
 * Has a chunk decoded by a worker. frame: it was read already, to *buffer, which the call replaces
 * by another one; NULL: the worker reads it. In salvage a chunk whose parameters are lost is added
 * to the losses. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS, IO, and what an earlier job returned.
 */
kvarc_ret kvi_reader_decode(kvarc_reader *r, const struct kvi_decode_task *task,
                            const struct kvi_frame *frame, struct kvi_buffer *buffer);
/* Frees the decoded targets of REPEAT chunks. */
void kvi_reader_free_repeated(kvarc_reader *r);
/* Decodes a chunk that others name, which names none itself, to raw. */
kvarc_ret kvi_reader_decode_target(kvarc_reader *r, struct kvi_coder *coder,
                                   const struct kvi_frame *frame, uint8_t *raw, kvarc_error *error);

#endif
