/* SPDX-License-Identifier: BSD-3-Clause */
/* shared.h - marks what the other libraries take from libkvarc beyond the public calls */
#ifndef KVI_SHARED_H
#define KVI_SHARED_H

/*
 * A function or table that libkvarc-tools, libkvarc-store or libkvarc-device uses, and has no copy
 * of (libkvicommon in Makefile.am): visible in libkvarc.so, in a private node of src/libkvarc.map
 * which names the version, since these may change in any release.
 */
#if defined(__GNUC__)
#define KVI_SHARED __attribute__((visibility("default")))
#else
#define KVI_SHARED
#endif

#endif
