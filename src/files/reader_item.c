/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_item.c - what a packed file of an archive is */
#include "kvarc.h"
#include "reader/reader_internal.h"
#include "unpack_elements.h"

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

/* The files come after the elements: those of one that was cut are behind its end. */
kvarc_ret kvi_unpack_no_files(kvarc_reader *r)
{
	kvarc_info info;
	kvarc_ret ret = kvarc_reader_get_info(r, &info);
	if (!ret && info.state == KVARC_STATE_CUT)
		return kvi_reader_fail(r, KVARC_OPTIONS,
		                       "the archive was cut, and ends before its files; "
		                       "salvage or export its tensors");
	return kvi_reader_fail(r, KVARC_OPTIONS,
	                       "the archive holds no files; export its tensors instead");
}
