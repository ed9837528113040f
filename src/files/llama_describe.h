/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * llama_describe.h - what a llama.cpp file has beside tensors, in an identity pair, so that it can
 * be made again from an archive that holds no files
 */
#ifndef KVI_LLAMA_DESCRIBE_H
#define KVI_LLAMA_DESCRIBE_H

#include <stddef.h>

#include "kvarc.h"
#include "llama_parse.h"

/* Key of the pair. */
#define KVI_LLAMA_PAIR "llama_state"
/* Most bytes of its value, and of an architecture, with a terminator. */
enum { KVI_LLAMA_PAIR_BYTES = 320, KVI_LLAMA_ARCH_BYTES = 65 };

/* A KV memory of a llama.cpp file, beside its tensors. Zero: a sequence file of one stream, with
 * what the tensors say. */
struct kvi_llama_description {
	uint32_t session, version;
	uint32_t packed;          /* the token list is the server's */
	uint32_t streams, stream; /* number, 0: not in the file; stream of the tokens */
	uint32_t layers;          /* 0: not known */
	uint32_t rotation_k, rotation_v;
	uint32_t transposed; /* values are channel-major */
	uint32_t memories;   /* number in the file, this one included; 0: not known */
	uint32_t extension;  /* bytes of a cell's M-RoPE position */
	char arch[KVI_LLAMA_ARCH_BYTES];
};

/* Reads a value; names that are not known are passed over. False: it is not valid. */
bool kvi_llama_describe_parse(struct kvi_llama_description *description, const char *text);

/*
 * The value of the pair for a reader's track that is copied without its file. Returns OK; END (the
 * track is not the first one of a llama.cpp file, or the file cannot be described); MEM, MEMLIMIT.
 */
kvarc_ret kvi_llama_describe_track(kvarc_reader *r, uint32_t track,
                                   char text[KVI_LLAMA_PAIR_BYTES]);

#endif
