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
	struct kvi_list states; /* struct kvi_earlier_state: later checkpoints may refer to them */
	struct kvi_group *like; /* group of the same state on an earlier track, NULL: none */
};

/* Tokens that wait for a full segment. */
struct kvi_waiting {
	uint32_t n;
	bool has_ids;
	struct kvi_chosen_tokens chosen;
	int32_t ids[KVI_SEGMENT_TOKENS];
	int32_t positions[KVI_SEGMENT_TOKENS];
	uint8_t *data; /* the track's tensors in file order, each packed */
};

/* A segment that this writer wrote, with the tokens that are left of it. */
struct kvi_written_segment {
	uint64_t t0;
	uint32_t n;
	struct kvi_chain before; /* chain value of the tokens before it */
	size_t at, bytes;        /* position of its content in written_contents */
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
	/* Segments for rewinds: those that this writer wrote and that are left, in order; the
	 * archive that is appended to has those before them, on track archived. */
	uint32_t archived;
	struct kvi_list written; /* struct kvi_written_segment */
	struct kvi_out written_contents;
	uint32_t segment_tokens;
	uint32_t first_group, end_group;
	struct kvi_waiting *waiting;       /* NULL until needed */
	struct kvi_prediction *prediction; /* NULL: no model predicts it */
	struct kvi_token_coder *ids;       /* NULL: ids are stored now; earlier ones may be coded */
};

/* Content of the next INDEX, and of the FOOTER. */
struct kvi_writer_index {
	struct kvi_pending_entries pending;
	uint64_t last, last_commit; /* offsets of the last INDEX and COMMIT, 0: none */
	uint32_t last_bytes, last_commit_bytes;
	uint64_t codecs; /* kvi_codec_bit of all CHUNK frames of the file */
	bool in_segment; /* no COMMIT has followed the last SEGMENT or STOREREF */
};

/* PARAMS frames that may be written again at the end, as copies. */
struct kvi_params_copies {
	struct kvi_out payloads;
	struct kvi_out list; /* struct kvi_params_copy */
	bool too_many;
};

/* Frames on their way into the sink: sealed, listed, covered by parity. */
struct kvi_writer_output {
	const struct kvi_alloc *alloc; /* of the writer, as error */
	kvarc_error *error;
	kvarc_sink sink;
	uint64_t sync, offset, sequence; /* offset, sequence: of the next frame */
	kvarc_writer_stats stats;
	struct kvi_packer packer;
	struct kvi_out scratch, content;  /* a frame, its content */
	struct kvi_crypt *crypt;          /* NULL: the archive is not encrypted */
	struct kvi_out sealed;            /* an encrypted frame */
	struct kvi_writer_parity *parity; /* NULL: there is none */
	struct kvi_writer_index index;
	struct kvi_params_copies copies;
	bool uncommitted;    /* frames that count came after the last COMMIT */
	uint64_t checkpoint; /* number of the last one, 0: none */
};

/* The predictor in force. */
struct kvi_writer_predictor {
	struct kvi_predictor content; /* content of PREDICTOR frames; owns no memory */
	uint64_t sequence;
	bool written; /* by this writer */
};

/* Chunks that were written, for later ones that repeat them or refer to them. */
struct kvi_writer_earlier {
	struct kvi_repeat_table *repeats; /* NULL: nothing is repeated */
	uint64_t state_bytes;             /* bytes of the states of all groups */
	bool segment_repeats;             /* a chunk of the current segment repeats another */
};

/* Workers, their jobs in a ring, and the segments whose chunks these are. */
struct kvi_writer_workers {
	struct kvi_pool *pool;
	struct kvi_coder_tables *tables;
	/* Coders, and memory for the elements of a chunk, NULL until needed: of one worker each, in
	 * whose caches they stay. */
	struct kvi_coder **coders;
	uint8_t **elements;
	unsigned n_coders;
	struct kvi_encode_job *jobs;
	unsigned n_jobs, first_job, n_busy;
	struct kvi_open_segment segments[2];
	unsigned next_segment;
};

/* The other encoder of the current append. */
struct kvi_writer_other {
	const struct kvi_append_coder *coder; /* NULL: none */
	bool verified; /* a segment with payloads of such an encoder was verified */
	uint64_t t0;   /* first token of that append */
	struct kvi_accepted accepted;
};

/* A writer. One thread uses it at a time; its jobs use what is marked as theirs. */
struct kvarc_writer {
	struct kvi_alloc alloc;
	kvarc_error *error;
	kvarc_ret sticky;
	pid_t process; /* the process that writes; its children must not */
	kvarc_writer_options options;
	kvarc_lossy lossy; /* options.lossy points here */
	struct kvi_writer_output out;

	bool has_geometry, started;
	bool ends; /* appends hold all tokens that their tracks will have */
	kvarc_geometry geometry;
	struct kvi_order order;
	struct kvi_identity identity;  /* all pairs written */
	struct kvi_h128 geometry_hash; /* B128 of the content of GEOMETRY */
	struct kvi_writer_track *tracks;
	struct kvi_chosen_tokens chosen; /* tokens of the current append */
	uint64_t *tokens;                /* for commits */
	struct kvi_group *groups;
	size_t n_groups;
	uint32_t chunk_max;           /* raw bytes of the largest chunk */
	struct kvi_linear_plan *plan; /* levels 2 to 8 */
	struct kvi_writer_predictor predictor;

	kvarc_reader *archive;     /* reader of the archive that is appended to; NULL: a new one */
	struct kvi_resume resumed; /* end of that archive; without one: zeros */

	struct kvi_writer_earlier earlier;
	struct kvi_writer_workers workers;
	struct kvi_writer_other other;
};

#endif
