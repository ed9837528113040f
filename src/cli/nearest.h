/* SPDX-License-Identifier: BSD-3-Clause */
/* nearest.h - the candidate that is closest to a mistyped word */
#ifndef KVARC_CLI_NEAREST_H
#define KVARC_CLI_NEAREST_H

/* The best candidate so far. Strings are borrowed. */
struct nearest {
	const char *wrong, *best;
	unsigned distance;
};

/* Starts with no candidate. */
void nearest_init(struct nearest *n, const char *wrong);
/* Takes candidate if it is closer than all before. */
void nearest_try(struct nearest *n, const char *candidate);
/* NULL when no candidate is close. */
const char *nearest_result(const struct nearest *n);

#endif
