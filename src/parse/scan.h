/* SPDX-License-Identifier: BSD-3-Clause */
/* scan.h - forward reading of untrusted small fields from a source */
#ifndef KVI_SCAN_H
#define KVI_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* Bytes that a scan reads at once. */
enum { KVI_SCAN_BYTES = 1 << 16 };

/*
 * A window that moves over a source. A get past `end` sets `bad`, a failed
 * read sets `io` and `bad`; gets then return 0. Test after a record.
 */
struct kvi_scan {
	const kvarc_source *src;
	uint64_t at, end;
	bool bad, io;
	uint64_t buf_at;
	size_t buf_n;
	size_t window; /* bytes that the last refill asked for */
	uint8_t buf[KVI_SCAN_BYTES];
};

/* Opens a scan of a source; NULL without memory. Free it with kvi_free. */
struct kvi_scan *kvi_scan_open(const struct kvi_alloc *alloc, const kvarc_source *src);
/* Goes to an offset and clears bad. */
void kvi_scan_seek(struct kvi_scan *scan, uint64_t at);
/* Bytes between the current offset and the end of the window. */
uint64_t kvi_scan_remaining(const struct kvi_scan *scan);
/* The next little-endian number; 0, and bad, past the end. */
uint32_t kvi_scan32(struct kvi_scan *scan);
uint64_t kvi_scan64(struct kvi_scan *scan);
/* Copies the next n bytes to dst. False, and bad, when fewer remain. */
bool kvi_scan_bytes(struct kvi_scan *scan, void *dst, size_t n);
/* Moves n bytes forward; past the end sets bad. */
void kvi_scan_skip(struct kvi_scan *scan, uint64_t n);

#endif
