/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_decode.c - decodes one chunk: frame, parameters, payload, raw_check */
#include "stream/reader_state.h"

static kvarc_ret bad(const struct kvi_frame *f, kvarc_error *e,
                     const char *what)
{
	return kvi_fail(e, KVARC_DATA, f->offset, f->head.sequence,
	                "%s frame %llu at offset %llu: %s; salvage may give "
	                "the rest", kvi_frame_name(f->head.type),
	                (unsigned long long)f->head.sequence,
	                (unsigned long long)f->offset, what);
}

kvarc_ret kvi_reader_read_frame(kvarc_reader *r, uint64_t offset,
                                uint16_t type, uint64_t sequence,
                                struct kvi_buffer *buf, struct kvi_frame *f,
                                kvarc_error *e)
{
	kvarc_ret ret = kvi_frame_read(&r->in, offset, buf, f, e);
	if (ret == KVARC_END)
		return kvi_fail(e, KVARC_DATA, offset, sequence, "the file "
		                "ends before the frame at offset %llu that it "
		                "names", (unsigned long long)offset);
	if (ret == KVARC_OK)
		ret = kvi_frame_meaning(f, e);
	if (ret)
		return ret;
	if (f->head.type != type || f->head.sequence != sequence)
		return bad(f, e, "another frame was expected here");
	return KVARC_OK;
}

kvarc_ret kvi_reader_add_params(kvarc_reader *r, const struct kvi_frame *f,
                                uint64_t sequence, const uint8_t *content,
                                size_t bytes, struct kvi_params_use **use,
                                kvarc_error *e)
{
	struct kvi_params_header h;
	struct kvi_params *params;
	if (!kvi_params_header_parse(&h, content, bytes))
		return bad(f, e, "it is too short");
	kvarc_ret ret = kvi_params_check(&r->geometry, &h, f, e);
	if (ret)
		return ret;
	const kvarc_tensor *t = &r->geometry.tensors[h.tensor];
	ret = kvi_params_parse(&params, &r->alloc, h.codec, t->dtype, h.heads,
	                       t->channels, kvi_tensor_rope(&r->geometry, t),
	                       content + KVI_PARAMS_HEADER_BYTES,
	                       bytes - KVI_PARAMS_HEADER_BYTES);
	if (ret == KVARC_DATA)
		return bad(f, e, "its parameters are not valid");
	if (ret == KVARC_OPTIONS)
		return kvi_fail(e, ret, f->offset, f->head.sequence,
		                "frame %llu at offset %llu has parameters that "
		                "a newer version of kvarc is needed for",
		                (unsigned long long)f->head.sequence,
		                (unsigned long long)f->offset);
	if (ret == KVARC_OK)
		ret = kvi_params_store_add(&r->store, params, &h, sequence, use);
	return ret ? kvi_fail_alloc(e, &r->alloc) : KVARC_OK;
}

/* The frame with this sequence number, else a copy of it. */
static const struct kvi_params_ref *find_params(const kvarc_reader *r,
                                                uint64_t sequence)
{
	size_t i = kvi_reader_params_at(r, sequence);
	const struct kvi_params_ref *p = r->params.p;
	if (i < r->params.n && p[i].sequence == sequence)
		return &p[i];
	for (i = 0; r->salvage && i < r->params.n; i++)
		if (p[i].copy_of == sequence)
			return &p[i];
	return NULL;
}

static kvarc_ret load_params(kvarc_reader *r, struct kvi_packer *packer,
                             const struct kvi_params_ref *ref,
                             uint64_t sequence, struct kvi_params_use **use,
                             kvarc_error *e)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	const uint8_t *content;
	uint8_t *owned = NULL;
	kvarc_ret ret = kvi_reader_read_frame(r, ref->offset, KVI_FRAME_PARAMS,
	                                      ref->sequence, &buf, &f, e);
	if (ret == KVARC_OK)
		ret = kvi_frame_content(packer, &f, &content, &owned, e);
	if (ret == KVARC_OK)
		ret = kvi_reader_add_params(r, &f, sequence, content,
		                            f.head.decoded_bytes, use, e);
	kvi_free(&r->alloc, owned);
	kvi_free(&r->alloc, buf.p);
	return ret;
}

kvarc_ret kvi_reader_params(kvarc_reader *r, struct kvi_packer *packer,
                            const struct kvi_chunk_ref *c,
                            struct kvi_params_use **use, kvarc_error *e)
{
	*use = NULL;
	if (!c->params)
		return KVARC_OK;
	*use = kvi_params_store_find(&r->store, c->tensor, c->head, c->params);
	if (!*use && !kvi_input_seekable(&r->in))
		return kvi_fail(e, KVARC_OPTIONS, c->offset, c->sequence,
		                "chunk %llu uses PARAMS frame %llu, which is "
		                "not the last one before it: the file needs a "
		                "source that can seek",
		                (unsigned long long)c->sequence,
		                (unsigned long long)c->params);
	if (!*use) {
		const struct kvi_params_ref *ref = find_params(r, c->params);
		if (!ref)
			return kvi_fail(e, KVARC_DATA, c->offset, c->sequence,
			                "PARAMS frame %llu, which chunk %llu "
			                "uses, is missing",
			                (unsigned long long)c->params,
			                (unsigned long long)c->sequence);
		kvarc_ret ret = load_params(r, packer, ref, c->params, use, e);
		if (ret)
			return ret;
	}
	const struct kvi_params_header *got = &(*use)->header;
	if (got->tensor == c->tensor && got->head == c->head &&
	    got->heads == c->heads)
		return KVARC_OK;
	kvi_params_store_release(&r->store, *use);
	*use = NULL;
	return kvi_fail(e, KVARC_DATA, c->offset, c->sequence, "PARAMS frame "
	                "%llu is not of the tensor of chunk %llu, which uses "
	                "it", (unsigned long long)c->params,
	                (unsigned long long)c->sequence);
}

kvarc_ret kvi_reader_read_segment(kvarc_reader *r, struct kvi_packer *packer,
                                  const struct kvi_segment_ref *ref,
                                  struct kvi_segment *s, kvarc_error *e)
{
	struct kvi_buffer buf = { 0 };
	struct kvi_frame f;
	const uint8_t *content;
	uint8_t *owned = NULL;
	kvarc_ret ret = kvi_reader_read_frame(r, ref->offset, KVI_FRAME_SEGMENT,
	                                      ref->sequence, &buf, &f, e);
	if (ret == KVARC_OK)
		ret = kvi_frame_content(packer, &f, &content, &owned, e);
	if (ret == KVARC_OK &&
	    (!kvi_segment_parse(s, content, f.head.decoded_bytes) ||
	     s->track != ref->track || s->t0 != ref->t0 || s->n != ref->n))
		ret = bad(&f, e, "it is not valid, or not what the index says");
	kvi_free(&r->alloc, owned);
	kvi_free(&r->alloc, buf.p);
	return ret;
}

/* One chunk frame in memory, ready to be decoded. */
struct piece {
	const struct kvi_frame *frame;
	const struct kvi_chunk_header *h;
	const int32_t *positions; /* NULL: not known */
	const struct kvi_params_use *use; /* NULL: the codec has none */
};

static kvarc_ret decode_payload(kvarc_reader *r, struct kvi_coder *coder,
                                const struct piece *p, uint8_t *raw,
                                kvarc_error *e)
{
	const kvarc_tensor *t = &r->geometry.tensors[p->h->tensor];
	struct kvi_chunk chunk = {
		.dtype = t->dtype, .n_tokens = p->h->n, .heads = p->h->heads,
		.head_channels = t->channels, .positions = p->positions,
		.rope = kvi_tensor_rope(&r->geometry, t)
	};
	const struct kvi_params *params = p->use ? p->use->params : NULL;
	if (p->use && p->use->header.codec != p->h->codec)
		return bad(p->frame, e, "its PARAMS are of another codec");
	if (!p->positions && params && kvi_params_rotates(params))
		return bad(p->frame, e, "the positions of its tokens are lost");
	kvarc_ret ret = kvi_chunk_decode(
		coder, &chunk, p->h->codec, p->h->lane_order, params,
		p->frame->payload + KVI_CHUNK_HEADER_BYTES,
		p->frame->head.payload_bytes - KVI_CHUNK_HEADER_BYTES, raw);
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(e, &r->alloc);
	if (ret == KVARC_OPTIONS)
		return kvi_fail(e, ret, p->frame->offset,
		                p->frame->head.sequence, "a newer version of "
		                "kvarc is needed for the chunk at offset %llu",
		                (unsigned long long)p->frame->offset);
	if (ret)
		return bad(p->frame, e, "its payload does not decode");
	if (kvi_h64(raw, p->frame->head.decoded_bytes) != p->h->raw_check)
		return bad(p->frame, e, "raw_check does not hold");
	return KVARC_OK;
}

/* Decodes the chunk that a REPEAT names (spec/codecs/repeat.md). */
static kvarc_ret decode_target(kvarc_reader *r, struct kvi_coder *coder,
                               const struct kvi_frame *f, uint8_t *raw,
                               kvarc_error *e)
{
	struct kvi_packer packer;
	struct kvi_params_use *use = NULL;
	struct kvi_segment *segment = NULL;
	struct kvi_chunk_header h;
	struct piece p = { f, &h, NULL, NULL };
	kvarc_ret ret = KVARC_OK;
	kvi_packer_init(&packer, &r->alloc);
	if (!kvi_chunk_header_parse(&h, f->payload, f->head.payload_bytes))
		ret = bad(f, e, "its header is not valid");
	if (ret == KVARC_OK)
		ret = kvi_chunk_check(&r->geometry, &h, f, e);
	if (ret == KVARC_OK) {
		struct kvi_chunk_ref c = { f->offset, f->head.sequence,
		                           h.params, h.tensor, h.head, h.heads };
		ret = kvi_reader_params(r, &packer, &c, &use, e);
	}
	if (ret == KVARC_OK && use && kvi_params_rotates(use->params)) {
		const struct kvi_segment_ref *ref =
			kvi_reader_find_segment(r, h.segment);
		segment = kvi_malloc(&r->alloc, sizeof *segment);
		if (!segment)
			ret = kvi_fail_alloc(e, &r->alloc);
		else if (!ref || !ref->offset || ref->n != h.n)
			ret = bad(f, e, "its SEGMENT is missing");
		else
			ret = kvi_reader_read_segment(r, &packer, ref, segment,
			                              e);
		p.positions = ret ? NULL : segment->positions;
	}
	p.use = use;
	if (ret == KVARC_OK)
		ret = decode_payload(r, coder, &p, raw, e);
	kvi_params_store_release(&r->store, use);
	kvi_free(&r->alloc, segment);
	kvi_packer_free(&packer);
	return ret;
}

static kvarc_ret decode_repeat(struct kvi_decode_job *j,
                               struct kvi_coder *coder,
                               const struct kvi_chunk_header *h)
{
	kvarc_reader *r = j->r;
	const uint8_t *p = j->frame.payload + KVI_CHUNK_HEADER_BYTES;
	struct kvi_chunk_header there;
	struct kvi_frame f;
	if (!kvi_input_seekable(&r->in))
		return kvi_fail(&j->error, KVARC_OPTIONS, j->frame.offset,
		                j->frame.head.sequence, "the chunk at offset "
		                "%llu repeats an earlier one: this file needs "
		                "a source that can seek, not a pipe",
		                (unsigned long long)j->frame.offset);
	if (j->frame.head.payload_bytes !=
	    KVI_CHUNK_HEADER_BYTES + KVI_REPEAT_BYTES)
		return bad(&j->frame, &j->error, "its size");
	uint64_t sequence = kvi_load64(p), offset = kvi_load64(p + 8);
	if (sequence >= j->frame.head.sequence || offset >= j->frame.offset ||
	    offset % KVI_FRAME_ALIGN)
		return bad(&j->frame, &j->error, "it repeats a later frame");
	kvarc_ret ret = kvi_reader_read_frame(r, offset, KVI_FRAME_CHUNK,
	                                      sequence, &j->other, &f,
	                                      &j->error);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(&there, f.payload, f.head.payload_bytes) ||
	    there.codec == KVI_CODEC_REPEAT ||
	    there.raw_check != h->raw_check ||
	    f.head.decoded_bytes != j->frame.head.decoded_bytes)
		return bad(&j->frame, &j->error, "what it repeats differs");
	return decode_target(r, coder, &f, j->raw.p, &j->error);
}

/* The header that was read against what the index or the segment say. */
static bool as_expected(const struct kvi_decode_job *j,
                        const struct kvi_chunk_header *h)
{
	return h->tensor == j->ref.tensor && h->head == j->ref.head &&
	       h->heads == j->ref.heads && h->params == j->ref.params &&
	       h->segment == j->segment_sequence && h->t0 == j->t0 &&
	       h->n == j->n;
}

static kvarc_ret get_frame(struct kvi_decode_job *j, struct kvi_chunk_header *h)
{
	kvarc_reader *r = j->r;
	kvarc_ret ret = j->have_frame ? KVARC_OK
		: kvi_reader_read_frame(r, j->ref.offset, KVI_FRAME_CHUNK,
		                        j->ref.sequence, &j->buffer, &j->frame,
		                        &j->error);
	if (ret)
		return ret;
	if (!kvi_chunk_header_parse(h, j->frame.payload,
	                            j->frame.head.payload_bytes))
		return bad(&j->frame, &j->error, "its header is not valid");
	ret = kvi_chunk_check(&r->geometry, h, &j->frame, &j->error);
	if (ret)
		return ret;
	if (!as_expected(j, h))
		return bad(&j->frame, &j->error, "it is not what the index or "
		           "its segment say");
	j->raw_bytes = j->frame.head.decoded_bytes;
	if (!kvi_buffer_grow(&j->raw, &r->alloc, j->raw_bytes, 0))
		return kvi_fail_alloc(&j->error, &r->alloc);
	return KVARC_OK;
}

static kvarc_ret decode_job(struct kvi_decode_job *j, unsigned worker)
{
	kvarc_reader *r = j->r;
	struct kvi_coder *coder = r->coders[worker];
	struct kvi_chunk_header h;
	kvarc_ret ret = get_frame(j, &h);
	if (ret)
		return ret;
	struct piece p = {
		&j->frame, &h,
		j->segment->known ? j->segment->segment.positions : NULL,
		j->params
	};
	ret = h.codec == KVI_CODEC_REPEAT
	      ? decode_repeat(j, coder, &h)
	      : decode_payload(r, coder, &p, j->raw.p, &j->error);
	if (ret || !j->deliver)
		return ret;
	size_t row = j->raw_bytes / j->n;
	if (j->deliver(j->opaque, h.tensor, h.head, h.heads, j->from, j->count,
	               j->raw.p + (size_t)(j->from - j->t0) * row))
		return kvi_fail(&j->error, KVARC_IO, j->frame.offset,
		                j->frame.head.sequence, "taking the decoded "
		                "tokens from %llu on of tensor %u failed",
		                (unsigned long long)j->from,
		                (unsigned)h.tensor);
	return KVARC_OK;
}

static void run(struct kvi_job *job, unsigned worker)
{
	struct kvi_decode_job *j = (struct kvi_decode_job *)job;
	j->ret = decode_job(j, worker);
}

struct kvi_segment_use *kvi_segment_use_new(kvarc_reader *r)
{
	struct kvi_segment_use *use = kvi_malloc(&r->alloc, sizeof *use);
	if (use) {
		use->known = true;
		use->users = 1;
	}
	return use;
}

void kvi_segment_use_release(kvarc_reader *r, struct kvi_segment_use *use)
{
	if (use && --use->users == 0)
		kvi_free(&r->alloc, use);
}

/* Waits for a job and takes its result. */
static kvarc_ret reap(kvarc_reader *r, struct kvi_decode_job *j)
{
	if (!j->busy)
		return KVARC_OK;
	kvi_pool_wait(r->pool, &j->job);
	j->busy = false;
	kvi_params_store_release(&r->store, j->params);
	kvi_segment_use_release(r, j->segment);
	j->params = NULL;
	j->segment = NULL;
	if (j->ret == KVARC_DATA && r->salvage)
		return kvi_salvage_chunk(r, j, r->error);
	if (j->ret) {
		if (r->error)
			*r->error = j->error;
		return j->ret;
	}
	const kvarc_common *c = &r->options.common;
	r->progress_done += j->raw_bytes;
	if (c->progress && c->progress(c->progress_opaque, r->progress_done,
	                               r->progress_total))
		return kvi_fail(r->error, KVARC_IO, KVARC_UNKNOWN,
		                KVARC_UNKNOWN, "stopped on request");
	return KVARC_OK;
}

kvarc_ret kvi_reader_job(kvarc_reader *r, struct kvi_decode_job **job)
{
	struct kvi_decode_job *j = &r->jobs[r->next_job];
	kvarc_ret ret = reap(r, j);
	r->next_job = (r->next_job + 1) % r->n_jobs;
	j->r = r;
	j->have_frame = false;
	j->deliver = NULL;
	*job = j;
	return ret;
}

void kvi_reader_submit(kvarc_reader *r, struct kvi_decode_job *j)
{
	j->job.run = run;
	j->busy = true;
	j->segment->users++;
	kvi_pool_submit(r->pool, &j->job);
}

kvarc_ret kvi_reader_drain(kvarc_reader *r, kvarc_ret before)
{
	kvarc_ret ret = before;
	for (unsigned i = 0; i < r->n_jobs; i++) {
		struct kvi_decode_job *j = &r->jobs[r->next_job];
		kvarc_error keep = { 0 };
		if (ret && r->error)
			keep = *r->error;
		kvarc_ret got = reap(r, j);
		if (ret == KVARC_OK)
			ret = got;
		else if (r->error)
			*r->error = keep; /* the first failure is the one told */
		r->next_job = (r->next_job + 1) % r->n_jobs;
	}
	return ret;
}

kvarc_ret kvi_reader_start(kvarc_reader *r)
{
	if (r->jobs)
		return KVARC_OK;
	if (!r->pool && kvi_pool_open(&r->pool, &r->alloc,
	                              r->options.common.threads))
		return kvi_fail_alloc(r->error, &r->alloc);
	if (!r->tables && kvi_coder_tables_open(&r->tables, &r->alloc))
		return kvi_fail_alloc(r->error, &r->alloc);
	r->n_coders = kvi_pool_workers(r->pool);
	if (!r->coders)
		r->coders = kvi_calloc(&r->alloc, r->n_coders, sizeof(void *));
	if (!r->coders)
		return kvi_fail_alloc(r->error, &r->alloc);
	for (unsigned i = 0; i < r->n_coders; i++)
		if (!r->coders[i] &&
		    kvi_coder_open(&r->coders[i], &r->alloc, r->tables,
		                   r->options.common.isa_mask))
			return kvi_fail_alloc(r->error, &r->alloc);
	r->n_jobs = r->n_coders > 1 ? r->n_coders + 1 : 1;
	r->jobs = kvi_calloc(&r->alloc, r->n_jobs, sizeof *r->jobs);
	return r->jobs ? KVARC_OK : kvi_fail_alloc(r->error, &r->alloc);
}

void kvi_reader_free_workers(kvarc_reader *r)
{
	kvi_pool_close(r->pool);
	for (unsigned i = 0; r->jobs && i < r->n_jobs; i++) {
		kvi_free(&r->alloc, r->jobs[i].buffer.p);
		kvi_free(&r->alloc, r->jobs[i].other.p);
		kvi_free(&r->alloc, r->jobs[i].raw.p);
	}
	kvi_free(&r->alloc, r->jobs);
	for (unsigned i = 0; r->coders && i < r->n_coders; i++)
		kvi_coder_close(r->coders[i]);
	kvi_free(&r->alloc, r->coders);
	kvi_coder_tables_close(r->tables);
}
