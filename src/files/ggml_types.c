/* SPDX-License-Identifier: BSD-3-Clause */
/* ggml_types.c - table of the ggml types that a KV cache can have */
#include "ggml_types.h"

#define SCALE(dtype, offset, elems)                     \
	{                                               \
		KVARC_SCALE, (dtype), (offset), (elems) \
	}
#define MINIMUM(offset)                               \
	{                                             \
		KVARC_MINIMUM, KVARC_F16, (offset), 1 \
	}
#define PAYLOAD(dtype, offset, elems)                     \
	{                                                 \
		KVARC_PAYLOAD, (dtype), (offset), (elems) \
	}
#define HIGH_BITS(offset)                              \
	{                                              \
		KVARC_HIGH_BITS, KVARC_U8, (offset), 4 \
	}
#define WHOLE(dtype, bytes)                        \
	1, (bytes), 1,                             \
	{                                          \
		{                                  \
			KVARC_WHOLE, (dtype), 0, 1 \
		}                                  \
	}

/* Planes of a type are disjoint and cover its block. */
static const struct kvi_ggml_type types[] = {
	{ 0, "F32", WHOLE(KVARC_F32, 4) },
	{ 1, "F16", WHOLE(KVARC_F16, 2) },
	{ 30, "BF16", WHOLE(KVARC_BF16, 2) },
	{ 2, "Q4_0", 32, 18, 2, { SCALE(KVARC_F16, 0, 1), PAYLOAD(KVARC_U8, 2, 16) } },
	{ 3, "Q4_1", 32, 20, 3, { SCALE(KVARC_F16, 0, 1), MINIMUM(2), PAYLOAD(KVARC_U8, 4, 16) } },
	{ 6,
	  "Q5_0",
	  32,
	  22,
	  3,
	  { SCALE(KVARC_F16, 0, 1), HIGH_BITS(2), PAYLOAD(KVARC_U8, 6, 16) } },
	{ 7,
	  "Q5_1",
	  32,
	  24,
	  4,
	  { SCALE(KVARC_F16, 0, 1), MINIMUM(2), HIGH_BITS(4), PAYLOAD(KVARC_U8, 8, 16) } },
	{ 8, "Q8_0", 32, 34, 2, { SCALE(KVARC_F16, 0, 1), PAYLOAD(KVARC_I8, 2, 32) } },
	{ 20, "IQ4_NL", 32, 18, 2, { SCALE(KVARC_F16, 0, 1), PAYLOAD(KVARC_U8, 2, 16) } },
	{ 39, "MXFP4", 32, 17, 2, { SCALE(KVARC_U8, 0, 1), PAYLOAD(KVARC_U8, 1, 16) } },
	{ 40, "NVFP4", 64, 36, 2, { SCALE(KVARC_U8, 0, 4), PAYLOAD(KVARC_U8, 4, 32) } },
};

const struct kvi_ggml_type *kvi_ggml_type(int32_t type)
{
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (types[i].type == type)
			return &types[i];
	return NULL;
}

uint8_t kvi_ggml_payload(const struct kvi_ggml_type *type)
{
	uint8_t i = 0;
	while (i + 1 < type->n_planes && type->planes[i].role != KVARC_PAYLOAD)
		i++;
	return i;
}

struct kvi_area_view kvi_ggml_view(const struct kvi_ggml_type *type,
                                   const struct kvi_ggml_plane *plane,
                                   const struct kvi_ggml_rows *rows)
{
	uint32_t es = (uint32_t)kvarc_dtype_bytes(plane->dtype);
	struct kvi_area_view v = { .offset = plane->offset, .elem_stride = es };
	if (rows->trans) {
		v.token_stride = es;
		v.block_elems = 1;
		v.block_stride = (uint64_t)rows->n_cells * es;
	} else if (type->block_elems == 1) { /* plain rows */
		v.token_stride = rows->row_bytes;
		v.block_elems = rows->width;
		v.block_stride = rows->row_bytes;
	} else {
		v.token_stride = rows->row_bytes;
		v.block_elems = plane->elems;
		v.block_stride = type->block_bytes;
	}
	return v;
}
