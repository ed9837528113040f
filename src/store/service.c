/* SPDX-License-Identifier: BSD-3-Clause */
/* service.c - whether the service behind a store keeps what is acknowledged */
#include "store_state.h"

#include <stdio.h>
#include <string.h>

/* Objects of a store that say what is known of its service. */
#define KEPT "service/keeps"
#define ACCEPTED "service/accepted"

static bool is_there(struct kvarc_store *store, const char *key)
{
	struct kvi_object object;
	return store->backend->calls->stat(store->backend, key, &object, NULL) == KVARC_OK;
}

/* Puts a record; another client may have put it, too. */
static kvarc_ret record(struct kvarc_store *store, const char *key, const char *text)
{
	const kvarc_source source = kvi_text_source(text, strlen(text));
	const kvarc_ret ret = store->backend->calls->put(store->backend, key, &source,
	                                                 store->error);
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* A service that cannot keep a promise, and perhaps somebody who wants it all the same. */
static kvarc_ret refuse(struct kvarc_store *store, const char *why)
{
	char text[KVI_WHY_MAX + 1];
	if (is_there(store, ACCEPTED))
		return KVARC_OK;
	if (!(store->options.flags & KVARC_STORE_ACCEPT_WEAK))
		return kvi_fail(
			store->error, KVARC_OPTIONS,
			"store: the service cannot keep what is saved: %s; use another one, or "
			"--accept-weak-store",
			why);
	snprintf(text, sizeof text, "%s\n", why);
	kvi_store_note(store, "accepted, and recorded in the store: %s", why);
	return record(store, ACCEPTED, text);
}

kvarc_ret kvi_service_check(struct kvarc_store *store)
{
	const struct kvi_backend_calls *calls = store->backend->calls;
	char why[KVI_WHY_MAX] = "";
	if (store->service_checked || !calls->promise)
		return KVARC_OK;
	const bool known = is_there(store, KEPT);
	kvarc_ret ret = calls->promise(store->backend, known, why, store->error);
	if (ret == KVARC_OPTIONS)
		ret = refuse(store, why);
	else if (!ret && !known)
		ret = record(store, KEPT, "1\n");
	store->service_checked = !ret;
	return ret;
}
