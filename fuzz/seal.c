/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.c - give a mutated archive right checks, so that fuzzers get behind them */
#include "seal.h"

#include "fuzz_common.h"
#include "util/bytes.h"
#include "util/hash.h"

enum {
	SUPERBLOCK = 64,
	HEAD = 32,
	CHECK = 16,
	ALIGN = 16,
	T_CHUNK = 7,
	T_COMMIT = 8,
	T_INDEX = 9,
	T_FOOTER = 10
};

struct seal {
	uint8_t *p;
	size_t n;
	uint8_t sync[8];
	uint64_t sequence;
	uint64_t commit_at, index_at;
};

/* spec 2 */
static void seal_superblock(struct seal *s, const uint8_t *in, size_t n)
{
	uint8_t *p = s->p;
	static const uint8_t magic[8] = { 0x89, 'K', 'V', 'A', 13, 10, 26, 10 };
	memcpy(p, in, n < SUPERBLOCK ? n : SUPERBLOCK);
	memcpy(p, magic, sizeof magic);
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
	} else if (type == T_FOOTER && n >= 24) {
		kvi_store64(pay, s->index_at);
		kvi_store64(pay + 8, s->commit_at);
		kvi_store64(pay + 16, s->sequence);
	} else if (type == T_CHUNK && n > 48 && pay[24] == 0) {
		kvi_store64(pay + 32, kvi_h64(pay + 48, n - 48));
	}
}

/* spec 3.1; in: the frame as it was found, n bytes up to the next one */
static void seal_frame(struct seal *s, const uint8_t *in, size_t n)
{
	uint8_t *p = s->p + s->n, offset[8];
	memcpy(p, in, HEAD);
	size_t want = kvi_load32(in + 12);
	size_t have = n - HEAD < CHECK ? 0 : n - HEAD - CHECK;
	size_t pay = have >= want && have - want < ALIGN ? want : have;
	size_t padded = (pay + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	memcpy(p + HEAD, in + HEAD, pay);
	memset(p + HEAD + pay, 0, padded - pay);
	kvi_store32(p + 12, (uint32_t)pay);
	kvi_store64(p + 16, s->sequence);
	kvi_store64(offset, s->n);
	kvi_store32(p + 28, (uint32_t)kvi_h64_2(p, 28, offset, 8));
	fix_payload(s, kvi_load16(p + 8), p + HEAD, pay);
	/* the check covers header, offset, payload and padding */
	uint8_t head[HEAD + 8];
	memcpy(head, p, HEAD);
	memcpy(head + HEAD, offset, 8);
	struct kvi_h128 h = kvi_h128_2(head, sizeof head, p + HEAD, padded);
	kvi_store64(p + HEAD + padded, h.lo);
	kvi_store64(p + HEAD + padded + 8, h.hi);
	s->n += HEAD + padded + CHECK;
	s->sequence++;
}

/* Where the next sync stands, n when there is none. */
static size_t find_sync(const uint8_t *in, size_t n, size_t from, const uint8_t sync[8])
{
	for (size_t i = from; i + 8 <= n; i++)
		if (in[i] == sync[0] && memcmp(in + i, sync, 8) == 0)
			return i;
	return n;
}

uint8_t *fuzz_seal(const uint8_t *in, size_t n, size_t *out_n)
{
	struct seal s = { 0 };
	/* 32 bytes of input or more become at most 63 more of output */
	s.p = calloc(1, SUPERBLOCK + n * 3);
	FUZZ_CHECK(s.p);
	seal_superblock(&s, in, n);
	size_t at = find_sync(in, n, 0, s.sync);
	while (at < n) {
		size_t next = find_sync(in, n, at + 8, s.sync);
		if (next - at >= HEAD)
			seal_frame(&s, in + at, next - at);
		at = next;
	}
	*out_n = s.n;
	return s.p;
}
