/* SPDX-License-Identifier: BSD-3-Clause */
/* elements.c - between a packed matrix and the elements that streams code (spec grid, linear) */
#include "coder.h"

#include "codecs/planes.h"

unsigned kvi_coded_n_planes(unsigned dtype)
{
	return dtype == KVARC_F32 ? 2 : 0;
}

const uint16_t *kvi_coded_elements(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed,
                                   size_t n)
{
	size_t size = kvarc_dtype_bytes(dtype);
	if (size == 2)
		return kvi_elements16(coder, packed, n);
	uint16_t *e = kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, n * sizeof *e);
	if (e && size == 1)
		for (size_t i = 0; i < n; i++)
			e[i] = packed[i];
	else if (e)
		for (size_t i = 0; i < n; i++)
			e[i] = kvi_load16(packed + 4 * i + 2);
	return e;
}

uint16_t *kvi_coded_buffer(struct kvi_coder *coder, unsigned dtype, uint8_t *packed, size_t n)
{
	if (kvarc_dtype_bytes(dtype) == 2)
		return kvi_elements16_buffer(coder, packed, n);
	return kvi_scratch(coder, KVI_SCRATCH_ELEMENTS, n * sizeof(uint16_t));
}

uint8_t *kvi_coded_planes(struct kvi_coder *coder, unsigned dtype, const uint8_t *packed, size_t n,
                          uint8_t *to)
{
	for (unsigned byte = 0; byte < 2 && dtype == KVARC_F32; byte++) {
		for (size_t i = 0; i < n; i++)
			to[KVI_PLANE_HEAD + i] = packed[4 * i + byte];
		to = kvi_plane_write(coder, to + KVI_PLANE_HEAD, n, to);
	}
	return to;
}

kvarc_ret kvi_coded_planes_get(struct kvi_coder *coder, unsigned dtype, size_t n, struct kvi_in *in,
                               struct kvi_coded_planes *planes)
{
	*planes = (struct kvi_coded_planes){ NULL, NULL };
	if (dtype != KVARC_F32)
		return KVARC_OK;
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_PLANE, 2 * n);
	if (!buffer)
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = kvi_plane_read(coder, in, n, buffer, &planes->low);
	return ret ? ret : kvi_plane_read(coder, in, n, buffer + n, &planes->high);
}

void kvi_coded_place(unsigned dtype, const uint16_t *e, const struct kvi_coded_planes *planes,
                     size_t at, size_t n, uint8_t *packed)
{
	const size_t size = kvarc_dtype_bytes(dtype);
	packed += at * size;
	e += at;
	if (size == 2)
		kvi_elements16_done(e, packed, n);
	else if (size == 1)
		for (size_t i = 0; i < n; i++)
			packed[i] = (uint8_t)e[i];
	else
		for (size_t i = 0; i < n; i++)
			kvi_store32(packed + 4 * i, (uint32_t)e[i] << 16 |
			                                    (uint32_t)planes->high[at + i] << 8 |
			                                    planes->low[at + i]);
}
