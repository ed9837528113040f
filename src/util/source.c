/* SPDX-License-Identifier: BSD-3-Clause */
/* source.c - reading a caller's source */
#include "source.h"

kvarc_ret kvi_source_read(const kvarc_source *src, void *buf, size_t bytes, uint64_t offset)
{
	uint8_t *p = buf;
	while (bytes) {
		int64_t got = src->read(src->opaque, p, bytes, offset);
		if (got < 0 || (uint64_t)got > bytes)
			return KVARC_IO;
		if (got == 0)
			return KVARC_END;
		p += got;
		bytes -= (size_t)got;
		offset += (uint64_t)got;
	}
	return KVARC_OK;
}
