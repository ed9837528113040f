/* SPDX-License-Identifier: BSD-3-Clause */
/* packed.c - packed fields on libzstd (spec 1.5) */
#include "packed.h"

/* ZSTD_createCCtx_advanced: contexts are made with the handle's allocator. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

enum { METHOD_STORED = 0, METHOD_ZSTD = 1 };
enum { WINDOW_LOG_MAX = 23, WORTH_TRYING = 64 };
/* A short content is one of many, parameters mostly: level 6 takes twice the time of level 1 there
 * and saves 4 % of their bytes, 0.01 % of an archive. */
enum { SHORT_CONTENT = 16384, LEVEL_SHORT = 1, LEVEL = 6 };

static void *zstd_alloc(void *opaque, size_t bytes)
{
	return kvi_malloc(opaque, bytes);
}

static void zstd_free(void *opaque, void *p)
{
	kvi_free(opaque, p);
}

static ZSTD_customMem memory(const struct kvi_alloc *alloc)
{
	return (ZSTD_customMem){ zstd_alloc, zstd_free, (void *)(uintptr_t)alloc };
}

void kvi_packer_init(struct kvi_packer *packer, const struct kvi_alloc *alloc)
{
	*packer = (struct kvi_packer){ .alloc = alloc };
}

void kvi_packer_free(struct kvi_packer *packer)
{
	ZSTD_freeCCtx(packer->compress);
	ZSTD_freeDCtx(packer->decompress);
	packer->compress = packer->decompress = NULL;
}

/* Makes a frame of *done bytes of the content, each of its parts a block or more; 0: it takes more
 * than the capacity. */
static kvarc_ret compress_parts(ZSTD_CCtx *ctx, const struct kvi_alloc *alloc, ZSTD_outBuffer to,
                                const void *content, size_t bytes, unsigned parts, size_t *done)
{
	ZSTD_inBuffer in = { content, 0, 0 };
	*done = 0;
	ZSTD_CCtx_reset(ctx, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, LEVEL_SHORT);
	ZSTD_CCtx_setPledgedSrcSize(ctx, bytes);
	for (unsigned i = 1; i <= parts; i++) {
		in.size = bytes / parts * i + (i == parts ? bytes % parts : 0);
		const size_t left = ZSTD_compressStream2(ctx, &to, &in,
		                                         i == parts ? ZSTD_e_end : ZSTD_e_flush);
		if (ZSTD_isError(left) && ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
			return kvi_alloc_error(alloc);
		if (left) /* an error, or no capacity */
			return KVARC_OK;
	}
	*done = to.pos;
	return KVARC_OK;
}

/* Tries method 1 at the end of out; 0 when it does not pay. */
static kvarc_ret try_zstd(struct kvi_packer *packer, struct kvi_out *out, const void *content,
                          size_t bytes, size_t *done)
{
	*done = 0;
	if (!packer->compress) {
		packer->compress = ZSTD_createCCtx_advanced(memory(packer->alloc));
		if (!packer->compress)
			return kvi_alloc_error(packer->alloc);
	}
	ZSTD_CCtx *ctx = packer->compress;
	ZSTD_CCtx_reset(ctx, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel,
	                       bytes < SHORT_CONTENT ? LEVEL_SHORT : LEVEL);
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_windowLog, 21);
	/* The buffer is smaller than the content: a frame that needs more does not pay. */
	size_t n = ZSTD_compress2(ctx, out->p + out->n, bytes - 1, content, bytes);
	if (!ZSTD_isError(n))
		*done = n;
	else if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		return kvi_alloc_error(packer->alloc);
	return KVARC_OK;
}

/* kvi_pack with one array. */
static kvarc_ret pack_one(struct kvi_packer *packer, struct kvi_out *out, const void *content,
                          size_t bytes)
{
	size_t done = 0;
	kvi_put8(out, METHOD_ZSTD);
	if (!kvi_out_reserve(out, bytes))
		return kvi_alloc_error(packer->alloc);
	if (bytes >= WORTH_TRYING) {
		kvarc_ret ret = try_zstd(packer, out, content, bytes, &done);
		if (ret)
			return ret;
	}
	if (done) {
		out->n += done;
		return KVARC_OK;
	}
	out->p[out->n - 1] = METHOD_STORED;
	kvi_put_bytes(out, content, bytes);
	return KVARC_OK;
}

kvarc_ret kvi_pack(struct kvi_packer *packer, struct kvi_out *out, const void *content,
                   size_t bytes, unsigned arrays)
{
	const size_t at = out->n + 1;
	size_t done = 0;
	kvarc_ret ret = pack_one(packer, out, content, bytes);
	if (ret || arrays == 1 || out->n - at >= bytes)
		return ret;
	const size_t one = out->n - at;
	if (!kvi_out_reserve(out, one))
		return kvi_alloc_error(packer->alloc);
	ret = compress_parts(packer->compress, packer->alloc,
	                     (ZSTD_outBuffer){ out->p + out->n, one - 1, 0 }, content, bytes,
	                     arrays, &done);
	if (done) {
		memmove(out->p + at, out->p + out->n, done);
		out->n = at + done;
	}
	return ret;
}

/* Exactly one frame of exactly this content, within the window limit. */
static bool frame_fits(const uint8_t *data, size_t bytes, size_t content)
{
	ZSTD_frameHeader h;
	return ZSTD_getFrameHeader(&h, data, bytes) == 0 && h.frameType == ZSTD_frame &&
	       h.dictID == 0 && h.windowSize <= (uint64_t)1 << WINDOW_LOG_MAX &&
	       (h.frameContentSize == ZSTD_CONTENTSIZE_UNKNOWN || h.frameContentSize == content) &&
	       ZSTD_findFrameCompressedSize(data, bytes) == bytes;
}

static bool has_context(struct kvi_packer *packer)
{
	if (!packer->decompress)
		packer->decompress = ZSTD_createDCtx_advanced(memory(packer->alloc));
	return packer->decompress;
}

kvarc_ret kvi_unpack(struct kvi_packer *packer, const uint8_t *payload, size_t bytes,
                     size_t decoded_bytes, const uint8_t **content, uint8_t **owned)
{
	*owned = NULL;
	if (bytes == 0)
		return KVARC_DATA;
	const uint8_t *data = payload + 1;
	if (payload[0] == METHOD_STORED) {
		*content = data;
		return bytes - 1 == decoded_bytes ? KVARC_OK : KVARC_DATA;
	}
	if (payload[0] != METHOD_ZSTD)
		return KVARC_OPTIONS;
	if (!frame_fits(data, bytes - 1, decoded_bytes))
		return KVARC_DATA;
	if (!has_context(packer))
		return kvi_alloc_error(packer->alloc);
	uint8_t *to = kvi_malloc(packer->alloc, decoded_bytes ? decoded_bytes : 1);
	if (!to)
		return kvi_alloc_error(packer->alloc);
	size_t n = ZSTD_decompressDCtx(packer->decompress, to, decoded_bytes, data, bytes - 1);
	if (ZSTD_isError(n) || n != decoded_bytes) {
		kvi_free(packer->alloc, to);
		return KVARC_DATA;
	}
	*content = *owned = to;
	return KVARC_OK;
}

/* Continues until the output is full. */
static kvarc_ret fill(struct kvi_packer *packer, ZSTD_inBuffer *in, ZSTD_outBuffer *out)
{
	while (out->pos < out->size) {
		const size_t in_pos = in->pos, out_pos = out->pos;
		size_t n = ZSTD_decompressStream(packer->decompress, out, in);
		if (ZSTD_isError(n) && ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
			return kvi_alloc_error(packer->alloc);
		if (ZSTD_isError(n) || (in->pos == in_pos && out->pos == out_pos))
			return KVARC_DATA;
	}
	return KVARC_OK;
}

kvarc_ret kvi_unpack_head(struct kvi_packer *packer, const uint8_t *payload, size_t bytes,
                          size_t decoded_bytes, uint8_t *head, size_t head_bytes)
{
	if (bytes == 0 || decoded_bytes < head_bytes)
		return KVARC_DATA;
	if (payload[0] == METHOD_STORED) {
		if (bytes - 1 != decoded_bytes)
			return KVARC_DATA;
		memcpy(head, payload + 1, head_bytes);
		return KVARC_OK;
	}
	if (payload[0] != METHOD_ZSTD)
		return KVARC_OPTIONS;
	if (!frame_fits(payload + 1, bytes - 1, decoded_bytes))
		return KVARC_DATA;
	if (!has_context(packer))
		return kvi_alloc_error(packer->alloc);
	ZSTD_inBuffer in = { payload + 1, bytes - 1, 0 };
	ZSTD_outBuffer out = { head, head_bytes, 0 };
	ZSTD_DCtx_reset(packer->decompress, ZSTD_reset_session_only);
	kvarc_ret ret = fill(packer, &in, &out);
	ZSTD_DCtx_reset(packer->decompress, ZSTD_reset_session_only);
	return ret;
}
