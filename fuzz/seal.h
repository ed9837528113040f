/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.h - give a mutated archive right checks, so that fuzzers get behind them */
#ifndef FUZZ_SEAL_H
#define FUZZ_SEAL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Takes the input as superblock and frames, wherever its sync bytes stand,
 * and writes an archive of the same contents: frames moved to multiples of 16,
 * right lengths, sequence numbers, paddings and checks, and COMMIT, INDEX and FOOTER
 * frames and chain values that fit (these two only where the minor version is even).
 * Returns malloc'ed bytes, their number in *out_n.
 */
uint8_t *fuzz_seal(const uint8_t *in, size_t n, size_t *out_n);

#endif
