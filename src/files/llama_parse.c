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

/* Why nothing fits, as the reading that got furthest has it. */
struct reason {
	uint64_t at;
	enum { KIND_UNKNOWN, REST_UNKNOWN, CUT } what;
};

/* An attempt to read a file by a grammar; the parts that it finds are appended to f. */
struct llama_attempt {
	struct kvi_llama_file *f;
	const struct kvi_alloc *alloc;
	struct kvi_scan *s;
	const struct kvi_llama_grammar *g;
	uint64_t *work;     /* cells and matrices that may still be read, in all attempts */
	bool no_memory;     /* an allocation failed */
	struct reason *why; /* of all attempts */
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

static void note_reason(struct llama_attempt *attempt, uint64_t at, int what)
{
	struct reason *r = attempt->why;
	if (at > r->at || (at == r->at && what > (int)r->what))
		*r = (struct reason){ at, what };
}

/* Takes n from the work that is left. False: too much was read. */
static bool may_read(struct llama_attempt *attempt, uint64_t n)
{
	if (*attempt->work < n)
		return false;
	*attempt->work -= n;
	return true;
}

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
	if (f->n_matrices >= MATRICES_MAX || !may_read(attempt, 1))
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

/* A section that begins at the scan's position. All bytes are set, as sections are compared. */
static void begin_section(struct llama_attempt *attempt, struct kvi_llama_section *section,
                          enum kvi_llama_kind kind, uint32_t blob)
{
	memset(section, 0, sizeof *section);
	section->kind = kind;
	section->blob = blob;
	section->cells_at = attempt->s->at;
	section->first_matrix = attempt->f->n_matrices;
}

/* The elements of a matrix that is complete but for its offset. */
static bool take_elements(struct llama_attempt *attempt, struct kvi_llama_matrix *matrix)
{
	struct kvi_scan *s = attempt->s;
	matrix->at = s->at;
	kvi_scan_skip(s, matrix->bytes);
	if (s->bad) {
		note_reason(attempt, matrix->at, CUT);
		return false;
	}
	return note_matrix(attempt, matrix);
}

/* Sets width and bytes of a matrix of rows from its type and row_bytes. */
static bool measure_rows(struct kvi_llama_matrix *matrix, uint64_t n_rows)
{
	const struct kvi_ggml_type *type = kvi_ggml_type(matrix->type);
	uint64_t width;
	if (!type || matrix->row_bytes % type->block_bytes ||
	    kvi_mul(matrix->row_bytes / type->block_bytes, (uint64_t)type->block_elems, &width) ||
	    width == 0 || width > KVI_IMPORT_WIDTH_MAX ||
	    kvi_mul(matrix->row_bytes, n_rows, &matrix->bytes))
		return false;
	matrix->width = (uint32_t)width;
	return true;
}

/* Sets width and bytes of a channel-major matrix from its type, and row_bytes of an element. */
static bool measure_channels(struct kvi_llama_matrix *matrix, uint32_t width, uint32_t n_cells)
{
	const struct kvi_ggml_type *type = kvi_ggml_type(matrix->type);
	uint64_t total;
	if (!type || type->block_elems != 1 || matrix->row_bytes != type->block_bytes ||
	    width == 0 || width > KVI_IMPORT_WIDTH_MAX ||
	    kvi_mul(matrix->row_bytes, (uint64_t)width, &total) ||
	    kvi_mul(total, (uint64_t)n_cells, &matrix->bytes))
		return false;
	matrix->width = width;
	return true;
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
	if (trans) {
		m.row_bytes = kvi_scan32(s);
		if (!measure_channels(&m, kvi_scan32(s), n_cells))
			return false;
	} else {
		m.row_bytes = kvi_scan64(s);
		if (!measure_rows(&m, n_cells))
			return false;
	}
	return !s->bad && take_elements(attempt, &m);
}

static bool plausible_rotation(uint32_t n)
{
	return n <= ROTATION_MAX && (n & (n - 1)) == 0;
}

static bool kv_cells(struct llama_attempt *attempt, uint32_t n_cells)
{
	if (n_cells > kvi_scan_remaining(attempt->s) / 8 || !may_read(attempt, n_cells))
		return false;
	for (uint32_t i = 0; i < n_cells; i++) {
		int32_t position;
		if (!kvi_llama_cell(attempt->s, attempt->g, &position))
			return false;
	}
	return true;
}

/* Forms of a KV memory: what it has behind its keys. Which it is, only the model knows. */
enum kv_form {
	WITH_VALUES,
	WITHOUT_BYTES, /* heads of value matrices whose rows have no bytes: of an indexer */
	KEYS_ALONE,
	N_FORMS
};

/* Passes the head of a value matrix without bytes. */
static bool no_values(struct kvi_scan *scan, bool trans)
{
	bool known = kvi_ggml_type((int32_t)kvi_scan32(scan)) != NULL;
	uint64_t bytes = trans ? kvi_scan32(scan) : 0;
	bytes = trans ? kvi_scan32(scan) : kvi_scan64(scan);
	return !scan->bad && known && bytes == 0;
}

static bool kv_values(struct llama_attempt *attempt, const struct kvi_llama_section *section,
                      enum kv_form form, bool trans)
{
	for (uint32_t i = 0; form != KEYS_ALONE && i < section->n_layers; i++)
		if (form == WITH_VALUES ? !matrix(attempt, section->n_cells, trans)
		                        : !no_values(attempt->s, trans))
			return false;
	return true;
}

/* Reads a stream. section: its numbers. */
static bool kv_section(struct llama_attempt *attempt, struct kvi_llama_section *section,
                       enum kv_form form, uint32_t least_layers)
{
	struct kvi_scan *s = attempt->s;
	section->values = form == WITH_VALUES;
	if (!kv_cells(attempt, section->n_cells))
		return false;
	uint32_t trans = kvi_scan32(s);
	section->n_layers = kvi_scan32(s);
	if (attempt->g->version >= (attempt->g->session ? 11u : 4u)) {
		section->rotation_k = kvi_scan32(s);
		section->rotation_v = kvi_scan32(s);
	}
	if (s->bad || trans > 1 || section->n_layers < least_layers ||
	    section->n_layers > LAYERS_MAX || !plausible_rotation(section->rotation_k) ||
	    !plausible_rotation(section->rotation_v))
		return false;
	for (uint32_t i = 0; i < section->n_layers; i++)
		if (!matrix(attempt, section->n_cells, false))
			return false;
	if (!kv_values(attempt, section, form, trans == 1))
		return false;
	section->end = s->at;
	return section->n_layers == 0 || note_section(attempt, section);
}

/* Reads a KV memory: u32 streams; for each u32 cells, and if there are any, these, u32 transposed,
 * u32 layers, matrices. An empty one has each form; only the first one is taken. */
static bool kv_memory(struct llama_attempt *attempt, enum kv_form form, uint32_t least_layers)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_memories *m = &attempt->f->memories;
	uint32_t streams = attempt->g->streams ? kvi_scan32(s) : 1;
	bool empty = true;
	if (s->bad || streams == 0 || streams > STREAMS_MAX)
		return false;
	for (uint32_t i = 0; i < streams; i++) {
		struct kvi_llama_section k;
		uint32_t n_cells = kvi_scan32(s);
		begin_section(attempt, &k, KVI_LLAMA_KV, m->n_kv);
		k.n_cells = n_cells;
		k.stream = i;
		k.n_streams = streams;
		if (s->bad || (n_cells && !kv_section(attempt, &k, form, least_layers)))
			return false;
		empty = empty && n_cells == 0;
	}
	m->n++;
	m->n_kv++;
	m->empty += empty;
	return !empty || form == WITH_VALUES || least_layers == 0;
}

/* ----- recurrent states ----------------------------------------------- */

/* The head of each state of a half: u32 type, u64 row_bytes. */
struct state_form {
	int32_t type;
	uint64_t row_bytes;
};

/* The form of the next state, which is not passed. False: there is none. */
static bool next_form(struct kvi_scan *scan, uint64_t end, struct state_form *form)
{
	enum { HEAD = 12 };
	const uint64_t at = scan->at;
	if (at > end || end - at < HEAD)
		return false;
	form->type = (int32_t)kvi_scan32(scan);
	form->row_bytes = kvi_scan64(scan);
	bool bad = scan->bad;
	kvi_scan_seek(scan, at);
	return !bad && (form->type == TYPE_F32 || form->type == TYPE_F16);
}

static bool same_form(const struct state_form *form, const struct state_form *other)
{
	return form->type == other->type && form->row_bytes == other->row_bytes;
}

static uint64_t state_element(const struct state_form *form)
{
	return form->type == TYPE_F32 ? 4 : 2;
}

/* Reads the rows of a state, or passes them. Models without an S state have rows of 0 bytes; rows
 * that are no tensor of an archive are a matrix of width 0. */
static bool state_rows(struct llama_attempt *attempt, const struct state_form *form,
                       uint32_t n_cells, bool pass)
{
	struct kvi_llama_matrix m;
	const uint64_t elem = state_element(form);
	memset(&m, 0, sizeof m);
	m.type = form->type;
	m.row_bytes = form->row_bytes;
	if (kvi_mul(m.row_bytes, (uint64_t)n_cells, &m.bytes))
		return false;
	if (m.row_bytes % elem == 0 && m.row_bytes / elem <= KVI_IMPORT_WIDTH_MAX)
		m.width = (uint32_t)(m.row_bytes / elem);
	if (!pass)
		return take_elements(attempt, &m);
	kvi_scan_skip(attempt->s, m.bytes);
	return !attempt->s->bad && may_read(attempt, 1);
}

/* The bytes of a row of an n-gram history: u64, which no head of a state can be; 0: none. */
static uint64_t history_bytes(struct kvi_scan *scan, uint64_t end, const struct state_form *form)
{
	const uint64_t at = scan->at;
	if (at > end || end - at < 8)
		return 0;
	uint64_t bytes = kvi_scan64(scan);
	if (!scan->bad && bytes > TYPE_F16 && bytes <= UINT32_MAX &&
	    bytes % state_element(form) == 0)
		return bytes;
	kvi_scan_seek(scan, at);
	return 0;
}

/* Goes through states of one form, `most` of them or fewer, and through the histories behind them.
 * Notes the states, or the histories alone. Counts both. False: one is not valid. */
static bool walk_states(struct llama_attempt *attempt, const struct kvi_llama_section *section,
                        const struct state_form *form, uint64_t end, bool histories, uint32_t most,
                        uint32_t *n, uint32_t *n_histories)
{
	enum { HEAD = 12 };
	struct kvi_scan *s = attempt->s;
	struct state_form next, history = *form;
	*n = *n_histories = 0;
	for (; *n < most && next_form(s, end, &next) && same_form(form, &next); ++*n) {
		kvi_scan_skip(s, HEAD);
		if (!state_rows(attempt, form, section->n_cells, histories))
			return false;
		history.row_bytes = history_bytes(s, end, form);
		if (!history.row_bytes)
			continue;
		++*n_histories;
		if (!state_rows(attempt, &history, section->n_cells, !histories))
			return false;
	}
	return s->at <= end;
}

/* Notes the histories between the states of a section that is complete. */
static bool note_histories(struct llama_attempt *attempt, const struct kvi_llama_section *section,
                           const struct state_form *form, uint64_t at)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_section k;
	uint32_t n;
	const uint64_t end = s->at;
	kvi_scan_seek(s, at);
	begin_section(attempt, &k, KVI_LLAMA_HISTORY, 0);
	k.n_cells = section->n_cells;
	k.end = section->end;
	bool ok = walk_states(attempt, section, form, end, true, section->n_layers, &n,
	                      &k.n_layers);
	kvi_scan_seek(s, end);
	return ok && note_section(attempt, &k);
}

/* Reads S states, as many as there are R states, of a form of their own; false: there are none, and
 * the scan is where it was. */
static bool other_states(struct llama_attempt *attempt, const struct kvi_llama_section *section,
                         uint64_t end, uint32_t n)
{
	const size_t matrices = attempt->f->n_matrices;
	const uint64_t at = attempt->s->at;
	struct state_form form;
	uint32_t n_s, histories;
	if (next_form(attempt->s, end, &form) &&
	    walk_states(attempt, section, &form, end, false, n, &n_s, &histories) && n_s == n &&
	    !histories)
		return true;
	attempt->f->n_matrices = matrices;
	kvi_scan_seek(attempt->s, at);
	return false;
}

/* R states of all recurrent layers, then as many S states; all of a half have one form, perhaps
 * both the same. How many there are is known to the model alone. */
static bool all_states(struct llama_attempt *attempt, struct kvi_llama_section *section,
                       uint64_t end, uint32_t n_layers)
{
	struct kvi_scan *s = attempt->s;
	struct state_form form;
	const uint64_t at = s->at;
	uint32_t n, histories;
	if (!next_form(s, end, &form) ||
	    !walk_states(attempt, section, &form, end, false, 2 * n_layers, &n, &histories))
		return false;
	section->n_layers = n;
	if (!other_states(attempt, section, end, n)) {
		section->n_layers = n / 2;
		if (n % 2)
			return false;
	}
	section->end = s->at;
	return section->n_layers <= n_layers && note_section(attempt, section) &&
	       (!histories || note_histories(attempt, section, &form, at));
}

/* Reads recurrent states: u32 cells, these, u32 0, u32 layers of the model, states. */
static bool recurrent_memory(struct llama_attempt *attempt, uint64_t end)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_section k;
	uint32_t n_cells = kvi_scan32(s);
	begin_section(attempt, &k, KVI_LLAMA_STATES, 0);
	k.values = true;
	k.n_cells = n_cells;
	if (n_cells > kvi_scan_remaining(s) / 8 || !may_read(attempt, n_cells))
		return false;
	for (uint32_t i = 0; i < k.n_cells; i++) {
		int32_t position;
		if (!llama_state_cell(s, &position))
			return false;
	}
	uint32_t trans = kvi_scan32(s), n_layers = kvi_scan32(s);
	if (s->bad || k.n_cells == 0 || trans != 0 || n_layers == 0 || n_layers > LAYERS_MAX)
		return false;
	attempt->f->memories.n++;
	attempt->f->memories.recurrent = true;
	return all_states(attempt, &k, end, n_layers);
}

/* ----- the memory of DeepSeek V4 --------------------------------------- */

/*
 * u32 magic, u32 version, u32 mode; KV memories of keys alone: of the layers without a window,
 * which may be none, and of those with one; keys of blocks of 4 and of 128 tokens, and of the
 * indexer; the states of the three compressors that make these. In the state of a checkpoint the
 * first memory and the keys of blocks are missing.
 */
enum {
	COMPRESSED_VERSION = 1,
	KEYS_OLDEST = 1, /* has rows that are not used, too */
	KEYS_LATEST = 2,
	COMPRESSOR_VERSION = 1,
	N_COMPRESSED = 3
};

/* Reads i32 type, u64 width, u64 rows, u64 row_bytes, and for each stream its rows. */
static bool sized_matrix(struct llama_attempt *attempt, uint32_t n_rows, uint32_t n_streams)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_matrix m;
	memset(&m, 0, sizeof m);
	m.type = (int32_t)kvi_scan32(s);
	uint64_t width = kvi_scan64(s), rows = kvi_scan64(s);
	m.row_bytes = kvi_scan64(s);
	return !s->bad && rows == n_rows && measure_rows(&m, (uint64_t)n_rows * n_streams) &&
	       m.width == width && take_elements(attempt, &m);
}

/* Keys of blocks, or the rows of a compressor and their scores: a number for each layer, and one
 * matrix, or two. */
static bool numbered_layers(struct llama_attempt *attempt, struct kvi_llama_section *section,
                            uint32_t n_rows, uint32_t n_streams)
{
	struct kvi_scan *s = attempt->s;
	uint64_t rows = (uint64_t)n_rows * n_streams;
	section->first_matrix = attempt->f->n_matrices;
	if (s->bad || section->n_layers > LAYERS_MAX || n_streams == 0 || n_streams > STREAMS_MAX ||
	    rows > UINT32_MAX)
		return false;
	for (uint32_t i = 0; i < section->n_layers; i++) {
		kvi_scan32(s); /* number of the layer */
		for (int k = 0; k < (section->values ? 2 : 1); k++)
			if (!sized_matrix(attempt, n_rows, n_streams))
				return false;
	}
	section->n_cells = (uint32_t)rows;
	section->end = s->at;
	return rows == 0 || section->n_layers == 0 || note_section(attempt, section);
}

static bool compressed_keys(struct llama_attempt *attempt, uint32_t number)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_section k;
	begin_section(attempt, &k, KVI_LLAMA_COMPRESSED, number);
	uint32_t version = kvi_scan32(s), n_rows = kvi_scan32(s), n_streams = kvi_scan32(s);
	k.n_layers = kvi_scan32(s);
	return version >= KEYS_OLDEST && version <= KEYS_LATEST &&
	       numbered_layers(attempt, &k, n_rows, n_streams);
}

static bool compressor(struct llama_attempt *attempt, uint32_t number)
{
	struct kvi_scan *s = attempt->s;
	struct kvi_llama_section k;
	begin_section(attempt, &k, KVI_LLAMA_COMPRESSOR, number);
	k.values = true;
	uint32_t version = kvi_scan32(s);
	k.ratio = kvi_scan32(s);
	uint32_t n_rows = kvi_scan32(s);
	kvi_scan32(s); /* width */
	uint32_t n_streams = kvi_scan32(s);
	k.n_layers = kvi_scan32(s);
	return version == COMPRESSOR_VERSION && numbered_layers(attempt, &k, n_rows, n_streams);
}

static bool compressed_memory(struct llama_attempt *attempt, bool partial)
{
	struct kvi_scan *s = attempt->s;
	bool ok = kvi_scan32(s) == KVI_LLAMA_COMPRESSED_MAGIC &&
	          kvi_scan32(s) == COMPRESSED_VERSION && kvi_scan32(s) == (partial ? 1 : 0) &&
	          !s->bad;
	attempt->f->memories.compressed = true;
	for (int i = 0; i < (partial ? 1 : 2); i++)
		ok = ok && kv_memory(attempt, KEYS_ALONE, 0);
	for (uint32_t i = 0; i < N_COMPRESSED && !partial; i++)
		ok = ok && compressed_keys(attempt, i);
	for (uint32_t i = 0; i < N_COMPRESSED; i++)
		ok = ok && compressor(attempt, i);
	return ok;
}

/* ==== The memories of a slot, or of a checkpoint's state, in any order ==== */

/*
 * A state does not say which memories it consists of, and some of them only the model knows the
 * end of. So each kind is tried wherever a memory ends, and a reading counts if it alone gets to
 * the exact end.
 */

enum {
	MEMORIES_MAX = 5,
	READINGS_MAX = 256, /* memories that are tried in one search */
	KIND_COMPRESSED = N_FORMS,
	KIND_RECURRENT,
	N_KINDS
};

struct memory_search {
	struct llama_attempt *a;
	uint64_t end;
	bool partial;               /* the state of a checkpoint */
	struct kvi_llama_file best; /* what was found */
	bool found, ambiguous;
	unsigned left;
};

/* How much of a file was read. */
struct read_mark {
	size_t sections, matrices;
	struct kvi_llama_memories memories;
	uint64_t at;
};

static struct read_mark set_mark(const struct llama_attempt *attempt)
{
	return (struct read_mark){ attempt->f->n_sections, attempt->f->n_matrices,
		                   attempt->f->memories, attempt->s->at };
}

static void go_back(struct llama_attempt *attempt, const struct read_mark *mark)
{
	attempt->f->n_sections = mark->sections;
	attempt->f->n_matrices = mark->matrices;
	attempt->f->n_checkpoints = 0;
	attempt->f->appendix_at = 0;
	attempt->f->memories = mark->memories;
	kvi_scan_seek(attempt->s, mark->at);
}

/* Everything but the grammar; two readings that agree on this are one. */
static bool same(const struct kvi_llama_file *file, const struct kvi_llama_file *other)
{
	if (file->n_sections != other->n_sections || file->n_matrices != other->n_matrices)
		return false;
	if (file->n_sections == 0)
		return true;
	return file->grammar.ext_bytes == other->grammar.ext_bytes &&
	       !memcmp(file->sections, other->sections,
	               file->n_sections * sizeof *file->sections) &&
	       !memcmp(file->matrices, other->matrices, file->n_matrices * sizeof *file->matrices);
}

static void *copy_list(struct llama_attempt *attempt, const void *list, size_t n, size_t bytes)
{
	void *copy = kvi_array(attempt->alloc, n + 1, bytes);
	if (copy && n)
		memcpy(copy, list, n * bytes);
	attempt->no_memory = attempt->no_memory || !copy;
	return copy;
}

/* Keeps what was read, for the attempt reads other ways, too. */
static void keep_reading(struct llama_attempt *attempt, struct kvi_llama_file *to)
{
	const struct kvi_llama_file *f = attempt->f;
	*to = *f;
	to->grammar = *attempt->g;
	to->sections = copy_list(attempt, f->sections, f->n_sections, sizeof *f->sections);
	to->matrices = copy_list(attempt, f->matrices, f->n_matrices, sizeof *f->matrices);
	to->checkpoints = copy_list(attempt, f->checkpoints, f->n_checkpoints,
	                            sizeof *f->checkpoints);
	to->cap_sections = f->n_sections + 1;
	to->cap_matrices = f->n_matrices + 1;
	to->cap_checkpoints = f->n_checkpoints + 1;
}

/* Whether a KV memory stands behind the recurrent states. */
static bool kv_behind_states(const struct kvi_llama_file *file)
{
	bool states = false;
	for (size_t i = 0; i < file->n_sections; i++) {
		if (file->sections[i].kind == KVI_LLAMA_STATES)
			states = true;
		else if (states && file->sections[i].kind == KVI_LLAMA_KV)
			return true;
	}
	return false;
}

/* Finds what context checkpoints hold: recurrent states, those of compressors, and the window,
 * which is the last KV memory; one behind the states is an indexer. */
static void mark_held(struct kvi_llama_file *file)
{
	struct kvi_llama_memories *m = &file->memories;
	m->held_blob = m->n_kv > 1 && !kv_behind_states(file) ? m->n_kv - 1 : KVI_LLAMA_NO_BLOB;
	for (size_t i = 0; i < file->n_sections; i++) {
		struct kvi_llama_section *k = &file->sections[i];
		k->held = k->kind == KVI_LLAMA_KV ? k->blob == m->held_blob
		                                  : k->kind != KVI_LLAMA_COMPRESSED;
	}
}

static bool llama_appendix(struct llama_attempt *attempt);

/* A reading that got to the end: the only one, or the same as the one before. */
static void judge(struct memory_search *search)
{
	struct llama_attempt *a = search->a;
	mark_held(a->f);
	if (kvi_scan_remaining(a->s) && !search->partial && !llama_appendix(a))
		return;
	a->f->grammar = *a->g;
	if (a->no_memory)
		return;
	if (search->found && !same(&search->best, a->f))
		search->ambiguous = true;
	else if (!search->found)
		keep_reading(a, &search->best);
	search->found = true;
}

static bool is_old(const struct kvi_llama_grammar *grammar)
{
	return grammar->version == (grammar->session ? 9u : 2u);
}

static bool one_memory(struct memory_search *search, unsigned kind)
{
	struct llama_attempt *a = search->a;
	const struct kvi_llama_memories *m = &a->f->memories;
	/* old files without streams: recurrent states look like a KV cache */
	const bool old = is_old(a->g);
	if (m->compressed)
		return false;
	if (kind == KIND_COMPRESSED)
		return m->n == 0 && compressed_memory(a, search->partial);
	if (kind == KIND_RECURRENT)
		return !m->recurrent && (m->n || !old || search->partial) &&
		       recurrent_memory(a, search->end);
	return kv_memory(a, (enum kv_form)kind, 1);
}

/* Whether the memories end where the scan is. */
static bool ends_here(struct memory_search *search)
{
	struct kvi_scan *s = search->a->s;
	const uint64_t at = s->at;
	if (search->a->f->memories.n == 0 || at > search->end)
		return false;
	if (at == search->end)
		return true;
	bool appendix = !search->partial && !search->a->g->session &&
	                kvi_scan32(s) == KVI_LLAMA_APPENDIX_MAGIC && !s->bad;
	kvi_scan_seek(s, at);
	return appendix;
}

/* Reads memories from the scan's position on in all possible ways. */
static void search_rest(struct memory_search *search)
{
	struct llama_attempt *a = search->a;
	struct read_mark m = set_mark(a);
	struct kvi_llama_file *f = a->f;
	if (a->no_memory || a->s->io || search->left == 0)
		return;
	search->left--;
	if (ends_here(search)) {
		judge(search);
		return;
	}
	note_reason(a, m.at, f->memories.n ? REST_UNKNOWN : KIND_UNKNOWN);
	for (unsigned kind = 0; kind < N_KINDS && f->memories.n < MEMORIES_MAX; kind++) {
		if (one_memory(search, kind) && !a->s->bad && a->s->at <= search->end)
			search_rest(search);
		go_back(a, &m);
	}
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

/* Adds the sections of the state of checkpoint number n to those of the file. */
static void add_state(struct llama_attempt *attempt, const struct kvi_llama_file *state, uint32_t n)
{
	const uint32_t blob = attempt->f->memories.held_blob;
	const size_t first = attempt->f->n_matrices;
	bool ok = true;
	for (size_t i = 0; i < state->n_matrices && ok; i++)
		ok = note_matrix(attempt, &state->matrices[i]);
	for (size_t i = 0; i < state->n_sections && ok; i++) {
		struct kvi_llama_section k = state->sections[i];
		k.first_matrix += first;
		k.checkpoint = 1 + n;
		k.held = true;
		k.blob = k.kind == KVI_LLAMA_KV ? blob : k.blob;
		ok = note_section(attempt, &k);
	}
}

/* Whether the state of a checkpoint has the memories of the slot that cannot be rewound, and no
 * others. */
static bool belongs(const struct kvi_llama_file *file, const struct kvi_llama_file *state)
{
	const struct kvi_llama_memories *m = &file->memories, *k = &state->memories;
	if (k->n_kv != (m->held_blob != KVI_LLAMA_NO_BLOB) || k->recurrent != m->recurrent ||
	    k->compressed != m->compressed)
		return false;
	for (size_t i = 0; i < file->n_sections; i++)
		if (file->sections[i].kind == KVI_LLAMA_KV && file->sections[i].held)
			return state->n_sections == 0 ||
			       state->sections[0].values == file->sections[i].values;
	return true;
}

/* Reads the state of checkpoint number n, to its exact end; adds no sections where it is not
 * understood. */
static void read_state(struct llama_attempt *attempt, struct kvi_llama_checkpoint *checkpoint,
                       uint32_t n)
{
	struct kvi_llama_file state = { 0 };
	struct llama_attempt a = *attempt;
	struct memory_search s = { .a = &a,
		                   .end = checkpoint->state_at + checkpoint->state_bytes,
		                   .partial = true,
		                   .left = READINGS_MAX };
	struct reason unused = { 0 };
	bool magic = kvi_scan32(attempt->s) == CHECKPOINT_STATE_MAGIC;
	kvi_scan32(attempt->s); /* sequence */
	a.f = &state;
	a.why = &unused;
	if (magic)
		search_rest(&s);
	attempt->no_memory = attempt->no_memory || a.no_memory;
	checkpoint->understood = !a.no_memory && s.found && !s.ambiguous &&
	                         belongs(attempt->f, &s.best);
	if (checkpoint->understood)
		add_state(attempt, &s.best, n);
	kvi_llama_free(&s.best, attempt->alloc);
	kvi_llama_free(&state, attempt->alloc);
}

static bool checkpoint(struct llama_attempt *attempt, uint32_t n)
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
	read_state(attempt, &c, n);
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
	for (uint32_t i = 0; whole && i < count; i++)
		whole = checkpoint(attempt, i);
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
	bool old = is_old(grammar);
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

static const char *reason_text(const struct reason *r)
{
	static const char *const texts[] = {
		[KIND_UNKNOWN] = "its kind of memory is not known: please report the "
				 "model and the version of llama.cpp",
		[REST_UNKNOWN] = "what follows its memory is not known: please report the "
				 "model and the version of llama.cpp",
		[CUT] = "it ends too early: it was cut, or its kind of memory is not known"
	};
	return texts[r->what];
}

/* Reads the memories of a file by all grammars of its version. */
static kvarc_ret try_all(struct kvi_llama_file *file, const struct kvi_alloc *alloc,
                         struct kvi_scan *scan, const char **why)
{
	enum { LEAST_WORK = 65536 };
	struct kvi_llama_file next = *file;
	struct kvi_llama_grammar g = file->grammar;
	struct reason reason = { 0, KIND_UNKNOWN };
	/* all cells of a file are fewer than an eighth of this */
	uint64_t work = LEAST_WORK + (scan->end < UINT64_MAX / 4 ? 2 * scan->end : 0);
	struct llama_attempt a = { &next, alloc, scan, &g, &work, false, &reason };
	struct memory_search s = { .a = &a, .end = scan->end };
	for (unsigned i = 0; grammar_at(&g, i) && !a.no_memory && !scan->io; i++) {
		next.n_sections = next.n_matrices = next.n_checkpoints = 0;
		next.memories = (struct kvi_llama_memories){ 0 };
		next.appendix_at = 0;
		s.left = READINGS_MAX;
		kvi_scan_seek(scan, file->memory_at);
		if (!g.outputs || outputs(scan))
			search_rest(&s);
	}
	kvarc_ret ret = a.no_memory ? kvi_alloc_error(alloc) : scan->io ? KVARC_IO : KVARC_OK;
	kvi_llama_free(&next, alloc);
	if (!ret && (!s.found || s.ambiguous)) {
		*why = s.found ? "it can be read in more than one way" : reason_text(&reason);
		ret = KVARC_END;
	}
	if (ret)
		kvi_llama_free(&s.best, alloc);
	else
		*file = s.best;
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
	*why = "its header is not known";
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
