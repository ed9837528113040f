/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_trial.h - encodes a chunk with the kernels of gpu/ on the host */
#ifndef KVI_TEST_ENCODE_TRIAL_H
#define KVI_TEST_ENCODE_TRIAL_H

#include "archive_chunks.h"
#include "chunk_plan.h"

/* What came of it. */
enum encode_result { ENCODED_SAME, ENCODED_OTHER, ENCODED_NOT };

/*
 * Encodes the elements of a chunk of codec 4, 5 or 16, raw, which are put into pages with gaps of
 * some elements, with its parameters and compares the payload with the chunk's. params, tables: as
 * kernels take them.
 */
enum encode_result encode_trial(const struct archive_chunk *chunk, const uint8_t *raw, uint32_t gap,
                                const struct kvi_gpu_params *params,
                                const struct kvi_gpu_tables *tables);

#endif
