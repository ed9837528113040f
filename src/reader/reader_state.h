/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_state.h - a reader; for the sources of this folder alone */
#ifndef KVI_READER_STATE_H
#define KVI_READER_STATE_H

#include "format/superblock.h"
#include "reader_chain.h"
#include "reader_errors.h"
#include "reader_jobs.h"
#include "reader_losses.h"
#include "reader_meta.h"
#include "reader_predictors.h"
#include "reader_seq.h"

/* Number of segments from a store that are cached, the last ones read, at most. */
enum { KVI_STORED_COPIES = 16 };

/* Counts of the archive; on a pipe: so far. */
struct kvi_reader_totals {
	uint64_t frames, dropped, raw_bytes, elements, chunks, segments, stored_tokens;
	uint64_t codecs;                        /* kvi_codec_bit of chunks; in salvage 0 */
	uint64_t progress_done, progress_total; /* bytes of decoded elements */
};

/* A reader. One thread uses it at a time; its jobs use what is marked as theirs. */
struct kvarc_reader {
	struct kvi_alloc alloc;
	kvarc_error *error;
	kvarc_ret sticky;
	kvarc_reader_options options;
	bool salvage;
	bool allow_lossy; /* lossy chunks are decoded */
	struct kvi_input in;
	struct kvi_ahead ahead; /* frames of `in` that were read ahead */
	unsigned batch;         /* the number of batches of frames that were read ahead */
	unsigned group;         /* segments of kvi_reader_read_groups; 0: not so */
	struct kvi_list plan;   /* kvarc_byte_range: result of kvarc_reader_plan */
	struct kvi_packer packer;
	struct kvi_superblock sb;
	kvarc_geometry geometry;
	struct kvi_order order;
	kvarc_state state;
	bool by_index; /* opened by the INDEX and the FOOTER at its end, without a scan */
	struct kvi_reader_index index;
	struct kvi_reader_meta meta;
	struct kvi_reader_predictors predictors;
	struct kvi_reader_sequence seq;
	struct kvi_reader_chains chains;
	struct kvi_reader_losses losses;
	struct kvi_reader_workers workers;
	struct kvi_reader_totals totals;
	struct kvi_stored_copy *stored[KVI_STORED_COPIES]; /* the newest first; NULL: none */
};

#endif
