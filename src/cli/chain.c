/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.c - the chain value of track 0 (spec 5.3) */
#include "config.h"

#include "chain.h"

#include <string.h>

#include "units.h"

kvarc_ret chain_make(struct chain *chain, kvarc_reader *r)
{
	uint8_t value[16];
	kvarc_ret ret = kvarc_reader_chain(r, 0, kvarc_reader_tokens(r, 0), value);

	chain->present = ret == KVARC_OK;
	if (chain->present)
		units_digest(chain->text, value);
	else
		strcpy(chain->text, "none, the archive does not name its tokens");
	return ret == KVARC_END ? KVARC_OK : ret;
}
