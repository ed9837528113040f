/* SPDX-License-Identifier: BSD-3-Clause */
/* model_numbers.c - rows of a matrix as fp32, or integers with scales (spec/arithmetic.md 7) */
#include "model_internal.h"

#include <string.h>

#include "util/bytes.h"

enum {
	BLOCK_MAX = 256,
	GROUPS_MAX = 16, /* groups of a block */
	MINIMA = 1       /* flag: the type has minima */
};

/* An unpacked block: number i of group g is q[i] * scale[g] + minimum[g]; types without MINIMA have
 * no minimum, and do not set it. */
struct block {
	int8_t q[BLOCK_MAX];
	float scale[GROUPS_MAX], minimum[GROUPS_MAX];
};

static float from_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static float from_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
	if (rest >= 0x7c00) /* infinite or not a number */
		return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
	if (rest >= 0x400)
		return from_bits(sign | ((rest << 13) + 0x38000000)); /* bias 15 becomes 127 */
	float small = (float)rest * 0x1p-24f;                         /* exact */
	return sign ? -small : small;
}

static bool is_finite(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return (bits & 0x7f800000) != 0x7f800000;
}

static float load_f16(const uint8_t *p)
{
	return from_f16(kvi_load16(p));
}

/* Unpacks the low halves of 16 bytes, then the high halves, and subtracts `offset`. */
static void nibbles(const uint8_t *p, int offset, int8_t *q)
{
	for (int i = 0; i < 16; i++) {
		q[i] = (int8_t)((p[i] & 15) - offset);
		q[i + 16] = (int8_t)((p[i] >> 4) - offset);
	}
}

static void fifth_bits(uint32_t high, int8_t *q)
{
	for (int i = 0; i < 32; i++)
		q[i] = (int8_t)(q[i] + (int)(high >> i & 1) * 16);
}

static void q4_0(const uint8_t *p, struct block *block)
{
	block->scale[0] = load_f16(p);
	nibbles(p + 2, 8, block->q);
}

static void q4_1(const uint8_t *p, struct block *block)
{
	block->scale[0] = load_f16(p);
	block->minimum[0] = load_f16(p + 2);
	nibbles(p + 4, 0, block->q);
}

static void q5_0(const uint8_t *p, struct block *block)
{
	block->scale[0] = load_f16(p);
	nibbles(p + 6, 16, block->q);
	fifth_bits(kvi_load32(p + 2), block->q);
}

static void q5_1(const uint8_t *p, struct block *block)
{
	block->scale[0] = load_f16(p);
	block->minimum[0] = load_f16(p + 2);
	nibbles(p + 8, 0, block->q);
	fifth_bits(kvi_load32(p + 4), block->q);
}

static void q8_0(const uint8_t *p, struct block *block)
{
	block->scale[0] = load_f16(p);
	memcpy(block->q, p + 2, 32);
}

static void iq4_nl(const uint8_t *p, struct block *block)
{
	static const int8_t values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
		                           1,    13,   25,  38,  53,  69,  89,  113 };
	block->scale[0] = load_f16(p);
	nibbles(p + 2, 0, block->q);
	for (int i = 0; i < 32; i++)
		block->q[i] = values[block->q[i]];
}

/* Sets scales and minima from d, dmin and 12 bytes: a 6-bit factor of each for 8 groups. Of groups
 * 0 to 3 they are the lower bits of a byte; of groups 4 to 7 a nibble, with the 2 upper bits of the
 * bytes of groups 0 to 3. GGUF subtracts minima, so they change their sign here. */
static void k_scales(const uint8_t *p, struct block *block)
{
	float d = load_f16(p), dmin = load_f16(p + 2);
	const uint8_t *s = p + 4;
	for (int g = 0; g < 8; g++) {
		int scale = s[g % 4] & 63, minimum = s[4 + g % 4] & 63;
		if (g >= 4) {
			scale = (s[4 + g] & 15) | s[g - 4] >> 6 << 4;
			minimum = s[4 + g] >> 4 | s[g] >> 6 << 4;
		}
		block->scale[g] = d * (float)scale;
		block->minimum[g] = -(dmin * (float)minimum);
	}
}

/* Unpacks 8 groups: of each 32 bytes the low nibbles are a group, the high ones the next. */
static void k_nibbles(const uint8_t *p, int8_t *q)
{
	for (int g = 0; g < 8; g += 2, p += 32)
		for (int i = 0; i < 32; i++) {
			q[32 * g + i] = (int8_t)(p[i] & 15);
			q[32 * g + 32 + i] = (int8_t)(p[i] >> 4);
		}
}

static void q4_k(const uint8_t *p, struct block *block)
{
	k_scales(p, block);
	k_nibbles(p + 16, block->q);
}

static void q5_k(const uint8_t *p, struct block *block)
{
	k_scales(p, block);
	k_nibbles(p + 48, block->q);
	for (int g = 0; g < 8; g++)
		for (int i = 0; i < 32; i++)
			block->q[32 * g + i] =
				(int8_t)(block->q[32 * g + i] + (p[16 + i] >> g & 1) * 16);
}

/* Low nibbles (128 bytes), upper bit pairs (64), int8 factors of 16 groups, d. */
static void q6_k(const uint8_t *p, struct block *block)
{
	const uint8_t *low = p, *high = p + 128, *factors = p + 192;
	float d = load_f16(p + 208);
	for (int g = 0; g < 16; g++)
		block->scale[g] = d * (float)(int8_t)factors[g];
	for (int i = 0; i < 256; i++) {
		int half = i / 128, part = i % 128 / 32, k = i % 32;
		int nibble = low[64 * half + 32 * (part & 1) + k] >> (part & 2 ? 4 : 0) & 15;
		int top = high[32 * half + k] >> (2 * part) & 3;
		block->q[i] = (int8_t)((nibble | top << 4) - 32);
	}
}

/* A type: columns of a group (0: floats), and the function that unpacks a block. */
struct type {
	uint8_t type, group, flags;
	struct kvi_number_info info;
	void (*unpack)(const uint8_t *p, struct block *b);
};

static const struct type types[] = {
	{ KVI_NUM_F32, 0, 0, { "F32", 1, 4 }, NULL },
	{ KVI_NUM_F16, 0, 0, { "F16", 1, 2 }, NULL },
	{ KVI_NUM_BF16, 0, 0, { "BF16", 1, 2 }, NULL },
	{ KVI_NUM_Q4_0, 32, 0, { "Q4_0", 32, 18 }, q4_0 },
	{ KVI_NUM_Q4_1, 32, MINIMA, { "Q4_1", 32, 20 }, q4_1 },
	{ KVI_NUM_Q5_0, 32, 0, { "Q5_0", 32, 22 }, q5_0 },
	{ KVI_NUM_Q5_1, 32, MINIMA, { "Q5_1", 32, 24 }, q5_1 },
	{ KVI_NUM_Q8_0, 32, 0, { "Q8_0", 32, 34 }, q8_0 },
	{ KVI_NUM_Q4_K, 32, MINIMA, { "Q4_K", 256, 144 }, q4_k },
	{ KVI_NUM_Q5_K, 32, MINIMA, { "Q5_K", 256, 176 }, q5_k },
	{ KVI_NUM_Q6_K, 16, 0, { "Q6_K", 256, 210 }, q6_k },
	{ KVI_NUM_IQ4_NL, 32, 0, { "IQ4_NL", 32, 18 }, iq4_nl },
};
/* The names in types; both lists are the same. */
const char kvi_number_names[] = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
				"Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL";

static const struct type *find(uint32_t type)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].type == type)
			return &types[i];
	return NULL;
}

const struct kvi_number_info *kvi_number_info(uint32_t type)
{
	const struct type *t = find(type);
	return t ? &t->info : NULL;
}

struct kvi_number_groups kvi_number_groups(unsigned type)
{
	const struct type *t = find(type);
	struct kvi_number_groups g = { 0, false };
	if (t) {
		g.group = t->group;
		g.minima = t->flags & MINIMA;
	}
	return g;
}

static float load_float(uint8_t type, const uint8_t *p)
{
	if (type == KVI_NUM_F32)
		return from_bits(kvi_load32(p));
	return type == KVI_NUM_F16 ? load_f16(p) : from_bits((uint32_t)kvi_load16(p) << 16);
}

static bool float_row(const struct kvi_matrix *matrix, unsigned bytes, uint64_t r, float *x)
{
	const uint8_t *p = matrix->data;
	uint64_t step = matrix->transposed ? matrix->stride * bytes : bytes;
	bool finite = true;
	p += matrix->transposed ? r * bytes : r * matrix->columns * bytes;
	for (uint64_t c = 0; c < matrix->columns; c++, p += step) {
		x[c] = load_float(matrix->type, p);
		finite &= is_finite(x[c]);
	}
	return finite;
}

static const uint8_t *block_row(const struct kvi_matrix *matrix, const struct type *type,
                                uint64_t r)
{
	return matrix->data + matrix->columns / type->info.elements * type->info.bytes * r;
}

static bool groups_finite(const struct type *type, const struct block *block)
{
	bool finite = true;
	for (unsigned g = 0; g < type->info.elements / type->group; g++)
		finite &= is_finite(block->scale[g]) &&
		          (!(type->flags & MINIMA) || is_finite(block->minimum[g]));
	return finite;
}

static void block_floats(const struct type *type, const struct block *block, float *x)
{
	for (unsigned i = 0; i < type->info.elements; i++) {
		unsigned g = i / type->group;
		x[i] = (float)block->q[i] * block->scale[g];
		if (type->flags & MINIMA)
			x[i] = x[i] + block->minimum[g];
	}
}

bool kvi_matrix_row(const struct kvi_matrix *matrix, uint64_t r, float *x)
{
	const struct type *t = find(matrix->type);
	struct block b;
	bool finite = true;
	if (!t->unpack)
		return float_row(matrix, t->info.bytes, r, x);
	const uint8_t *p = block_row(matrix, t, r);
	for (uint64_t c = 0; c < matrix->columns; c += t->info.elements) {
		t->unpack(p, &b);
		finite &= groups_finite(t, &b);
		block_floats(t, &b, x + c);
		p += t->info.bytes;
	}
	/* finite scales suffice: |d| < 2^16, times a factor and an integer of a byte, is finite */
	return finite;
}

bool kvi_matrix_integers(const struct kvi_matrix *matrix, uint64_t r, int8_t *q, float *scale,
                         float *minimum)
{
	const struct type *t = find(matrix->type);
	const uint8_t *p = block_row(matrix, t, r);
	unsigned groups = t->info.elements / t->group;
	struct block b;
	bool finite = true;
	for (uint64_t c = 0; c < matrix->columns; c += t->info.elements) {
		t->unpack(p, &b);
		finite &= groups_finite(t, &b);
		memcpy(q + c, b.q, t->info.elements);
		memcpy(scale, b.scale, groups * sizeof *scale);
		scale += groups;
		if (t->flags & MINIMA) {
			memcpy(minimum, b.minimum, groups * sizeof *minimum);
			minimum += groups;
		}
		p += t->info.bytes;
	}
	return finite;
}
