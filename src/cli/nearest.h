/* SPDX-License-Identifier: BSD-3-Clause */
/* nearest.h - the word that was probably meant */
#ifndef KVARC_CLI_NEAREST_H
#define KVARC_CLI_NEAREST_H

struct nearest {
	const char *wrong, *best;
	unsigned distance;
};

void nearest_init(struct nearest *n, const char *wrong);
void nearest_try(struct nearest *n, const char *candidate);
/* NULL when no candidate is close. */
const char *nearest_result(const struct nearest *n);

#endif
