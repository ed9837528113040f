/* SPDX-License-Identifier: BSD-3-Clause */
/* units.h - sizes, rates and ranges as people write and read them */
#ifndef KVARC_CLI_UNITS_H
#define KVARC_CLI_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole numbers; nothing before or after the digits. */
bool units_parse_u64(const char *text, uint64_t max, uint64_t *value);
/* "64M", "1G", "4096", "1MiB": K, M and G are powers of 1024. */
bool units_parse_size(const char *text, uint64_t *bytes);
/* "90", "90s", "30m", "2h", "1d": seconds. */
bool units_parse_seconds(const char *text, uint64_t *seconds);
/* "100M", "2.5G", "1Gbit/s": bits per second, K, M, G and T are powers of 1000; gives bytes. */
bool units_parse_bits(const char *text, double *bytes_per_second);
/* "A-B" (both included), "A", "A-": n is UINT64_MAX for an open end. */
bool units_parse_range(const char *text, uint64_t *first, uint64_t *n);

/* "26.9 MB", powers of 1000. */
void units_bytes(char *out, size_t size, uint64_t bytes);
/* "312 MB/s", "1.42 GB/s" */
void units_rate(char *out, size_t size, double bytes_per_second);
/* "1,168" */
const char *units_count(char out[32], uint64_t n);
/* A digest of 16 bytes as 32 hexadecimal digits; returns out. */
const char *units_digest(char out[33], const uint8_t digest[16]);
/* The base name, cut in the middle if it is long. */
void units_short_name(char *out, size_t size, const char *path);
/* Seconds on a clock that only goes forward. */
double units_now(void);

#endif
