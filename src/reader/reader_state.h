/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_state.h - the reader's insides, shared by the reader's own sources */
#ifndef KVI_READER_STATE_H
#define KVI_READER_STATE_H

#include "codecs/codec.h"
#include "format/chain_value.h"
#include "format/identity.h"
#include "format/predictor_frame.h"
#include "format/superblock.h"
#include "predict/feature_table.h"
#include "predict/prediction.h"
#include "params_store.h"
#include "reader_internal.h"
#include "reader_refs.h"
#include "predict/token_coder.h"
#include "format/frame_walk.h"
#include "util/pool.h"
#include "util/list.h"

/* A PREDICTOR frame and, once a chunk needed it, its profile. */
struct kvi_predictor_ref {
	struct kvi_predictor p;
	uint64_t sequence;
	struct kvi_list parts; /* struct kvi_blob_ref: its PROFILE frames */
	uint8_t *content;      /* a pipe: what was in them */
	uint64_t filled;
	bool too_large; /* content, for the memory limit */
	bool looked;    /* the rest says what came of it */
	kvarc_ret ret;
	kvarc_error error;
	const struct kvi_profile *profile;
	struct kvi_profile *own;
	struct kvi_linear_plan *plan;
	struct kvi_prediction **sessions; /* by track, made at their first use; kind 2 */
	bool ids_looked, ids_fell_back;   /* the same of the model's head, for ids that it coded */
	kvarc_ret ids_ret;
	kvarc_error ids_error;
	struct kvi_token_coder **coders; /* by track */
};

struct kvi_stored_copy;
/* A segment's positions, shared by the chunks that are decoded. */
struct kvi_segment_use {
	struct kvi_segment segment;
	struct kvi_stored_copy *stored; /* its elements, from a store; NULL: the file has them */
	bool known;                     /* false: lost, there are no ids and no positions */
	struct kvi_feature_table *features; /* NULL: nothing is predicted */
	struct kvi_prediction *prediction;  /* NULL: not by a model */
	kvarc_ret predictor_ret;            /* why codec linear cannot be decoded; a pipe */
	kvarc_error predictor_error;
	unsigned users; /* counted by the calling thread only */
};

/* One chunk on its way through a worker. */
struct kvi_decode_job {
	struct kvi_job job; /* first: the pool gives this back */
	kvarc_reader *r;
	bool busy, have_frame;
	/* in */
	const uint8_t *stored;           /* the elements, from a store; NULL: of a frame */
	struct kvi_buffer buffer, other; /* the frame; one that it repeats or refers to */
	struct kvi_frame frame;          /* have_frame, else frame.offset */
	struct kvi_chunk_ref ref;        /* what is expected */
	uint64_t segment_sequence;
	struct kvi_segment_use *segment;
	uint32_t order_index; /* in the order of chunks */
	bool features;        /* it has to do with segment->features */
	struct kvi_params_use *params;
	unsigned batch;    /* of frames that were read ahead (reader_range.c) */
	uint64_t t0, from; /* first token of the chunk, first wanted */
	uint32_t n, count;
	/* Tokens of the chunk that somebody needs, those of `from` and `count` among them;
	 * need_to 0: all. */
	uint32_t need_from, need_to;
	unsigned helpers;      /* threads that wait for the chunk, as far as is known */
	kvarc_deliver deliver; /* NULL: only check, or decode to `direct` */
	void *opaque;
	uint8_t *direct; /* the caller's memory; NULL: to `scratch` */
	/* out */
	struct kvi_buffer scratch;
	struct kvi_buffer expected; /* by a model; elements that a state refers to */
	bool observed;              /* the model knows what was there */
	uint8_t *raw;               /* in one of the two */
	uint32_t raw_bytes;
	kvarc_ret ret;
	kvarc_error error;
};

/* Bytes of the file that hold no good frame. */
struct kvi_region {
	uint64_t offset, bytes;
	bool explained; /* a loss names it */
};

/* What salvage has found missing. */
struct kvi_loss {
	kvarc_damage place;
	uint64_t tokens; /* place.n, which may be too small for it */
	uint64_t bytes;  /* of elements, or of files outside their tensors */
};

/* A segment whose chunks of codec linear others repeat: its features up to a chunk, so
 * that chunks that are repeated in order cost one pass. */
struct kvi_repeated {
	pthread_mutex_t lock;
	struct kvi_segment_use *use; /* NULL: none yet */
	uint64_t segment, next;      /* its sequence; chunk */
	uint32_t order_index;
	struct kvi_decode_job job;
};

/* A packed file, and how much of its literal bytes was read. */
struct kvi_item {
	struct kvi_restore restore;
	uint64_t sequence;
	uint64_t literal_bytes, next; /* BLOB bytes in all, seen in order */
	uint64_t received;            /* BLOB bytes seen in salvage, which may have gaps */
};

/* The frames of a source that can seek, in the order of the file. */
struct kvi_reader_index {
	struct kvi_list chunks;            /* struct kvi_chunk_ref */
	struct kvi_list segments;          /* struct kvi_segment_ref */
	struct kvi_list stored;            /* struct kvi_stored_ref */
	struct kvi_list namespaces;        /* char * */
	struct kvi_list params;            /* struct kvi_params_ref */
	struct kvi_list blobs;             /* struct kvi_blob_ref */
	struct kvi_order_walk chunk_order; /* while the index is built */
	uint64_t *tokens;                  /* committed tokens by track, also on a pipe */
	uint64_t *last;                    /* by track: 1 + the last segment, 0: none */
	struct kvi_list checkpoints;       /* struct kvi_checkpoint_ref */
	/* Of kvarc_reader_segment_at: how many segments with tokens left come before this one. */
	uint64_t listed;
	size_t listed_at;
	/* The last frame that was added, if its size is wanted: that is known when the next one is
	 * added. */
	uint32_t *unended;
	uint64_t unended_offset;
};

/* Metadata frames. */
struct kvi_reader_meta {
	struct kvi_identity identity;
	struct kvi_list items; /* struct kvi_item; all of the file */
	size_t first_item;     /* of the set in hand (spec 10): at first while the file is opened */
	bool set_closed;       /* a checkpoint came behind it */
	/* The same while frames are passed in order. */
	size_t passed_first;
	bool passed_closed;
	kvi_blob_fn blob;
	void *blob_opaque;
	struct kvi_buffer commit; /* of kvarc_reader_checkpoint */
	/* Bytes that metadata may still decode to while the reader is opened: the memory limit at
	 * first, although they are not held at the same time. */
	uint64_t decode_left;
};

/* The PREDICTOR frames. */
struct kvi_reader_predictors {
	struct kvi_list list; /* struct kvi_predictor_ref * */
	pthread_mutex_t lock; /* of what is loaded of them, and of workers.repeated */
	bool has_lock;
};

/* The position of a caller that reads segments in the order of the file. */
struct kvi_reader_sequence {
	struct kvi_walk walk;
	bool started, in_segment, ended;
	bool pending; /* a pipe: the walk stands on a frame that open has read */
	kvarc_ret pending_ret;
	kvarc_error pending_error;
	/* A file that is cut, or damaged behind its last commit, is read to this offset. */
	uint64_t stop;
	kvarc_error cut_error;
	size_t salvage_at; /* salvage: index of the next segment */
	/* The STOREREF in hand: its next segment, and whether one of it is in hand. */
	size_t next_part;
	bool in_part;
	struct kvi_segment_use *segment;
};

/* Chain values, while segments are passed in order. */
struct kvi_reader_chains {
	struct kvi_h128 geometry; /* of its content */
	struct kvi_chain root;    /* known: since the first segment that has a chain value */
	struct kvi_chain *last;   /* by track: of its last segment */
	struct kvi_out scratch;
};

/* What salvage has found missing. */
struct kvi_reader_losses {
	struct kvi_list regions; /* struct kvi_region */
	struct kvi_list list;    /* struct kvi_loss */
	uint64_t *expected;      /* tokens by track that the archive had, from the good frames */
	uint64_t geometry;       /* offset of the GEOMETRY frame */
	bool end_known;          /* the archive had no more than `expected` */
	kvarc_loss *sums;        /* by track, then of all tracks; or NULL */
	bool final;              /* sums are those of verify */
};

/* The threads that decode chunks; made at their first use. */
struct kvi_reader_workers {
	struct kvi_params_store store;
	struct kvi_pool *pool;
	struct kvi_coder_tables *tables;
	struct kvi_coder **coders; /* one per worker */
	unsigned n_coders, n_jobs, next_job;
	struct kvi_decode_job *jobs;
	struct kvi_repeated *repeated; /* NULL until needed; predictors.lock */
};

/* The most segments from a store that are kept, the last ones that it gave. */
enum { KVI_STORED_COPIES = 16 };

/* Counts of the archive; on a pipe: so far. */
struct kvi_reader_totals {
	uint64_t frames, dropped, raw_bytes, elements, chunks, segments, stored_tokens;
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
	struct kvi_ahead ahead; /* of `in` */
	unsigned batch;         /* the number of batches of frames that were read ahead */
	struct kvi_list plan;   /* kvarc_byte_range: of kvarc_reader_plan */
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

/* kvarc_reader_open; known: NULL, or the file key of another reader of the same file. */
kvarc_ret kvi_reader_open_known(kvarc_reader **out, const kvarc_source *source,
                                const kvarc_reader_options *options, const struct kvi_crypt *known);

/* Makes ret stick (all but OK, END, MEMLIMIT and STORE) and returns it. */
kvarc_ret kvi_reader_set_error(kvarc_reader *r, kvarc_ret ret);

/* Metadata frames (reader_meta.c). */

/* Takes the content of IDENTITY, RESTORE, PREDICTOR frames; others are ignored. */
kvarc_ret kvi_reader_meta(kvarc_reader *r, const struct kvi_frame *f, const uint8_t *content,
                          size_t bytes, kvarc_error *e);
/* A BLOB frame: checks that it is the next one of its item and gives it to the handler. */
kvarc_ret kvi_reader_blob(kvarc_reader *r, const struct kvi_frame *f, const uint8_t *content,
                          size_t bytes, bool deliver, kvarc_error *e);
/* A SEGMENT or RESTORE frame while the file is opened: what it means for the set of items. */
void kvi_reader_begin_set(kvarc_reader *r);
/* A frame that was passed in order: whether items are complete at the checkpoint that closes their
 * set. Returns OK, DATA, OPTIONS (a pipe). */
kvarc_ret kvi_reader_pass_items(kvarc_reader *r, kvarc_error *e);
/* All items are complete at the end. */
kvarc_ret kvi_reader_blobs_end(kvarc_reader *r, kvarc_error *e);

/* Profiles (reader_predictors.c). */

/* Adds the content of a PREDICTOR frame to the list. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS. */
kvarc_ret kvi_reader_add_predictor(kvarc_reader *r, const struct kvi_frame *f,
                                   const uint8_t *content, size_t bytes, kvarc_error *e);
/* A PROFILE frame of the last PREDICTOR: where it is. */
kvarc_ret kvi_reader_add_part(kvarc_reader *r, uint64_t offset, uint64_t sequence, kvarc_error *e);
/* The same on a pipe, which passes once: its content. */
kvarc_ret kvi_reader_keep_part(kvarc_reader *r, const uint8_t *content, size_t bytes);
/* Its profile and plan. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS, PREDICTOR, IO; the
 * same each time. Safe in workers. */
kvarc_ret kvi_reader_load_predictor(kvarc_reader *r, struct kvi_predictor_ref *x, kvarc_error *e);
/* The PREDICTOR of kind 1 or 2 with this sequence number; in salvage another one when
 * that is lost. NULL: there is none. */
struct kvi_predictor_ref *kvi_reader_find_predictor(const kvarc_reader *r, uint64_t sequence);
/* The one in force at a frame, NULL: none. */
struct kvi_predictor_ref *kvi_reader_predictor_before(const struct kvi_reader_predictors *p,
                                                      uint64_t sequence);
/* A PREDICTOR frame, the given one or another, that embeds its profile; NULL: none does. */
struct kvi_predictor_ref *kvi_reader_embedding(const struct kvi_reader_predictors *p,
                                               struct kvi_predictor_ref *x);
/* PREDICTOR: the model of x is needed. but: what there is instead. */
kvarc_ret kvi_reader_missing_model(const struct kvi_predictor_ref *x, const char *but,
                                   kvarc_error *e);
/* Frees all predictors with their profiles and prediction sessions. */
void kvi_reader_forget_predictors(kvarc_reader *r);
/* Prediction sessions that fell back to scalar arithmetic; no job is under way. */
uint64_t kvi_reader_fallbacks(const kvarc_reader *r);
/* A table of the features of a track for one segment. Returns OK, MEM, MEMLIMIT; the caller
 * closes it. */
kvarc_ret kvi_reader_open_features(kvarc_reader *r, uint32_t track,
                                   const struct kvi_linear_plan *plan,
                                   struct kvi_feature_table **features, kvarc_error *e);
/* What a prediction session of a track is opened with, once a PREDICTOR of kind 2 is loaded. */
struct kvi_prediction_options kvi_reader_prediction_options(const kvarc_reader *r,
                                                            const struct kvi_predictor_ref *x,
                                                            uint32_t track);
/* The model that predicts a segment, at its first token, as use->prediction; for the first `layers`
 * layers. NULL: none does, or use->predictor_ret says why it cannot. */
void kvi_reader_open_prediction(kvarc_reader *r, struct kvi_predictor_ref *x, uint32_t track,
                                uint64_t t0, uint64_t layers, struct kvi_segment_use *use);
/*
 * The index in the order of chunks of the next chunk of a segment, at or after *at. False:
 * there is none; only in damaged files, where the index was not checked.
 */
bool kvi_reader_order_index(const kvarc_reader *r, const struct kvi_segment_ref *s,
                            const struct kvi_chunk_ref *c, uint32_t *at, uint32_t *order_index);
/* For a segment whose chunks are still to come, in order: any of them may be of
 * codec linear. predictor: the sequence number of the one in force, 0: none. */
kvarc_ret kvi_reader_foresee(kvarc_reader *r, uint64_t predictor, struct kvi_segment_use *use);

/* Token ids that a model has coded (reader_ids.c); by the calling thread alone. */

/* The PREDICTOR of a segment's ids, if they may be coded. */
struct kvi_predictor_ref *kvi_reader_codes_ids(const kvarc_reader *r, uint64_t sequence);
/*
 * Ids that are coded become known; x: of the segment. Returns OK; END: the model is not here, why
 * is in e; PREDICTOR (the check does not hold), DATA, OPTIONS, MEM, MEMLIMIT, IO.
 */
kvarc_ret kvi_reader_ids(kvarc_reader *r, struct kvi_predictor_ref *x, struct kvi_segment *s,
                         kvarc_error *e);
/* The same for the first n ids alone, those that another segment has left of it and that has been
 * passed since. */
kvarc_ret kvi_reader_first_ids(kvarc_reader *r, struct kvi_predictor_ref *x, struct kvi_segment *s,
                               uint32_t n, kvarc_error *e);
/* The same for all segments in order: those of later ones may need these, also on a pipe. */
kvarc_ret kvi_reader_pass_ids(kvarc_reader *r, struct kvi_predictor_ref *x, struct kvi_segment *s,
                              kvarc_error *e);

/* Rewinds and checkpoints (reader_rewind.c). */

/* The last segment of the list comes behind those of its track that are left. */
void kvi_index_link(struct kvi_reader_index *x);
/* What remains of each segment at the end of the list; tokens and last of all tracks. */
void kvi_index_settle(struct kvi_reader_index *x, size_t n_tracks);
/* All tokens of all segments are taken as left: to verify them. Of those that lie in a store, those
 * that have some left: a store need not have others (spec frames 12.3). */
void kvi_index_take_all(struct kvi_reader_index *x);
/* The segment that holds the token before a segment. NULL: there is none. */
const struct kvi_segment_ref *kvi_index_before(const struct kvi_reader_index *x,
                                               const struct kvi_segment_ref *s);
/* Models that have gone through a segment go back to the tokens that are left of it; NULL: it is
 * not in the index. No job is under way. */
void kvi_reader_cut_models(kvarc_reader *r, const struct kvi_segment_ref *s);
/* Adds a COMMIT that is a checkpoint. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_index_checkpoint(kvarc_reader *r, const struct kvi_index_entry *e);
/* Whether the last checkpoint is the one that the file is opened at. */
bool kvi_index_is_there(const kvarc_reader *r);
/* OPTIONS: that of the options is not in the file. */
kvarc_ret kvi_reader_no_checkpoint(const kvarc_reader *r, kvarc_error *e);

/* Chain values (reader_chain.c); by the calling thread alone. */

/* A segment in the order of the file: that its chain value is right, if its ids are known. ref: in
 * the index; NULL: on a pipe. Returns OK, MEM, MEMLIMIT, DATA, and of others as kvi_reader_ids. */
kvarc_ret kvi_reader_check_chain(kvarc_reader *r, const struct kvi_segment *s,
                                 struct kvi_segment_ref *ref, kvarc_error *e);
/* After an IDENTITY frame: that chain values before it would still be the same. Returns OK, MEM,
 * MEMLIMIT, DATA. */
kvarc_ret kvi_reader_check_root(kvarc_reader *r, kvarc_error *e);

/* Index (reader_index.c). */

/* Fills chunks, segments, params, tokens and state of a source that can seek. */
kvarc_ret kvi_reader_load(kvarc_reader *r);
/* Scans the file with a walk that has passed GEOMETRY (reader_load.c). */
kvarc_ret kvi_reader_scan(kvarc_reader *r, struct kvi_walk *w);
/* Adds the next frame of the file to the lists. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_index_add(kvarc_reader *r, const struct kvi_index_entry *e);
/* A frame begins at an offset: the one before ends there, at the latest. */
void kvi_index_end_frame(struct kvi_reader_index *x, uint64_t offset);
/* Takes GEOMETRY's content. */
kvarc_ret kvi_reader_geometry(kvarc_reader *r, const struct kvi_frame *f, const uint8_t *content,
                              size_t bytes);
/* The PARAMS frame with this sequence number. NULL: not in the index. */
struct kvi_params_ref *kvi_index_params(const struct kvi_reader_index *x, uint64_t sequence);
/* The SEGMENT frame with this sequence number, or the first segment of such a STOREREF frame. NULL:
 * not in the index. */
struct kvi_segment_ref *kvi_index_segment(const struct kvi_reader_index *x, uint64_t sequence);
/* A segment of the index as it was read. NULL: not in the index. */
struct kvi_segment_ref *kvi_index_segment_of(const struct kvi_reader_index *x,
                                             const struct kvi_segment *s);
/* The chunk with this sequence number. NULL: not in the index. */
struct kvi_chunk_ref *kvi_index_chunk(const struct kvi_reader_index *x, uint64_t sequence);
/* The chunk whose frame begins at this offset of the file. NULL: not in the index. */
struct kvi_chunk_ref *kvi_index_chunk_at(const struct kvi_reader_index *x, uint64_t offset);
/* Bytes and elements of n tokens of a track are added to the totals. */
void kvi_reader_count(kvarc_reader *r, uint32_t track, uint64_t n);

/* Decoding (reader_decode.c; what is in the pool: reader_jobs.c). */

/* A job's run: decodes it. */
void kvi_reader_run_job(struct kvi_job *job, unsigned worker);
/* Gives what a job decoded to its deliver, if it has one: at the end of the job, or where the
 * caller overlaps with workers when it takes the result. Returns OK, IO. */
kvarc_ret kvi_reader_hand_over(struct kvi_decode_job *j);
/* Pool, coders, jobs; at the first use. */
kvarc_ret kvi_reader_start(kvarc_reader *r);
/* Ends the pool and frees coders and jobs; no job runs any more. */
void kvi_reader_free_workers(kvarc_reader *r);
/* reader_decode.c */
/* Frees the decoded targets of REPEAT chunks. */
void kvi_reader_free_repeated(kvarc_reader *r);
/* The next free job; waits for it, and then for its result, if it is busy. */
kvarc_ret kvi_reader_job(kvarc_reader *r, struct kvi_decode_job **job);
/* A chunk that has to do with no features. */
#define KVI_NO_ORDER_INDEX UINT32_MAX
/* That a job of r is to decode all of a chunk of a segment, of which `sequence`, `t0` and `n` are
 * used, and to deliver nothing. order_index: may be KVI_NO_ORDER_INDEX. */
void kvi_reader_assign(kvarc_reader *r, struct kvi_decode_job *j, const struct kvi_segment_ref *s,
                       const struct kvi_chunk_ref *c, struct kvi_segment_use *use,
                       uint32_t order_index);
/* Waits for jobs that use frames of batches up to one. Returns OK, or the first failure. */
kvarc_ret kvi_reader_reap(kvarc_reader *r, unsigned batch);
/* Hands a job, whose job.run is set, to the pool. */
void kvi_reader_submit(kvarc_reader *r, struct kvi_decode_job *job);
/* Waits for all jobs, if there are any. Returns before, or else the first failure. */
kvarc_ret kvi_reader_drain(kvarc_reader *r, kvarc_ret before);
/* Parameters of a chunk: from the store, else from the file. NULL in *use when
 * it has none. That they are of the chunk's codec is tested by its job. */
kvarc_ret kvi_reader_params(kvarc_reader *r, struct kvi_packer *packer,
                            const struct kvi_chunk_ref *c, struct kvi_params_use **use,
                            kvarc_error *e);
/* Parses a PARAMS content into the store, under a sequence number that may be
 * that of the frame it copies. */
kvarc_ret kvi_reader_add_params(kvarc_reader *r, const struct kvi_frame *f, uint64_t sequence,
                                const uint8_t *content, size_t bytes, struct kvi_params_use **use,
                                kvarc_error *e);
/* The content of a frame of this type and sequence number, in place of what is in content. */
kvarc_ret kvi_reader_content(kvarc_reader *r, uint64_t offset, uint16_t type, uint64_t sequence,
                             struct kvi_out *content);
/* That of the PARAMS of a chunk, whatever it says. */
kvarc_ret kvi_reader_params_content(kvarc_reader *r, const struct kvi_chunk_ref *c,
                                    struct kvi_out *content);
/* Reads the SEGMENT frame that ref names. */
kvarc_ret kvi_reader_read_segment(kvarc_reader *r, struct kvi_packer *packer,
                                  const struct kvi_segment_ref *ref, struct kvi_segment *s,
                                  kvarc_error *e);
/* Reads a frame that must be of this type and sequence number, in one request where the index has
 * its size. */
kvarc_ret kvi_reader_read_frame(kvarc_reader *r, uint64_t offset, uint16_t type, uint64_t sequence,
                                struct kvi_buffer *buf, struct kvi_frame *f, kvarc_error *e);
/* A metadata frame in memory; all zero: none yet. */
struct kvi_loaded {
	struct kvi_buffer buffer;
	struct kvi_frame frame;
	const uint8_t *content; /* frame.head.decoded_bytes */
	uint8_t *owned;
};
/* Reads a frame that must be of this type and sequence number, and its content, in place of what x
 * has. The caller frees x, also on failure. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS, IO. */
kvarc_ret kvi_reader_load_frame(kvarc_reader *r, struct kvi_packer *packer, uint64_t offset,
                                uint16_t type, uint64_t sequence, struct kvi_loaded *x,
                                kvarc_error *e);
/* Frees what x has of alloc. */
void kvi_loaded_free(struct kvi_loaded *x, const struct kvi_alloc *alloc);
/* DATA with a text about a frame. */
kvarc_ret kvi_reader_bad(const struct kvi_frame *f, kvarc_error *e, const char *what);
/* DATA: a frame that is not valid. */
kvarc_ret kvi_reader_not_valid(const struct kvi_frame *f, kvarc_error *e);
/* A use of a segment with one user, read from its SEGMENT frame unless that is lost. The
 * caller releases it, also on failure, when it may be NULL. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO. */
kvarc_ret kvi_segment_use_load(kvarc_reader *r, struct kvi_packer *packer,
                               const struct kvi_segment_ref *ref, struct kvi_segment_use **use,
                               kvarc_error *e);
/* A use of a segment, with one user; NULL when memory ran out. */
struct kvi_segment_use *kvi_segment_use_new(kvarc_reader *r);
/* Ends one user's use; the last one frees it. Any thread. */
void kvi_segment_use_release(kvarc_reader *r, struct kvi_segment_use *use);

/* A second, independent reader on the same source (verify.c), which decodes lossy chunks too: the
 * caller's own place in the file stays what it was. */
kvarc_ret kvi_reader_open_again(kvarc_reader *r, unsigned flags, kvarc_reader **to);

/* In order (reader_seq.c). */
kvarc_ret kvi_reader_pipe_open(kvarc_reader *r);

#endif
