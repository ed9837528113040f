/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * llama_parse.c - the grammars of llama.cpp state files
 *
 * These files do not say which kind of memory wrote them, so every grammar is
 * tried and one is believed only if it alone ends exactly at the end of the
 * file with plausible types, row sizes and positions all along.
 */
#include "llama_parse.h"

#include <string.h>

#include "ggml_types.h"
#include "import_internal.h"
#include "util/ckd.h"

enum {
	SEQ_IDS_MAX = 256,     /* sequences that may share a cell */
	STREAMS_MAX = 256,
	LAYERS_MAX = 4096,
	MATRICES_MAX = 65536,
	ARCH_MAX = 64,
	ROTATION_MAX = 4096,
	PACKED_VERSION = 1     /* of the server's token blob */
};
#define NULL_TOKEN UINT32_MAX

struct attempt {
	struct kvi_llama_file *f;
	const struct kvi_alloc *alloc;
	struct kvi_scan *s;
	const struct kvi_llama_grammar *g;
	bool no_memory;
};

bool kvi_llama_cell(struct kvi_scan *s, const struct kvi_llama_grammar *g,
                    int32_t *position)
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

static bool add_matrix(struct attempt *a, const struct kvi_llama_matrix *m)
{
	struct kvi_llama_file *f = a->f;
	if (f->n_matrices >= MATRICES_MAX)
		return false;
	if (!kvi_array_grow(a->alloc, &f->matrices, &f->cap_matrices,
	                     f->n_matrices, sizeof *f->matrices)) {
		a->no_memory = true;
		return false;
	}
	f->matrices[f->n_matrices++] = *m;
	return true;
}

/* i32 type, u64 row_bytes, rows; or, transposed, i32 type, u32 elem_bytes,
 * u32 width, channels. */
static bool matrix(struct attempt *a, uint32_t n_cells, bool trans)
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
		if (!type || type->block_elems != 1 ||
		    m.row_bytes != type->block_bytes ||
		    kvi_mul(m.row_bytes, width, &total))
			return false;
	} else {
		m.row_bytes = kvi_scan64(s);
		if (!type || m.row_bytes % type->block_bytes ||
		    kvi_mul(m.row_bytes / type->block_bytes,
		            (uint64_t)type->block_elems, &width))
			return false;
		total = m.row_bytes;
	}
	if (s->bad || width == 0 || width > KVI_IMPORT_WIDTH_MAX ||
	    kvi_mul(total, (uint64_t)n_cells, &m.bytes))
		return false;
	m.width = (uint32_t)width;
	m.at = s->at;
	kvi_scan_skip(s, m.bytes);
	return !s->bad && add_matrix(a, &m);
}

static bool plausible_rotation(uint32_t n)
{
	return n <= ROTATION_MAX && (n & (n - 1)) == 0;
}

static bool section(struct attempt *a, uint32_t blob, uint32_t stream,
                    uint32_t n_cells)
{
	struct kvi_scan *s = a->s;
	struct kvi_llama_file *f = a->f;
	struct kvi_llama_section k;
	memset(&k, 0, sizeof k);
	k.blob = blob;
	k.stream = stream;
	k.n_cells = n_cells;
	k.values = a->g->values[blob];
	k.cells_at = s->at;
	k.first_matrix = f->n_matrices;
	if (n_cells > kvi_scan_left(s) / 8)
		return false;
	for (uint32_t i = 0; i < n_cells; i++) {
		int32_t position;
		if (!kvi_llama_cell(s, a->g, &position))
			return false;
	}
	uint32_t trans = kvi_scan32(s);
	k.n_layers = kvi_scan32(s);
	if (a->g->version >= (a->g->session ? 11u : 4u)) {
		k.rotation_k = kvi_scan32(s);
		k.rotation_v = kvi_scan32(s);
	}
	if (s->bad || trans > 1 || k.n_layers == 0 ||
	    k.n_layers > LAYERS_MAX || !plausible_rotation(k.rotation_k) ||
	    !plausible_rotation(k.rotation_v))
		return false;
	for (uint32_t i = 0; i < k.n_layers; i++)
		if (!matrix(a, n_cells, false))
			return false;
	for (uint32_t i = 0; k.values && i < k.n_layers; i++)
		if (!matrix(a, n_cells, trans == 1))
			return false;
	if (!kvi_array_grow(a->alloc, &f->sections, &f->cap_sections,
	                     f->n_sections, sizeof *f->sections)) {
		a->no_memory = true;
		return false;
	}
	f->sections[f->n_sections++] = k;
	return true;
}

static bool kv_memory(struct attempt *a, uint32_t blob)
{
	struct kvi_scan *s = a->s;
	uint32_t streams = a->g->streams ? kvi_scan32(s) : 1;
	if (streams == 0 || streams > STREAMS_MAX)
		return false;
	for (uint32_t i = 0; i < streams; i++) {
		uint32_t n_cells = kvi_scan32(s);
		if (s->bad || (n_cells && !section(a, blob, i, n_cells)))
			return false;
	}
	return true;
}

/*
 * Recurrent states stay literal bytes; they are only walked over. How many
 * layers are recurrent is known to the model alone: states go on to the end of
 * the file, one R and one S a layer.
 */
static bool recurrent_memory(struct attempt *a)
{
	struct kvi_scan *s = a->s;
	uint32_t n_cells = kvi_scan32(s), states = 0;
	for (uint32_t i = 0; i < n_cells; i++) {
		uint32_t position = kvi_scan32(s), n = kvi_scan32(s);
		if (s->bad || position > INT32_MAX || n > SEQ_IDS_MAX)
			return false;
		kvi_scan_skip(s, (uint64_t)n * 4);
	}
	uint32_t trans = kvi_scan32(s), n_layers = kvi_scan32(s);
	if (s->bad || n_cells == 0 || trans != 0 || n_layers == 0 ||
	    n_layers > LAYERS_MAX)
		return false;
	while (kvi_scan_left(s)) {
		uint32_t type = kvi_scan32(s);
		uint64_t row = kvi_scan64(s), bytes;
		/* models without an S state have rows of 0 bytes */
		if (s->bad || type > 1 || kvi_mul(row, n_cells, &bytes))
			return false;
		kvi_scan_skip(s, bytes);
		if (s->bad)
			return false;
		states++;
	}
	return states >= 2 && states % 2 == 0 && states / 2 <= n_layers;
}

/* Old session files: u32 n, i32[n]; then twice u64 n, f32[n]. */
static bool outputs(struct kvi_scan *s)
{
	kvi_scan_skip(s, (uint64_t)kvi_scan32(s) * 4);
	for (int i = 0; i < 2; i++) {
		uint64_t n = kvi_scan64(s), bytes;
		if (kvi_mul(n, (uint64_t)4, &bytes))
			return false;
		kvi_scan_skip(s, bytes);
	}
	return !s->bad;
}

/* True when the rest of the file from `start` on follows the grammar. */
static bool follows(struct attempt *a, uint64_t start)
{
	a->f->n_sections = a->f->n_matrices = 0;
	kvi_scan_seek(a->s, start);
	if (a->g->outputs && !outputs(a->s))
		return false;
	for (uint32_t i = 0; i < a->g->n_blobs; i++)
		if (!kv_memory(a, i))
			return false;
	if (a->g->recurrent && !recurrent_memory(a))
		return false;
	return !a->s->bad && kvi_scan_left(a->s) == 0;
}

/* Everything but the grammar; two grammars that agree on this are one. */
static bool same(const struct kvi_llama_file *x, const struct kvi_llama_file *y)
{
	if (x->n_sections != y->n_sections || x->n_matrices != y->n_matrices)
		return false;
	if (x->n_sections == 0)
		return true;
	return x->grammar.ext_bytes == y->grammar.ext_bytes &&
	       !memcmp(x->sections, y->sections,
	               x->n_sections * sizeof *x->sections) &&
	       !memcmp(x->matrices, y->matrices,
	               x->n_matrices * sizeof *x->matrices);
}

/* The server's token array: -1, version, n, tokens, n_media, ... */
static void packed_tokens(struct kvi_llama_file *f, struct kvi_scan *s,
                          uint64_t at, uint64_t end)
{
	uint32_t n, version;
	f->tokens_at = 0;
	kvi_scan_seek(s, at + 4);
	version = kvi_scan32(s);
	n = kvi_scan32(s);
	uint64_t ids = s->at;
	kvi_scan_skip(s, (uint64_t)n * 4);
	uint32_t media = kvi_scan32(s);
	if (!s->bad && version == PACKED_VERSION && s->at <= end && media == 0) {
		f->tokens_at = ids;
		f->n_tokens = n;
	}
}

/* Magic, version, tokens and architecture. *start: the memory. */
static bool header(struct kvi_llama_file *f, struct kvi_scan *s, uint64_t *start)
{
	struct kvi_llama_grammar *g = &f->grammar;
	uint32_t n = kvi_scan32(s);
	uint64_t at = s->at;
	bool packed = n && kvi_scan32(s) == NULL_TOKEN;
	f->tokens_at = at;
	f->n_tokens = n;
	kvi_scan_seek(s, at);
	kvi_scan_skip(s, (uint64_t)n * 4);
	if (s->bad)
		return false;
	uint64_t end = s->at;
	if (packed)
		packed_tokens(f, s, at, end);
	kvi_scan_seek(s, end);
	if (g->session) {
		char arch[ARCH_MAX];
		uint32_t len = kvi_scan32(s);
		if (len == 0 || len > sizeof arch ||
		    !kvi_scan_bytes(s, arch, len))
			return false;
		for (uint32_t i = 0; i < len; i++)
			if (arch[i] < 0x20 || arch[i] > 0x7e)
				return false;
	}
	*start = s->at;
	return !s->bad;
}

/* Grammar number i of those that a version can have; false past the last. */
static bool grammar_at(struct kvi_llama_grammar *g, unsigned i)
{
	static const struct {
		uint8_t n;
		bool values[KVI_LLAMA_BLOBS_MAX];
	} memories[] = {
		{ 1, { true, false } }, { 1, { false, false } },
		{ 2, { true, true } }, { 2, { false, false } },
		{ 2, { true, false } }
	};
	enum { N_MEMORIES = sizeof memories / sizeof *memories };
	bool old = g->version == (g->session ? 9u : 2u);
	g->n_blobs = memories[i % N_MEMORIES].n;
	memcpy(g->values, memories[i % N_MEMORIES].values, sizeof g->values);
	i /= N_MEMORIES;
	g->recurrent = i % 2;
	i /= 2;
	g->ext_bytes = i % 2 ? (old ? 8 : 12) : 0;
	i /= 2;
	g->streams = true;
	g->outputs = false;
	if (old) {
		g->streams = i % 2 == 0;
		i /= 2;
		if (g->session) {
			g->outputs = i % 2;
			i /= 2;
		}
	}
	return i == 0;
}

static kvarc_ret try_all(struct kvi_llama_file *f, const struct kvi_alloc *alloc,
                         struct kvi_scan *s, uint64_t start, const char **why)
{
	struct kvi_llama_file next = *f;
	struct kvi_llama_grammar g = f->grammar;
	bool found = false;
	kvarc_ret ret = KVARC_OK;
	for (unsigned i = 0; grammar_at(&g, i) && !ret; i++) {
		struct attempt a = { &next, alloc, s, &g, false };
		bool fits = follows(&a, start);
		next.grammar = g;
		if (a.no_memory)
			ret = kvi_alloc_error(alloc);
		else if (s->io)
			ret = KVARC_IO;
		else if (fits && found && !same(f, &next)) {
			*why = "it can be read in more than one way";
			ret = KVARC_END;
		} else if (fits && !found) {
			struct kvi_llama_file old = *f;
			*f = next;
			/* the loser's arrays serve the next attempt */
			next.sections = old.sections;
			next.cap_sections = old.cap_sections;
			next.matrices = old.matrices;
			next.cap_matrices = old.cap_matrices;
			found = true;
		}
	}
	kvi_llama_free(&next, alloc);
	if (!ret && !found) {
		*why = "its memory is of a kind that is not known, or it is "
		       "damaged";
		ret = KVARC_END;
	}
	if (ret)
		kvi_llama_free(f, alloc);
	return ret;
}

static bool known_version(const struct kvi_llama_grammar *g)
{
	return g->session ? g->version >= 9 && g->version <= 11
	                  : g->version >= 2 && g->version <= 4;
}

kvarc_ret kvi_llama_parse(struct kvi_llama_file *f,
                          const struct kvi_alloc *alloc, struct kvi_scan *s,
                          const char **why)
{
	memset(f, 0, sizeof *f);
	kvi_scan_seek(s, 0);
	uint32_t magic = kvi_scan32(s);
	f->grammar.session = magic == KVI_LLAMA_SESSION_MAGIC;
	uint32_t version = kvi_scan32(s);
	if (s->bad || (!f->grammar.session && magic != KVI_LLAMA_SEQ_MAGIC))
		return s->io ? KVARC_IO : KVARC_END;
	f->grammar.version = version;
	*why = "its version is not known";
	if (!known_version(&f->grammar))
		return KVARC_END;
	uint64_t start;
	*why = "its header is damaged";
	if (!header(f, s, &start))
		return s->io ? KVARC_IO : KVARC_END;
	return try_all(f, alloc, s, start, why);
}

void kvi_llama_free(struct kvi_llama_file *f, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, f->sections);
	kvi_free(alloc, f->matrices);
	f->sections = NULL;
	f->matrices = NULL;
	f->n_sections = f->cap_sections = f->n_matrices = f->cap_matrices = 0;
}
