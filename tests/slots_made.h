/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_made.h - llama.cpp slots of any tokens in memory, for tests of stores */
#ifndef KV_TEST_SLOTS_MADE_H
#define KV_TEST_SLOTS_MADE_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/* Bytes of all rows of a token: 3 layers of 64 F16 channels, keys and values. */
enum { SLOT_LAYERS = 3, SLOT_ROW = 128, SLOT_TOKEN = 2 * SLOT_LAYERS * SLOT_ROW };

struct slot_made {
	uint8_t *p;
	size_t n;
};

/*
 * A slot of n tokens: the rows of a token depend on its id and those before it, so that slots
 * with a common prefix of ids have equal rows there; from token `changed` on also on salt, as when
 * an engine computes them again. Ends the program when there is no memory.
 */
void slot_make(struct slot_made *s, const int32_t *ids, uint32_t n, uint32_t changed,
               uint64_t salt);
void slot_free(struct slot_made *s);
/* A source of its bytes, which stay the caller's. */
kvarc_source slot_source(struct slot_made *s);

#endif
