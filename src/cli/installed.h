/* SPDX-License-Identifier: BSD-3-Clause */
/* installed.h - installed profiles, and the one that fits a file */
#ifndef KVARC_CLI_INSTALLED_H
#define KVARC_CLI_INSTALLED_H

#include "infile.h"
#include "kvarc.h"
#include "options.h"

/* Called with the path of each installed profile, in the order in which readers look at them. */
typedef void (*installed_fn)(void *opaque, const char *path);
/* Calls it. */
void installed_each(installed_fn fn, void *opaque);

/* Opens a file as pack does with this profile, which has the heads and RoPE of tensors that do not
 * say them; source and error stay until the import is closed. NULL: it cannot be
 * opened, and nothing is shown. */
kvarc_import *installed_import(const struct options *options, struct input *in,
                               const kvarc_profile *profile, kvarc_source *source,
                               kvarc_error *error);

/* Before a file is packed at level 2 or 3 without --profile: the installed profile that predicts
 * most of it, as `profiles list` shows them, is used as if it was given. A line says which. */
void installed_choose(const struct options *options, struct input *in);

#endif
