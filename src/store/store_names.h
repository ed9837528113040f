/* SPDX-License-Identifier: BSD-3-Clause */
/* store_names.h - which versions an export or an import is about */
#ifndef KVI_STORE_NAMES_H
#define KVI_STORE_NAMES_H

#include "kvarc/exchange.h"
#include "transfer_steps.h"

/* Does one version of an export; not OK ends it, and is returned. */
typedef kvarc_ret (*kvi_export_fn)(void *opaque, const kvarc_version_name *version,
                                   const struct kvi_leaving *leaving);

/* How many versions an export is about: n, or of n 0 one of each session. Returns OK, END (there
 * is none), and as kvarc_store_list. */
kvarc_ret kvi_export_count(struct kvarc_store *s, size_t n, uint64_t *versions);
/* Does each. Returns what fn does, and as kvi_leaving_find. */
kvarc_ret kvi_export_each(struct kvarc_store *s, const char *call, size_t n,
                          const kvarc_version_name *versions, kvi_export_fn fn, void *opaque);

/* An import on its way. */
struct kvi_importing {
	struct kvarc_store *s;
	size_t n;
	const char *const *sessions; /* those that are wanted; n 0: all */
	kvarc_imported_fn fn;        /* or NULL */
	void *opaque;
	uint64_t found;      /* versions of wanted sessions */
	kvarc_received came; /* archives since the last version */
};

/* Whether a session is wanted. */
bool kvi_import_wants(const struct kvi_importing *x, const char *session);
/* A version whose archives have come: its key, "sessions/NAME/N", and its manifest. What is not
 * wanted is left out. Returns OK, DATA (no key of a version), IO (fn says so), and as
 * kvi_arrive_version. */
kvarc_ret kvi_import_version(struct kvi_importing *x, const char *key, const char *text,
                             size_t bytes);
/* OK, or END where none was found. */
kvarc_ret kvi_import_end(const struct kvi_importing *x);

#endif
