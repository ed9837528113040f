/* SPDX-License-Identifier: BSD-3-Clause */
/* save_check.c - whether an archive of a store loads as the file that is saved */
#include "config.h"

#include "save_check.h"

#include <string.h>

#include "files/import_compare.h"

/* What is damaged: the archive itself, or one that it needs. */
static kvarc_ret doubt(struct kvarc_store *s, const struct kvi_store_content *content,
                       const uint8_t id[16])
{
	const kvarc_error was = *s->error;
	kvarc_ret ret = kvi_doubt_damaged(s, content->has_damaged ? content->damaged : id);
	*s->error = was;
	return ret == KVARC_END ? KVARC_OK : ret;
}

static bool is_lost(kvarc_ret ret)
{
	return ret == KVARC_DATA || ret == KVARC_FORMAT || ret == KVARC_STORE;
}

kvarc_ret kvi_save_check(struct kvarc_store *s, const uint8_t id[16], const kvarc_source *source,
                         const kvarc_import *im, enum kvi_save_verdict *verdict)
{
	struct kvi_store_content content = { .s = s };
	struct kvi_open_pack p;
	kvarc_ret ret = source ? kvi_pack_open_source(s, &p, id, source, &content)
	                       : kvi_pack_open(s, &p, id, false, &content);
	const bool opened = !ret;
	*verdict = KVI_SAVE_SAME;
	if (opened) {
		ret = kvi_import_compare(im, p.r, &p.error);
		if (ret == KVARC_END)
			*verdict = KVI_SAVE_OTHER;
		else if (ret && !content.failed)
			kvi_fail(s->error, ret, "store: %s: %s", p.key, p.error.text);
		kvi_pack_close(&p);
	}
	if (ret == KVARC_END && opened)
		return KVARC_OK;
	if (content.failed)
		return content.failed;
	if (ret != KVARC_END && !is_lost(ret))
		return ret;
	*verdict = KVI_SAVE_DAMAGED;
	return doubt(s, &content, id);
}
