/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_crypt.c - encrypted archives: KEY frames, and frames that are sealed (frames.md 12.1) */
#include "format/crypt.h"
#include "reader/reader_state.h"
#include "writer_state.h"

kvarc_ret kvi_writer_seal(kvarc_writer *w, const struct kvi_frame_head *h, uint8_t **frame,
                          uint64_t *bytes)
{
	const uint8_t *payload = *frame + KVI_FRAME_HEAD_BYTES;
	if (h->payload_bytes > KVI_FRAME_MAX - KVI_CRYPT_BYTES)
		return kvi_fail(w->error, KVARC_PROG,
		                "a frame of %u bytes is too large: 2^28, encrypted, is the limit",
		                (unsigned)h->payload_bytes);
	*bytes = kvi_frame_bytes(h->payload_bytes + KVI_CRYPT_BYTES);
	w->sealed.n = 0;
	if (!kvi_out_reserve(&w->sealed, (size_t)*bytes))
		return kvi_fail_alloc(w->error, &w->alloc);
	*frame = w->sealed.p;
	kvi_crypt_seal(w->crypt, *frame, h, w->sync, w->offset, payload);
	return KVARC_OK;
}

kvarc_ret kvi_writer_emit_keys(kvarc_writer *w)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; w->crypt && i < w->crypt->n_payloads && !ret; i++) {
		struct kvi_index_entry entry = { 0 };
		ret = kvi_writer_emit_content(w, KVI_FRAME_KEY, w->crypt->payloads[i],
		                              KVI_KEY_PAYLOAD_BYTES, false, &entry);
	}
	return ret;
}

kvarc_ret kvi_writer_resume_crypt(kvarc_writer *w)
{
	const struct kvi_crypt *from = w->archive->in.crypt;
	kvarc_ret ret;
	if (!from)
		return w->options.keys ? kvi_fail(w->error, KVARC_OPTIONS,
		                                  "the archive is not encrypted: what is appended "
		                                  "would not be, either; compact it with a key")
		                       : KVARC_OK;
	ret = kvi_crypt_open_known(&w->crypt, &w->alloc, from, w->error);
	if (ret)
		return ret;
	w->crypt->n_payloads = from->n_payloads;
	memcpy(w->crypt->payloads, from->payloads, sizeof from->payloads);
	return KVARC_OK;
}

kvarc_ret kvi_writer_part_from_lost(kvarc_writer *w)
{
	/* A private type, not critical. The size is random, so that what follows does not meet
	 * frames that were lost. */
	enum { TYPE = 0x8000, STEP = KVI_FRAME_ALIGN, STEPS = 256 };
	struct kvi_index_entry entry = { 0 };
	uint8_t content[STEP * STEPS] = { 0 }, n;
	if (!w->crypt || w->archive->state == KVARC_STATE_CLOSED)
		return KVARC_OK;
	kvi_aead_random(&n, sizeof n);
	return kvi_writer_emit_content(w, TYPE, content, STEP * (size_t)(n + 1), false, &entry);
}
