/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_memory.c - the memories inside llama.cpp state files */
#include "llama_memory.h"

#include <string.h>

#include "ggml_types.h"
#include "import_internal.h"
#include "util/ckd.h"
#include "util/list.h"

enum {
	SEQ_IDS_MAX = 256, /* sequences that may share a cell */
	STREAMS_MAX = 256,
	LAYERS_MAX = 4096,
	MATRICES_MAX = 65536,
	ROTATION_MAX = 4096,
	TYPE_F32 = 0,
	TYPE_F16 = 1
};

bool kvi_llama_cell(struct kvi_scan *s, const struct kvi_llama_grammar *g, int32_t *position)
{
	*position = (int32_t)kvi_scan32(s);
	uint32_t n = kvi_scan32(s);
	kvi_scan_skip(s, g->ext_bytes);
	if (s->bad || *position < 0 || n > (g->session ? SEQ_IDS_MAX : 1))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (kvi_scan32(s) >= SEQ_IDS_MAX)
			return false;
	return !s->bad;
}

bool kvi_llama_state_cell(struct kvi_scan *s, int32_t *position)
{
	*position = (int32_t)kvi_scan32(s);
	uint32_t n = kvi_scan32(s);
	if (s->bad || *position < 0 || n > SEQ_IDS_MAX)
		return false;
	kvi_scan_skip(s, (uint64_t)n * 4);
	return !s->bad;
}

static bool add_matrix(struct kvi_llama_attempt *a, const struct kvi_llama_matrix *m)
{
	struct kvi_llama_file *f = a->f;
	if (f->n_matrices >= MATRICES_MAX)
		return false;
	if (!kvi_array_grow(a->alloc, &f->matrices, &f->cap_matrices, f->n_matrices,
	                    sizeof *f->matrices)) {
		a->no_memory = true;
		return false;
	}
	f->matrices[f->n_matrices++] = *m;
	return true;
}

static bool add_section(struct kvi_llama_attempt *a, const struct kvi_llama_section *k)
{
	struct kvi_llama_file *f = a->f;
	if (!kvi_array_grow(a->alloc, &f->sections, &f->cap_sections, f->n_sections,
	                    sizeof *f->sections)) {
		a->no_memory = true;
		return false;
	}
	f->sections[f->n_sections++] = *k;
	return true;
}

/* The elements of a matrix that is complete but for its offset. */
static bool take_elements(struct kvi_llama_attempt *a, struct kvi_llama_matrix *m)
{
	struct kvi_scan *s = a->s;
	m->at = s->at;
	kvi_scan_skip(s, m->bytes);
	if (s->bad) {
		a->cut = true;
		return false;
	}
	if (s->at > a->good_until)
		a->good_until = s->at;
	return add_matrix(a, m);
}

/* i32 type, u64 row_bytes, rows; or, transposed, i32 type, u32 elem_bytes,
 * u32 width, channels. */
static bool matrix(struct kvi_llama_attempt *a, uint32_t n_cells, bool trans)
{
	struct kvi_scan *s = a->s;
	struct kvi_llama_matrix m;
	memset(&m, 0, sizeof m);
	m.trans = trans;
	m.type = (int32_t)kvi_scan32(s);
	const struct kvi_ggml_type *type = kvi_ggml_type(m.type);
	uint64_t width, total;
	if (trans) {
		m.row_bytes = kvi_scan32(s);
		width = kvi_scan32(s);
		if (!type || type->block_elems != 1 || m.row_bytes != type->block_bytes ||
		    kvi_mul(m.row_bytes, width, &total))
			return false;
	} else {
		m.row_bytes = kvi_scan64(s);
		if (!type || m.row_bytes % type->block_bytes ||
		    kvi_mul(m.row_bytes / type->block_bytes, (uint64_t)type->block_elems, &width))
			return false;
		total = m.row_bytes;
	}
	if (s->bad || width == 0 || width > KVI_IMPORT_WIDTH_MAX ||
	    kvi_mul(total, (uint64_t)n_cells, &m.bytes))
		return false;
	m.width = (uint32_t)width;
	return take_elements(a, &m);
}

static bool plausible_rotation(uint32_t n)
{
	return n <= ROTATION_MAX && (n & (n - 1)) == 0;
}

static bool kv_cells(struct kvi_llama_attempt *a, uint32_t n_cells)
{
	if (n_cells > kvi_scan_remaining(a->s) / 8)
		return false;
	for (uint32_t i = 0; i < n_cells; i++) {
		int32_t position;
		if (!kvi_llama_cell(a->s, a->g, &position))
			return false;
	}
	return true;
}

static bool kv_section(struct kvi_llama_attempt *a, uint32_t blob, uint32_t stream,
                       uint32_t n_streams, uint32_t n_cells)
{
	struct kvi_scan *s = a->s;
	struct kvi_llama_section k;
	memset(&k, 0, sizeof k);
	k.blob = blob;
	k.stream = stream;
	k.n_streams = n_streams;
	k.checkpoint = a->checkpoint;
	k.n_cells = n_cells;
	k.values = a->g->values[blob];
	k.cells_at = s->at;
	k.first_matrix = a->f->n_matrices;
	if (!kv_cells(a, n_cells))
		return false;
	uint32_t trans = kvi_scan32(s);
	k.n_layers = kvi_scan32(s);
	if (a->g->version >= (a->g->session ? 11u : 4u)) {
		k.rotation_k = kvi_scan32(s);
		k.rotation_v = kvi_scan32(s);
	}
	if (s->bad || trans > 1 || k.n_layers == 0 || k.n_layers > LAYERS_MAX ||
	    !plausible_rotation(k.rotation_k) || !plausible_rotation(k.rotation_v))
		return false;
	for (uint32_t i = 0; i < k.n_layers; i++)
		if (!matrix(a, n_cells, false))
			return false;
	for (uint32_t i = 0; k.values && i < k.n_layers; i++)
		if (!matrix(a, n_cells, trans == 1))
			return false;
	return add_section(a, &k);
}

bool kvi_llama_kv_memory(struct kvi_llama_attempt *a, uint32_t blob)
{
	struct kvi_scan *s = a->s;
	uint32_t streams = a->g->streams ? kvi_scan32(s) : 1;
	if (streams == 0 || streams > STREAMS_MAX)
		return false;
	for (uint32_t i = 0; i < streams; i++) {
		uint32_t n_cells = kvi_scan32(s);
		if (s->bad || (n_cells && !kv_section(a, blob, i, streams, n_cells)))
			return false;
	}
	return true;
}

/* u32 type, u64 row_bytes, rows. Models without an S state have rows of 0 bytes; rows
 * that are no tensor of an archive are a matrix of width 0. */
static bool state(struct kvi_llama_attempt *a, uint32_t n_cells)
{
	struct kvi_scan *s = a->s;
	struct kvi_llama_matrix m;
	memset(&m, 0, sizeof m);
	m.type = (int32_t)kvi_scan32(s);
	m.row_bytes = kvi_scan64(s);
	if (s->bad || (m.type != TYPE_F32 && m.type != TYPE_F16) ||
	    kvi_mul(m.row_bytes, (uint64_t)n_cells, &m.bytes))
		return false;
	uint64_t elem = m.type == TYPE_F32 ? 4 : 2;
	if (m.row_bytes % elem == 0 && m.row_bytes / elem <= KVI_IMPORT_WIDTH_MAX)
		m.width = (uint32_t)(m.row_bytes / elem);
	return take_elements(a, &m);
}

/* How many layers are recurrent is known to the model alone: the R states of all of
 * them, then the S states, go on to the end. */
bool kvi_llama_recurrent_memory(struct kvi_llama_attempt *a, uint64_t end)
{
	struct kvi_scan *s = a->s;
	struct kvi_llama_section k;
	memset(&k, 0, sizeof k);
	k.recurrent = true;
	k.checkpoint = a->checkpoint;
	k.values = true;
	k.n_cells = kvi_scan32(s);
	k.cells_at = s->at;
	k.first_matrix = a->f->n_matrices;
	for (uint32_t i = 0; i < k.n_cells; i++) {
		int32_t position;
		if (!kvi_llama_state_cell(s, &position))
			return false;
	}
	uint32_t trans = kvi_scan32(s), n_layers = kvi_scan32(s), states = 0;
	if (s->bad || k.n_cells == 0 || trans != 0 || n_layers == 0 || n_layers > LAYERS_MAX)
		return false;
	while (s->at < end) {
		uint64_t at = s->at;
		bool appendix = kvi_scan32(s) == KVI_LLAMA_APPENDIX_MAGIC;
		kvi_scan_seek(s, at);
		if (appendix)
			break;
		if (!state(a, k.n_cells))
			return false;
		states++;
	}
	k.n_layers = states / 2;
	return s->at <= end && states >= 2 && states % 2 == 0 && k.n_layers <= n_layers &&
	       add_section(a, &k);
}
