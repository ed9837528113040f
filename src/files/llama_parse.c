/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_parse.c - llama.cpp slot, session and state files as sections and matrices */
#include "llama_parse.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ggml_types.h"
#include "import_internal.h"
#include "util/ckd.h"
#include "util/list.h"

/* ==== The memories inside llama.cpp state files ==== */

struct llama_attempt;
static bool checkpoint(struct llama_attempt *attempt);

/* An attempt to read a file by a grammar; the parts that it finds are appended to f. */
struct llama_attempt {
	struct kvi_llama_file *f;
	const struct kvi_alloc *alloc;
	struct kvi_scan *s;
	const struct kvi_llama_grammar *g;
	uint32_t checkpoint; /* checkpoint being read: 0, or 1 + its number */
	bool no_memory;      /* an allocation failed */
	bool cut;            /* a matrix went past the end of the file */
	bool all_read;       /* all memories of the grammar were there */
	uint64_t good_until; /* end of the last matrix that was plausible */
};

enum {
	SEQ_IDS_MAX = 256, /* sequences that may share a cell */
	STREAMS_MAX = 256,
	LAYERS_MAX = 4096,
	MATRICES_MAX = 65536,
	ROTATION_MAX = 4096,
	TYPE_F32 = 0,
	TYPE_F16 = 1
};

bool kvi_llama_cell(struct kvi_scan *scan, const struct kvi_llama_grammar *grammar,
                    int32_t *position)
{
	*position = (int32_t)kvi_scan32(scan);
	uint32_t n = kvi_scan32(scan);
	kvi_scan_skip(scan, grammar->ext_bytes);
	if (scan->bad || *position < 0 || n > (grammar->session ? SEQ_IDS_MAX : 1))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (kvi_scan32(scan) >= SEQ_IDS_MAX)
			return false;
	return !scan->bad;
}

/* Scans a cell of recurrent states. False: it is not valid. */
static bool llama_state_cell(struct kvi_scan *scan, int32_t *position)
{
	*position = (int32_t)kvi_scan32(scan);
	uint32_t n = kvi_scan32(scan);
	if (scan->bad || *position < 0 || n > SEQ_IDS_MAX)
		return false;
	kvi_scan_skip(scan, (uint64_t)n * 4);
	return !scan->bad;
}

static bool note_matrix(struct llama_attempt *attempt, const struct kvi_llama_matrix *matrix)
{
	struct kvi_llama_file *f = attempt->f;
	if (f->n_matrices >= MATRICES_MAX)
		return false;
	if (!kvi_array_grow(attempt->alloc, &f->matrices, &f->cap_matrices, f->n_matrices,
	                    sizeof *f->matrices)) {
		attempt->no_memory = true;
		return false;
	}
	f->matrices[f->n_matrices++] = *matrix;
	return true;
}

static bool note_section(struct llama_attempt *attempt, const struct kvi_llama_section *section)
{
	struct kvi_llama_file *f = attempt->f;
	if (!kvi_array_grow(attempt->alloc, &f->sections, &f->cap_sections, f->n_sections,
	                    sizeof *f->sections)) {
		attempt->no_memory = true;
		return false;
	}
	f->sections[f->n_sections++] = *section;
	return true;
}

/* The elements of a matrix that is complete but for its offset. */
static bool take_elements(struct llama_attempt *attempt, struct kvi_llama_matrix *matrix)
{
	struct kvi_scan *s = attempt->s;
	matrix->at = s->at;
	kvi_scan_skip(s, matrix->bytes);
	if (s->bad) {
		attempt->cut = true;
		return false;
	}
	if (s->at > attempt->good_until)
		attempt->good_until = s->at;
	return note_matrix(attempt, matrix);
}

/* Reads a matrix: i32 type, u64 row_bytes, rows; or, transposed, i32 type, u32 elem_bytes,
 * u32 width, channels. */
static bool matrix(struct llama_attempt *attempt, uint32_t n_cells, bool trans)
{
	struct kvi_scan *s = attempt->s;
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
	return take_elements(attempt, &m);
}

static bool plausible_rotation(uint32_t n)
{
	return n <= ROTATION_MAX && (n & (n - 1)) == 0;
}

static bool kv_cells(struct llama_attempt *attempt, uint32_t n_cells)
{
	if (n_cells > kvi_scan_remaining(attempt->s) / 8)
		return false;
	for (uint32_t i = 0; i < n_cells; i++) {
		int32_t position;
		if (!kvi_llama_cell(attempt->s, attempt->g, &position))
			return false;
	}
	return true;
}

static bool kv_section(struct llama_attempt *attempt, uint32_t blob, uint32_t stream,
                       uint32_t n_streams, uint32_t n_cells)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_section k;
	memset(&k, 0, sizeof k);
	k.blob = blob;
	k.stream = stream;
	k.n_streams = n_streams;
	k.checkpoint = attempt->checkpoint;
	k.n_cells = n_cells;
	k.values = attempt->g->values[blob];
	k.cells_at = s->at;
	k.first_matrix = attempt->f->n_matrices;
	if (!kv_cells(attempt, n_cells))
		return false;
	uint32_t trans = kvi_scan32(s);
	k.n_layers = kvi_scan32(s);
	if (attempt->g->version >= (attempt->g->session ? 11u : 4u)) {
		k.rotation_k = kvi_scan32(s);
		k.rotation_v = kvi_scan32(s);
	}
	if (s->bad || trans > 1 || k.n_layers == 0 || k.n_layers > LAYERS_MAX ||
	    !plausible_rotation(k.rotation_k) || !plausible_rotation(k.rotation_v))
		return false;
	for (uint32_t i = 0; i < k.n_layers; i++)
		if (!matrix(attempt, n_cells, false))
			return false;
	for (uint32_t i = 0; k.values && i < k.n_layers; i++)
		if (!matrix(attempt, n_cells, trans == 1))
			return false;
	return note_section(attempt, &k);
}

/* Reads a KV memory at the scan's position; false: there is none. */
static bool llama_kv_memory(struct llama_attempt *attempt, uint32_t blob)
{
	struct kvi_scan *s = attempt->s;
	uint32_t streams = attempt->g->streams ? kvi_scan32(s) : 1;
	if (streams == 0 || streams > STREAMS_MAX)
		return false;
	for (uint32_t i = 0; i < streams; i++) {
		uint32_t n_cells = kvi_scan32(s);
		if (s->bad || (n_cells && !kv_section(attempt, blob, i, streams, n_cells)))
			return false;
	}
	return true;
}

/* Reads a state: u32 type, u64 row_bytes, rows. Models without an S state have rows of 0 bytes;
 * rows that are no tensor of an archive are a matrix of width 0. */
static bool state(struct llama_attempt *attempt, uint32_t n_cells)
{
	struct kvi_scan *s = attempt->s;
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
	return take_elements(attempt, &m);
}

/* Reads recurrent states, up to `end` or the magic of the context checkpoints. The number of
 * recurrent layers is known to the model alone: R states of all of them, then S states, go on to
 * the end. */
static bool llama_recurrent_memory(struct llama_attempt *attempt, uint64_t end)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_section k;
	memset(&k, 0, sizeof k);
	k.recurrent = true;
	k.checkpoint = attempt->checkpoint;
	k.values = true;
	k.n_cells = kvi_scan32(s);
	k.cells_at = s->at;
	k.first_matrix = attempt->f->n_matrices;
	for (uint32_t i = 0; i < k.n_cells; i++) {
		int32_t position;
		if (!llama_state_cell(s, &position))
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
		if (!state(attempt, k.n_cells))
			return false;
		states++;
	}
	k.n_layers = states / 2;
	return s->at <= end && states >= 2 && states % 2 == 0 && k.n_layers <= n_layers &&
	       note_section(attempt, &k);
}

/* ==== The context checkpoints that a llama.cpp server appends to a slot ==== */

/*
 * u32 magic "SCKP", u32 version, u32 count; for each checkpoint u64 n_tokens, i32 first and last
 * position, then three times u64 bytes and a state: of the model, of its draft model, of the
 * speculative decoder. A state of the model is u32 magic, i32 sequence, and the part of the memory
 * that cannot be rewound: the cache of the sliding window, recurrent states.
 */

enum { APPENDIX_VERSION = 1, CHECKPOINTS_MAX = 1024, STATES = 3 };
#define CHECKPOINT_STATE_MAGIC 0xaf143cd8u

/* The memory of a checkpoint, to its exact end. */
static bool partial_memory(struct llama_attempt *attempt, uint64_t end)
{
	const struct kvi_llama_grammar *g = attempt->g;
	struct kvi_scan *s = attempt->s;
	if (kvi_scan32(s) != CHECKPOINT_STATE_MAGIC)
		return false;
	kvi_scan32(s); /* sequence */
	if (g->n_blobs > 1 && !llama_kv_memory(attempt, g->n_blobs - 1u))
		return false;
	if (g->recurrent && !llama_recurrent_memory(attempt, end))
		return false;
	return !s->bad && s->at == end;
}

/* Reads the state of a checkpoint; drops its sections where it is not understood. */
static void read_state(struct llama_attempt *attempt, struct kvi_llama_checkpoint *checkpoint)
{
	struct kvi_llama_file *f = attempt->f;
	size_t sections = f->n_sections, matrices = f->n_matrices;
	uint64_t end = checkpoint->state_at + checkpoint->state_bytes;
	checkpoint->understood = partial_memory(attempt, end);
	if (!checkpoint->understood) {
		f->n_sections = sections;
		f->n_matrices = matrices;
	}
	kvi_scan_seek(attempt->s, end);
}

static bool checkpoint(struct llama_attempt *attempt)
{
	struct kvi_llama_file *f = attempt->f;
	struct kvi_scan *s = attempt->s;
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
	read_state(attempt, &c);
	kvi_scan_seek(s, c.end);
	if (!kvi_array_grow(attempt->alloc, &f->checkpoints, &f->cap_checkpoints, f->n_checkpoints,
	                    sizeof *f->checkpoints)) {
		attempt->no_memory = true;
		return false;
	}
	f->checkpoints[f->n_checkpoints++] = c;
	return !attempt->no_memory;
}

/*
 * What the server appends to the memory of a slot. Context checkpoints whose memory
 * follows the grammar become sections; the bytes of others, and all of an appendix
 * that is not whole or of another version, are only skipped. False: there is none.
 */
static bool llama_appendix(struct llama_attempt *attempt)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_file *f = attempt->f;
	uint64_t at = s->at;
	size_t sections = f->n_sections, matrices = f->n_matrices;
	if (attempt->g->session || kvi_scan32(s) != KVI_LLAMA_APPENDIX_MAGIC || s->bad)
		return false;
	uint32_t version = kvi_scan32(s), count = kvi_scan32(s);
	bool whole = !s->bad && version == APPENDIX_VERSION && count <= CHECKPOINTS_MAX;
	for (attempt->checkpoint = 1; whole && attempt->checkpoint <= count; attempt->checkpoint++)
		whole = checkpoint(attempt);
	attempt->checkpoint = 0;
	f->appendix_at = at;
	if (!whole || kvi_scan_remaining(s)) {
		f->n_sections = sections;
		f->n_matrices = matrices;
		f->n_checkpoints = 0;
	}
	kvi_scan_seek(s, s->end);
	return !attempt->no_memory;
}

/* ==== The grammars of llama.cpp state files ==== */

/*
 * These files do not say which kind of memory wrote them, so every grammar is tried and one is
 * believed only if it alone ends exactly at the end of the file with plausible types, row sizes
 * and positions all along.
 */

enum {
	ARCH_MAX = 64,
	PACKED_VERSION = 1 /* version of the server's token blob */
};
#define NULL_TOKEN UINT32_MAX
#define BARE_STATE_MAGIC \
	UINT32_C(0xaf143cd8) /* begins a bare state; the number of its sequence follows */

/* Passes the outputs of old session files: u32 n, i32[n]; then twice u64 n, f32[n]. */
static bool outputs(struct kvi_scan *scan)
{
	kvi_scan_skip(scan, (uint64_t)kvi_scan32(scan) * 4);
	for (int i = 0; i < 2; i++) {
		uint64_t n = kvi_scan64(scan), bytes;
		if (kvi_mul(n, (uint64_t)4, &bytes))
			return false;
		kvi_scan_skip(scan, bytes);
	}
	return !scan->bad;
}

static bool is_old(const struct kvi_llama_grammar *grammar)
{
	return grammar->version == (grammar->session ? 9u : 2u);
}

static void reset(struct kvi_llama_file *file)
{
	file->n_sections = file->n_matrices = file->n_checkpoints = 0;
	file->appendix_at = 0;
}

/* Whether the rest of the file from its memory on follows the grammar. */
static bool follows(struct llama_attempt *attempt)
{
	reset(attempt->f);
	/* old files without streams: recurrent states alone look like a KV cache */
	if (attempt->g->n_blobs == 0 && (!attempt->g->recurrent || is_old(attempt->g)))
		return false;
	kvi_scan_seek(attempt->s, attempt->f->memory_at);
	if (attempt->g->outputs && !outputs(attempt->s))
		return false;
	for (uint32_t i = 0; i < attempt->g->n_blobs; i++)
		if (!llama_kv_memory(attempt, i))
			return false;
	if (attempt->g->recurrent && !llama_recurrent_memory(attempt, attempt->s->end))
		return false;
	if (attempt->s->bad)
		return false;
	attempt->all_read = true;
	return kvi_scan_remaining(attempt->s) == 0 || llama_appendix(attempt);
}

/* Everything but the grammar; two grammars that agree on this are one. */
static bool same(const struct kvi_llama_file *file, const struct kvi_llama_file *llama_file)
{
	if (file->n_sections != llama_file->n_sections ||
	    file->n_matrices != llama_file->n_matrices)
		return false;
	if (file->n_sections == 0)
		return true;
	return file->grammar.ext_bytes == llama_file->grammar.ext_bytes &&
	       !memcmp(file->sections, llama_file->sections,
	               file->n_sections * sizeof *file->sections) &&
	       !memcmp(file->matrices, llama_file->matrices,
	               file->n_matrices * sizeof *file->matrices);
}

/* The server's token array: -1, version, n, tokens, n_media, ... */
static void packed_tokens(struct kvi_llama_file *file, struct kvi_scan *scan, uint64_t at,
                          uint64_t end)
{
	uint32_t n, version;
	file->tokens_at = 0;
	kvi_scan_seek(scan, at + 4);
	version = kvi_scan32(scan);
	n = kvi_scan32(scan);
	uint64_t ids = scan->at;
	kvi_scan_skip(scan, (uint64_t)n * 4);
	uint32_t media = kvi_scan32(scan);
	if (!scan->bad && version == PACKED_VERSION && scan->at <= end && media == 0) {
		file->tokens_at = ids;
		file->n_tokens = n;
	}
}

/* Tokens and architecture, up to the memory. */
static bool header(struct kvi_llama_file *file, struct kvi_scan *scan)
{
	struct kvi_llama_grammar *g = &file->grammar;
	uint32_t n = kvi_scan32(scan);
	uint64_t at = scan->at;
	bool packed = n && kvi_scan32(scan) == NULL_TOKEN;
	file->tokens_at = at;
	file->n_tokens = n;
	kvi_scan_seek(scan, at);
	kvi_scan_skip(scan, (uint64_t)n * 4);
	if (scan->bad)
		return false;
	uint64_t end = scan->at;
	if (packed)
		packed_tokens(file, scan, at, end);
	kvi_scan_seek(scan, end);
	if (g->session) {
		char arch[ARCH_MAX];
		uint32_t len = kvi_scan32(scan);
		if (len == 0 || len > sizeof arch || !kvi_scan_bytes(scan, arch, len))
			return false;
		for (uint32_t i = 0; i < len; i++)
			if (arch[i] < 0x20 || arch[i] > 0x7e)
				return false;
	}
	file->memory_at = scan->at;
	return !scan->bad;
}

/* Grammar number i of those that a version can have; false past the last. */
static bool grammar_at(struct kvi_llama_grammar *grammar, unsigned i)
{
	static const struct {
		uint8_t n;
		bool values[KVI_LLAMA_BLOBS_MAX];
	} memories[] = {
		{ 1, { true, false } },  { 1, { false, false } }, { 2, { true, true } },
		{ 2, { false, false } }, { 2, { true, false } },  { 0, { false, false } }
	};
	enum { N_MEMORIES = sizeof memories / sizeof *memories };
	bool old = is_old(grammar);
	grammar->n_blobs = memories[i % N_MEMORIES].n;
	memcpy(grammar->values, memories[i % N_MEMORIES].values, sizeof grammar->values);
	i /= N_MEMORIES;
	grammar->recurrent = i % 2;
	i /= 2;
	grammar->ext_bytes = i % 2 ? (old ? 8 : 12) : 0;
	i /= 2;
	grammar->streams = true;
	grammar->outputs = false;
	if (old) {
		grammar->streams = i % 2 == 0;
		i /= 2;
		if (grammar->session) {
			grammar->outputs = i % 2;
			i /= 2;
		}
	}
	return i == 0;
}

/* Why nothing fits, as the attempt that got furthest has it. */
struct reason {
	uint64_t good_until;
	enum { KIND_UNKNOWN, REST_UNKNOWN, CUT } what;
};

static void consider(struct reason *r, const struct llama_attempt *attempt)
{
	struct reason x = { attempt->good_until, attempt->cut        ? CUT
		                                 : attempt->all_read ? REST_UNKNOWN
		                                                     : KIND_UNKNOWN };
	if (x.good_until > r->good_until || (x.good_until == r->good_until && x.what > r->what))
		*r = x;
}

static const char *reason_text(const struct reason *r)
{
	static const char *const texts[] = {
		[KIND_UNKNOWN] = "its kind of memory is not known: please report the "
				 "model and the version of llama.cpp",
		[REST_UNKNOWN] = "what follows its memory is not known: please report the "
				 "model and the version of llama.cpp",
		[CUT] = "it ends too early: it was cut, or is damaged"
	};
	return texts[r->what];
}

static void take(struct kvi_llama_file *file, struct kvi_llama_file *next)
{
	struct kvi_llama_file old = *file;
	*file = *next;
	/* the loser's arrays serve the next attempt */
	next->sections = old.sections;
	next->cap_sections = old.cap_sections;
	next->matrices = old.matrices;
	next->cap_matrices = old.cap_matrices;
	next->checkpoints = old.checkpoints;
	next->cap_checkpoints = old.cap_checkpoints;
}

static kvarc_ret try_all(struct kvi_llama_file *file, const struct kvi_alloc *alloc,
                         struct kvi_scan *scan, const char **why)
{
	struct kvi_llama_file next = *file;
	struct kvi_llama_grammar g = file->grammar;
	struct reason reason = { 0, KIND_UNKNOWN };
	bool found = false;
	kvarc_ret ret = KVARC_OK;
	for (unsigned i = 0; grammar_at(&g, i) && !ret; i++) {
		struct llama_attempt a = { &next, alloc, scan, &g, 0, false, false, false, 0 };
		bool fits = follows(&a);
		next.grammar = g;
		if (a.no_memory)
			ret = kvi_alloc_error(alloc);
		else if (scan->io)
			ret = KVARC_IO;
		else if (fits && found && !same(file, &next)) {
			*why = "it can be read in more than one way";
			ret = KVARC_END;
		} else if (fits && !found) {
			take(file, &next);
			found = true;
		} else if (!fits) {
			consider(&reason, &a);
		}
	}
	kvi_llama_free(&next, alloc);
	if (!ret && !found) {
		*why = reason_text(&reason);
		ret = KVARC_END;
	}
	if (ret)
		kvi_llama_free(file, alloc);
	return ret;
}

static bool known_version(const struct kvi_llama_grammar *grammar)
{
	return grammar->session ? grammar->version >= 9 && grammar->version <= 11
	                        : grammar->version >= 2 && grammar->version <= 4;
}

kvarc_ret kvi_llama_parse(struct kvi_llama_file *file, const struct kvi_alloc *alloc,
                          struct kvi_scan *scan, const char **why)
{
	memset(file, 0, sizeof *file);
	kvi_scan_seek(scan, 0);
	uint32_t magic = kvi_scan32(scan);
	file->grammar.session = magic == KVI_LLAMA_SESSION_MAGIC;
	uint32_t version = kvi_scan32(scan);
	if (scan->bad || (!file->grammar.session && magic != KVI_LLAMA_SEQ_MAGIC))
		return scan->io ? KVARC_IO : KVARC_END;
	file->grammar.version = version;
	*why = "its version is not known";
	if (!known_version(&file->grammar))
		return KVARC_END;
	*why = "its header is damaged";
	if (!header(file, scan))
		return scan->io ? KVARC_IO : KVARC_END;
	return try_all(file, alloc, scan, why);
}

kvarc_ret kvi_llama_parse_state(struct kvi_llama_file *file, const struct kvi_alloc *alloc,
                                struct kvi_scan *scan, uint64_t at, const char **why)
{
	kvarc_ret ret = KVARC_END;
	kvi_scan_seek(scan, at);
	if (kvi_scan32(scan) == BARE_STATE_MAGIC)
		at += 8;
	for (uint32_t version = 4; version >= 2 && ret == KVARC_END; version--) {
		memset(file, 0, sizeof *file);
		if (scan->io)
			return KVARC_IO;
		file->grammar.version = version;
		file->memory_at = at;
		ret = try_all(file, alloc, scan, why);
	}
	return ret;
}

void kvi_llama_free(struct kvi_llama_file *file, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, file->sections);
	kvi_free(alloc, file->matrices);
	kvi_free(alloc, file->checkpoints);
	file->sections = NULL;
	file->matrices = NULL;
	file->checkpoints = NULL;
	file->n_checkpoints = file->cap_checkpoints = 0;
	file->n_sections = file->cap_sections = file->n_matrices = file->cap_matrices = 0;
}
