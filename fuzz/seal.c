/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.c - give a mutated archive right checks, so that fuzzers get behind them */
#include "seal.h"

#include "fuzz_common.h"
#include "seal_content.h"
#include "format/crypt.h"
#include "util/hash.h"

enum {
	SUPERBLOCK = 64,
	HEAD = 32,
	CHECK = 16,
	ALIGN = 16,
	T_CHUNK = 7,
	T_COMMIT = 8,
	T_INDEX = 9,
	T_FOOTER = 10,
	T_PARITY = 13,
	T_ENCRYPTED = 14,
	T_KEY = 16
};

struct seal {
	struct kvi_alloc alloc;
	struct kvi_out content;         /* of a frame that was repaired */
	struct fuzz_contents *contents; /* NULL: contents stay as they are */
	uint8_t *p;
	size_t n, cap;
	struct kvi_crypt *crypt; /* NULL: frames are not encrypted */
	uint8_t sync[8];
	uint64_t sequence;
	uint64_t commit_at, index_at, commit_bytes, index_bytes;
};

static const uint8_t key_bytes[KVARC_KEY_BYTES] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
	                                            11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
	                                            22, 23, 24, 25, 26, 27, 28, 29, 30, 31 };
static const kvarc_key key = { .kind = KVARC_KEY_GIVEN, .bytes = key_bytes, .n = KVARC_KEY_BYTES };
const kvarc_keys fuzz_keys = { .list = &key, .n = 1 };

/* n zeroed bytes behind what is there; s->n stays. */
static uint8_t *reserve(struct seal *s, size_t n)
{
	if (s->cap - s->n < n) {
		s->cap = 2 * (s->n + n);
		s->p = realloc(s->p, s->cap);
		FUZZ_CHECK(s->p);
	}
	memset(s->p + s->n, 0, n);
	return s->p + s->n;
}

/* spec 2. An odd minor version: contents stay as they are, so that wrong ones are read, too. */
static void seal_superblock(struct seal *s, const uint8_t *in, size_t n, bool encrypt)
{
	uint8_t *p = reserve(s, SUPERBLOCK);
	static const uint8_t magic[8] = { 0x89, 'K', 'V', 'A', 13, 10, 26, 10 };
	memcpy(p, in, n < SUPERBLOCK ? n : SUPERBLOCK);
	s->contents = kvi_load16(p + 10) & 1 ? NULL : fuzz_contents_new();
	memcpy(p, magic, sizeof magic);
	p[20] |= encrypt;
	kvi_store64(p + 56, kvi_h64(p, 56));
	kvi_store64(s->sync, kvi_h64_2("kvarc frame sync", 16, p + 24, 16));
	s->n = SUPERBLOCK;
}

/* spec 9: offsets and counts as they come out here */
static void fix_payload(struct seal *s, unsigned type, uint8_t *pay, size_t n)
{
	if (type == T_COMMIT && n >= 16) {
		kvi_store64(pay, s->sequence);
		kvi_store64(pay + 8, s->n);
		s->commit_at = s->n;
	} else if (type == T_INDEX) {
		s->index_at = s->n;
	} else if (type == T_FOOTER && n >= 32) {
		kvi_store64(pay, s->index_at);
		kvi_store64(pay + 8, s->commit_at);
		kvi_store64(pay + 16, s->sequence);
		kvi_store32(pay + 24, (uint32_t)s->index_bytes);
		kvi_store32(pay + 28, (uint32_t)s->commit_bytes);
	} else if (type == T_CHUNK && n > 48 && pay[24] == 0) {
		kvi_store64(pay + 32, kvi_h64(pay + 48, n - 48));
	}
}

/* A frame with its payload at the end of the archive becomes an ENCRYPTED one, where it may. */
static void encrypt_frame(struct seal *s, size_t n)
{
	uint8_t *p = s->p + s->n, *payload = malloc(n + 1);
	const struct kvi_frame_head h = { kvi_load16(p + 8), kvi_load16(p + 10), (uint32_t)n,
		                          kvi_load32(p + 24), s->sequence };
	FUZZ_CHECK(payload);
	memcpy(payload, p + HEAD, n);
	p = reserve(s, (size_t)kvi_frame_bytes(h.payload_bytes + KVI_CRYPT_BYTES));
	kvi_crypt_seal(s->crypt, p, &h, kvi_load64(s->sync), s->n, payload);
	s->n += (size_t)kvi_frame_bytes(h.payload_bytes + KVI_CRYPT_BYTES);
	s->sequence++;
	free(payload);
}

/* frames.md 12.1 */
static void put_keys(struct seal *s)
{
	const struct kvi_frame_head h = { T_KEY, 0, KVI_KEY_PAYLOAD_BYTES, KVI_KEY_PAYLOAD_BYTES,
		                          s->sequence };
	FUZZ_CHECK(!kvi_crypt_new(&s->crypt, &s->alloc, s->p + 24, &fuzz_keys, NULL));
	uint8_t *p = reserve(s, (size_t)kvi_frame_bytes(KVI_KEY_PAYLOAD_BYTES));
	kvi_frame_head_write(p, &h, kvi_load64(s->sync), s->n);
	memcpy(p + HEAD, s->crypt->payloads[0], KVI_KEY_PAYLOAD_BYTES);
	kvi_frame_close(p, s->n, KVI_KEY_PAYLOAD_BYTES, kvi_frame_rest(p, KVI_KEY_PAYLOAD_BYTES));
	s->n += (size_t)kvi_frame_bytes(KVI_KEY_PAYLOAD_BYTES);
	s->sequence++;
}

/* A frame of this many bytes is there, at the end of the archive. */
static void end_frame(struct seal *s, unsigned type, size_t bytes)
{
	if (type == T_COMMIT)
		s->commit_bytes = bytes;
	else if (type == T_INDEX)
		s->index_bytes = bytes;
	if (s->contents)
		fuzz_contents_placed(s->contents, bytes);
}

/* spec 3.1; in: the frame as it was found, n bytes up to the next one */
static void seal_frame(struct seal *s, const uint8_t *in, size_t n)
{
	const uint8_t *payload = in + HEAD;
	unsigned type = kvi_load16(in + 8);
	uint32_t decoded = kvi_load32(in + 24);
	size_t want = kvi_load32(in + 12);
	size_t have = n - HEAD < CHECK ? 0 : n - HEAD - CHECK;
	size_t pay = have >= want && have - want < ALIGN ? want : have;
	if (s->contents && fuzz_contents_repair(s->contents, type, s->n, s->sequence, payload, pay,
	                                        &decoded, &s->content)) {
		payload = s->content.p;
		pay = s->content.n;
	}
	size_t padded = (pay + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	uint8_t *p = reserve(s, HEAD + padded + CHECK), offset[8];
	const size_t begin = s->n;
	memcpy(p, in, HEAD);
	memcpy(p + HEAD, payload, pay);
	kvi_store32(p + 12, (uint32_t)pay);
	kvi_store64(p + 16, s->sequence);
	kvi_store32(p + 24, decoded);
	kvi_store64(offset, s->n);
	kvi_store32(p + 28, (uint32_t)kvi_h64_2(p, 28, offset, 8));
	fix_payload(s, type, p + HEAD, pay);
	if (s->crypt && type != T_FOOTER && type != T_PARITY && type != T_ENCRYPTED &&
	    type != T_KEY) {
		encrypt_frame(s, pay);
		end_frame(s, type, s->n - begin);
		return;
	}
	kvi_frame_close(p, s->n, (uint32_t)pay, kvi_frame_rest(p, (uint32_t)pay));
	s->n += HEAD + padded + CHECK;
	s->sequence++;
	end_frame(s, type, s->n - begin);
}

/* Where the next sync stands, n when there is none. */
static size_t find_sync(const uint8_t *in, size_t n, size_t from, const uint8_t sync[8])
{
	for (size_t i = from; i + 8 <= n; i++)
		if (in[i] == sync[0] && memcmp(in + i, sync, 8) == 0)
			return i;
	return n;
}

static uint8_t *seal(const uint8_t *in, size_t n, size_t *out_n, bool encrypt)
{
	struct seal s = { 0 };
	kvi_alloc_init(&s.alloc, NULL, (uint64_t)1 << 30);
	kvi_out_init(&s.content, &s.alloc);
	seal_superblock(&s, in, n, encrypt);
	if (encrypt)
		put_keys(&s);
	size_t at = find_sync(in, n, 0, s.sync);
	while (at < n) {
		size_t next = find_sync(in, n, at + 8, s.sync);
		if (next - at >= HEAD)
			seal_frame(&s, in + at, next - at);
		at = next;
	}
	fuzz_contents_free(s.contents);
	kvi_out_free(&s.content);
	kvi_crypt_close(&s.crypt);
	*out_n = s.n;
	return s.p;
}

uint8_t *fuzz_seal(const uint8_t *in, size_t n, size_t *out_n)
{
	return seal(in, n, out_n, false);
}

uint8_t *fuzz_seal_encrypted(const uint8_t *in, size_t n, size_t *out_n)
{
	return seal(in, n, out_n, true);
}
