/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * llama_checkpoints.c - the context checkpoints that a llama.cpp server appends to a slot
 *
 * u32 magic "SCKP", u32 version, u32 count; for each checkpoint u64 n_tokens, i32 first and
 * last position, then three times u64 bytes and a state: of the model, of its draft model, of
 * the speculative decoder. A state of the model is u32 magic, i32 sequence, and the part of
 * the memory that cannot be rewound: the cache of the sliding window, recurrent states.
 */
#include "llama_memory.h"

#include <string.h>

#include "import_internal.h"
#include "util/list.h"

enum { APPENDIX_VERSION = 1, CHECKPOINTS_MAX = 1024, STATES = 3 };
#define STATE_MAGIC 0xaf143cd8u

/* The memory of a checkpoint, to its exact end. */
static bool partial_memory(struct kvi_llama_attempt *a, uint64_t end)
{
	const struct kvi_llama_grammar *g = a->g;
	struct kvi_scan *s = a->s;
	if (kvi_scan32(s) != STATE_MAGIC)
		return false;
	kvi_scan32(s); /* sequence */
	if (g->n_blobs > 1 && !kvi_llama_kv_memory(a, g->n_blobs - 1u))
		return false;
	if (g->recurrent && !kvi_llama_recurrent_memory(a, end))
		return false;
	return !s->bad && s->at == end;
}

/* Sections of a state that is not understood are taken back. */
static void read_state(struct kvi_llama_attempt *a, struct kvi_llama_checkpoint *c)
{
	struct kvi_llama_file *f = a->f;
	size_t sections = f->n_sections, matrices = f->n_matrices;
	uint64_t end = c->state_at + c->state_bytes;
	c->understood = partial_memory(a, end);
	if (!c->understood) {
		f->n_sections = sections;
		f->n_matrices = matrices;
	}
	kvi_scan_seek(a->s, end);
}

static bool checkpoint(struct kvi_llama_attempt *a)
{
	struct kvi_llama_file *f = a->f;
	struct kvi_scan *s = a->s;
	struct kvi_llama_checkpoint c;
	memset(&c, 0, sizeof c);
	c.at = s->at;
	c.n_tokens = kvi_scan64(s);
	kvi_scan64(s); /* first and last position */
	for (int i = 0; i < STATES; i++) {
		uint64_t bytes = kvi_scan64(s);
		if (s->bad || bytes > kvi_scan_remaining(s))
			return false;
		if (i == 0) {
			c.state_at = s->at;
			c.state_bytes = bytes;
		}
		kvi_scan_skip(s, bytes);
	}
	c.end = s->at;
	if (s->bad)
		return false;
	kvi_scan_seek(s, c.state_at);
	read_state(a, &c);
	kvi_scan_seek(s, c.end);
	if (!kvi_array_grow(a->alloc, &f->checkpoints, &f->cap_checkpoints, f->n_checkpoints,
	                    sizeof *f->checkpoints)) {
		a->no_memory = true;
		return false;
	}
	f->checkpoints[f->n_checkpoints++] = c;
	return !a->no_memory;
}

bool kvi_llama_appendix(struct kvi_llama_attempt *a)
{
	struct kvi_scan *s = a->s;
	struct kvi_llama_file *f = a->f;
	uint64_t at = s->at;
	size_t sections = f->n_sections, matrices = f->n_matrices;
	if (a->g->session || kvi_scan32(s) != KVI_LLAMA_APPENDIX_MAGIC || s->bad)
		return false;
	uint32_t version = kvi_scan32(s), count = kvi_scan32(s);
	bool whole = !s->bad && version == APPENDIX_VERSION && count <= CHECKPOINTS_MAX;
	for (a->checkpoint = 1; whole && a->checkpoint <= count; a->checkpoint++)
		whole = checkpoint(a);
	a->checkpoint = 0;
	f->appendix_at = at;
	if (!whole || kvi_scan_remaining(s)) {
		f->n_sections = sections;
		f->n_matrices = matrices;
		f->n_checkpoints = 0;
	}
	kvi_scan_seek(s, s->end);
	return !a->no_memory;
}
