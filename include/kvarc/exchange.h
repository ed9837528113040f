/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/exchange.h - sessions of a store as a tar; files of other hosts */
/*
 * These calls are in libkvarc-store, as those of <kvarc/store.h>. docs/store.md has the form.
 * All frames of an import are checked; checks find damage, not forgery, so whoever made a
 * file is trusted as one who saves into the store.
 */
#ifndef KVARC_EXCHANGE_H
#define KVARC_EXCHANGE_H

#include <kvarc/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A version of a session; number 0: the last one. */
typedef struct kvarc_version_name {
	const char *session;
	uint64_t number;
	uint64_t reserved[2]; /* zero */
} kvarc_version_name;

/* Account of an export. */
typedef struct kvarc_exported {
	uint64_t versions;
	uint64_t archives, archive_bytes; /* that were written */
	uint64_t bytes;                   /* of the tar */
	uint64_t reserved[5];
} kvarc_exported;

/* A version that was imported. Strings stay until the callback returns. */
typedef struct kvarc_imported {
	const char *session;
	uint64_t version;
	int was_here;                     /* the session had this very version */
	uint64_t archives, archive_bytes; /* that came with it */
	uint64_t reserved[4];
} kvarc_imported;
/* Takes one version; not 0 ends the call, which returns IO. */
typedef int (*kvarc_imported_fn)(void *opaque, const kvarc_imported *version);

/*
 * Writes versions and all archives that they need, each once, as a pax tar for kvarc_store_import.
 * n 0: the last version of every session. The sink takes writes in order, a pipe for instance.
 * exported may be NULL.
 * Returns OK, END (no such version, or no session at all), STORE (archives are missing), OPTIONS
 * (no libarchive), IO, MEM, MEMLIMIT, DATA, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_export(kvarc_store *s, size_t n,
                                                        const kvarc_version_name *versions,
                                                        const kvarc_sink *sink,
                                                        kvarc_exported *exported);

/*
 * Reads such a tar, also from a pipe, and puts each version behind the last one of its session,
 * unless the session has it already. n: sessions to import; 0: all. fn may be NULL. What came
 * before a failure stays.
 * Returns OK, END (none of these sessions is in it), DATA (damaged, or it ends too soon), STORE (it
 * names archives that are nowhere), OPTIONS (as kvarc_store_export; a newer version), IO, MEM,
 * MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_store_import(kvarc_store *s, const kvarc_source *source,
                                                        size_t n, const char *const *sessions,
                                                        kvarc_imported_fn fn, void *opaque);

/*
 * Reads the file of a URL, `most` bytes at most, into a sink, from its first byte on. url:
 * "https://[USER:PASSWORD@]HOST/FILE", or http:// of this host (127.0.0.1, localhost, [::1]);
 * redirects lead to https alone, and certificates are checked. No error has user or password. Of
 * common, which may be NULL, `error` and `progress` are used. What came is to be used only after
 * OK: a connection that breaks leaves a part of the file in the sink.
 * Returns OK, IO (no such file, no whole answer, a longer one; the sink or progress failed),
 * OPTIONS (another URL; no libcurl), MEM, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_download(const char *url, uint64_t most,
                                                    const kvarc_sink *sink,
                                                    const kvarc_common *common);

#ifdef __cplusplus
}
#endif

#endif
