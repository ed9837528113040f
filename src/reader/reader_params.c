/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_params.c - the PARAMS of chunks: a hash table of those that were parsed */
#include "reader_frames.h"
#include "reader_params.h"
#include "reader_state.h"

bool kvi_params_store_init(struct kvi_params_store *store, const struct kvi_alloc *alloc)
{
	*store = (struct kvi_params_store){ .alloc = alloc };
	if (pthread_mutex_init(&store->lock, NULL)) {
		store->alloc = NULL;
		return false;
	}
	return true;
}

/* Drops a user; the last one frees. The caller holds the lock or is the only thread. */
static void release(struct kvi_params_store *store, struct kvi_params_use *use)
{
	if (!use || --use->users)
		return;
	kvi_params_free(use->params);
	kvi_free(store->alloc, use);
}

void kvi_params_store_free(struct kvi_params_store *store)
{
	if (!store->alloc)
		return;
	for (size_t i = 0; i < store->n_slots; i++)
		release(store, store->slots[i]);
	kvi_free(store->alloc, store->slots);
	pthread_mutex_destroy(&store->lock);
	store->alloc = NULL;
}

/* The slot of a tensor and head, or the empty one where it would go. */
static struct kvi_params_use **find_slot(struct kvi_params_use **slots, size_t n_slots,
                                         uint32_t tensor, uint16_t head)
{
	uint64_t h = ((uint64_t)tensor << 16 | head) * 0x9e3779b97f4a7c15u;
	size_t i = (size_t)(h >> 32) & (n_slots - 1);
	while (slots[i] && (slots[i]->header.tensor != tensor || slots[i]->header.head != head))
		i = (i + 1) & (n_slots - 1);
	return &slots[i];
}

static bool grow(struct kvi_params_store *store)
{
	size_t n = store->n_slots ? 2 * store->n_slots : 64;
	if (store->n_used < store->n_slots / 2)
		return true;
	struct kvi_params_use **slots = kvi_calloc(store->alloc, n, sizeof *slots);
	if (!slots)
		return false;
	for (size_t i = 0; i < store->n_slots; i++)
		if (store->slots[i])
			*find_slot(slots, n, store->slots[i]->header.tensor,
			           store->slots[i]->header.head) = store->slots[i];
	kvi_free(store->alloc, store->slots);
	store->slots = slots;
	store->n_slots = n;
	return true;
}

/*
 * Takes params over, in every case, and replaces what was there of the same
 * tensor and first head. use: NULL, or gets a use that the caller releases.
 * Returns OK, MEM, MEMLIMIT.
 */
static kvarc_ret params_store_add(struct kvi_params_store *store, struct kvi_params *params,
                                  const struct kvi_params_header *header, uint64_t sequence,
                                  struct kvi_params_use **out)
{
	struct kvi_params_use *use = kvi_calloc(store->alloc, 1, sizeof *use);
	pthread_mutex_lock(&store->lock);
	if (!use || !grow(store)) {
		pthread_mutex_unlock(&store->lock);
		kvi_free(store->alloc, use);
		kvi_params_free(params);
		return kvi_alloc_error(store->alloc);
	}
	*use = (struct kvi_params_use){ params, *header, sequence, 1 };
	struct kvi_params_use **slot = find_slot(store->slots, store->n_slots, header->tensor,
	                                         header->head);
	if (*slot)
		release(store, *slot);
	else
		store->n_used++;
	*slot = use;
	if (out) {
		use->users++;
		*out = use;
	}
	pthread_mutex_unlock(&store->lock);
	return KVARC_OK;
}

struct kvi_params_use *kvi_params_store_find(struct kvi_params_store *store, uint32_t tensor,
                                             uint16_t head, uint64_t sequence)
{
	struct kvi_params_use *use = NULL;
	pthread_mutex_lock(&store->lock);
	if (store->n_slots)
		use = *find_slot(store->slots, store->n_slots, tensor, head);
	if (use && use->sequence == sequence)
		use->users++;
	else
		use = NULL;
	pthread_mutex_unlock(&store->lock);
	return use;
}

void kvi_params_store_release(struct kvi_params_store *store, struct kvi_params_use *use)
{
	if (!use)
		return;
	pthread_mutex_lock(&store->lock);
	release(store, use);
	pthread_mutex_unlock(&store->lock);
}

kvarc_ret kvi_reader_add_params(kvarc_reader *r, const struct kvi_frame *frame, uint64_t sequence,
                                const uint8_t *content, size_t bytes, struct kvi_params_use **use,
                                kvarc_error *error)
{
	struct kvi_params_header h;
	struct kvi_params *params;
	if (!kvi_params_header_parse(&h, content, bytes))
		return kvi_reader_bad(frame, error, "it is too short");
	kvarc_ret ret = kvi_params_check(&r->geometry, &h, frame, error);
	if (ret)
		return ret;
	const kvarc_tensor *t = &r->geometry.tensors[h.tensor];
	ret = kvi_params_parse(&params, &r->alloc, h.codec, t->dtype, h.heads, t->channels,
	                       kvi_tensor_rope(&r->geometry, t), content + KVI_PARAMS_HEADER_BYTES,
	                       bytes - KVI_PARAMS_HEADER_BYTES);
	if (ret == KVARC_DATA)
		return kvi_reader_bad(frame, error, "its parameters are not valid");
	if (ret == KVARC_OPTIONS)
		return kvi_reason(
			error, KVARC_REASON_NEWER,
			kvi_fail_at(error, ret, frame->offset, frame->head.sequence,
		                    "frame %llu at offset %llu has parameters that need a newer "
		                    "version of kvarc",
		                    (unsigned long long)frame->head.sequence,
		                    (unsigned long long)frame->offset));
	if (ret == KVARC_OK)
		ret = params_store_add(&r->workers.store, params, &h, sequence, use);
	return ret ? kvi_fail_alloc(error, &r->alloc) : KVARC_OK;
}

/* The frame with this sequence number, else a copy of it. */
static const struct kvi_params_ref *find_params(const kvarc_reader *r, uint64_t sequence)
{
	const struct kvi_params_ref *p = kvi_index_params(&r->index, sequence);
	if (p)
		return p;
	p = r->index.params.p;
	for (size_t i = 0; r->salvage && i < r->index.params.n; i++)
		if (p[i].copy_of == sequence)
			return &p[i];
	return NULL;
}

static kvarc_ret load_params(kvarc_reader *r, struct kvi_packer *packer,
                             const struct kvi_params_ref *ref, uint64_t sequence,
                             struct kvi_params_use **use, kvarc_error *error)
{
	struct kvi_loaded x = { 0 };
	kvarc_ret ret = kvi_reader_load_frame(r, packer, ref->offset, KVI_FRAME_PARAMS,
	                                      ref->sequence, &x, error);
	if (ret == KVARC_OK)
		ret = kvi_reader_add_params(r, &x.frame, sequence, x.content,
		                            x.frame.head.decoded_bytes, use, error);
	kvi_loaded_free(&x, &r->alloc);
	return ret;
}

static kvarc_ret missing_params(const struct kvi_chunk_ref *chunk, kvarc_error *error)
{
	return kvi_fail_at(error, KVARC_DATA, chunk->offset, chunk->sequence,
	                   "PARAMS frame %llu, which chunk %llu uses, is missing",
	                   (unsigned long long)chunk->params, (unsigned long long)chunk->sequence);
}

kvarc_ret kvi_reader_params_content(kvarc_reader *r, const struct kvi_chunk_ref *chunk,
                                    struct kvi_out *content)
{
	const struct kvi_params_ref *p = find_params(r, chunk->params);
	return p ? kvi_reader_content(r, p->offset, KVI_FRAME_PARAMS, p->sequence, content)
	         : missing_params(chunk, r->error);
}

kvarc_ret kvi_reader_params(kvarc_reader *r, struct kvi_packer *packer,
                            const struct kvi_chunk_ref *chunk, struct kvi_params_use **use,
                            kvarc_error *error)
{
	const uint32_t tensor = kvi_chunk_named(r, chunk);
	*use = NULL;
	if (!chunk->params || chunk->linear)
		return KVARC_OK;
	*use = kvi_params_store_find(&r->workers.store, tensor, chunk->head, chunk->params);
	if (!*use && !kvi_input_seekable(&r->in))
		return kvi_reason(
			error, KVARC_REASON_NEEDS_SEEK,
			kvi_fail_at(error, KVARC_OPTIONS, chunk->offset, chunk->sequence,
		                    "chunk %llu uses PARAMS frame %llu, which is not the last one "
		                    "before it: the file needs a source that can seek",
		                    (unsigned long long)chunk->sequence,
		                    (unsigned long long)chunk->params));
	if (!*use) {
		const struct kvi_params_ref *ref = find_params(r, chunk->params);
		if (!ref)
			return missing_params(chunk, error);
		kvarc_ret ret = load_params(r, packer, ref, chunk->params, use, error);
		if (ret)
			return ret;
	}
	const struct kvi_params_header *got = &(*use)->header;
	if (got->tensor == tensor && got->head == chunk->head && got->heads == chunk->heads)
		return KVARC_OK;
	kvi_params_store_release(&r->workers.store, *use);
	*use = NULL;
	return kvi_fail_at(error, KVARC_DATA, chunk->offset, chunk->sequence,
	                   "PARAMS frame %llu is not of the tensor of chunk %llu, which uses it",
	                   (unsigned long long)chunk->params, (unsigned long long)chunk->sequence);
}
