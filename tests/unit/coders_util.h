/* SPDX-License-Identifier: BSD-3-Clause */
/* coders_util.h - a coder for every instruction set of this machine */
#ifndef CODERS_UTIL_H
#define CODERS_UTIL_H

#include "codecs/codec.h"

enum { MAX_ISAS = 4 };

extern struct kvi_alloc alloc;
extern struct kvi_coder_tables *tables;
/* The scalar coder first: the others are compared with it. */
extern struct kvi_coder *coders[MAX_ISAS];
extern int n_coders;

/* Before and after all tests of a group; nothing may be left allocated. */
int open_coders(void **state);
/* With the tables of lossy codecs. */
int open_lossy(void **state);
int close_coders(void **state);

/* The cut of a payload without streams. */
extern const struct kvi_chunk_cut no_streams;
/* The request to decode what became of another; new parameters are those of e. */
struct kvi_decode_request decode_of(const struct kvi_encode_request *request,
                                    const struct kvi_encoded *e, const uint8_t *payload);
/* kvi_chunk_decode without raw_check. */
kvarc_ret decode_payload(struct kvi_coder *c, const struct kvi_chunk *chunk, uint8_t codec,
                         struct kvi_chunk_cut cut, const struct kvi_params *params,
                         const uint8_t *payload, size_t bytes, uint8_t *raw);

#endif
