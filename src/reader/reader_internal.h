/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_internal.h - what src/files needs of a reader beyond the public calls */
#ifndef KVI_READER_INTERNAL_H
#define KVI_READER_INTERNAL_H

#include <stdbool.h>

#include "format/restore.h"
#include "kvarc.h"
#include "util/alloc.h"
#include "util/shared.h"

/* Number of items of the state that the reader was opened at: final after open, also on a pipe. */
size_t kvi_reader_n_items(const kvarc_reader *r);
/* Number of items of earlier states in the archive. */
size_t kvi_reader_earlier_items(const kvarc_reader *r);
/* The plan of item i of the state; owned by the reader, valid until close. */
const struct kvi_restore *kvi_reader_restore(const kvarc_reader *r, size_t i);

/*
 * Takes the literal bytes [offset, offset + bytes) of an item, numbered in the whole archive:
 * positions count its BLOB bytes, not the file. Item by item in the order of the file, offsets
 * of an item without gaps (in salvage there may be gaps). Returns 0; anything
 * else fails the call in progress with KVARC_IO.
 */
typedef int (*kvi_blob_fn)(void *opaque, uint64_t item, uint64_t offset, const uint8_t *data,
                           size_t bytes);

/*
 * Sets the handler of BLOBs, after open, before the first kvarc_reader_next_segment: BLOBs are
 * handed over, in the caller's thread, while kvarc_reader_next_segment and
 * kvarc_reader_segment_deliver pass them. Without a handler they are checked
 * and skipped. Works the same on files, on pipes and in salvage.
 */
void kvi_reader_set_blob_handler(kvarc_reader *r, kvi_blob_fn fn, void *opaque);

/* Whether the last checkpoint has the state that the reader was opened at: no segment and no item
 * came behind it. */
bool kvi_reader_at_checkpoint(const kvarc_reader *r);

/* The allocator of the reader, which the reader owns. */
const struct kvi_alloc *kvi_reader_alloc(const kvarc_reader *r);
/* False on a pipe. */
KVI_SHARED bool kvi_reader_can_seek(const kvarc_reader *r);
/* True once kvarc_reader_next_segment was called. */
bool kvi_reader_started(const kvarc_reader *r);
/* Whether the caller accepts chunks of lossy tiers. */
bool kvi_reader_allows_lossy(const kvarc_reader *r);
/* Whether the reader was opened to salvage. */
bool kvi_reader_is_salvage(const kvarc_reader *r);
/* Segments that are decoded together where a range has several: chunks of one
 * may have to wait for each other. 1: not so, or there is one thread. */
unsigned kvi_reader_segments_at_once(const kvarc_reader *r);

/*
 * Before the first segment, of a caller that goes through all segments and then reads them as
 * ranges: kvarc_reader_next_segment passes chunks without reading them from now on, and
 * kvarc_reader_read_deliver decodes several segments together, tensor by tensor. Returns the
 * number of segments in which a tensor has about `bytes`; 1: nothing changes, because there are few
 * tokens, chunks depend on earlier ones of their segment, or the source is not one for that.
 */
unsigned kvi_reader_read_groups(kvarc_reader *r, uint64_t bytes);

/* The caller's, NULL: there is none. */
kvarc_error *kvi_reader_error(const kvarc_reader *r);

/* The common options of the caller. */
KVI_SHARED const kvarc_common *kvi_reader_common(const kvarc_reader *r);

struct kvi_profile;
/*
 * The profile of the archive's first predictor, and its level; the reader owns it until close.
 * Returns OK, END (the archive has no predictor, or one of a level above `highest`), MEM, MEMLIMIT,
 * DATA, OPTIONS, PREDICTOR (the profile is not available), IO; the caller's kvarc_error has the
 * text.
 */
KVI_SHARED kvarc_ret kvi_reader_first_profile(kvarc_reader *r, unsigned highest, unsigned *level,
                                              const struct kvi_profile **profile);

/* Whether the file is all there: its FOOTER is at its end and its INDEX was read, so that nothing
 * was found by a scan. */
KVI_SHARED bool kvi_reader_is_whole(const kvarc_reader *r);

/* Reads every frame of the file, on a source that can seek, and verifies it with its check and its
 * order; chunks are not decoded, and segments of a store not asked for. Returns OK, DATA, OPTIONS,
 * IO, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_reader_check_frames(kvarc_reader *r);

/* The file_id of an archive, which it shows without its key. Returns OK, DATA, FORMAT, IO. */
KVI_SHARED kvarc_ret kvi_envelope_id(const kvarc_source *source, const kvarc_common *common,
                                     uint8_t file_id[16]);

/* Reads every frame of an archive that is encrypted, without its key, and verifies its check alone.
 * A source that can seek. Returns OK, DATA, FORMAT, IO, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_envelope_check(const kvarc_source *source, const kvarc_common *common,
                                        uint8_t file_id[16]);

/* The domain of the outer key that opened an encrypted archive, 32 bytes (kvi_crypt_domain); NULL:
 * it is not encrypted. */
KVI_SHARED const uint8_t *kvi_reader_domain(const kvarc_reader *r);

/* Fills the caller's kvarc_error, without an offset, makes code stick to the reader, returns it. */
kvarc_ret kvi_reader_fail(kvarc_reader *r, kvarc_ret code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Copies a caller's range; a range that is zero but for its track becomes all of the track. */
void kvi_range_of(kvarc_range *to, const kvarc_range *range);
/* Clears the sticky error after DATA of a call that reads ranges, tokens or frames of a reader that
 * can seek: other parts of the archive may be whole, and can be read. */
void kvi_reader_forgive(kvarc_reader *r);

#endif
