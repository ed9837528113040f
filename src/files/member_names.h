/* SPDX-License-Identifier: BSD-3-Clause */
/* member_names.h - names of members that can be restored as files */
#ifndef KVI_MEMBER_NAMES_H
#define KVI_MEMBER_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Removes "." components and repeated slashes in place. False: the name is not a relative path that
 * can be unpacked anywhere: empty, absolute, with "..", not UTF-8, with control characters, or
 * with a component above 255 bytes.
 */
bool kvi_member_name_tidy(char *name);

/* Whether n tidy names, in ascending order of strcmp, can be files side by side: none is there
 * twice, none is a folder of another one. */
bool kvi_member_names_fit(const char *const *names, size_t n);

#endif
