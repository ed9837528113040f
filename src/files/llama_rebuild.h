/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_rebuild.h - a llama.cpp file from tensors of an archive that does not hold one */
#ifndef KVI_LLAMA_REBUILD_H
#define KVI_LLAMA_REBUILD_H

#include "format/restore.h"
#include "kvarc.h"
#include "util/bytes.h"

/*
 * The file of the first n tokens of a track: its plan, which the caller frees, also on failure, and
 * its literal bytes. Returns OK; END (*why says why not, static storage); as
 * kvarc_reader_read_tokens.
 */
kvarc_ret kvi_llama_rebuild(kvarc_reader *r, uint32_t track, uint64_t n, struct kvi_restore *plan,
                            struct kvi_out *literals, const char **why);

#endif
