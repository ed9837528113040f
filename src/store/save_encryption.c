/* SPDX-License-Identifier: BSD-3-Clause */
/* save_encryption.c - whether versions of a session are encrypted, as their archives show it */
#include "save_encryption.h"

#include <string.h>

#define ASK "save with --encrypt or --decrypt"

/* What the archive of the last version shows, once it is known that it can be read. */
static kvarc_ret look(struct kvarc_store *s, const struct kvi_needs *last, bool *encrypt)
{
	kvarc_reader *r;
	kvarc_ret ret = kvi_pack_reader(s, last->pack, false, &r);
	if (ret == KVARC_AUTH)
		return kvi_fail(s->error, ret,
		                "store: the last version of the session is encrypted, and %s",
		                s->options.keys ? "no key that was given opens it"
		                                : "no key was given");
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return ret;
	/* One that is missing or damaged does not show that the session is not encrypted. */
	*encrypt = last->encrypted ||
	           (ret ? s->options.keys != NULL : kvi_pack_find(s, last->pack)->veil.on);
	if (*encrypt && !s->options.keys)
		return kvi_fail(s->error, KVARC_AUTH,
		                "store: the session is encrypted, and no key was given");
	if (!*encrypt && s->options.keys)
		return kvi_fail(s->error, KVARC_OPTIONS,
		                "store: the last version of the session is not encrypted, "
		                "although a key was given: " ASK);
	return KVARC_OK;
}

kvarc_ret kvi_save_encrypts(struct kvarc_store *s, int asked, kvarc_ret read,
                            const struct kvi_needs *last, bool *encrypt)
{
	*encrypt = asked > 0;
	if (read == KVARC_END)
		return KVARC_OK;
	if (read && read != KVARC_DATA && read != KVARC_OPTIONS)
		return read;
	if (asked)
		return KVARC_OK;
	if (read) {
		const kvarc_error why = *s->error;
		return kvi_fail(s->error, KVARC_OPTIONS,
		                "%s: the last version cannot be read, and so it is not known "
		                "whether the session is encrypted: " ASK,
		                why.text);
	}
	return look(s, last, encrypt);
}
