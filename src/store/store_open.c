/* SPDX-License-Identifier: BSD-3-Clause */
/* store_open.c - opens and closes a store */
#include "config.h"

#include "store_state.h"

void kvarc_store_close(kvarc_store **store)
{
	kvarc_store *s = store ? *store : NULL;
	if (!s)
		return;
	kvi_backend_close(&s->backend);
	kvi_free(&s->alloc, s);
	*store = NULL;
}
