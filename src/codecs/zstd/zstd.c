/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd.c - Zstandard frames of chunks and planes (spec codecs/zstd) */
#define ZSTD_STATIC_LINKING_ONLY /* custom allocators */
#include "codecs/coder.h"

#include <zstd.h>
#include <zstd_errors.h>

enum { WINDOW_LOG_MAX = 23, WINDOW_LOG = 21 };

void kvi_zstd_close(struct kvi_coder *coder)
{
	ZSTD_freeCCtx(coder->zstd_c);
	ZSTD_freeDCtx(coder->zstd_d);
}

static void *zstd_alloc(void *opaque, size_t bytes)
{
	return kvi_malloc(opaque, bytes);
}

static void zstd_free(void *opaque, void *p)
{
	kvi_free(opaque, p);
}

static ZSTD_customMem zstd_memory(const struct kvi_coder *coder)
{
	/* kvi_malloc takes it const; zstd hands it through as it is. */
	ZSTD_customMem m = { zstd_alloc, zstd_free, (void *)(uintptr_t)coder->alloc };
	return m;
}

kvarc_ret kvi_zstd_read(struct kvi_coder *coder, const uint8_t *frame, size_t bytes, uint8_t *to,
                        size_t n)
{
	if (!coder->zstd_d) {
		coder->zstd_d = ZSTD_createDCtx_advanced(zstd_memory(coder));
		if (!coder->zstd_d)
			return kvi_alloc_error(coder->alloc);
	}
	/* The payload is one frame with nothing behind it (spec codecs/zstd). */
	size_t length = ZSTD_findFrameCompressedSize(frame, bytes);
	ZSTD_frameHeader h;
	if (ZSTD_isError(length) || length != bytes || ZSTD_getFrameHeader(&h, frame, bytes) ||
	    h.frameType != ZSTD_frame || h.dictID || h.windowSize > (uint64_t)1 << WINDOW_LOG_MAX)
		return KVARC_DATA;
	size_t got = ZSTD_decompressDCtx(coder->zstd_d, to, n, frame, bytes);
	if (ZSTD_isError(got))
		return ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation
		               ? kvi_alloc_error(coder->alloc)
		               : KVARC_DATA;
	return got == n ? KVARC_OK : KVARC_DATA;
}

size_t kvi_zstd_write(struct kvi_coder *coder, const uint8_t *from, size_t n, uint8_t *to,
                      size_t capacity, int level)
{
	if (!coder->zstd_c) {
		coder->zstd_c = ZSTD_createCCtx_advanced(zstd_memory(coder));
		if (!coder->zstd_c)
			return 0;
	}
	ZSTD_CCtx_reset(coder->zstd_c, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(coder->zstd_c, ZSTD_c_compressionLevel, level);
	ZSTD_CCtx_setParameter(coder->zstd_c, ZSTD_c_windowLog, WINDOW_LOG);
	size_t got = ZSTD_compress2(coder->zstd_c, to, capacity, from, n);
	return ZSTD_isError(got) ? 0 : got;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	size_t bytes = kvi_in_remaining(in);
	return kvi_zstd_read(coder, kvi_get_bytes(in, bytes), bytes, job->decoded,
	                     kvi_chunk_bytes(job->chunk));
}

const struct kvi_codec kvi_codec_zstd = { .takes = KVI_TAKES_ALL, .decode = decode };
