/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_content.c - the unpacked content of a frame, and checks of a frame by itself */
#include "frame_content.h"

#include "codec_ids.h"

kvarc_ret kvi_frame_bad(const struct kvi_frame *frame, kvarc_error *error, const char *what)
{
	return kvi_fail_at(
		error, KVARC_DATA, frame->offset, frame->head.sequence,
		"%s frame %llu at offset %llu is not valid: %s", kvi_frame_name(frame->head.type),
		(unsigned long long)frame->head.sequence, (unsigned long long)frame->offset, what);
}

/* OPTIONS: `what` is of a kind that a later version gives a meaning. */
static kvarc_ret newer(const struct kvi_frame *frame, kvarc_error *error, const char *what,
                       unsigned number)
{
	return kvi_reason(
		error, KVARC_REASON_NEWER,
		kvi_fail_at(error, KVARC_OPTIONS, frame->offset, frame->head.sequence,
	                    "frame %llu at offset %llu %s %u, which needs a newer version of kvarc",
	                    (unsigned long long)frame->head.sequence,
	                    (unsigned long long)frame->offset, what, number));
}

kvarc_ret kvi_frame_newer(const struct kvi_frame *frame, kvarc_error *error, const char *does)
{
	return kvi_reason(error, KVARC_REASON_NEWER,
	                  kvi_fail_at(error, KVARC_OPTIONS, frame->offset, frame->head.sequence,
	                              "%s frame %llu %s a predictor that a newer version of kvarc "
	                              "has",
	                              kvi_frame_name(frame->head.type),
	                              (unsigned long long)frame->head.sequence, does));
}

kvarc_ret kvi_frame_meaning(const struct kvi_frame *frame, kvarc_error *error)
{
	/* The feature bit is set, and its fields were looked at. */
	if (frame->of_encrypted && frame->head.type == KVI_FRAME_KEY)
		return KVARC_OK;
	kvarc_ret ret = kvi_frame_head_check(&frame->head);
	if (ret == KVARC_OPTIONS)
		return newer(frame, error, "has type", frame->head.type);
	return ret ? kvi_frame_bad(frame, error, "type, flags or sizes") : KVARC_OK;
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

kvarc_ret kvi_frame_spend_entries(const struct kvi_frame *frame, uint64_t from, uint64_t *left,
                                  kvarc_error *error)
{
	const struct kvi_frame_head *h = &frame->head;
	return (h->type == KVI_FRAME_INDEX || h->type == KVI_FRAME_LIST) && from < frame->offset &&
	                       h->decoded_bytes <= frame->offset - from
	               ? KVARC_OK
	               : kvi_frame_spend(frame, left, error);
}

kvarc_ret kvi_chunk_check(const kvarc_geometry *geometry, const struct kvi_chunk_header *header,
                          const struct kvi_frame *frame, kvarc_error *error)
{
	if (header->tensor >= geometry->n_tensors)
		return kvi_frame_bad(frame, error, "its tensor does not exist");
	const kvarc_tensor *t = &geometry->tensors[header->tensor];
	if ((uint32_t)header->head + header->heads > t->heads)
		return kvi_frame_bad(frame, error, "its heads do not exist");
	uint64_t bytes = (uint64_t)header->n * header->heads * t->channels *
	                 kvarc_dtype_bytes(t->dtype);
	if (bytes != frame->head.decoded_bytes)
		return kvi_frame_bad(frame, error, "decoded_bytes does not fit its shape");
	if (!kvi_codec_name(header->codec))
		return newer(frame, error, "uses codec", header->codec);
	bool params = kvi_codec_has_params(header->codec) || kvi_codec_predicts(header->codec);
	if (params ? header->params == 0 || header->params >= frame->head.sequence
	           : header->params != 0)
		return kvi_frame_bad(frame, error, "its PARAMS do not fit its codec");
	if (!kvi_codec_has_streams(header->codec) &&
	    (header->cut.section_bytes ||
	     (header->cut.stream_size != KVI_ONE_STREAM && header->codec != KVI_CODEC_REPEAT)))
		return kvi_frame_bad(frame, error, "its streams do not fit its codec");
	if (kvi_codec_predicts(header->codec) && header->heads != t->heads)
		return kvi_frame_bad(frame, error, "its heads do not fit its codec");
	return KVARC_OK;
}

kvarc_ret kvi_params_check(const kvarc_geometry *geometry, const struct kvi_params_header *header,
                           const struct kvi_frame *frame, kvarc_error *error)
{
	if (header->tensor >= geometry->n_tensors ||
	    (uint32_t)header->head + header->heads > geometry->tensors[header->tensor].heads)
		return kvi_frame_bad(frame, error, "its tensor or heads do not exist");
	if (!kvi_codec_name(header->codec))
		return newer(frame, error, "has parameters of codec", header->codec);
	return kvi_codec_has_params(header->codec) &&
	                       kvi_codec_params(header->codec) == header->codec
	               ? KVARC_OK
	               : kvi_frame_bad(frame, error, "its codec has no parameters");
}
