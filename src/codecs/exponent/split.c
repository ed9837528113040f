/* SPDX-License-Identifier: BSD-3-Clause */
/* split.c - elements as exponent field and planes of the rest (spec exponent 2, 3) */
#include "exponent.h"

#include "codecs/planes.h"

/* rest = sign and mantissa next to each other. */
static inline uint32_t rest_of(uint32_t x, unsigned m, unsigned e)
{
	return x >> (m + e) << m | (x & ((1u << m) - 1));
}

static inline uint32_t rest_placed(uint32_t rest, unsigned m, unsigned e)
{
	return rest >> m << (m + e) | (rest & ((1u << m) - 1));
}

/* The loops below are written once and compiled for each dtype. */
static inline __attribute__((always_inline)) void
take_fields(const uint8_t *packed, size_t n, unsigned size, unsigned m, unsigned e, uint8_t *fields)
{
	for (size_t i = 0; i < n; i++)
		fields[i] = (uint8_t)(kvi_load_element(packed + i * size, size) >> m &
		                      ((1u << e) - 1));
}

static inline __attribute__((always_inline)) void take_plane(const uint8_t *packed, size_t n,
                                                             unsigned size, unsigned m, unsigned e,
                                                             unsigned lo, unsigned bits,
                                                             uint8_t *values)
{
	for (size_t i = 0; i < n; i++)
		values[i] = (uint8_t)(rest_of(kvi_load_element(packed + i * size, size), m, e) >>
		                              lo &
		                      ((1u << bits) - 1));
}

/* Elements from exponent fields and the values of up to three planes, which
 * start at bits 0, lo[1] and lo[2] of the rest. */
static inline __attribute__((always_inline)) void
put_elements(const uint8_t *fields, const uint8_t *const values[3], const unsigned lo[3],
             unsigned planes, size_t n, unsigned size, unsigned m, unsigned e, uint8_t *packed)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t rest = values[0][i];
		if (planes > 1)
			rest |= (uint32_t)values[1][i] << lo[1];
		if (planes > 2)
			rest |= (uint32_t)values[2][i] << lo[2];
		kvi_store_element(packed + i * size, size,
		                  (uint32_t)fields[i] << m | rest_placed(rest, m, e));
	}
}

/* size, mantissa and exponent bits as constants for the loop of each dtype, but those that
 * have kernels */
#define FOR_DTYPE(dtype, loop)  \
	switch (dtype) {        \
	case KVARC_F32:         \
		loop(4, 23, 8); \
		break;          \
	case KVARC_E4M3:        \
		loop(1, 3, 4);  \
		break;          \
	default:                \
		loop(1, 2, 5);  \
		break;          \
	}

static void take_all_fields(unsigned dtype, const uint8_t *packed, size_t n, uint8_t *fields)
{
#define LOOP(size, m, e) take_fields(packed, n, size, m, e, fields)
	FOR_DTYPE(dtype, LOOP)
#undef LOOP
}

static bool split_bf16(struct kvi_coder *coder, const uint8_t *packed, size_t n, uint8_t *fields,
                       uint8_t *rest)
{
	const uint16_t *x = kvi_elements16(coder, packed, n);
	if (x)
		coder->kernels->moves.bf16_split(fields, rest, x, n);
	return x != NULL;
}

/* Planes of f16. */
static const unsigned bits_f16[3] = { 8, 2, 1 };

/* Buffers for the planes, one behind the other. */
static bool planes_f16(struct kvi_coder *coder, size_t n, uint8_t *planes[3])
{
	size_t twos = kvi_plane_bytes(n, 2), ones = kvi_plane_bytes(n, 1);
	planes[0] = kvi_scratch(coder, KVI_SCRATCH_PLANE, n + twos + ones);
	if (!planes[0])
		return false;
	planes[1] = planes[0] + n;
	planes[2] = planes[1] + twos;
	return true;
}

static bool split_f16(struct kvi_coder *coder, const uint8_t *packed, size_t n, uint8_t *fields,
                      uint8_t *planes[3])
{
	const uint16_t *x = kvi_elements16(coder, packed, n);
	if (!x || !planes_f16(coder, n, planes))
		return false;
	coder->kernels->moves.f16_split(fields, planes, x, n);
	return true;
}

bool kvi_exponent_fields(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed, size_t n,
                         uint8_t *fields)
{
	uint8_t *planes[3];
	if (dtype == KVARC_F16)
		return split_f16(coder, packed, n, fields, planes);
	if (dtype == KVARC_BF16) {
		uint8_t *rest = kvi_scratch(coder, KVI_SCRATCH_PLANE, n);
		return rest && split_bf16(coder, packed, n, fields, rest);
	}
	take_all_fields(dtype, packed, n, fields);
	return true;
}

static uint8_t *write_f16(struct kvi_coder *coder, const uint8_t *packed, size_t n, uint8_t *fields,
                          uint8_t *to)
{
	uint8_t *planes[3];
	if (!split_f16(coder, packed, n, fields, planes))
		return NULL;
	for (int i = 0; i < 3; i++)
		to = kvi_plane_write(coder, planes[i], kvi_plane_bytes(n, bits_f16[i]), to);
	return to;
}

uint8_t *kvi_exponent_split(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed,
                            size_t n, uint8_t *fields, uint8_t *to)
{
	if (dtype == KVARC_BF16)
		return split_bf16(coder, packed, n, fields, to + KVI_PLANE_HEAD)
		               ? kvi_plane_write(coder, to + KVI_PLANE_HEAD, n, to)
		               : NULL;
	if (dtype == KVARC_F16)
		return write_f16(coder, packed, n, fields, to);
	const struct kvi_float_format *f = kvi_float_format(dtype);
	uint8_t *values = kvi_scratch(coder, KVI_SCRATCH_PLANE, n);
	if (!values)
		return NULL;
	take_all_fields(dtype, packed, n, fields);
	unsigned r = f->mant_bits + 1, bits;
	for (unsigned lo = 0; r; r -= bits, lo += bits) {
		bits = kvi_plane_next(r);
		size_t bytes = kvi_plane_bytes(n, bits);
#define LOOP(size, m, e) take_plane(packed, n, size, m, e, lo, bits, values)
		FOR_DTYPE(dtype, LOOP)
#undef LOOP
		if (bits < 8)
			kvi_plane_pack(values, n, bits, to + KVI_PLANE_HEAD);
		else
			memcpy(to + KVI_PLANE_HEAD, values, n);
		to = kvi_plane_write(coder, to + KVI_PLANE_HEAD, bytes, to);
	}
	return to;
}

/* A dtype with fewer than 8 exponent bits has no larger fields. */
static bool fields_fit(const uint8_t *fields, size_t n, unsigned exp_bits)
{
	const uint64_t none = ~(((1u << exp_bits) - 1) * 0x0101010101010101u);
	uint64_t all = 0;
	size_t i = 0;
	for (; i + 8 <= n; i += 8)
		all |= kvi_load64(fields + i);
	for (; i < n; i++)
		all |= fields[i];
	return (all & none) == 0;
}

static kvarc_ret planes_get_f16(struct kvi_coder *coder, size_t n, struct kvi_in *in,
                                struct kvi_exponent_planes *exponent_planes)
{
	uint8_t *planes[3];
	if (!planes_f16(coder, n, planes))
		return kvi_alloc_error(coder->alloc);
	for (int i = 0; i < 3; i++) {
		kvarc_ret ret = kvi_plane_read(coder, in, n, bits_f16[i], planes[i],
		                               &exponent_planes->values[i]);
		if (ret)
			return ret;
	}
	return KVARC_OK;
}

kvarc_ret kvi_exponent_planes_get(struct kvi_coder *coder, unsigned dtype, size_t n,
                                  struct kvi_in *in, struct kvi_exponent_planes *planes)
{
	/* buffers: each plane as one byte an element, then one plane as it was stored */
	enum { PLANES = 3 };
	unsigned r = kvi_float_format(dtype)->mant_bits + 1, bits;
	*planes = (struct kvi_exponent_planes){ .n = 0 };
	if (dtype == KVARC_F16)
		return planes_get_f16(coder, n, in, planes);
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_PLANE,
	                              (dtype == KVARC_BF16 ? 1 : PLANES + 1) * n);
	if (!buffer)
		return kvi_alloc_error(coder->alloc);
	for (unsigned at = 0; r; r -= bits, at += bits) {
		uint8_t *to = buffer + planes->n * n, *stored = buffer + PLANES * n;
		const uint8_t *plane;
		bits = kvi_plane_next(r);
		kvarc_ret ret = kvi_plane_read(coder, in, n, bits, bits == 8 ? to : stored, &plane);
		if (ret)
			return ret;
		if (bits < 8) {
			kvi_plane_unpack(plane, n, bits, to);
			plane = to;
		}
		planes->lo[planes->n] = at;
		planes->values[planes->n++] = plane;
	}
	return KVARC_OK;
}

void *kvi_exponent_buffer(struct kvi_coder *coder, unsigned dtype, uint8_t *packed, size_t n)
{
	return kvarc_dtype_bytes(dtype) == 2 ? (void *)kvi_elements16_buffer(coder, packed, n)
	                                     : packed;
}

bool kvi_exponent_merge(const struct kvi_kernels *kernels, unsigned dtype, const uint8_t *fields,
                        const struct kvi_exponent_planes *planes, size_t at, size_t n, void *to)
{
	uint8_t *bytes = to;
	uint16_t *x = to;
	fields += at;
	if (!fields_fit(fields, n, kvi_float_format(dtype)->exp_bits))
		return false;
	if (dtype == KVARC_BF16) {
		kernels->moves.bf16_merge(x + at, fields, planes->values[0] + at, n);
		return true;
	}
	if (dtype == KVARC_F16) {
		const uint8_t *const stored[3] = { planes->values[0] + at,
			                           planes->values[1] + at / 4,
			                           planes->values[2] + at / 8 };
		kernels->moves.f16_merge(x + at, fields, stored, n);
		return true;
	}
	const uint8_t *const values[3] = { planes->values[0] + at,
		                           planes->n > 1 ? planes->values[1] + at : NULL,
		                           planes->n > 2 ? planes->values[2] + at : NULL };
#define LOOP(size, m, e) \
	put_elements(fields, values, planes->lo, planes->n, n, size, m, e, bytes + at * size)
	FOR_DTYPE(dtype, LOOP)
#undef LOOP
	return true;
}
