/* SPDX-License-Identifier: BSD-3-Clause */
/* workspace_tar.h - what packing and extracting a workspace share */
#ifndef KVI_WORKSPACE_TAR_H
#define KVI_WORKSPACE_TAR_H

#include <stdbool.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/error.h"

/* Limits and buffers. */
enum { KVI_WORKSPACE_PATH = 4096, KVI_WORKSPACE_DEPTH = 64, KVI_WORKSPACE_BLOCK = 1 << 18 };

/* A call on its way. */
struct kvi_workspace {
	kvarc_workspace_options options;
	kvarc_error *error;
	kvarc_workspace_result *result, unused; /* never NULL */
	struct kvi_alloc alloc;
};

/* Takes options and result, which may be NULL. *w must not move. Returns OK, PROG,
 * OPTIONS (libarchive is not there). */
kvarc_ret kvi_workspace_begin(struct kvi_workspace *w, const char *call,
                              const kvarc_workspace_options *options,
                              kvarc_workspace_result *result);
/* OPTIONS: it was not built in. */
kvarc_ret kvi_workspace_without(const kvarc_workspace_options *options);
/* Whether a name of an entry may become a file (spec 10.1). */
bool kvi_workspace_name_safe(const char *name);

#endif
