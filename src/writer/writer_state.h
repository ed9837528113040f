/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_state.h - a writer; for the sources of this folder alone */
#ifndef KVI_WRITER_STATE_H
#define KVI_WRITER_STATE_H

#include <sys/types.h>

#include "codecs/codec.h"
#include "format/chain_value.h"
#include "format/chunk_header.h"
#include "format/commit.h"
#include "format/frame.h"
#include "format/frame_index.h"
#include "format/levels.h"
#include "format/packed.h"
#include "format/segment.h"
#include "format/chunk_order.h"
#include "util/error.h"
#include "predict/feature_table.h"
#include "predict/prediction.h"
#include "writer_segment.h"
#include "writer_coded.h"
#include "predict/token_coder.h"
#include "reader/reader_resume.h"
#include "writer_internal.h"
#include "util/list.h"
#include "util/pool.h"

/* Heads of one tensor that are coded together, and the parameters in force. */
struct kvi_group {
	uint32_t tensor, order_index; /* place: in the order of chunks */
	uint16_t head, heads;
	uint64_t params_sequence;
	struct kvi_params *params;
	bool busy;              /* a job has it */
	struct kvi_list states; /* struct kvi_kept_state: later checkpoints may refer to them */
	struct kvi_group *like; /* group of the same state on an earlier track, NULL: none */
};

/* Tokens that wait for a full segment. */
struct kvi_waiting {
	uint32_t n;
	bool has_ids;
	struct kvi_taken taken;
	int32_t ids[KVI_SEGMENT_TOKENS];
	int32_t positions[KVI_SEGMENT_TOKENS];
	uint8_t *data; /* the track's tensors in file order, each packed */
};

/* A segment that this writer wrote, with the tokens that are left of it. */
struct kvi_kept_segment {
	uint64_t t0;
	uint32_t n;
	struct kvi_chain before; /* chain value of the tokens before it */
	size_t at, bytes;        /* position of its content in kept_contents */
};

/* The state of a track. Counts are tokens from the first one of the track. */
struct kvi_writer_track {
	uint64_t n_written;   /* tokens in the file, without those that a rewind replaces */
	uint64_t n_committed; /* tokens of the next COMMIT: a rewind without segments behind it
	                       * changes nothing (spec 6.2) */
	uint64_t item_tokens; /* tokens that packed files need, until the next checkpoint */
	uint64_t n_submitted; /* tokens written, or in segments that are being encoded */
	uint64_t n_total;     /* tokens with those that the current call appends */
	uint64_t n_appended;  /* tokens of all calls, dropped ones included */
	int64_t next_position;
	bool wants_positions;   /* next_position is not known */
	struct kvi_chain chain; /* chain value of the written tokens */
	/* Segments for rewinds: those that this writer wrote and that are left, in order. */
	struct kvi_list kept; /* struct kvi_kept_segment */
	struct kvi_out kept_contents;
	uint32_t segment_tokens;
	uint32_t first_group, end_group;
	struct kvi_waiting *waiting;       /* NULL until needed */
	struct kvi_prediction *prediction; /* NULL: no model predicts it */
	struct kvi_token_coder *ids;       /* NULL: ids are stored now; earlier ones may be coded */
};

/* A writer. One thread uses it at a time; its jobs use what is marked as theirs. */
struct kvarc_writer {
	struct kvi_alloc alloc;
	kvarc_error *error;
	kvarc_ret sticky;
	pid_t process; /* the process that writes; its children must not */
	kvarc_sink sink;
	kvarc_writer_options options;
	kvarc_lossy lossy; /* options.lossy points here */
	uint64_t sync, offset, sequence;
	kvarc_writer_stats stats;
	struct kvi_packer packer;
	struct kvi_out scratch, content;  /* a frame, its content */
	struct kvi_crypt *crypt;          /* NULL: the archive is not encrypted */
	struct kvi_out sealed;            /* an encrypted frame */
	struct kvi_writer_parity *parity; /* NULL: there is none */

	bool has_geometry, started, uncommitted;
	kvarc_geometry geometry;
	struct kvi_order order;
	struct kvi_identity identity;  /* all pairs written */
	struct kvi_h128 geometry_hash; /* hash of the content of GEOMETRY */
	struct kvi_writer_track *tracks;
	struct kvi_taken taken; /* tokens of the current append */
	uint64_t *tokens;       /* for commits */
	struct kvi_group *groups;
	size_t n_groups;
	uint32_t chunk_max;             /* raw bytes of the largest chunk */
	struct kvi_linear_plan *plan;   /* levels 2 to 8 */
	struct kvi_predictor predictor; /* content of PREDICTOR frames; owns no memory */
	uint64_t predictor_sequence;
	bool predictor_written; /* this writer has written PREDICTOR */

	kvarc_reader *archive;     /* reader of the archive that is appended to; NULL: a new one */
	struct kvi_resume resumed; /* end of that archive; without one: zeros */
	bool was_closed;           /* that archive had a FOOTER */
	uint64_t was_sequence;     /* number of frames of that archive */

	struct kvi_out index;
	struct kvi_index_delta index_delta;
	uint64_t index_entries, last_index, last_commit;
	uint64_t checkpoint; /* number of the last one, 0: none */

	struct kvi_out copies;    /* payloads of PARAMS frames */
	struct kvi_out copy_list; /* struct kvi_params_copy */
	bool too_many_copies;
	struct kvi_repeat_table *repeats;
	uint64_t kept_states; /* bytes of elements of all groups */
	bool segment_repeats; /* a chunk of the current segment repeats another */

	struct kvi_pool *pool;
	struct kvi_coder_tables *tables;
	struct kvi_coder **coders;
	unsigned n_coders;
	struct kvi_encode_job *jobs; /* a ring */
	unsigned n_jobs, first_job, n_busy;
	struct kvi_open_segment segments[2];
	unsigned next_segment;

	/* The other encoder of the current append; NULL: none. */
	const struct kvi_append_coder *coder;
	bool coder_verified; /* a segment with payloads of such an encoder was verified */
	uint64_t coder_t0;   /* first token of that append */
	struct kvi_coded_taken coder_taken;
};

#endif
