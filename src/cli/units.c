/* SPDX-License-Identifier: BSD-3-Clause */
/* units.c - sizes, rates and ranges as people write and read them */
#include "config.h"

#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checked.h"

/* Reads digits; returns what follows them, NULL when there are none or too many. */
static const char *digits(const char *p, uint64_t *value)
{
	const char *start = p;

	*value = 0;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (checked_mul(*value, 10u, value) ||
		    checked_add(*value, (uint64_t)(*p - '0'), value))
			return NULL;
	}
	return p == start ? NULL : p;
}

bool units_parse_u64(const char *text, uint64_t max, uint64_t *value)
{
	const char *end = digits(text, value);

	return end && *end == '\0' && *value <= max;
}

bool units_parse_size(const char *text, uint64_t *bytes)
{
	static const char letters[] = "kmgKMG";
	const char *end = digits(text, bytes), *letter;

	if (!end)
		return false;
	if (*end == '\0')
		return true;
	letter = strchr(letters, *end);
	if (!letter)
		return false;
	end++;
	if (strcmp(end, "") != 0 && strcmp(end, "B") != 0 && strcmp(end, "iB") != 0)
		return false;
	return !checked_mul(*bytes, (uint64_t)1 << (10 * ((letter - letters) % 3 + 1)), bytes);
}

bool units_parse_seconds(const char *text, uint64_t *seconds)
{
	static const struct {
		const char *unit;
		uint64_t seconds;
	} units[] = { { "", 1 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 } };
	const char *end = digits(text, seconds);

	for (size_t i = 0; end && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(units[i].unit, end) == 0)
			return !checked_mul(*seconds, units[i].seconds, seconds);
	}
	return false;
}

bool units_parse_range(const char *text, uint64_t *first, uint64_t *n)
{
	uint64_t last;
	const char *p = digits(text, first);

	if (!p)
		return false;
	*n = 1;
	if (*p == '\0')
		return true;
	if (*p++ != '-')
		return false;
	*n = UINT64_MAX;
	if (*p == '\0')
		return true;
	p = digits(p, &last);
	if (!p || *p || last < *first || last - *first == UINT64_MAX)
		return false;
	*n = last - *first + 1;
	return true;
}

bool units_parse_bits(const char *text, double *bytes_per_second)
{
	static const char letters[] = "KMGT";
	const char *letter;
	char *end;
	double bits;

	if (text[0] < '0' || text[0] > '9')
		return false;
	bits = strtod(text, &end);
	letter = *end ? strchr(letters, *end == 'k' ? 'K' : *end) : NULL;
	if (letter) {
		for (const char *p = letters; p <= letter; p++)
			bits *= 1000;
		end++;
	}
	*bytes_per_second = bits / 8;
	return bits >= 1 && bits < 1e18 &&
	       (!*end || strcmp(end, "bit") == 0 || strcmp(end, "bit/s") == 0);
}

void units_bytes(char *out, size_t size, uint64_t bytes)
{
	static const char *const names[] = { "kB", "MB", "GB", "TB", "PB", "EB" };
	double v = (double)bytes;
	size_t i = 0;

	if (bytes < 1000) {
		snprintf(out, size, "%" PRIu64 " B", bytes);
		return;
	}
	for (v /= 1000; v >= 999.95 && i < 5; i++)
		v /= 1000;
	snprintf(out, size, "%.1f %s", v, names[i]);
}

void units_rate(char *out, size_t size, double bytes_per_second)
{
	if (bytes_per_second >= 1e9)
		snprintf(out, size, "%.2f GB/s", bytes_per_second / 1e9);
	else if (bytes_per_second >= 1e7)
		snprintf(out, size, "%.0f MB/s", bytes_per_second / 1e6);
	else
		snprintf(out, size, "%.1f MB/s", bytes_per_second / 1e6);
}

const char *units_count(char out[32], uint64_t n)
{
	char plain[24];
	int len = snprintf(plain, sizeof(plain), "%" PRIu64, n);
	char *p = out;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*p++ = ',';
		*p++ = plain[i];
	}
	*p = '\0';
	return out;
}

const char *units_digest(char out[33], const uint8_t digest[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(out + 2 * i, 3, "%02x", digest[i]);
	return out;
}

void units_short_name(char *out, size_t size, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash && slash[1] ? slash + 1 : path;
	size_t len = strlen(base), half = (size - 4) / 2;

	if (len < size)
		memcpy(out, base, len + 1);
	else
		snprintf(out, size, "%.*s...%s", (int)half, base, base + len - half);
}

double units_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
