/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_content.c - the unpacked content of a frame, or its first bytes */
#include "frame_walk.h"

kvarc_ret kvi_frame_bad(const struct kvi_frame *f, kvarc_error *e, const char *what)
{
	return kvi_fail_at(e, KVARC_DATA, f->offset, f->head.sequence,
	                   "%s frame %llu at offset %llu is not valid: %s",
	                   kvi_frame_name(f->head.type), (unsigned long long)f->head.sequence,
	                   (unsigned long long)f->offset, what);
}

/* What kvi_unpack returned, as an error. */
static kvarc_ret unpacked(const struct kvi_packer *packer, const struct kvi_frame *f, kvarc_ret ret,
                          kvarc_error *e)
{
	switch (ret) {
	case KVARC_DATA:
		return kvi_frame_bad(f, e, "its content does not unpack");
	case KVARC_OPTIONS:
		return kvi_reason(
			e, KVARC_REASON_NEWER,
			kvi_fail_at(e, ret, f->offset, f->head.sequence,
		                    "frame %llu at offset %llu is packed in a way that needs a "
		                    "newer version of kvarc",
		                    (unsigned long long)f->head.sequence,
		                    (unsigned long long)f->offset));
	case KVARC_OK:
		return KVARC_OK;
	default:
		return kvi_fail_alloc(e, packer->alloc);
	}
}

kvarc_ret kvi_frame_content(struct kvi_packer *packer, const struct kvi_frame *f,
                            const uint8_t **content, uint8_t **owned, kvarc_error *e)
{
	return unpacked(packer, f,
	                kvi_unpack(packer, f->payload, f->head.payload_bytes, f->head.decoded_bytes,
	                           content, owned),
	                e);
}

bool kvi_frame_skims(const struct kvi_frame_head *h)
{
	enum { LARGE = 64 << 10 };
	return h->decoded_bytes > LARGE &&
	       (h->type == KVI_FRAME_PARAMS || h->type == KVI_FRAME_BLOB ||
	        h->type == KVI_FRAME_PROFILE);
}

kvarc_ret kvi_frame_skim(struct kvi_packer *packer, const struct kvi_frame *f,
                         uint8_t head[KVI_SKIM_BYTES], kvarc_error *e)
{
	return unpacked(packer, f,
	                kvi_unpack_head(packer, f->payload, f->head.payload_bytes,
	                                f->head.decoded_bytes, head, KVI_SKIM_BYTES),
	                e);
}

kvarc_ret kvi_frame_spend(const struct kvi_frame *f, uint64_t *left, kvarc_error *e)
{
	if (!left)
		return KVARC_OK;
	if (f->head.decoded_bytes > *left)
		return kvi_fail_at(e, KVARC_MEMLIMIT, f->offset, f->head.sequence,
		                   "the metadata of the archive, up to frame %llu, is larger than "
		                   "the memory limit; raise it",
		                   (unsigned long long)f->head.sequence);
	*left -= f->head.decoded_bytes;
	return KVARC_OK;
}
