/* SPDX-License-Identifier: BSD-3-Clause */
/* times.c - points in time as archives record them and as people read them */
#include "config.h"

#include "times.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "units.h"

enum { SECONDS_A_DAY = 86400 };

bool times_write(char out[TIMES_BYTES], struct timespec time)
{
	struct tm tm;
	size_t n;

	if (!gmtime_r(&time.tv_sec, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900)
		return false;
	n = strftime(out, TIMES_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	if (time.tv_nsec) {
		n += (size_t)snprintf(out + n, TIMES_BYTES - n, ".%09ld", time.tv_nsec);
		while (out[n - 1] == '0')
			n--;
	}
	strcpy(out + n, "Z");
	return true;
}

/* Days from 1970-01-01 on, in the calendar of today. */
static int64_t days(int64_t year, int month, int day)
{
	/* The year starts in March, so that a leap day ends it. */
	int64_t y = year - (month <= 2), era = y / 400, of_era = y % 400;
	int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* ".12" at *p as nanoseconds; none: 0. */
static long nanoseconds(const char **p)
{
	long n = 0, unit = 100000000;

	if (**p != '.')
		return 0;
	for ((*p)++; **p >= '0' && **p <= '9'; (*p)++, unit /= 10)
		n += unit * (**p - '0');
	return n;
}

bool times_read(const char *text, struct timespec *time)
{
	int year, month, day, hour, minute, second, n = 0;
	const char *p;

	if (strlen(text) < 20 || strspn(text, "0123456789-T:.Z") != strlen(text) ||
	    sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second,
	           &n) != 6 ||
	    n != 19 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 ||
	    minute < 0 || minute > 59 || second < 0 || second > 60)
		return false;
	p = text + n;
	time->tv_nsec = nanoseconds(&p);
	time->tv_sec = (time_t)(days(year, month, day) * SECONDS_A_DAY + hour * 3600 + minute * 60 +
	                        second);
	return strcmp(p, "Z") == 0;
}

bool times_of_environment(struct timespec *time, bool *set)
{
	const char *text = getenv("SOURCE_DATE_EPOCH");
	uint64_t seconds;

	*set = text && *text;
	if (!*set)
		return true;
	if (!units_parse_u64(text, INT32_MAX * UINT64_C(60), &seconds)) {
		msg_error(NULL, "SOURCE_DATE_EPOCH is '%s', which is not a number of seconds",
		          text);
		return false;
	}
	*time = (struct timespec){ .tv_sec = (time_t)seconds };
	return true;
}

void times_local(char *out, size_t size, struct timespec time)
{
	struct tm tm;

	if (!localtime_r(&time.tv_sec, &tm) || strftime(out, size, "%Y-%m-%d %H:%M", &tm) == 0)
		snprintf(out, size, "-");
}
