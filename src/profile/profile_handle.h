/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_handle.h - the public handle of a profile */
#ifndef KVI_PROFILE_HANDLE_H
#define KVI_PROFILE_HANDLE_H

#include "profile_io.h"
#include "util/shared.h"

/* The public handle of a profile. */
struct kvarc_profile {
	struct kvi_alloc alloc;      /* holds itself and the profile */
	struct kvi_profile *profile; /* p->alloc is the handle's */
	uint64_t file_bytes;         /* bytes of its .kvp file, header included */
};

/* Makes a handle without a profile: the caller fills profile and file_bytes. kvarc_profile_close
 * frees it. Returns OK, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_profile_handle_new(kvarc_profile **p, const kvarc_common *common);

/* Computes digest and file_bytes of the finished profile of a handle. Returns OK, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_profile_handle_finish(kvarc_profile *profile);

#endif
