/* SPDX-License-Identifier: BSD-3-Clause */
/* nearest.c - the word that was probably meant */
#include "config.h"

#include "nearest.h"

#include <string.h>

enum { LONGEST = 31 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

/* Edits to turn a into b: insert, remove, replace, or swap two neighbours
 * (optimal string alignment). */
static unsigned edits(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);
	unsigned d[LONGEST + 1][LONGEST + 1];

	if (na > LONGEST || nb > LONGEST)
		return LONGEST;
	for (size_t i = 0; i <= na; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= nb; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		for (size_t j = 1; j <= nb; j++) {
			unsigned same = a[i - 1] == b[j - 1] ? 0 : 1;
			d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + same);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1 < d[i][j])
				d[i][j] = d[i - 2][j - 2] + 1;
		}
	}
	return d[na][nb];
}

void nearest_init(struct nearest *n, const char *wrong)
{
	n->wrong = wrong;
	n->best = NULL;
	n->distance = LONGEST;
}

void nearest_try(struct nearest *n, const char *candidate)
{
	unsigned distance = edits(n->wrong, candidate);
	size_t len = strlen(n->wrong);

	/* The beginning of a word is as good as one edit. */
	if (len >= 3 && strncmp(n->wrong, candidate, len) == 0)
		distance = 1;
	if (distance < n->distance) {
		n->distance = distance;
		n->best = candidate;
	}
}

const char *nearest_result(const struct nearest *n)
{
	size_t len = strlen(n->wrong);

	return n->distance <= (len < 3 ? 1 : 1 + len / 4) ? n->best : NULL;
}
