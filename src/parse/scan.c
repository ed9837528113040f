/* SPDX-License-Identifier: BSD-3-Clause */
/* scan.c - forward reading of untrusted small fields from a source */
#include "scan.h"

#include <string.h>

#include "util/source.h"
#include "util/bytes.h"

struct kvi_scan *kvi_scan_open(const struct kvi_alloc *alloc, const kvarc_source *src)
{
	struct kvi_scan *s = kvi_malloc(alloc, sizeof *s);
	if (!s)
		return NULL;
	s->src = src;
	s->end = src->size;
	s->buf_n = 0;
	s->buf_at = 0;
	s->window = KVI_SCAN_BYTES;
	s->io = false;
	kvi_scan_seek(s, 0);
	return s;
}

void kvi_scan_seek(struct kvi_scan *s, uint64_t at)
{
	s->at = at;
	s->bad = s->io || at > s->end;
}

uint64_t kvi_scan_remaining(const struct kvi_scan *s)
{
	return s->bad ? 0 : s->end - s->at;
}

/* Reads from s->at on: little behind a jump, where a few fields stand, more behind that. */
static bool refill(struct kvi_scan *s)
{
	enum { AFTER_JUMP = 512, MORE = 8 };
	const uint64_t left = s->end - s->at;
	const bool jump = s->at != s->buf_at + s->buf_n;
	size_t more = s->window > KVI_SCAN_BYTES / MORE ? KVI_SCAN_BYTES : MORE * s->window;
	s->window = jump ? AFTER_JUMP : more;
	const size_t want = left < s->window ? (size_t)left : s->window;
	s->buf_n = 0;
	if (kvi_source_read(s->src, s->buf, want, s->at)) {
		s->io = s->bad = true;
		return false;
	}
	s->buf_at = s->at;
	s->buf_n = want;
	return true;
}

bool kvi_scan_bytes(struct kvi_scan *s, void *dst, size_t n)
{
	uint8_t *out = dst;
	if (n > kvi_scan_remaining(s)) {
		s->bad = true;
		return false;
	}
	while (n) {
		if ((s->at < s->buf_at || s->at - s->buf_at >= s->buf_n) && !refill(s))
			return false;
		size_t skip = (size_t)(s->at - s->buf_at);
		size_t k = s->buf_n - skip < n ? s->buf_n - skip : n;
		memcpy(out, s->buf + skip, k);
		out += k;
		n -= k;
		s->at += k;
	}
	return true;
}

uint32_t kvi_scan32(struct kvi_scan *s)
{
	uint8_t b[4];
	return kvi_scan_bytes(s, b, sizeof b) ? kvi_load32(b) : 0;
}

uint64_t kvi_scan64(struct kvi_scan *s)
{
	uint8_t b[8];
	return kvi_scan_bytes(s, b, sizeof b) ? kvi_load64(b) : 0;
}

void kvi_scan_skip(struct kvi_scan *s, uint64_t n)
{
	if (n > kvi_scan_remaining(s))
		s->bad = true;
	else
		s->at += n;
}
