/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes_codec.h - inside codec 6 */
#ifndef KVI_BYTES_CODEC_H
#define KVI_BYTES_CODEC_H

#include "codecs/coder.h"

/* Fits the parameters of the bytes codec to the samples of a job. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_bytes_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_params **out);

#endif
