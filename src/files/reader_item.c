/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_item.c - what a packed file of an archive is */
#include "kvarc.h"
#include "reader/reader_internal.h"

kvarc_ret kvarc_reader_item(kvarc_reader *r, size_t i, kvarc_item *item)
{
	if (!r || !item)
		return KVARC_PROG;
	if (i >= kvi_reader_n_items(r))
		return KVARC_END;
	const struct kvi_restore *plan = kvi_reader_restore(r, i);
	*item = (kvarc_item){
		.index = i, .kind = plan->kind, .name = plan->name, .bytes = plan->file_bytes
	};
	return KVARC_OK;
}
