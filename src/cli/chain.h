/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.h - the token chain: one hash that names a prefix of tokens (spec 5.3) */
#ifndef KVARC_CLI_CHAIN_H
#define KVARC_CLI_CHAIN_H

#include <stdbool.h>

#include "kvarc.h"
#include "shape.h"

/* The token chain of one archive; owns nothing. */
struct chain {
	bool present;  /* token ids are in the file */
	char text[72]; /* hex of the last segment of track 0, or why there is none */
};

/* Fills c from the token ids of track 0, which it reads from r. Returns OK or the code of the
 * reader; OK with present false if the ids need a model that was not given. */
kvarc_ret chain_make(struct chain *c, const struct shape *s, kvarc_reader *r);

#endif
