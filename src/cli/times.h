/* SPDX-License-Identifier: BSD-3-Clause */
/* times.h - points in time as archives record them and as people read them */
#ifndef KVARC_CLI_TIMES_H
#define KVARC_CLI_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* Capacity for what times_write writes. */
enum { TIMES_BYTES = 48 };

/* "2026-11-24T09:55:12Z", with as many digits behind the seconds as it has; false: the year is
 * below 0 or above 9999. */
bool times_write(char out[TIMES_BYTES], struct timespec time);
/* Parses a time that times_write wrote; false: text is none. */
bool times_read(const char *text, struct timespec *time);
/* Replaces *time by the time that the environment sets for reproducible output,
 * SOURCE_DATE_EPOCH in seconds, if it sets one: *set says so. false: it is no time, a message
 * was shown. */
bool times_of_environment(struct timespec *time, bool *set);
/* "2026-11-24 09:55" in the local time zone. */
void times_local(char *out, size_t size, struct timespec time);

#endif
