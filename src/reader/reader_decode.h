/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.h - decodes a chunk: frame, payload, raw_check, features; repeats and references */
#ifndef KVI_READER_DECODE_H
#define KVI_READER_DECODE_H

#include "format/frame_input.h"
#include "util/pool.h"
#include "kvarc.h"

struct kvi_coder;

/* A job's run: decodes it. */
void kvi_reader_run_job(struct kvi_job *job, unsigned worker);
/* reader_decode.c */
/* Frees the decoded targets of REPEAT chunks. */
void kvi_reader_free_repeated(kvarc_reader *r);
/* Decodes a chunk that others name, which names none itself, to raw. */
kvarc_ret kvi_reader_decode_target(kvarc_reader *r, struct kvi_coder *coder,
                                   const struct kvi_frame *frame, uint8_t *raw, kvarc_error *error);

#endif
