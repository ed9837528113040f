/* SPDX-License-Identifier: BSD-3-Clause */
/* store_without.c - the calls of a store in a build without SQLite: none can be opened */
#include "config.h"

#include "kvarc/exchange.h"
#include "util/error.h"

kvarc_ret kvarc_store_open(kvarc_store **s, const char *url, const kvarc_store_options *options)
{
	(void)url;
	if (s)
		*s = NULL;
	return kvi_fail(options ? options->common.error : NULL, KVARC_OPTIONS,
	                "stores need " SQLITE3_MISSING);
}

void kvarc_store_close(kvarc_store **s)
{
	(void)s;
}

/* No store can be open, so the other calls have none to use. */

kvarc_ret kvarc_store_save(kvarc_store *s, const char *session, kvarc_import *im,
                           const kvarc_save_options *options, kvarc_saved *saved)
{
	(void)s, (void)session, (void)im, (void)options, (void)saved;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_load(kvarc_store *s, const char *session, uint64_t number,
                           kvarc_item_open open, void *opaque, kvarc_session_version *version)
{
	(void)s, (void)session, (void)number, (void)open, (void)opaque, (void)version;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_log(kvarc_store *s, const char *session, kvarc_session_version_fn fn,
                          void *opaque)
{
	(void)s, (void)session, (void)fn, (void)opaque;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_list(kvarc_store *s, kvarc_session_version_fn fn, void *opaque)
{
	(void)s, (void)fn, (void)opaque;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_fork(kvarc_store *s, const char *session, uint64_t number, const char *to)
{
	(void)s, (void)session, (void)number, (void)to;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_remove(kvarc_store *s, const char *session, uint64_t *versions)
{
	(void)s, (void)session, (void)versions;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_find(kvarc_store *s, kvarc_import *im, kvarc_found_fn fn, void *opaque)
{
	(void)s, (void)im, (void)fn, (void)opaque;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_stat(kvarc_store *s, kvarc_store_sizes *sizes)
{
	(void)s, (void)sizes;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_gc(kvarc_store *s, const kvarc_gc_options *options, kvarc_gc_result *result)
{
	(void)s, (void)options, (void)result;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_verify(kvarc_store *s, kvarc_store_loss_fn fn, void *opaque, uint64_t *losses)
{
	(void)s, (void)fn, (void)opaque, (void)losses;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_rebuild(kvarc_store *s, uint64_t *archives, uint64_t *segments)
{
	(void)s, (void)archives, (void)segments;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_identity(kvarc_store *s, const char *session, uint64_t number,
                               kvarc_identity_fn fn, void *opaque)
{
	(void)s, (void)session, (void)number, (void)fn, (void)opaque;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_have(kvarc_store *s, kvarc_has_fn fn, void *opaque)
{
	(void)s, (void)fn, (void)opaque;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_send(kvarc_store *s, const char *session, uint64_t number,
                           const kvarc_sink *sink, kvarc_has_fn has, void *opaque, kvarc_sent *sent)
{
	(void)s, (void)session, (void)number, (void)sink, (void)has, (void)opaque, (void)sent;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_receive(kvarc_store *s, const char *session, const kvarc_source *source,
                              kvarc_received *received)
{
	(void)s, (void)session, (void)source, (void)received;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_export(kvarc_store *s, size_t n, const kvarc_version_name *versions,
                             const kvarc_sink *sink, kvarc_exported *exported)
{
	(void)s, (void)n, (void)versions, (void)sink, (void)exported;
	return KVARC_PROG;
}

kvarc_ret kvarc_store_import(kvarc_store *s, const kvarc_source *source, size_t n,
                             const char *const *sessions, kvarc_imported_fn fn, void *opaque)
{
	(void)s, (void)source, (void)n, (void)sessions, (void)fn, (void)opaque;
	return KVARC_PROG;
}
