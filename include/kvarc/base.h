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
 * Structs. Zero a struct before its members are set: its _INIT macro, memset, {} in C++ do. Zero
 * is the default of every member, as documented there. A later release puts new members where
 * reserved ones are now: sizes and offsets stay, and zero keeps its meaning. So
 * a program and a library of different releases work together. A reserved member that is not zero
 * is a wish that this library does not know, or a struct that was not zeroed: PROG.
 * In structs that the library fills, it sets all members, reserved ones to zero.
 */

/* Initialises any struct of this library with zeros, without a warning in C and in C++. */
#ifdef __cplusplus
#define KVARC_ZERO \
	{          \
	}
#else
#define KVARC_ZERO                \
	{                         \
		.reserved = { 0 } \
	}
#endif

/*
 * Return codes. Each says what happened and what the caller may do next: kvarc_usable says
 * whether the handle can be used on. After a code for which it does not, a handle accepts only
 * its close call, and every other call returns the same code again.
 */
typedef enum kvarc_ret {
	KVARC_OK = 0,        /* done */
	KVARC_END = 1,       /* nothing is left (next segment, next item) */
	KVARC_MEM = 2,       /* an allocation failed; close the handle */
	KVARC_MEMLIMIT = 3,  /* more memory than the limit allows is needed: open again with
	                      * a larger limit, or read a smaller range */
	KVARC_FORMAT = 4,    /* this is not a kvarc file */
	KVARC_OPTIONS = 5,   /* valid, but too new, not built in, or it needs a
	                      * source that can seek */
	KVARC_DATA = 6,      /* damaged: see kvarc_error for offset and frame;
	                      * salvage may save the rest */
	KVARC_GEOMETRY = 7,  /* the file is fine, your tensors or range differ: nothing
	                      * was done, call again with others */
	KVARC_PREDICTOR = 8, /* the file is fine, its predictor is missing,
	                      * different or inexact */
	KVARC_AUTH = 9,      /* the archive is encrypted, and no key that was given opens it */
	KVARC_IO = 10,       /* a source or sink callback failed */
	KVARC_PROG = 11,     /* the caller broke a rule of this header: nothing was done */
	KVARC_LOSSY = 12,    /* the file is fine, but what was asked for was
	                      * changed by a lossy tier: read again with
	                      * KVARC_READ_ALLOW_LOSSY if that will do */
	KVARC_STORE = 13     /* the file is fine, but what was asked for lies in a store, which is
	                      * not here, does not have it, or has something else */
} kvarc_ret;

/* Value of kvarc_error.offset and .frame when they are not known. */
#define KVARC_UNKNOWN UINT64_MAX

/* Reason of a failure, for programs, where a code alone is too little: kvarc_error.reason. */
typedef enum kvarc_reason {
	KVARC_REASON_NONE = 0,
	/* OPTIONS: not from a pipe, save it as a file */
	KVARC_REASON_NEEDS_SEEK = 1,
	/* OPTIONS, PREDICTOR: made by, or for, a newer version of kvarc */
	KVARC_REASON_NEWER = 2,
	/* DATA: KVARC_READ_SALVAGE may give the rest */
	KVARC_REASON_SALVAGE = 3,
	/* PREDICTOR: a profile is needed; digest and name are its */
	KVARC_REASON_PROFILE_NEEDED = 4,
	/* PREDICTOR: a model is needed, none was given; digest of its weights, and its name */
	KVARC_REASON_MODEL_NEEDED = 5,
	/* PREDICTOR: another model was given; digest and name are of the one that is needed */
	KVARC_REASON_MODEL_DIFFERS = 6,
	/* GEOMETRY: the range ends behind the last token; tokens of the track are in tokens */
	KVARC_REASON_PAST_TOKENS = 7,
	/* GEOMETRY: the range ends behind the last layer; the number of layers is in layer */
	KVARC_REASON_PAST_LAYERS = 8,
	/* GEOMETRY: there is no such track; the number of tracks is in track */
	KVARC_REASON_NO_TRACK = 9,
	/* STORE: the options have no stored_read; digest is the key of the segment */
	KVARC_REASON_NO_STORE = 10,
	/* STORE: the store has nothing under the key, which is in digest */
	KVARC_REASON_STORE_LACKS = 11,
	/* STORE: what the store has under the key, which is in digest, has another content digest
	 */
	KVARC_REASON_STORE_DIFFERS = 12
} kvarc_reason;

/*
 * Account of a failure. The caller owns it, and a call that fails fills all of it; others may leave
 * it as it is. text is one line for a person, no newline, never bytes of a cache. A program uses
 * the other members, since the wording changes.
 */
typedef struct kvarc_error {
	kvarc_ret code;
	kvarc_reason reason;
	uint64_t offset; /* bytes from the start of the file, or KVARC_UNKNOWN */
	uint64_t frame;  /* sequence number, or KVARC_UNKNOWN */
	char text[232];
	uint8_t digest[16];    /* by reason; else zero */
	char name[64];         /* by reason, printable ASCII or UTF-8; may be "" */
	uint64_t tokens;       /* by reason; else KVARC_UNKNOWN */
	uint64_t bytes_needed; /* MEMLIMIT: a limit that would have sufficed for the allocation
	                        * that failed, not always for the call; else 0 */
	uint32_t track, layer; /* by reason, and where the fault lies; else UINT32_MAX */
	/* MODEL_NEEDED, MODEL_DIFFERS: as of kvarc_predictor_open_blind; 0: with the token */
	unsigned blind;
	uint64_t reserved[8];
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
	uint64_t reserved[2]; /* zero */
} kvarc_allocator;

/* Instruction sets, for kvarc_options.isa_mask. Every set gives the same bytes. */
#define KVARC_ISA_SCALAR 0x1u
#define KVARC_ISA_AVX2 0x2u
#define KVARC_ISA_AVX512 0x4u
#define KVARC_ISA_NEON 0x8u
#define KVARC_ISA_ALL 0xffffffffu

/* "0.1.0"; static storage. */
KVARC_API const char *kvarc_version(void);

/* 1: after this code the handle can be used as if the call had not been made: OK, END, GEOMETRY
 * and PROG. 0: close it, unless the call promises more. */
KVARC_API int kvarc_usable(kvarc_ret ret);

/* Short name of a return code, "data error" for KVARC_DATA; static storage. */
KVARC_API const char *kvarc_strerror(kvarc_ret ret);

/* Sets that this build has and this processor can run. */
KVARC_API uint32_t kvarc_isa_available(void);

/* "scalar", "avx2", "avx512", "neon": the fastest one in the mask that is
 * available, which is what a handle opened with this mask uses. */
KVARC_API const char *kvarc_isa_name(uint32_t isa_mask);

#endif
