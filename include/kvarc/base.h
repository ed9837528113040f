/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/base.h - return codes, version, allocator, errors, processor mask */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_BASE_H
#define KVARC_BASE_H

#ifndef KVARC_API
#if defined(__GNUC__)
#define KVARC_API __attribute__((visibility("default")))
#else
#define KVARC_API
#endif
#endif
#if defined(__GNUC__)
#define KVARC_MUST_CHECK __attribute__((warn_unused_result))
#else
#define KVARC_MUST_CHECK
#endif

#define KVARC_VERSION_MAJOR 0
#define KVARC_VERSION_MINOR 1
#define KVARC_VERSION_PATCH 0
#define KVARC_VERSION_STRING "0.1.0"
/* Newest format version that this library writes and reads. */
#define KVARC_FORMAT_MAJOR 1
#define KVARC_FORMAT_MINOR 0

/*
 * Return codes. Each says what happened and what the caller may do next.
 * After any code but OK, END and MEMLIMIT a handle accepts only its close
 * call (every other call returns the same code again).
 */
typedef enum kvarc_ret {
	KVARC_OK = 0,        /* done */
	KVARC_END = 1,       /* nothing is left (next segment, next item) */
	KVARC_MEM = 2,       /* an allocation failed; close the handle */
	KVARC_MEMLIMIT = 3,  /* more memory than the limit allows is needed;
	                      * open again with a larger limit */
	KVARC_FORMAT = 4,    /* this is not a kvarc file */
	KVARC_OPTIONS = 5,   /* valid, but too new, not built in, or it needs a
	                      * source that can seek */
	KVARC_DATA = 6,      /* damaged: see kvarc_error for offset and frame;
	                      * salvage may save the rest */
	KVARC_GEOMETRY = 7,  /* the file is fine, your tensors or range differ */
	KVARC_PREDICTOR = 8, /* the file is fine, its predictor is missing,
	                      * different or inexact */
	KVARC_AUTH = 9,      /* wrong or missing key (reserved) */
	KVARC_IO = 10,       /* a source or sink callback failed */
	KVARC_PROG = 11,     /* the caller broke a rule of this header */
	KVARC_LOSSY = 12     /* the file is fine, but what was asked for was
	                      * changed by a lossy tier: read again with
	                      * KVARC_READ_ALLOW_LOSSY if that will do */
} kvarc_ret;

/* Value of kvarc_error.offset and .frame when they are not known. */
#define KVARC_UNKNOWN UINT64_MAX

/* What went wrong, human-readable. The caller owns it. text has one line, no
 * newline, and never contains bytes of a cache. */
typedef struct kvarc_error {
	kvarc_ret code;
	uint64_t offset; /* bytes from the start of the file */
	uint64_t frame;  /* sequence number */
	char text[232];
} kvarc_error;

/*
 * Memory comes from here. alloc returns NULL on failure and is never called
 * with 0; free accepts NULL. Both may be called from several threads at once
 * when threads > 1 or with overlap. A NULL kvarc_allocator pointer means malloc and free.
 */
typedef struct kvarc_allocator {
	void *(*alloc)(void *opaque, size_t bytes);
	void (*free)(void *opaque, void *ptr);
	void *opaque;
} kvarc_allocator;

/* Instruction sets, for kvarc_options.isa_mask. Every set gives the same bytes. */
#define KVARC_ISA_SCALAR 0x1u
#define KVARC_ISA_AVX2 0x2u
#define KVARC_ISA_AVX512 0x4u
#define KVARC_ISA_NEON 0x8u
#define KVARC_ISA_ALL 0xffffffffu

/* "0.1.0"; static storage. */
KVARC_API const char *kvarc_version(void);

/* Short name of a return code, "data error" for KVARC_DATA; static storage. */
KVARC_API const char *kvarc_strerror(kvarc_ret ret);

/* Sets that this build has and this processor can run. */
KVARC_API uint32_t kvarc_isa_available(void);

/* "scalar", "avx2", "avx512", "neon": the fastest one in the mask that is
 * available, which is what a handle opened with this mask uses. */
KVARC_API const char *kvarc_isa_name(uint32_t isa_mask);

#endif
