/* SPDX-License-Identifier: BSD-3-Clause */
/* frame.c - frame headers and checks (spec 3) */
#include "frame.h"

#include "util/bytes.h"

static const struct {
	const char *name;
	bool critical;
} types[] = {
	[KVI_FRAME_GEOMETRY] = { "GEOMETRY", true },   [KVI_FRAME_IDENTITY] = { "IDENTITY", false },
	[KVI_FRAME_RESTORE] = { "RESTORE", false },    [KVI_FRAME_BLOB] = { "BLOB", false },
	[KVI_FRAME_PARAMS] = { "PARAMS", true },       [KVI_FRAME_SEGMENT] = { "SEGMENT", true },
	[KVI_FRAME_CHUNK] = { "CHUNK", true },         [KVI_FRAME_COMMIT] = { "COMMIT", true },
	[KVI_FRAME_INDEX] = { "INDEX", false },        [KVI_FRAME_FOOTER] = { "FOOTER", false },
	[KVI_FRAME_PREDICTOR] = { "PREDICTOR", true }, [KVI_FRAME_PROFILE] = { "PROFILE", false },
	[KVI_FRAME_STOREREF] = { "STOREREF", true },   [KVI_FRAME_LIST] = { "LIST", false },
	[KVI_FRAME_FORK] = { "FORK", true },
};

uint64_t kvi_frame_sync(const uint8_t file_id[16])
{
	uint8_t b[32];
	memcpy(b, "kvarc frame sync", 16);
	memcpy(b + 16, file_id, 16);
	return kvi_h64(b, sizeof b);
}

bool kvi_frame_known(uint16_t type)
{
	return type < sizeof types / sizeof types[0] && types[type].name;
}

bool kvi_frame_counts(uint16_t type)
{
	return kvi_frame_known(type) && type != KVI_FRAME_INDEX && type != KVI_FRAME_LIST;
}

const char *kvi_frame_name(uint16_t type)
{
	static const char *const around[] = { "PARITY", "ENCRYPTED", "STOREREF", "KEY", "PAD" };
	if (type >= KVI_FRAME_PARITY && type <= KVI_FRAME_PAD)
		return around[type - KVI_FRAME_PARITY];
	return kvi_frame_known(type) ? types[type].name : "unknown";
}

uint16_t kvi_frame_flags(uint16_t type)
{
	return kvi_frame_known(type) && types[type].critical ? KVI_FRAME_CRITICAL : 0;
}

void kvi_frame_head_write(uint8_t out[KVI_FRAME_HEAD_BYTES], const struct kvi_frame_head *head,
                          uint64_t sync, uint64_t offset)
{
	uint8_t at[8];
	kvi_store64(out, sync);
	kvi_store16(out + 8, head->type);
	kvi_store16(out + 10, head->flags);
	kvi_store32(out + 12, head->payload_bytes);
	kvi_store64(out + 16, head->sequence);
	kvi_store32(out + 24, head->decoded_bytes);
	kvi_store64(at, offset);
	kvi_store32(out + 28, (uint32_t)kvi_h64_2(out, 28, at, sizeof at));
}

bool kvi_frame_head_parse(struct kvi_frame_head *head, const uint8_t in[KVI_FRAME_HEAD_BYTES],
                          uint64_t sync, uint64_t offset)
{
	uint8_t at[8];
	kvi_store64(at, offset);
	if (kvi_load64(in) != sync ||
	    kvi_load32(in + 28) != (uint32_t)kvi_h64_2(in, 28, at, sizeof at))
		return false;
	head->type = kvi_load16(in + 8);
	head->flags = kvi_load16(in + 10);
	head->payload_bytes = kvi_load32(in + 12);
	head->sequence = kvi_load64(in + 16);
	head->decoded_bytes = kvi_load32(in + 24);
	return true;
}

/* Spec 3.3: known types have one value of the critical flag, and so have PARITY and PAD, which are
 * skipped; of types that are not known the flag says whether they may be skipped. ENCRYPTED and KEY
 * need a feature bit (rule R12.1) with which kvi_crypt_frame looks at them. */
kvarc_ret kvi_frame_head_check(const struct kvi_frame_head *head)
{
	bool critical = head->flags & KVI_FRAME_CRITICAL;
	if (head->type == 0 || (head->flags & ~KVI_FRAME_CRITICAL) ||
	    head->payload_bytes > KVI_FRAME_MAX || head->decoded_bytes > KVI_FRAME_MAX)
		return KVARC_DATA;
	if (kvi_frame_known(head->type))
		return critical == types[head->type].critical ? KVARC_OK : KVARC_DATA;
	if ((head->type == KVI_FRAME_PARITY || head->type == KVI_FRAME_PAD) && critical)
		return KVARC_DATA;
	if (head->type == KVI_FRAME_ENCRYPTED || head->type == KVI_FRAME_KEY)
		return KVARC_DATA;
	return critical ? KVARC_OPTIONS : KVARC_OK;
}

static size_t front_bytes(size_t padded_bytes)
{
	return padded_bytes < KVI_FRAME_FRONT_BYTES ? padded_bytes : KVI_FRAME_FRONT_BYTES;
}

static struct kvi_h128 hash_rest(const uint8_t *padded, size_t padded_bytes)
{
	const size_t front = front_bytes(padded_bytes);
	return kvi_h128(padded + front, padded_bytes - front);
}

/* The check of a frame; rest: hash of what is behind its first `front` bytes. */
static struct kvi_h128 check_of(const uint8_t head[KVI_FRAME_HEAD_BYTES], uint64_t offset,
                                const uint8_t *padded, size_t front, struct kvi_h128 rest)
{
	enum { OFFSET_BYTES = 8, HASH_BYTES = 16 };
	uint8_t b[KVI_FRAME_HEAD_BYTES + OFFSET_BYTES + KVI_FRAME_FRONT_BYTES + HASH_BYTES];
	uint8_t *p = b + KVI_FRAME_HEAD_BYTES;
	memcpy(b, head, KVI_FRAME_HEAD_BYTES);
	kvi_store64(p, offset);
	memcpy(p + OFFSET_BYTES, padded, front);
	p += OFFSET_BYTES + front;
	kvi_store_h128(p, rest);
	return kvi_h128(b, (size_t)(p + HASH_BYTES - b));
}

struct kvi_h128 kvi_frame_check(const uint8_t head[KVI_FRAME_HEAD_BYTES], uint64_t offset,
                                const uint8_t *padded, size_t padded_bytes)
{
	return check_of(head, offset, padded, front_bytes(padded_bytes),
	                hash_rest(padded, padded_bytes));
}

struct kvi_h128 kvi_frame_rest(uint8_t *frame, uint32_t payload_bytes)
{
	const size_t padded = kvi_frame_padded(payload_bytes);
	uint8_t *payload = frame + KVI_FRAME_HEAD_BYTES;
	memset(payload + payload_bytes, 0, padded - payload_bytes);
	return hash_rest(payload, padded);
}

void kvi_frame_close(uint8_t *frame, uint64_t offset, uint32_t payload_bytes, struct kvi_h128 rest)
{
	const size_t padded = kvi_frame_padded(payload_bytes);
	uint8_t *payload = frame + KVI_FRAME_HEAD_BYTES;
	kvi_store_h128(payload + padded,
	               check_of(frame, offset, payload, front_bytes(padded), rest));
}
