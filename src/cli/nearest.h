/* SPDX-License-Identifier: BSD-3-Clause */
/* nearest.h - the word that was probably meant */
#ifndef KVARC_CLI_NEAREST_H
#define KVARC_CLI_NEAREST_H

/* A search for the name that is closest to a wrong one. */
struct nearest {
	const char *wrong, *best;
	unsigned distance;
};

/* Starts a search; wrong must stay meanwhile. */
void nearest_init(struct nearest *n, const char *wrong);
/* Offers a candidate, which must stay until the result was taken. */
void nearest_try(struct nearest *n, const char *candidate);
/* NULL when no candidate is close. */
const char *nearest_result(const struct nearest *n);

#endif
