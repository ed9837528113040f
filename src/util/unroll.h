/* SPDX-License-Identifier: BSD-3-Clause */
/* unroll.h - loops over what is to stay in registers */
#ifndef KVI_UNROLL_H
#define KVI_UNROLL_H

/*
 * A pragma for a loop of a constant number of rounds, at most n, whose arrays gcc -O2 keeps in
 * memory otherwise. Empty with a sanitizer: its checks of every element of such loops take clang
 * minutes to compile.
 */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVI_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVI_SANITIZED 1
#endif

#define KVI_PRAGMA(text) _Pragma(#text)
#if defined(KVI_SANITIZED)
#define KVI_UNROLL(n)
#elif defined(__clang__)
#define KVI_UNROLL(n) _Pragma("unroll")
#else
#define KVI_UNROLL(n) KVI_PRAGMA(GCC unroll n)
#endif

#endif
