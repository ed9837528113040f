/* SPDX-License-Identifier: BSD-3-Clause */
/* streams_decode.c - decodes the wanted streams of a chunk, on all threads that are free */
#include "coder.h"

#include <stdatomic.h>

#include "util/hash.h"

/* A chunk whose streams are being decoded. */
struct streams_run {
	const struct kvi_coder_job *job;
	const struct kvi_streams_decoder *d;
	unsigned at_once;
	atomic_bool bad;
};

/* Puts the elements of a stream where they go, constant ones included; compares its check. */
static bool finish_stream(const struct kvi_coder_job *job, unsigned i)
{
	const struct kvi_mask *m = &job->mask;
	const struct kvi_tokens t = kvi_stream_tokens(&job->streams, m, i);
	const size_t row = m->C * m->size;
	if (kvi_mask_any(m))
		kvi_mask_scatter(m, job->decoded, t.first, t.end, job->whole);
	return job->streams.n < 2 || !job->checked ||
	       kvi_h64(job->whole + t.first * row, (t.end - t.first) * row) ==
	               job->streams_in->check[i];
}

static void step(void *opaque, size_t number)
{
	struct streams_run *r = opaque;
	const unsigned first = r->job->streams_in->first + (unsigned)number * r->at_once;
	const unsigned left = r->job->streams_in->end - first;
	const unsigned n = left < r->at_once ? left : r->at_once;
	if (atomic_load(&r->bad))
		return;
	bool ok = r->d->some(r->d->opaque, first, n);
	for (unsigned i = 0; i < n && ok; i++)
		ok = finish_stream(r->job, first + i);
	if (!ok)
		atomic_store(&r->bad, true);
}

kvarc_ret kvi_streams_decode(const struct kvi_coder *coder, const struct kvi_coder_job *job,
                             const struct kvi_streams_decoder *decoder)
{
	const unsigned n = job->streams_in->end - job->streams_in->first;
	const unsigned idle = kvi_pool_idle(coder->pool);
	const unsigned threads = 1 + (idle > decoder->helpers ? idle : decoder->helpers);
	const unsigned each = (n + threads - 1) / threads;
	struct streams_run r = { .job = job,
		                 .d = decoder,
		                 .at_once = each < decoder->most ? each : decoder->most };
	atomic_init(&r.bad, false);
	kvi_pool_loop(coder->pool, (n + r.at_once - 1) / r.at_once, step, &r);
	return atomic_load(&r.bad) ? KVARC_DATA : KVARC_OK;
}
