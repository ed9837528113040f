/* SPDX-License-Identifier: BSD-3-Clause */
/* store_identity.c - what the archive of a version says of its origin */
#include "store_state.h"

#include <string.h>

kvarc_ret kvarc_store_identity(kvarc_store *s, const char *session, uint64_t number,
                               kvarc_identity_fn fn, void *opaque)
{
	struct kvi_manifest m;
	kvarc_reader *r;
	const char *key, *value;
	if (!s || !fn)
		return KVARC_PROG;
	kvarc_ret ret = kvi_session_check(s, session);
	if (!ret)
		ret = kvi_version_read(s, session, &number, &m);
	if (ret == KVARC_END)
		kvi_fail(s->error, ret, "there is no such session or version");
	if (!ret && (ret = kvi_pack_reader(s, m.needs.pack, true, &r)) == KVARC_END)
		ret = kvi_fail(s->error, KVARC_STORE,
		               "store: the archive of the version is missing: it is lost");
	for (size_t i = 0; !ret; i++) {
		ret = kvarc_reader_identity_at(r, i, &key, &value);
		if (!ret && fn(opaque, key, value) != 0)
			return kvi_fail(s->error, KVARC_IO, "store: the identity was not taken");
		if (ret == KVARC_END)
			return KVARC_OK;
	}
	return ret;
}
