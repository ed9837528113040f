/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.h - give a mutated archive right checks, so that fuzzers get behind them */
#ifndef FUZZ_SEAL_H
#define FUZZ_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"

/*
 * Takes the input as superblock and frames, wherever its sync bytes stand,
 * and writes an archive of the same contents: frames moved to multiples of 16,
 * right lengths, sequence numbers, paddings and checks, and COMMIT, INDEX and FOOTER
 * frames and chain values that fit (these two only where the minor version is even).
 * Returns malloc'ed bytes, their number in *out_n.
 */
uint8_t *fuzz_seal(const uint8_t *in, size_t n, size_t *out_n);

/* The same as an encrypted archive, which opens with fuzz_keys; what was encrypted stays. */
uint8_t *fuzz_seal_encrypted(const uint8_t *in, size_t n, size_t *out_n);
/* The bytes 0 to 31, as in the vectors. */
extern const kvarc_keys fuzz_keys;

#endif
