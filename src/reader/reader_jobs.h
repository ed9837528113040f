/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_jobs.h - the chunks that are on their way through the workers */
#ifndef KVI_READER_JOBS_H
#define KVI_READER_JOBS_H

#include "predict/feature_table.h"
#include "predict/prediction.h"
#include "reader_params.h"
#include "util/pool.h"

/* A segment from a store, whose content digest was right. The calling thread counts users; any
 * thread may read it. */
struct kvi_stored_copy {
	unsigned users; /* the reader while it caches the copy, and uses of the segment */
	kvarc_stored key;
	struct kvi_segment segment;
	kvarc_view *views; /* by tensor of the geometry, packed; zero for other tracks */
	uint8_t *data;     /* NULL: the track has no tensors */
};

/* A segment's positions, shared by the chunks that are decoded. */
struct kvi_segment_use {
	struct kvi_segment segment;
	struct kvi_stored_copy *stored;     /* the elements, from a store; NULL: in the file */
	bool known;                         /* false: lost, there are no ids and no positions */
	struct kvi_feature_table *features; /* NULL: nothing is predicted */
	struct kvi_prediction *prediction;  /* NULL: not by a model */
	kvarc_ret predictor_ret;            /* why predicted chunks cannot be decoded */
	kvarc_error predictor_error;
	unsigned users; /* counted by the calling thread only */
};

/* A chunk to decode: which, and where its elements go. */
struct kvi_decode_task {
	struct kvi_chunk_ref ref; /* index entry that the frame must match */
	struct kvi_segment_use *segment;
	uint64_t segment_sequence;
	uint32_t order_index; /* index in the order of chunks, or KVI_NO_ORDER_INDEX */
	uint64_t t0, from;    /* first token of the chunk, first wanted */
	uint32_t n, count;    /* tokens of the chunk, number of wanted ones */
	/* Tokens of the chunk that are needed at all, those of `from` and `count` among them;
	 * need_to 0: all. */
	uint32_t need_from, need_to;
	const uint8_t *stored; /* the elements, from a store; NULL: in a frame */
	unsigned helpers;      /* threads that wait for the chunk; 0: none known */
	unsigned batch;        /* first batch of frames read ahead that it uses */
	kvarc_deliver deliver; /* NULL: only check, or decode to `direct` */
	void *opaque;
	uint8_t *direct; /* the caller's memory; NULL: to the job's `scratch` */
};

/* The order index of a chunk that neither makes nor needs features. */
#define KVI_NO_ORDER_INDEX UINT32_MAX

/* A chunk on its way through a worker. */
struct kvi_decode_job {
	struct kvi_job job; /* first: the pool gives this back */
	kvarc_reader *r;
	bool busy, have_frame;
	/* in */
	struct kvi_decode_task task;
	struct kvi_buffer buffer, other; /* the frame; a frame that it repeats or refers to */
	struct kvi_frame frame;          /* have_frame, else frame.offset */
	struct kvi_params_use *params;
	/* out */
	struct kvi_buffer scratch;
	struct kvi_buffer expected; /* predicted means; elements that a state refers to */
	bool observed;              /* the model has the elements of the chunk */
	uint8_t *raw;               /* the elements, in task.direct or `scratch` */
	uint32_t raw_bytes;
	kvarc_ret ret;
	kvarc_error error;
};

/* A segment whose chunks of codec linear others repeat: its features up to a chunk, so
 * that chunks that are repeated in order cost one pass. */
struct kvi_repeated {
	pthread_mutex_t lock;
	struct kvi_segment_use *use; /* NULL: none yet */
	uint64_t segment, next;      /* sequence number of the segment; next chunk */
	uint32_t order_index;
	struct kvi_decode_job job;
};

/* The threads that decode chunks; made at their first use. */
struct kvi_reader_workers {
	struct kvi_params_store store;
	struct kvi_pool *pool;
	struct kvi_coder_tables *tables;
	struct kvi_coder **coders; /* by worker */
	unsigned n_coders, n_jobs, next_job;
	struct kvi_decode_job *jobs;
	struct kvi_repeated *repeated; /* NULL until needed; guarded by predictors.lock */
};

/* Makes pool, coders and jobs at the first use; later checks that no job is busy. */
kvarc_ret kvi_reader_start(kvarc_reader *r);
/* Ends the pool and frees coders and jobs; no job runs any more. */
void kvi_reader_free_workers(kvarc_reader *r);
/* The next free job; waits for it, and then for its result, if it is busy. */
kvarc_ret kvi_reader_job(kvarc_reader *r, struct kvi_decode_job **job);

/* The task to decode all of a chunk and to deliver nothing. Of segment `sequence`, `t0` and `n` are
 * used. order_index: may be KVI_NO_ORDER_INDEX. */
struct kvi_decode_task kvi_decode_task(const struct kvi_segment_ref *segment,
                                       const struct kvi_chunk_ref *chunk,
                                       struct kvi_segment_use *use, uint32_t order_index);
/* Hands a job, whose job.run is set, to the pool. */
void kvi_reader_submit(kvarc_reader *r, struct kvi_decode_job *job);
/* Gives what a job decoded to its deliver, if it has one: at the end of the job, or where the
 * caller overlaps with workers when it takes the result. Returns OK, IO. */
kvarc_ret kvi_reader_hand_over(struct kvi_decode_job *job);
/* Waits for jobs that use frames of batches up to one. Returns OK, or the first failure. */
kvarc_ret kvi_reader_reap(kvarc_reader *r, unsigned batch);
/* Waits for all jobs, if there are any. Returns before, or else the first failure. */
kvarc_ret kvi_reader_drain(kvarc_reader *r, kvarc_ret before);
/* A use of a segment, with one user; NULL when memory ran out. */
struct kvi_segment_use *kvi_segment_use_new(kvarc_reader *r);
/* Ends one user's use; the last one frees it. Any thread. */
void kvi_segment_use_release(kvarc_reader *r, struct kvi_segment_use *use);
/* Ends a use of a copy; NULL-safe. */
void kvi_stored_release(kvarc_reader *r, struct kvi_stored_copy *copy);

#endif
