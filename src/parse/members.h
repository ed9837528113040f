/* SPDX-License-Identifier: BSD-3-Clause */
/* members.h - where the members of zip and tar files lie */
#ifndef KVI_MEMBERS_H
#define KVI_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* Longest name that is reported, in bytes. */
enum { KVI_MEMBER_NAME_MAX = 4095 };

/* Kinds of members of a container, by the way to read them. */
enum kvi_member_kind {
	KVI_MEMBER_STORED,   /* a regular file, its bytes as they are */
	KVI_MEMBER_DEFLATED, /* zip: a regular file, method 8 */
	KVI_MEMBER_PACKED,   /* zip: another method, or encrypted */
	KVI_MEMBER_FOLDER,
	KVI_MEMBER_SPECIAL /* links, devices, sparse files: more than bytes and a name */
};

/* A member of a container. */
struct kvi_member {
	enum kvi_member_kind kind;
	const char *name;   /* name as stored, terminated; NULL: longer than KVI_MEMBER_NAME_MAX,
	                     * or with a 0 in it. Valid during the call */
	uint64_t header_at; /* offset of the header in the container */
	uint64_t offset;    /* offset of the first byte */
	uint64_t packed;    /* bytes in the container */
	uint64_t bytes;     /* bytes of the file */
};

/* Called for a member; a result other than OK ends the scan, which returns it. */
typedef kvarc_ret (*kvi_member_found)(void *opaque, const struct kvi_member *m);

/*
 * Parse a whole container and report its members: zip in the order of the central directory
 * (APPNOTE 6.3.10, zip64 included; nothing says that members do not overlap), tar in the order of
 * the file (POSIX ustar and pax, GNU; several joined ones count as one). offset + packed is at most
 * src->size. Reads headers only.
 * Return OK, END when the grammar does not reach to the exact end of the source, IO, MEM,
 * MEMLIMIT, or what found returned.
 */
kvarc_ret kvi_zip_scan(const kvarc_source *src, const struct kvi_alloc *alloc,
                       kvi_member_found found, void *opaque);
/* Parses tar; see kvi_zip_scan. */
kvarc_ret kvi_tar_scan(const kvarc_source *src, const struct kvi_alloc *alloc,
                       kvi_member_found found, void *opaque);

#endif
