/* SPDX-License-Identifier: BSD-3-Clause */
/* see_verify.c - shows whether the command has what it writes verified (ld --wrap) */
#include <stdio.h>

#include <kvarc.h>
#include <kvarc/store.h>

/* The calls of the library, and what the command calls: the linker's names of both. */
kvarc_ret __real_kvarc_pack(kvarc_import *im, const kvarc_sink *sink,
                            const kvarc_writer_options *options, kvarc_writer_stats *stats);
kvarc_ret __wrap_kvarc_pack(kvarc_import *im, const kvarc_sink *sink,
                            const kvarc_writer_options *options, kvarc_writer_stats *stats);
kvarc_ret __real_kvarc_append_import(kvarc_import *im, const kvarc_source *source,
                                     const kvarc_sink *sink, const kvarc_append_options *options,
                                     kvarc_append_result *result);
kvarc_ret __wrap_kvarc_append_import(kvarc_import *im, const kvarc_source *source,
                                     const kvarc_sink *sink, const kvarc_append_options *options,
                                     kvarc_append_result *result);
kvarc_ret __real_kvarc_store_save(kvarc_store *s, const char *session, kvarc_import *im,
                                  const kvarc_save_options *options, kvarc_saved *saved);
kvarc_ret __wrap_kvarc_store_save(kvarc_store *s, const char *session, kvarc_import *im,
                                  const kvarc_save_options *options, kvarc_saved *saved);

static void show(const char *call, const kvarc_writer_options *o)
{
	fprintf(stderr, "%s: %s\n", call,
	        o && o->flags & KVARC_WRITE_VERIFY ? "verified" : "not verified");
}

kvarc_ret __wrap_kvarc_pack(kvarc_import *im, const kvarc_sink *sink,
                            const kvarc_writer_options *options, kvarc_writer_stats *stats)
{
	show("pack", options);
	return __real_kvarc_pack(im, sink, options, stats);
}

kvarc_ret __wrap_kvarc_append_import(kvarc_import *im, const kvarc_source *source,
                                     const kvarc_sink *sink, const kvarc_append_options *options,
                                     kvarc_append_result *result)
{
	show("append", options ? &options->writer : NULL);
	return __real_kvarc_append_import(im, source, sink, options, result);
}

kvarc_ret __wrap_kvarc_store_save(kvarc_store *s, const char *session, kvarc_import *im,
                                  const kvarc_save_options *options, kvarc_saved *saved)
{
	show("save", options ? &options->writer : NULL);
	return __real_kvarc_store_save(s, session, im, options, saved);
}
