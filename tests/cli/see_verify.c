/* SPDX-License-Identifier: BSD-3-Clause */
/* see_verify.c - shows whether the command has what it writes verified (LD_PRELOAD) */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvarc.h>
#include <kvarc/store.h>

static void show(const char *call, const kvarc_writer_options *o)
{
	fprintf(stderr, "%s: %s\n", call,
	        o && o->flags & KVARC_WRITE_VERIFY ? "verified" : "not verified");
}

/* The function of that name which this one stands in front of. */
static void next_function(const char *name, void *function)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort();
	memcpy(function, &p, sizeof(p));
}

kvarc_ret kvarc_pack(kvarc_import *im, const kvarc_sink *sink, const kvarc_writer_options *options,
                     kvarc_writer_stats *stats)
{
	kvarc_ret (*next)(kvarc_import *, const kvarc_sink *, const kvarc_writer_options *,
	                  kvarc_writer_stats *);

	next_function("kvarc_pack", &next);
	show("pack", options);
	return next(im, sink, options, stats);
}

kvarc_ret kvarc_append_import(kvarc_import *im, const kvarc_source *source, const kvarc_sink *sink,
                              const kvarc_append_options *options, kvarc_append_result *result)
{
	kvarc_ret (*next)(kvarc_import *, const kvarc_source *, const kvarc_sink *,
	                  const kvarc_append_options *, kvarc_append_result *);

	next_function("kvarc_append_import", &next);
	show("append", options ? &options->writer : NULL);
	return next(im, source, sink, options, result);
}

kvarc_ret kvarc_store_save(kvarc_store *s, const char *session, kvarc_import *im,
                           const kvarc_save_options *options, kvarc_saved *saved)
{
	kvarc_ret (*next)(kvarc_store *, const char *, kvarc_import *, const kvarc_save_options *,
	                  kvarc_saved *);

	next_function("kvarc_store_save", &next);
	show("save", options ? &options->writer : NULL);
	return next(s, session, im, options, saved);
}
