/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_convert.h - a llama.cpp sequence file as another version of the format writes it */
#ifndef KVI_LLAMA_CONVERT_H
#define KVI_LLAMA_CONVERT_H

#include <stdint.h>

#include "kvarc.h"
#include "llama_item.h"

/* Versions that are known. */
enum { KVI_LLAMA_OLDEST_STATE = 2, KVI_LLAMA_LATEST_STATE = 4 };

/*
 * Makes an item the file of another version: the same elements, with other bytes between them. An
 * item of that version stays as it is. Returns OK; END (*why says why not, static storage; nothing
 * has changed); IO, MEM, MEMLIMIT; in salvage as kvi_llama_item_make.
 */
kvarc_ret kvi_llama_convert(struct kvi_llama_item *it, kvarc_reader *r, uint32_t version,
                            const char **why);

#endif
