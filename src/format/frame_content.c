/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_content.c - the unpacked content of a frame, or its first bytes */
#include "frame_walk.h"

kvarc_ret kvi_frame_bad(const struct kvi_frame *frame, kvarc_error *error, const char *what)
{
	return kvi_fail_at(
		error, KVARC_DATA, frame->offset, frame->head.sequence,
		"%s frame %llu at offset %llu is not valid: %s", kvi_frame_name(frame->head.type),
		(unsigned long long)frame->head.sequence, (unsigned long long)frame->offset, what);
}

/* Sets *error from what kvi_unpack returned, and returns that. */
static kvarc_ret unpacked(const struct kvi_packer *packer, const struct kvi_frame *frame,
                          kvarc_ret ret, kvarc_error *error)
{
	switch (ret) {
	case KVARC_DATA:
		return kvi_frame_bad(frame, error, "its content does not unpack");
	case KVARC_OPTIONS:
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, ret, frame->offset, frame->head.sequence,
		                    "frame %llu at offset %llu is packed in a way that needs a "
		                    "newer version of kvarc",
		                    (unsigned long long)frame->head.sequence,
		                    (unsigned long long)frame->offset));
	case KVARC_OK:
		return KVARC_OK;
	default:
		return kvi_fail_alloc(error, packer->alloc);
	}
}

kvarc_ret kvi_frame_content(struct kvi_packer *packer, const struct kvi_frame *frame,
                            const uint8_t **content, uint8_t **owned, kvarc_error *error)
{
	return unpacked(packer, frame,
	                kvi_unpack(packer, frame->payload, frame->head.payload_bytes,
	                           frame->head.decoded_bytes, content, owned),
	                error);
}

bool kvi_frame_skims(const struct kvi_frame_head *head)
{
	enum { LARGE = 64 << 10 };
	return head->decoded_bytes > LARGE &&
	       (head->type == KVI_FRAME_PARAMS || head->type == KVI_FRAME_BLOB ||
	        head->type == KVI_FRAME_PROFILE);
}

kvarc_ret kvi_frame_skim(struct kvi_packer *packer, const struct kvi_frame *frame,
                         uint8_t head[KVI_SKIM_BYTES], kvarc_error *error)
{
	return unpacked(packer, frame,
	                kvi_unpack_head(packer, frame->payload, frame->head.payload_bytes,
	                                frame->head.decoded_bytes, head, KVI_SKIM_BYTES),
	                error);
}

kvarc_ret kvi_frame_spend(const struct kvi_frame *frame, uint64_t *left, kvarc_error *error)
{
	if (!left)
		return KVARC_OK;
	if (frame->head.decoded_bytes > *left)
		return kvi_fail_at(error, KVARC_MEMLIMIT, frame->offset, frame->head.sequence,
		                   "the metadata of the archive, up to frame %llu, is larger than "
		                   "the memory limit; raise it",
		                   (unsigned long long)frame->head.sequence);
	*left -= frame->head.decoded_bytes;
	return KVARC_OK;
}
