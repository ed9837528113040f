/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.h - the chain value: one hash that names all tokens of a track (spec 5.3) */
#ifndef KVARC_CLI_CHAIN_H
#define KVARC_CLI_CHAIN_H

#include <stdbool.h>

#include "kvarc.h"

/* The chain value of one archive; owns nothing. */
struct chain {
	bool present;  /* the archive has one */
	char text[72]; /* hex of the last segment of track 0, or why there is none */
};

/* Fills chain from the index. Returns OK or the code of the reader. */
kvarc_ret chain_make(struct chain *chain, kvarc_reader *r);

#endif
