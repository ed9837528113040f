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

void kvi_scan_seek(struct kvi_scan *scan, uint64_t at)
{
	scan->at = at;
	scan->bad = scan->io || at > scan->end;
}

uint64_t kvi_scan_remaining(const struct kvi_scan *scan)
{
	return scan->bad ? 0 : scan->end - scan->at;
}

/* Reads from scan->at on: little behind a jump, where a few fields stand, more behind that. */
static bool refill(struct kvi_scan *scan)
{
	enum { AFTER_JUMP = 512, MORE = 8 };
	const uint64_t left = scan->end - scan->at;
	const bool jump = scan->at != scan->buf_at + scan->buf_n;
	size_t more = scan->window > KVI_SCAN_BYTES / MORE ? KVI_SCAN_BYTES : MORE * scan->window;
	scan->window = jump ? AFTER_JUMP : more;
	const size_t want = left < scan->window ? (size_t)left : scan->window;
	scan->buf_n = 0;
	if (kvi_source_read(scan->src, scan->buf, want, scan->at)) {
		scan->io = scan->bad = true;
		return false;
	}
	scan->buf_at = scan->at;
	scan->buf_n = want;
	return true;
}

bool kvi_scan_bytes(struct kvi_scan *scan, void *dst, size_t n)
{
	uint8_t *out = dst;
	if (n > kvi_scan_remaining(scan)) {
		scan->bad = true;
		return false;
	}
	while (n) {
		if ((scan->at < scan->buf_at || scan->at - scan->buf_at >= scan->buf_n) &&
		    !refill(scan))
			return false;
		size_t skip = (size_t)(scan->at - scan->buf_at);
		size_t k = scan->buf_n - skip < n ? scan->buf_n - skip : n;
		memcpy(out, scan->buf + skip, k);
		out += k;
		n -= k;
		scan->at += k;
	}
	return true;
}

uint32_t kvi_scan32(struct kvi_scan *scan)
{
	uint8_t b[4];
	return kvi_scan_bytes(scan, b, sizeof b) ? kvi_load32(b) : 0;
}

uint64_t kvi_scan64(struct kvi_scan *scan)
{
	uint8_t b[8];
	return kvi_scan_bytes(scan, b, sizeof b) ? kvi_load64(b) : 0;
}

void kvi_scan_skip(struct kvi_scan *scan, uint64_t n)
{
	if (n > kvi_scan_remaining(scan))
		scan->bad = true;
	else
		scan->at += n;
}
