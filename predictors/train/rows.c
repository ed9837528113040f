/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.c - rows of coefficients as integers */
#include "rows.h"

#include <stdbool.h>
#include <string.h>

#include "layer.h"

enum { SHIFT_MAX = 16 };

static bool round_with(const double *b, size_t n, int q, int16_t *to)
{
	double scale = kvi_train_power(q);
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++) {
		double v = b[i] * scale;
		if (!(v <= INT16_MAX && v >= -INT16_MAX))
			return false;
		to[i] = (int16_t)(v < 0 ? v - 0.5 : v + 0.5);
		sum += (uint64_t)(to[i] < 0 ? -to[i] : to[i]);
	}
	return sum <= KVI_COEF_SUM_MAX;
}

uint8_t kvi_train_round_row(const double *b, const double *var, size_t n,
                            double noise, int16_t *to)
{
	double added = 0;
	int q = 0;
	for (size_t i = 0; i < n; i++)
		added += var[i] / 12;
	while (q < SHIFT_MAX && added > noise) {
		added /= 4;
		q++;
	}
	for (; q >= 0; q--)
		if (round_with(b, n, q, to))
			return (uint8_t)q;
	memset(to, 0, n * sizeof *to);
	return 0;
}
