/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_state.h - the writer's insides, shared by the writer's own sources */
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
#include "repeat.h"
#include "writer_coded.h"
#include "predict/token_coder.h"
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
	struct kvi_list states; /* struct kvi_kept_state: what later checkpoints may refer to */
	struct kvi_group *like; /* of the same state on a track before, NULL: none */
};

/* Elements of a state, in a chunk that others may refer to; sequence 0: it is not known. */
struct kvi_kept_state {
	uint64_t t0, sequence, offset;
	uint32_t n;
	uint8_t *elements;
};

/* What a tier does with each token of a segment. */
struct kvi_taken {
	bool per_token;                    /* rates differ by token or tokens are dropped */
	uint32_t from[KVI_SEGMENT_TOKENS]; /* what fetch calls them */
	int16_t rate[KVI_SEGMENT_TOKENS];
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
	struct kvi_chain before; /* of the tokens before it */
	size_t at, bytes;        /* of its content in kept_contents */
};

/* How far a track has come. Counts are tokens from the first one of the track. */
struct kvi_writer_track {
	uint64_t n_written;   /* in the file, those that a rewind replaces left out */
	uint64_t n_committed; /* as the next COMMIT says: a rewind without segments behind it
	                       * changes nothing (spec 6.2) */
	uint64_t item_tokens; /* that packed files need, until the next checkpoint */
	uint64_t n_submitted; /* written, or in segments that are being encoded */
	uint64_t n_total;     /* with the tokens that the current call appends */
	uint64_t n_appended;  /* by all calls, dropped tokens included */
	int64_t next_position;
	bool wants_positions;   /* next_position is not known */
	struct kvi_chain chain; /* of what is written */
	/* For rewinds: the segments that this writer wrote and that are left, in order. */
	struct kvi_list kept; /* struct kvi_kept_segment */
	struct kvi_out kept_contents;
	uint32_t segment_tokens;
	uint32_t first_group, end_group;
	struct kvi_waiting *waiting;       /* NULL until needed */
	struct kvi_prediction *prediction; /* NULL: no model predicts it */
	struct kvi_token_coder *ids;       /* NULL: they are stored, those before may be coded */
};

/* A segment whose chunks are encoded, or written. */
struct kvi_open_segment {
	struct kvi_segment s;
	struct kvi_taken taken;
	struct kvi_feature_table *features; /* NULL: no tensor has a model */
	uint32_t left;                      /* chunks that are not written */
	bool begun;                         /* its frame is written, as `sequence` */
	bool verifies;                      /* its chunks are decoded again and compared */
	uint64_t sequence;
};

/* Offset of the payload in a frame of a chunk. */
enum { KVI_CHUNK_PAYLOAD_AT = KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES };
_Static_assert((int)KVI_ENCODED_FRONT >= (int)KVI_CHUNK_PAYLOAD_AT &&
                       (int)KVI_ENCODED_BEHIND >= KVI_FRAME_CHECK_BYTES + KVI_FRAME_ALIGN,
               "a frame fits around a payload");

/* One chunk on its way through a worker. */
struct kvi_encode_job {
	struct kvi_job job; /* first: the pool gives this back */
	kvarc_writer *w;
	struct kvi_group *group;
	/* in */
	struct kvi_open_segment *segment;
	struct kvi_feature_table *features; /* NULL: the tensor has no model */
	struct kvi_prediction *prediction;  /* NULL: no model predicts it */
	kvarc_fetch fetch;
	void *fetch_opaque;
	struct kvi_kept_state before; /* without elements: nothing to refer to */
	/* out */
	kvarc_ret ret;
	kvarc_error error;
	uint32_t raw_bytes;
	struct kvi_h128 raw_hash;
	struct kvi_encoded coded; /* payload: in frame */
	uint8_t *frame;           /* head, chunk header, payload, padding, check: in `memory`, or
	                           * around the payload in the coder */
	/* memory */
	uint8_t *raw;         /* the elements, in `own` or in the worker's coder */
	uint8_t *own, *again; /* again: to verify; both NULL until needed */
	int16_t *expected;    /* by the model, if there is one */
	uint8_t *predicted;   /* the same, as elements; level 8 */
	bool verifies;        /* the chunk is decoded again and compared */
	bool fetched;         /* raw, or the payload, is there before the job starts */
	bool given;           /* the payload is another encoder's */
	bool exact;           /* the elements are what the model predicts */
	bool observed;        /* the prediction session has the elements */
	uint8_t *memory;      /* of a frame */
};

/* A PARAMS frame that is kept to be written again. */
struct kvi_params_copy {
	uint64_t sequence;
	struct kvi_index_entry entry;
	uint32_t payload_bytes, decoded_bytes;
	size_t at; /* of the payload in copies */
};

/* A writer. One thread uses it at a time; its jobs use what is marked as theirs. */
struct kvarc_writer {
	struct kvi_alloc alloc;
	kvarc_error *error;
	kvarc_ret sticky;
	pid_t process; /* that writes; a child of it does not */
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
	struct kvi_h128 geometry_hash; /* of its content */
	struct kvi_writer_track *tracks;
	struct kvi_taken taken; /* of what is appended just now */
	uint64_t *tokens;       /* for commits */
	struct kvi_group *groups;
	size_t n_groups;
	uint32_t chunk_max;             /* raw bytes of the largest chunk */
	struct kvi_linear_plan *plan;   /* levels 2 to 8 */
	struct kvi_predictor predictor; /* what PREDICTOR frames say; owns nothing */
	uint64_t predictor_sequence;
	bool predictor_written; /* by this writer */

	kvarc_reader *archive; /* that is appended to; NULL: a new one */
	bool was_closed;       /* it had a FOOTER, */
	uint64_t was_sequence; /* and was this many frames long */

	struct kvi_out index;
	struct kvi_index_delta index_delta;
	uint64_t index_entries, last_index, last_commit;
	uint64_t checkpoint; /* number of the last one, 0: none */

	struct kvi_out copies;    /* payloads of PARAMS frames */
	struct kvi_out copy_list; /* struct kvi_params_copy */
	bool too_many_copies;
	struct kvi_repeat_table *repeats;
	uint64_t kept_states; /* bytes of elements of all groups */
	bool segment_repeats; /* a chunk of the segment in hand does */

	struct kvi_pool *pool;
	struct kvi_coder_tables *tables;
	struct kvi_coder **coders;
	unsigned n_coders;
	struct kvi_encode_job *jobs; /* a ring */
	unsigned n_jobs, first_job, n_busy;
	struct kvi_open_segment segments[2];
	unsigned next_segment;

	/* Of an append with another encoder; NULL: there is none. */
	const struct kvi_append_coder *coder;
	bool coder_verified; /* a segment with payloads of such an encoder was */
	uint64_t coder_t0;   /* its first token */
	struct kvi_coded_taken coder_taken;
};

/* Whether no call can use the writer any more: w->sticky then says why, an earlier failure or a
 * fork. */
bool kvi_writer_refuses(kvarc_writer *w);
/* Makes ret stick and returns it. */
kvarc_ret kvi_writer_set_error(kvarc_writer *w, kvarc_ret ret);
/* Makes tracks, groups and models for a geometry, which is copied; writes nothing. Returns OK, MEM,
 * MEMLIMIT, PREDICTOR, OPTIONS. */
kvarc_ret kvi_writer_take_geometry(kvarc_writer *w, const kvarc_geometry *g);
/* Writes the tokens that wait. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_flush_tracks(kvarc_writer *w);
/* Calls the sink's flush. Returns OK, IO. */
kvarc_ret kvi_writer_flush_sink(kvarc_writer *w);

/* States that later ones refer to (writer_references.c). */

/* Sets `like` of all groups: files hold states of several checkpoints on tracks of their own. */
void kvi_writer_link_states(kvarc_writer *w);
/* What a chunk of a group and segment may refer to, without elements: nothing. From the archive
 * that is appended to, where this writer has written none; else from a track before. No job has the
 * group; jobs of other tracks have ended, as an append is for one. Returns OK, MEM, MEMLIMIT,
 * IO. */
kvarc_ret kvi_writer_reference(kvarc_writer *w, struct kvi_group *g, const struct kvi_segment *s,
                               struct kvi_kept_state *state);
/* Whether chunks of a group may be referred to by later ones, at this level. */
bool kvi_writer_keeps_states(const kvarc_writer *w, const struct kvi_group *g);
/* Keeps the elements of a job whose chunk was written, where others may refer to it. Returns OK,
 * MEM, MEMLIMIT. */
kvarc_ret kvi_writer_keep_state(struct kvi_encode_job *j, uint64_t sequence, uint64_t offset);
/* Frees all of them. */
void kvi_writer_free_states(kvarc_writer *w);

/* Encrypted archives (writer_crypt.c). */

/* Makes the ENCRYPTED frame of the one in *frame, whose header is h: *frame and *bytes are of that,
 * in memory of the writer, until the next call. Returns OK, MEM, MEMLIMIT, PROG. */
kvarc_ret kvi_writer_seal(kvarc_writer *w, const struct kvi_frame_head *h, uint8_t **frame,
                          uint64_t *bytes);
/* The KEY frames of an encrypted archive, or copies of them. */
kvarc_ret kvi_writer_emit_keys(kvarc_writer *w);
/* The file key of the archive that is appended to. Returns OK, MEM, MEMLIMIT, OPTIONS. */
kvarc_ret kvi_writer_resume_crypt(kvarc_writer *w);
/* Behind a cut: a frame of a private type, so that what follows has other offsets than what was
 * lost. */
kvarc_ret kvi_writer_part_from_lost(kvarc_writer *w);

/* Parity (writer_parity.c). */

/* What options may ask for; NULL: nothing. Returns OK, PROG. */
kvarc_ret kvi_writer_parity_check(const kvarc_parity *p, kvarc_error *e);
/* Makes what the options ask for. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_writer_parity_open(kvarc_writer *w);
/* Frees it, if there is any. */
void kvi_writer_parity_close(kvarc_writer *w);
/* Bytes of the superblock (type 0) or of a frame that were written. Rows may follow. Returns OK,
 * MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_cover(kvarc_writer *w, uint16_t type, const uint8_t *bytes, uint64_t n,
                           uint64_t offset);
/* Writes the rows of all that was covered. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_parity_flush(kvarc_writer *w);
/* Whether the next frame is a row of the same group: nothing may come between. */
bool kvi_writer_parity_busy(const kvarc_writer *w);

/* Rewinds (writer_rewind.c). */

/* Keeps what a rewind into a segment needs: w->content is the segment's content. before: chain
 * value of the tokens before it. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_writer_keep_segment(kvarc_writer *w, const struct kvi_segment *s,
                                  struct kvi_chain before);

/* Frames (writer_frames.c). */

/*
 * Writes a frame whose payload is at frame + KVI_FRAME_HEAD_BYTES; space for
 * padding and check behind it is the caller's. entry: what the index says,
 * type, offset and sequence are filled in; NULL for INDEX and FOOTER.
 */
kvarc_ret kvi_writer_emit(kvarc_writer *w, uint16_t type, uint8_t *frame, uint32_t payload_bytes,
                          uint32_t decoded_bytes, struct kvi_index_entry *entry);
/* The same for content in memory, packed or not. */
kvarc_ret kvi_writer_emit_content(kvarc_writer *w, uint16_t type, const void *content, size_t bytes,
                                  bool packed, struct kvi_index_entry *entry);
/* Writes a PARAMS frame for the tensors of a group. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_emit_params(kvarc_writer *w, struct kvi_group *g, uint8_t codec,
                                 const uint8_t *content, size_t bytes);
/* Writes a COMMIT frame for everything written so far; checkpoint: NULL: it is none. Returns OK,
 * MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_emit_commit(kvarc_writer *w, const struct kvi_checkpoint *checkpoint);
/* Copies of parameters, commit, index, footer. */
kvarc_ret kvi_writer_finish(kvarc_writer *w);

/* Chunks, in a worker (writer_encode.c). */

/* Gets the elements of a chunk, before its job starts where the caller overlaps with workers, else
 * as part of it: fills raw, raw_bytes; ret and error when that failed. */
void kvi_writer_get_elements(struct kvi_encode_job *j);
/* Whether others need features of the chunk, and so its elements. */
static inline bool kvi_writer_asks_features(const struct kvi_encode_job *j)
{
	return j->features && kvi_feature_slot(j->features, j->group->order_index)->asked;
}
/* The tier of a tensor's layer; false: the tensor stays lossless. */
bool kvi_writer_tier(const kvarc_writer *w, uint32_t tensor, kvarc_lossy *tier);
/* Encodes the chunk of a struct kvi_encode_job: fills its out members. */
void kvi_writer_encode(struct kvi_job *job, unsigned worker);
/* Elements of tokens, and the call that gets them. */
struct kvi_fetching {
	kvarc_fetch fetch;
	void *opaque;
	const struct kvi_taken *taken; /* per_token, or tokens are t0 and those after it */
	uint64_t t0;
	uint32_t n;
};
/* Heads of a tensor, packed. Returns what fetch does. */
int kvi_writer_fetch(const kvarc_writer *w, const struct kvi_fetching *f, uint32_t tensor,
                     uint32_t head, uint32_t heads, uint8_t *dst);

/* Segments (writer_segment.c). */

/* Pool, coders and buffers; at the first append. */
kvarc_ret kvi_writer_start(kvarc_writer *w);
/* Begins to encode one segment; it and its commit are written by later calls,
 * kvi_writer_drain at the latest, until when fetch is called. segment and taken are copied. */
kvarc_ret kvi_writer_segment(kvarc_writer *w, const struct kvi_segment *segment,
                             const struct kvi_taken *taken, kvarc_fetch fetch, void *opaque);
/* The SEGMENT frame; the commit behind the last chunk. */
kvarc_ret kvi_writer_begin_segment(kvarc_writer *w, struct kvi_open_segment *s);
/* Closes a segment behind its last chunk. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_end_segment(kvarc_writer *w, const struct kvi_open_segment *s);
/* A chunk that was written. Returns OK, IO (stopped on request). */
kvarc_ret kvi_writer_count(kvarc_writer *w, uint32_t tensor, uint32_t raw_bytes);
/* Writes what is on its way, or drops it after a failure ret. */
kvarc_ret kvi_writer_drain(kvarc_writer *w, kvarc_ret ret);

/* Profiles (writer_profile.c). */

/* Which tensors the profile of the options models; before groups are made. */
kvarc_ret kvi_writer_plan(kvarc_writer *w);
/* The models of tracks, at levels 4 to 8; after groups are made. */
kvarc_ret kvi_writer_predictions(kvarc_writer *w);
/* What the prediction session of a track is opened with, once there is a plan. */
struct kvi_prediction_options kvi_writer_prediction_options(const kvarc_writer *w, uint32_t track);
/* PREDICTOR, and PROFILE frames when the profile is embedded. */
kvarc_ret kvi_writer_emit_profile(kvarc_writer *w);
/* PREDICTOR as w->predictor has it; content_bytes: of the profile that follows, 0: none does. */
kvarc_ret kvi_writer_emit_predictor(kvarc_writer *w, uint64_t content_bytes);
/* PREDICTOR once more, so that a damaged one costs nothing. */
kvarc_ret kvi_writer_emit_predictor_copy(kvarc_writer *w);

/* Appends (writer_append.c). */

/* What an append asks of its arguments; t0: tokens that were appended before. Returns OK, PROG,
 * GEOMETRY. */
kvarc_ret kvi_writer_may_append(const kvarc_writer *w, uint32_t track, uint64_t t0, uint64_t n,
                                const int32_t *positions);
/* Writes the tokens of a track that wait. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_flush_track(kvarc_writer *w, uint32_t track);

#endif
