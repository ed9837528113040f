/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_jobs.c - the chunks that are on their way through the workers */
#include "reader_jobs.h"
#include "reader_state.h"

struct kvi_segment_use *kvi_segment_use_new(kvarc_reader *r)
{
	struct kvi_segment_use *use = kvi_malloc(&r->alloc, sizeof *use);
	if (use) {
		use->known = true;
		use->stored = NULL;
		use->features = NULL;
		use->prediction = NULL;
		use->predictor_ret = KVARC_OK;
		use->users = 1;
	}
	return use;
}

void kvi_segment_use_release(kvarc_reader *r, struct kvi_segment_use *use)
{
	if (!use || --use->users)
		return;
	kvi_feature_table_close(use->features);
	kvi_stored_release(r, use->stored);
	kvi_free(&r->alloc, use);
}

void kvi_stored_release(kvarc_reader *r, struct kvi_stored_copy *copy)
{
	if (!copy || --copy->users)
		return;
	kvi_free(&r->alloc, copy->data);
	kvi_free(&r->alloc, copy->views);
	kvi_free(&r->alloc, copy);
}

kvarc_ret kvi_reader_hand_over(struct kvi_decode_job *job)
{
	const struct kvi_chunk_ref *c = &job->task.ref;
	if (!job->task.deliver)
		return KVARC_OK;
	size_t row = job->raw_bytes / job->task.n;
	if (job->task.deliver(job->task.opaque, c->tensor, c->head, c->heads, job->task.from,
	                      job->task.count,
	                      job->raw + (size_t)(job->task.from - job->task.t0) * row))
		return kvi_fail_at(&job->error, KVARC_IO, job->frame.offset,
		                   job->frame.head.sequence,
		                   "taking the decoded tokens from %llu on of tensor %u failed",
		                   (unsigned long long)job->task.from, (unsigned)c->tensor);
	return KVARC_OK;
}

/* Waits for a job and takes its result. */
static kvarc_ret reap(kvarc_reader *r, struct kvi_decode_job *job)
{
	if (!job->busy)
		return KVARC_OK;
	kvi_pool_wait(r->workers.pool, &job->job);
	job->busy = false;
	if (r->options.common.overlap && !job->ret)
		job->ret = kvi_reader_hand_over(job);
	bool lost = job->ret == KVARC_DATA && r->salvage;
	kvarc_ret ret = lost ? kvi_salvage_chunk(r, &job->task) : job->ret;
	kvi_params_store_release(&r->workers.store, job->params);
	kvi_segment_use_release(r, job->task.segment);
	job->params = NULL;
	job->task.segment = NULL;
	if (lost)
		return ret;
	if (job->ret) {
		if (r->error)
			*r->error = job->error;
		return job->ret;
	}
	const kvarc_common *c = &r->options.common;
	r->totals.progress_done += job->raw_bytes;
	if (c->progress &&
	    c->progress(c->progress_opaque, r->totals.progress_done, r->totals.progress_total))
		return kvi_fail(r->error, KVARC_IO, "stopped on request");
	return KVARC_OK;
}

/* The kvi_job.work of a job that decodes a chunk: predictions take far longer than the rest. */
static size_t work_of(const kvarc_reader *r, const struct kvi_decode_job *job)
{
	const kvarc_tensor *t = &r->geometry.tensors[job->task.ref.tensor];
	return job->task.ref.linear || r->allow_lossy
	               ? 0
	               : (size_t)job->task.n * job->task.ref.heads * t->channels *
	                         kvarc_dtype_bytes(t->dtype);
}

kvarc_ret kvi_reader_job(kvarc_reader *r, struct kvi_decode_job **job)
{
	struct kvi_decode_job *j = &r->workers.jobs[r->workers.next_job];
	kvarc_ret ret = reap(r, j);
	r->workers.next_job = (r->workers.next_job + 1) % r->workers.n_jobs;
	j->have_frame = j->observed = false;
	*job = j;
	return ret;
}

struct kvi_decode_task kvi_decode_task(const struct kvi_segment_ref *segment,
                                       const struct kvi_chunk_ref *chunk,
                                       struct kvi_segment_use *use, uint32_t order_index)
{
	return (struct kvi_decode_task){ .ref = *chunk,
		                         .segment = use,
		                         .segment_sequence = segment->sequence,
		                         .order_index = order_index,
		                         .t0 = segment->t0,
		                         .from = segment->t0,
		                         .n = segment->n,
		                         .count = segment->n };
}

void kvi_reader_submit(kvarc_reader *r, struct kvi_decode_job *job)
{
	job->busy = true;
	job->job.work = work_of(r, job);
	job->task.segment->users++;
	kvi_pool_submit(r->workers.pool, &job->job);
}

kvarc_ret kvi_reader_reap(kvarc_reader *r, unsigned batch)
{
	kvarc_ret ret = KVARC_OK;
	for (unsigned i = 0; r->workers.jobs && i < r->workers.n_jobs && !ret; i++) {
		struct kvi_decode_job *j =
			&r->workers.jobs[(r->workers.next_job + i) % r->workers.n_jobs];
		if (j->busy && j->task.batch <= batch)
			ret = reap(r, j);
	}
	return ret;
}

kvarc_ret kvi_reader_drain(kvarc_reader *r, kvarc_ret before)
{
	kvarc_ret ret = before;
	for (unsigned i = 0; r->workers.jobs && i < r->workers.n_jobs; i++) {
		struct kvi_decode_job *j = &r->workers.jobs[r->workers.next_job];
		kvarc_error keep = { 0 };
		if (ret && r->error)
			keep = *r->error;
		kvarc_ret got = reap(r, j);
		if (ret == KVARC_OK)
			ret = got;
		else if (r->error)
			*r->error = keep; /* the first failure is the one that is reported */
		r->workers.next_job = (r->workers.next_job + 1) % r->workers.n_jobs;
	}
	r->workers.next_job = 0; /* reuses memory that is still in the caches */
	return ret;
}

/* The most that a job is worth; 0 where chunks may be predicted. */
static size_t largest_work(const kvarc_reader *r)
{
	uint64_t most = 0;
	for (size_t i = 0; i < r->geometry.n_tensors; i++) {
		const uint64_t bytes = kvi_tensor_bytes(&r->geometry.tensors[i]) *
		                       KVI_SEGMENT_TOKENS;
		most = bytes > most ? bytes : most;
	}
	if (r->predictors.list.n || r->allow_lossy)
		return 0;
	return most < KVI_POOL_WAKES ? (size_t)most : KVI_POOL_WAKES;
}

/* Checks that no job is left: each call waits for all its jobs before it returns. */
static kvarc_ret check_rest(kvarc_reader *r)
{
	for (unsigned i = 0; i < r->workers.n_jobs; i++)
		if (r->workers.jobs[i].busy)
			return kvi_fail(r->error, KVARC_PROG,
			                "another call of this reader is at work, or was when this "
			                "process was forked: open another reader");
	return KVARC_OK;
}

/* Whether all chunks are of level 0, which takes less time than to read and write them. */
static bool is_level0(const kvarc_reader *r)
{
	return kvi_input_seekable(&r->in) && !r->index.params.n && !r->predictors.list.n;
}

kvarc_ret kvi_reader_start(kvarc_reader *r)
{
	if (r->workers.jobs)
		return check_rest(r);
	kvarc_common *c = &r->options.common;
	c->overlap = c->overlap && !is_level0(r);
	if (!r->workers.pool && (c->overlap ? kvi_pool_open_beside : kvi_pool_open)(
					&r->workers.pool, &r->alloc, c->threads))
		return kvi_fail_alloc(r->error, &r->alloc);
	if (!r->workers.tables && kvi_coder_tables_open(&r->workers.tables, &r->alloc))
		return kvi_fail_alloc(r->error, &r->alloc);
	if (r->allow_lossy && kvi_coder_tables_lossy(r->workers.tables))
		return kvi_fail_alloc(r->error, &r->alloc);
	unsigned workers = kvi_pool_workers(r->workers.pool);
	r->workers.n_coders = workers;
	if (!r->workers.coders)
		r->workers.coders = kvi_calloc(&r->alloc, r->workers.n_coders, sizeof(void *));
	if (!r->workers.coders)
		return kvi_fail_alloc(r->error, &r->alloc);
	for (unsigned i = 0; i < r->workers.n_coders; i++) {
		if (!r->workers.coders[i] &&
		    kvi_coder_open(&r->workers.coders[i], &r->alloc, r->workers.tables,
		                   r->options.common.isa_mask))
			return kvi_fail_alloc(r->error, &r->alloc);
		kvi_coder_share(r->workers.coders[i], r->workers.pool);
	}
	r->workers.n_jobs = kvi_pool_jobs(r->workers.pool, largest_work(r));
	if (r->workers.n_jobs < 2)
		r->workers.n_jobs = 2;
	r->workers.jobs = kvi_calloc(&r->alloc, r->workers.n_jobs, sizeof *r->workers.jobs);
	return r->workers.jobs ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
}

void kvi_reader_free_workers(kvarc_reader *r)
{
	kvi_pool_close(r->workers.pool);
	for (unsigned i = 0; r->workers.jobs && i < r->workers.n_jobs; i++) {
		kvi_free(&r->alloc, r->workers.jobs[i].buffer.p);
		kvi_free(&r->alloc, r->workers.jobs[i].other.p);
		kvi_free(&r->alloc, r->workers.jobs[i].scratch.p);
		kvi_free(&r->alloc, r->workers.jobs[i].expected.p);
	}
	kvi_free(&r->alloc, r->workers.jobs);
	for (unsigned i = 0; r->workers.coders && i < r->workers.n_coders; i++)
		kvi_coder_close(r->workers.coders[i]);
	kvi_free(&r->alloc, r->workers.coders);
	kvi_coder_tables_close(r->workers.tables);
}
