/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_products.cc - products on tensor cores, as the host makes them, against the sums that they
 * stand for, of all kinds of bytes; and where lanes have the operands, element by element
 */
#include <cstdio>
#include <cstdlib>

#include "warp.h"

void kvi_gpu_host_fault(const char *what, uint64_t, size_t, size_t)
{
	fprintf(stderr, "kernel: %s access\n", what);
	abort();
}

/* Bytes of two matrices, row after row and column after column, and the sums before. */
struct operands {
	uint8_t a[16][32], b[8][32];
	uint32_t c[16][8];
};

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 24;
}

static uint32_t number(bool is_signed, uint8_t byte)
{
	return is_signed ? (uint32_t)(int8_t)byte : byte;
}

/* A word of the four bytes from `at` on. */
static uint32_t word(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Element by element, from the numbers of the matrices: the lane that has it, and its register, by
 * the tables of the PTX manual for mma.m16n8k32. */
template <bool A, bool B> static bool products_good(const operands *x)
{
	u32v a[4], b[2], c[4];
	for (uint32_t r = 0; r < 16; r++)
		for (uint32_t k = 0; k < 32; k += 4)
			a[(r >= 8) + 2 * (k >= 16)][r % 8 * 4 + k % 16 / 4] = word(&x->a[r][k]);
	for (uint32_t n = 0; n < 8; n++)
		for (uint32_t k = 0; k < 32; k += 4)
			b[k >= 16][n * 4 + k % 16 / 4] = word(&x->b[n][k]);
	for (uint32_t r = 0; r < 16; r++)
		for (uint32_t n = 0; n < 8; n++)
			c[n % 2 + 2 * (r >= 8)][r % 8 * 4 + n / 2] = x->c[r][n];
	add_products<A, B>(c, a, b);
	bool good = true;
	for (uint32_t r = 0; r < 16; r++)
		for (uint32_t n = 0; n < 8; n++) {
			uint32_t sum = x->c[r][n];
			for (uint32_t k = 0; k < 32; k++)
				sum += number(A, x->a[r][k]) * number(B, x->b[n][k]);
			good &= c[n % 2 + 2 * (r >= 8)][r % 8 * 4 + n / 2] == sum;
		}
	return good;
}

static bool all_good(const operands *x)
{
	return products_good<false, false>(x) && products_good<false, true>(x) &&
	       products_good<true, false>(x) && products_good<true, true>(x);
}

int main()
{
	operands x;
	uint32_t state = 1;
	for (int trial = 0; trial < 100; trial++) {
		/* trial 0: the largest numbers without signs, and sums that wrap */
		for (auto &row : x.a)
			for (uint8_t &v : row)
				v = trial ? (uint8_t)next_random(&state) : 255;
		for (auto &column : x.b)
			for (uint8_t &v : column)
				v = trial ? (uint8_t)next_random(&state) : 255;
		for (auto &row : x.c)
			for (uint32_t &v : row)
				v = trial ? next_random(&state) * 0x1010101u : 0xffffffff;
		if (!all_good(&x)) {
			fprintf(stderr, "products of trial %d differ\n", trial);
			return 1;
		}
	}
	return 0;
}
