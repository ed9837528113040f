/* SPDX-License-Identifier: BSD-3-Clause */
/* parity.c - PARITY payloads, and arithmetic of their rows (frames.md 12.2) */
#include "config.h"

#include "parity.h"

#include <string.h>

#include "isal_calls.h"
#include "util/arguments.h"
#include "util/bytes.h"

/* x^8 + x^4 + x^3 + x^2 + 1, without x^8. */
enum { POLYNOMIAL = 0x1d, HIGH_BIT = 0x80, FIELD = 256 };

void kvi_parity_put(uint8_t *out, const struct kvi_parity_head *head,
                    const struct kvi_parity_piece *pieces)
{
	memset(out, 0, kvi_parity_table_bytes(head->pieces));
	kvi_store16(out, head->pieces);
	kvi_store16(out + 2, head->row);
	kvi_store16(out + 4, head->rows);
	for (unsigned i = 0; i < head->pieces; i++) {
		uint8_t *p = out + kvi_parity_table_bytes(i);
		kvi_store64(p, pieces[i].offset);
		kvi_store32(p + 8, pieces[i].bytes);
		kvi_store_h128(p + 16, pieces[i].check);
	}
}

struct kvi_parity_piece kvi_parity_get(const uint8_t *payload, unsigned i)
{
	const uint8_t *p = payload + kvi_parity_table_bytes(i);
	return (struct kvi_parity_piece){ kvi_load64(p), kvi_load32(p + 8), kvi_load_h128(p + 16) };
}

bool kvi_parity_parse(struct kvi_parity_head *head, const uint8_t *payload, uint32_t bytes,
                      uint64_t offset)
{
	uint64_t end = 0;
	if (bytes < kvi_parity_table_bytes(1) || !kvi_all_zero(payload + 6, 10))
		return false;
	*head = (struct kvi_parity_head){ kvi_load16(payload), kvi_load16(payload + 2),
		                          kvi_load16(payload + 4), 0 };
	if (!head->pieces || head->row >= head->rows ||
	    head->pieces + head->rows > KVI_PARITY_MOST ||
	    bytes < kvi_parity_table_bytes(head->pieces))
		return false;
	for (unsigned i = 0; i < head->pieces; i++) {
		const struct kvi_parity_piece p = kvi_parity_get(payload, i);
		if (kvi_load32(payload + kvi_parity_table_bytes(i) + 12) ||
		    p.offset % KVI_FRAME_ALIGN || p.bytes % KVI_FRAME_ALIGN || !p.bytes ||
		    p.bytes > KVI_PARITY_PIECE_MAX || p.offset < end || p.offset > offset)
			return false;
		end = p.offset + p.bytes;
		head->row_bytes = p.bytes > head->row_bytes ? p.bytes : head->row_bytes;
	}
	return end <= offset && bytes - kvi_parity_table_bytes(head->pieces) == head->row_bytes;
}

bool kvi_parity_same_group(const uint8_t *a, const uint8_t *b, unsigned pieces)
{
	return !memcmp(a, b, 2) && !memcmp(a + 4, b + 4, kvi_parity_table_bytes(pieces) - 4);
}

uint8_t kvi_gf_times(uint8_t a, uint8_t b)
{
	uint8_t product = 0;
	for (; b; b >>= 1) {
		if (b & 1)
			product ^= a;
		a = (uint8_t)(a << 1 ^ (a & HIGH_BIT ? POLYNOMIAL : 0));
	}
	return product;
}

uint8_t kvi_gf_inverse(uint8_t a)
{
	uint8_t power = a; /* a^254 = a^(2 + 4 + ... + 128) */
	uint8_t result = 1;
	for (int i = 1; i < 8; i++) {
		power = kvi_gf_times(power, power);
		result = kvi_gf_times(result, power);
	}
	return result;
}

uint8_t kvi_parity_factor(unsigned k, unsigned r, unsigned j)
{
	return kvi_gf_times((uint8_t)(k ^ j), kvi_gf_inverse((uint8_t)((k + r) ^ j)));
}

static void add_plain(uint8_t *restrict to, const uint8_t *restrict from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] ^= from[i];
}

void kvi_parity_add_portable(uint8_t *to, uint8_t factor, const uint8_t *from, size_t n)
{
	uint8_t table[FIELD];
	if (factor == 1) {
		add_plain(to, from, n);
		return;
	}
	for (unsigned i = 0; i < FIELD; i++)
		table[i] = kvi_gf_times(factor, (uint8_t)i);
	for (size_t i = 0; i < n; i++)
		to[i] ^= table[from[i]];
}

#ifdef HAVE_ISAL
void kvi_parity_add(uint8_t *to, uint8_t factor, const uint8_t *from, size_t n)
{
	enum { TABLES = 32, STEP = 1 << 30 };
	uint8_t tables[TABLES], *out = to;
	if (factor == 1) {
		add_plain(to, from, n);
		return;
	}
	if (!kvi_isal()) {
		kvi_parity_add_portable(to, factor, from, n);
		return;
	}
	ec_init_tables(1, 1, &factor, tables);
	while (n) {
		const int step = n < STEP ? (int)n : STEP;
		/* ISA-L does not write to its source, though the parameter is not const. */
		ec_encode_data_update(step, 1, 1, 0, tables, (uint8_t *)(uintptr_t)from, &out);
		from += step;
		out += step;
		n -= (size_t)step;
	}
}
#else
void kvi_parity_add(uint8_t *to, uint8_t factor, const uint8_t *from, size_t n)
{
	kvi_parity_add_portable(to, factor, from, n);
}
#endif

/* Row `to` of 2n elements gets factor times row `from`. */
static void add_row(uint8_t *rows, unsigned n, unsigned to, unsigned from, uint8_t factor)
{
	for (unsigned i = 0; i < 2 * n; i++)
		rows[to * 2 * n + i] ^= kvi_gf_times(factor, rows[from * 2 * n + i]);
}

bool kvi_parity_invert(uint8_t *rows, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		memset(rows + i * 2 * n + n, 0, n);
		rows[i * 2 * n + n + i] = 1;
	}
	for (unsigned i = 0; i < n; i++) {
		unsigned pivot = i;
		while (pivot < n && !rows[pivot * 2 * n + i])
			pivot++;
		if (pivot == n)
			return false;
		if (pivot != i)
			add_row(rows, n, i, pivot, 1);
		if (!rows[i * 2 * n + i])
			return false;
		/* The diagonal becomes 1: x + (1/x - 1) x. */
		add_row(rows, n, i, i, kvi_gf_inverse(rows[i * 2 * n + i]) ^ 1);
		for (unsigned k = 0; k < n; k++)
			if (k != i)
				add_row(rows, n, k, i, rows[k * 2 * n + i]);
	}
	return true;
}
