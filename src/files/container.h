/* SPDX-License-Identifier: BSD-3-Clause */
/* container.h - zip and tar files: the list of their members */
#ifndef KVI_CONTAINER_H
#define KVI_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "import_internal.h"
#include "parse/members.h"

/* A member, with a name of its own. */
struct kvi_listed {
	struct kvi_member m;
	char *name; /* NULL: as in struct kvi_member */
};

/* The members of a container by offset; they do not overlap. */
struct kvi_container {
	const char *what; /* "zip", "tar" */
	struct kvi_listed *list;
	size_t n, cap;
	size_t packed; /* members that are not stored as they are */
};

/*
 * Items of an import that are the files of a container, as many as it has (folders are no files):
 * what is stored is read in place, what is deflated comes through temporary files in
 * options.temp_dir. Returns OK; END with a note when some of them cannot be restored as files
 * (names, links, other methods), or there is no folder or no libarchive for what is deflated;
 * DATA (a damaged member), IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_members_take(kvarc_import *im, struct kvi_container *c);

/* Makes an item of a member's bytes in im->container. Returns OK or as kvi_import_full. */
kvarc_ret kvi_member_in_place(kvarc_import *im, const struct kvi_listed *x, const char *name);

/* Inflates the deflated ones among the items, which are the files of c in order. Returns as
 * kvi_members_take. */
kvarc_ret kvi_members_inflate(kvarc_import *im, const struct kvi_container *c);

#endif
