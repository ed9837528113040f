/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_shorten.c - a llama.cpp file with only its leading tokens */
#include "llama_shorten.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/restore.h"
#include "reader/reader_internal.h"
#include "util/bytes.h"
#include "util/list.h"
#include "util/source.h"

/* ==== Where the elements of a file go in a shorter one ==== */

/* The piece of the plan that holds byte `at` of the file. */
static size_t llama_map_piece(const struct kvi_llama_map *map, uint64_t at)
{
	size_t lo = 0, hi = map->plan->n_pieces;
	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;
		if (map->starts[mid] <= at)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* Adds an entry. False: no memory. */
static bool llama_map_add(struct kvi_llama_map *map, uint64_t from, uint64_t to, uint64_t bytes)
{
	struct kvi_llama_moved *last = map->n ? &map->list[map->n - 1] : NULL;
	if (last && last->from + last->bytes == from && last->to + last->bytes == to) {
		last->bytes += bytes;
		return true;
	}
	if (!kvi_array_grow(map->alloc, &map->list, &map->cap, map->n, sizeof *map->list))
		return false;
	map->list[map->n++] = (struct kvi_llama_moved){ from, to, bytes };
	return true;
}

kvarc_ret kvi_llama_map_sort(struct kvi_llama_map *map)
{
	map->intervals = kvi_array(map->alloc, map->n + 1, sizeof *map->intervals);
	if (!map->intervals)
		return kvi_alloc_error(map->alloc);
	for (size_t i = 0; i < map->n; i++) {
		const struct kvi_llama_moved *e = &map->list[i];
		map->intervals[i] = (struct kvi_interval){ e->from, e->from + e->bytes, 0, i };
	}
	kvi_intervals_sort(map->intervals, map->n);
	return KVARC_OK;
}

/* The tokens of an area that have bytes in [lo, hi) of it; all where that is not plain. */
static struct kvi_token_span tokens_of(const struct kvi_piece *piece, uint64_t lo, uint64_t hi)
{
	const struct kvi_area_view *v = &piece->views[0];
	const uint64_t step = v->token_stride;
	struct kvi_token_span span = { 0, piece->n_tokens };
	uint64_t row = 0; /* bytes of all tokens together */
	if (step && piece->n_tokens * step == piece->bytes)
		row = piece->bytes;
	else if (step && piece->n_tokens * step == v->block_stride) /* channel-major */
		row = v->block_stride;
	if (row && lo / row == (hi - 1) / row) {
		span.begin = lo % row / step;
		span.end = (hi - 1) % row / step + 1;
	}
	span.begin += piece->t0;
	span.end += piece->t0;
	return span;
}

static void add_span(struct kvi_token_span *to, struct kvi_token_span span)
{
	if (to->begin == to->end)
		*to = span;
	to->begin = span.begin < to->begin ? span.begin : to->begin;
	to->end = span.end > to->end ? span.end : to->end;
}

void kvi_llama_map_spans(const struct kvi_llama_map *map, struct kvi_token_span *spans)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct kvi_llama_moved *e = &map->list[i];
		const uint64_t end = e->from + e->bytes;
		size_t k = llama_map_piece(map, e->from);
		for (; k < map->plan->n_pieces && map->starts[k] < end; k++) {
			const struct kvi_piece *p = &map->plan->pieces[k];
			uint64_t start = map->starts[k], next = map->starts[k + 1];
			uint64_t lo = e->from > start ? e->from - start : 0;
			uint64_t hi = (end < next ? end : next) - start;
			if (p->type == KVI_PIECE_AREA && lo < hi)
				add_span(&spans[p->track], tokens_of(p, lo, hi));
		}
	}
}

/* Bytes of the file on their way. */
struct moving {
	const struct kvi_llama_map *m;
	const uint8_t *data;
	uint64_t at, end;
};

/* A kvi_interval_fn. */
static int move_part(void *opaque, size_t id)
{
	const struct moving *x = opaque;
	const struct kvi_llama_moved *e = &x->m->list[id];
	const kvarc_sink *sink = x->m->sink;
	uint64_t lo = e->from > x->at ? e->from : x->at;
	uint64_t end = e->from + e->bytes, hi = end < x->end ? end : x->end;
	return sink->write(sink->opaque, x->data + (lo - x->at), (size_t)(hi - lo),
	                   e->to + (lo - e->from));
}

static int write_moved(void *opaque, const void *data, size_t bytes, uint64_t offset)
{
	const struct kvi_llama_map *m = opaque;
	struct moving x = { m, data, offset, offset + bytes };
	return bytes ? kvi_intervals_search(m->intervals, m->n, offset, offset + bytes, move_part,
	                                    &x)
	             : 0;
}

kvarc_sink kvi_llama_map_sink(struct kvi_llama_map *map)
{
	return (kvarc_sink){ .write = write_moved, .opaque = map };
}

void kvi_llama_map_free(struct kvi_llama_map *map)
{
	kvi_free(map->alloc, map->list);
	kvi_free(map->alloc, map->intervals);
	*map = (struct kvi_llama_map){ .alloc = map->alloc };
}

/* ==== A llama.cpp file with only its leading tokens ==== */

/* Cells [cell, cell + n) of a section, whose description is bytes [at, end) of the file. */
struct llama_cells {
	const struct kvi_llama_section *section;
	uint32_t cell, n;
	uint64_t at, end;
};
/* Cells that stay, in the order of the shorter file; all zero: none yet. */
struct llama_runs {
	struct llama_cells *list;
	size_t n, cap;
	uint64_t cells;
};

enum {
	TOKENS_AT = 12,   /* offset of the token list, behind magic, version and its length */
	MATRIX_HEAD = 12, /* before the elements of a matrix */
	STATE_HEAD = 8,   /* magic and sequence of a checkpoint's state */
	PACKED_WORDS = 4  /* words of a packed token list, without its tokens */
};

/* ----- what is whole -------------------------------------------------- */

static uint64_t section_begin(const struct kvi_llama_file *file,
                              const struct kvi_llama_section *section)
{
	return file->matrices[section->first_matrix].at;
}

static uint64_t section_end(const struct kvi_llama_file *file,
                            const struct kvi_llama_section *section)
{
	const struct kvi_llama_matrix *last =
		&file->matrices[section->first_matrix + kvi_llama_section_matrices(section) - 1];
	return last->at + last->bytes;
}

/* The cell that byte `at` of a section is of; 0 where rows are not cells. */
static uint64_t cell_of(const struct kvi_llama_file *file, const struct kvi_llama_section *section,
                        uint64_t at)
{
	for (size_t i = kvi_llama_section_matrices(section); i-- > 0;) {
		const struct kvi_llama_matrix *m = &file->matrices[section->first_matrix + i];
		if (at >= m->at)
			return m->trans || section->kind != KVI_LLAMA_KV
			               ? 0
			               : (at - m->at) / m->row_bytes;
	}
	return 0;
}

/* Counts the leading cells of a section that are whole in all of its matrices. */
static uint64_t llama_whole_cells(const struct kvi_llama_short *shortened,
                                  const struct kvi_llama_section *section)
{
	uint64_t cells = section->n_cells, base = 0;
	uint64_t begin = section_begin(&shortened->f, section),
		 end = section_end(&shortened->f, section);
	for (size_t i = 0; i < shortened->plan->n_pieces && base < end; i++) {
		const struct kvi_piece *p = &shortened->plan->pieces[i];
		if (p->type == KVI_PIECE_AREA && base >= begin) {
			uint64_t whole = shortened->whole[p->track];
			uint64_t here = whole > p->t0 ? whole - p->t0 : 0;
			uint64_t cell = cell_of(&shortened->f, section, base);
			if (here < p->n_tokens && section->kind != KVI_LLAMA_KV)
				return 0;
			if (here < p->n_tokens && cell + here < cells)
				cells = cell + here;
		}
		base += p->bytes;
	}
	return cells;
}

/* Counts the positions from 0 on that each have one whole cell, in any order. 0, too, when a
 * position has two cells, which are of two sequences. */
static kvarc_ret prefix_cells(const struct kvi_llama_short *shortened,
                              const struct kvi_llama_section *section, uint64_t *prefix)
{
	enum { WHOLE = 1, LOST = 2 };
	uint64_t whole = llama_whole_cells(shortened, section);
	uint8_t *seen = kvi_calloc(shortened->alloc, section->n_cells, 1);
	bool twice = false;
	*prefix = 0;
	if (!seen)
		return kvi_alloc_error(shortened->alloc);
	kvi_scan_seek(shortened->s, section->cells_at);
	for (uint64_t i = 0; i < section->n_cells && !twice; i++) {
		int32_t position;
		if (!kvi_llama_cell(shortened->s, &shortened->f.grammar, &position))
			break;
		if ((uint32_t)position >= section->n_cells)
			continue;
		twice = seen[position];
		seen[position] = i < whole ? WHOLE : LOST;
	}
	while (!twice && *prefix < section->n_cells && seen[*prefix] == WHOLE)
		++*prefix;
	kvi_free(shortened->alloc, seen);
	return shortened->s->bad ? KVARC_IO : KVARC_OK;
}

/* Whether all cells of checkpoint number c are whole. */
static bool checkpoint_whole(const struct kvi_llama_short *shortened, size_t c)
{
	for (size_t i = 0; i < shortened->f.n_sections; i++) {
		const struct kvi_llama_section *k = &shortened->f.sections[i];
		if (k->checkpoint == c + 1 && llama_whole_cells(shortened, k) < k->n_cells)
			return false;
	}
	return true;
}

bool kvi_llama_all_whole(const struct kvi_llama_short *shortened, bool checkpoints)
{
	for (size_t i = 0; i < shortened->f.n_sections; i++) {
		const struct kvi_llama_section *k = &shortened->f.sections[i];
		if ((checkpoints || !k->checkpoint) && llama_whole_cells(shortened, k) < k->n_cells)
			return false;
	}
	return true;
}

/* Lowers *n to the prefix of the slot's own memories: those that checkpoints hold, or the others.
 * *rewinds: all of them have cells. */
static kvarc_ret own_prefix(const struct kvi_llama_short *shortened, bool held, uint64_t *n,
                            bool *rewinds)
{
	for (size_t i = 0; i < shortened->f.n_sections; i++) {
		const struct kvi_llama_section *k = &shortened->f.sections[i];
		uint64_t prefix = 0;
		if (k->checkpoint || k->held != held)
			continue;
		const bool cells = k->kind == KVI_LLAMA_KV;
		kvarc_ret ret = cells ? prefix_cells(shortened, k, &prefix) : KVARC_OK;
		if (ret)
			return ret;
		*rewinds = *rewinds && cells;
		*n = prefix < *n ? prefix : *n;
	}
	return KVARC_OK;
}

/* Whether all tokens are wanted. The list may name one without a cell. base: the prefix of all. */
static bool wants_all(const struct kvi_llama_short *shortened, uint64_t base)
{
	uint64_t cells = 0;
	for (size_t i = 0; i < shortened->f.n_sections; i++) {
		const struct kvi_llama_section *k = &shortened->f.sections[i];
		if (!k->checkpoint && !k->held && k->n_cells > cells)
			cells = k->n_cells;
	}
	if (shortened->strict && base != shortened->f.n_tokens)
		return false;
	return shortened->limit >= shortened->f.n_tokens ||
	       (base == cells && shortened->limit >= base);
}

static kvarc_ret llama_window_choose(struct kvi_llama_short *shortened);

kvarc_ret kvi_llama_choose(struct kvi_llama_short *shortened)
{
	uint64_t base = shortened->f.n_tokens, own;
	bool rewinds = true;
	kvarc_ret ret = own_prefix(shortened, false, &base, &rewinds);
	shortened->tokens = shortened->f.n_tokens;
	shortened->all = wants_all(shortened, base) && kvi_llama_all_whole(shortened, false);
	shortened->base = base < shortened->limit ? base : shortened->limit;
	if (ret || shortened->all)
		return ret;
	own = shortened->base;
	ret = own_prefix(shortened, true, &own, &rewinds);
	shortened->tokens = rewinds ? own : 0;
	for (size_t i = 0; i < shortened->f.n_checkpoints && !ret; i++) {
		const struct kvi_llama_checkpoint *c = &shortened->f.checkpoints[i];
		if (c->understood && c->n_tokens <= shortened->base &&
		    c->n_tokens > shortened->tokens && checkpoint_whole(shortened, i)) {
			shortened->tokens = c->n_tokens;
			shortened->state = c;
		}
	}
	return ret ? ret : llama_window_choose(shortened);
}

const char *kvi_llama_obstacle(const struct kvi_llama_short *shortened)
{
	const struct kvi_llama_file *f = &shortened->f;
	if (!f->tokens_at)
		return "its tokens are not plain text";
	if (f->memories.compressed)
		return "its memory has rows of several tokens, which only the engine can cut";
	for (size_t i = 0; i < f->n_sections; i++)
		for (size_t k = 0; k < i; k++)
			if (f->sections[i].checkpoint == f->sections[k].checkpoint &&
			    f->sections[i].kind == f->sections[k].kind &&
			    f->sections[i].blob == f->sections[k].blob)
				return "it holds several streams";
	return f->memories.empty ? "one of its memories is empty" : NULL;
}

/* ----- writing -------------------------------------------------------- */

static kvarc_ret put(struct kvi_llama_short *shortened, const void *p, size_t n)
{
	if (n && shortened->sink &&
	    shortened->sink->write(shortened->sink->opaque, p, n, shortened->at))
		return KVARC_IO;
	shortened->at += n;
	return KVARC_OK;
}

static kvarc_ret put32(struct kvi_llama_short *shortened, uint64_t v)
{
	uint8_t b[4];
	kvi_store32(b, (uint32_t)v);
	return put(shortened, b, sizeof b);
}

static kvarc_ret copy_bytes(struct kvi_llama_short *shortened, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t n = bytes < KVI_LLAMA_COPY_BYTES ? (size_t)bytes : KVI_LLAMA_COPY_BYTES;
		if (kvi_source_read(shortened->s->src, shortened->buffer, n, from))
			return KVARC_IO;
		ret = put(shortened, shortened->buffer, n);
		from += n;
		bytes -= n;
	}
	return ret;
}

/* Copies bytes of the file: literal ones to the sink, elements to the map if there is one. */
static kvarc_ret copy(struct kvi_llama_short *shortened, uint64_t from, uint64_t bytes)
{
	struct kvi_llama_map *m = shortened->map;
	if (!m)
		return copy_bytes(shortened, from, bytes);
	for (size_t i = llama_map_piece(m, from); bytes; i++) {
		uint64_t left = m->starts[i + 1] - from, n = left < bytes ? left : bytes;
		kvarc_ret ret = KVARC_OK;
		if (m->plan->pieces[i].type != KVI_PIECE_AREA)
			ret = copy_bytes(shortened, from, n);
		else if (!llama_map_add(m, from, shortened->at, n))
			ret = kvi_alloc_error(shortened->alloc);
		else
			shortened->at += n;
		if (ret)
			return ret;
		from += n;
		bytes -= n;
	}
	return KVARC_OK;
}

/* Writes magic, version and the token list, packed or plain; for a session also the bytes before
 * its memory, without outputs, which belong to the last token. */
static kvarc_ret put_header(struct kvi_llama_short *shortened)
{
	enum { NO_OUTPUTS = 20 };
	static const uint8_t none[NO_OUTPUTS];
	bool packed = shortened->f.tokens_at != TOKENS_AT;
	kvi_scan_seek(shortened->s, TOKENS_AT - 4);
	uint64_t end = TOKENS_AT + 4 * (uint64_t)kvi_scan32(shortened->s);
	kvarc_ret ret = copy(shortened, 0, TOKENS_AT - 4);
	if (!ret)
		ret = put32(shortened, shortened->tokens + (packed ? PACKED_WORDS : 0));
	if (!ret && packed)
		ret = copy(shortened, TOKENS_AT, 8); /* mark and version */
	if (!ret && packed)
		ret = put32(shortened, shortened->tokens);
	if (!ret)
		ret = copy(shortened, shortened->f.tokens_at, 4 * shortened->tokens);
	if (!ret && packed)
		ret = put32(shortened, 0); /* no media */
	if (!ret)
		ret = copy(shortened, end, shortened->f.memory_at - end);
	return ret || !shortened->f.grammar.outputs ? ret : put(shortened, none, sizeof none);
}

/* Adds a cell at the end. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret llama_runs_add(struct llama_runs *runs, const struct kvi_alloc *alloc,
                                const struct llama_cells *one)
{
	struct llama_cells *last = runs->n ? &runs->list[runs->n - 1] : NULL;
	runs->cells++;
	if (last && last->section == one->section && last->cell + last->n == one->cell) {
		last->n++;
		last->end = one->end;
		return KVARC_OK;
	}
	if (!kvi_array_grow(alloc, &runs->list, &runs->cap, runs->n, sizeof *runs->list))
		return kvi_alloc_error(alloc);
	runs->list[runs->n++] = *one;
	return KVARC_OK;
}

static kvarc_ret llama_window_pick(const struct kvi_llama_short *shortened,
                                   struct llama_runs *runs);

/* Picks the cells with positions below the number of tokens, where the window has no cells of its
 * own. *end: end of the descriptions of all cells. */
static kvarc_ret pick_cells(struct kvi_llama_short *shortened,
                            const struct kvi_llama_section *section, bool window,
                            struct llama_runs *runs, uint64_t *end)
{
	kvarc_ret ret = KVARC_OK;
	kvi_scan_seek(shortened->s, section->cells_at);
	for (uint32_t i = 0; i < section->n_cells && !ret; i++) {
		struct llama_cells one = { section, i, 1, shortened->s->at, 0 };
		int32_t position;
		if (!kvi_llama_cell(shortened->s, &shortened->f.grammar, &position))
			return KVARC_IO;
		one.end = shortened->s->at;
		if (!window && (uint64_t)position < shortened->tokens)
			ret = llama_runs_add(runs, shortened->alloc, &one);
	}
	*end = shortened->s->at;
	return ret || !window ? ret : llama_window_pick(shortened, runs);
}

/* Writes matrix i of a section, with rows of the sections that its cells come from. */
static kvarc_ret put_matrix(struct kvi_llama_short *shortened,
                            const struct kvi_llama_section *section, size_t i,
                            const struct llama_runs *runs)
{
	const struct kvi_llama_matrix *m = &shortened->f.matrices[section->first_matrix + i];
	const uint32_t channels = m->trans ? m->width : 1;
	kvarc_ret ret = copy(shortened, m->at - MATRIX_HEAD, MATRIX_HEAD);
	for (uint32_t c = 0; c < channels; c++)
		for (size_t j = 0; j < runs->n && !ret; j++) {
			const struct llama_cells *run = &runs->list[j];
			uint64_t row = (uint64_t)c * run->section->n_cells + run->cell;
			m = &shortened->f.matrices[run->section->first_matrix + i];
			ret = copy(shortened, m->at + row * m->row_bytes, run->n * m->row_bytes);
		}
	return ret;
}

static kvarc_ret put_empty_streams(struct kvi_llama_short *shortened, uint32_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < n && !ret; i++)
		ret = put32(shortened, 0);
	return ret;
}

/* Writes the cells and matrices of a section, and what is behind these. head: offset of the bytes
 * between both. */
static kvarc_ret put_cells(struct kvi_llama_short *shortened,
                           const struct kvi_llama_section *section, const struct llama_runs *runs,
                           uint64_t head)
{
	kvarc_ret ret = put32(shortened, runs->cells);
	for (size_t i = 0; i < runs->n && !ret; i++)
		ret = copy(shortened, runs->list[i].at, runs->list[i].end - runs->list[i].at);
	if (!ret)
		ret = copy(shortened, head,
		           section_begin(&shortened->f, section) - MATRIX_HEAD - head);
	for (size_t i = 0; i < kvi_llama_section_matrices(section) && !ret; i++)
		ret = put_matrix(shortened, section, i, runs);
	const uint64_t end = section_end(&shortened->f, section);
	return ret ? ret : copy(shortened, end, section->end - end);
}

/* Writes a KV memory, with the one stream that is not empty. */
static kvarc_ret put_section(struct kvi_llama_short *shortened,
                             const struct kvi_llama_section *section)
{
	const bool window = shortened->window && section->held;
	struct llama_runs runs = { 0 };
	uint64_t head;
	kvarc_ret ret = pick_cells(shortened, section, window, &runs, &head);
	if (!ret && shortened->f.grammar.streams)
		ret = put32(shortened, section->n_streams);
	if (!ret)
		ret = put_empty_streams(shortened, section->stream);
	if (!ret)
		ret = put_cells(shortened, section, &runs, head);
	if (!ret)
		ret = put_empty_streams(shortened, section->n_streams - section->stream - 1);
	kvi_free(shortened->alloc, runs.list);
	return ret;
}

static kvarc_ret put64(struct kvi_llama_short *shortened, uint64_t v)
{
	kvarc_ret ret = put32(shortened, v & UINT32_MAX);
	return ret ? ret : put32(shortened, v >> 32);
}

/* Whether a checkpoint is made of the whole prefix: the server goes back to one from a window
 * that begins with the first token. */
static bool makes_checkpoint(const struct kvi_llama_short *shortened)
{
	return shortened->f.n_checkpoints && shortened->window_section &&
	       shortened->window_from == 0;
}

static kvarc_ret put_made_checkpoint(struct kvi_llama_short *shortened)
{
	kvarc_ret ret = put64(shortened, shortened->tokens);
	if (!ret)
		ret = put32(shortened, 0); /* first and last position */
	if (!ret)
		ret = put32(shortened, shortened->tokens - 1);
	if (!ret)
		ret = put64(shortened, STATE_HEAD + shortened->window_bytes);
	if (!ret)
		ret = copy(shortened, shortened->f.checkpoints[0].state_at, STATE_HEAD);
	if (!ret)
		ret = put_section(shortened, shortened->window_section);
	for (int i = 0; i < 2 && !ret; i++)
		ret = put64(shortened, 0); /* no states of other models */
	return ret;
}

/* The checkpoints that do not lie beyond the tokens. */
static kvarc_ret put_checkpoints(struct kvi_llama_short *shortened)
{
	uint32_t n = makes_checkpoint(shortened);
	kvarc_ret ret = KVARC_OK;
	for (int pass = 0; pass < 2 && !ret; pass++) {
		if (pass && n)
			ret = copy(shortened, shortened->f.appendix_at, 8); /* magic, version */
		if (pass && n && !ret)
			ret = put32(shortened, n);
		for (size_t i = 0; i < shortened->f.n_checkpoints && !ret; i++) {
			const struct kvi_llama_checkpoint *c = &shortened->f.checkpoints[i];
			if (c->n_tokens > shortened->tokens || !checkpoint_whole(shortened, i))
				continue;
			n += !pass;
			if (pass)
				ret = copy(shortened, c->at, c->end - c->at);
		}
	}
	return ret || !makes_checkpoint(shortened) ? ret : put_made_checkpoint(shortened);
}

/* Writes the state of the checkpoint in place of the memories that it holds, which follow each
 * other. */
static kvarc_ret put_state(struct kvi_llama_short *shortened, bool *done)
{
	if (*done)
		return KVARC_OK;
	*done = true;
	return copy(shortened, shortened->state->state_at + STATE_HEAD,
	            shortened->state->state_bytes - STATE_HEAD);
}

/* Writes the slot's own memories. */
static kvarc_ret put_memories(struct kvi_llama_short *shortened)
{
	bool done = false;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < shortened->f.n_sections && !ret; i++) {
		const struct kvi_llama_section *k = &shortened->f.sections[i];
		const uint64_t at = shortened->at;
		if (k->checkpoint)
			continue;
		if (shortened->state && k->held) {
			ret = put_state(shortened, &done);
			continue;
		}
		ret = put_section(shortened, k);
		if (k->kind == KVI_LLAMA_KV && k->held && !shortened->f.memories.recurrent) {
			shortened->window_section = k;
			shortened->window_bytes = shortened->at - at;
		}
	}
	return ret;
}

kvarc_ret kvi_llama_put(struct kvi_llama_short *shortened)
{
	if (shortened->all && kvi_llama_all_whole(shortened, true))
		return copy(shortened, 0, shortened->s->end);
	kvarc_ret ret = shortened->all ? copy(shortened, 0, shortened->f.appendix_at)
	                               : put_header(shortened);
	if (!ret && !shortened->all)
		ret = put_memories(shortened);
	return ret ? ret : put_checkpoints(shortened);
}

/* ==== The sliding window of a prefix, from the slot's own and those of checkpoints ==== */

/*
 * The window of a slot holds the last positions alone, so it cannot be rewound. Checkpoints hold
 * the windows of earlier tokens of the same sequence: a prefix whose window lies in all of these
 * together is restored as if the slot had been saved there.
 */

/* Whether a section is part of the window and has the layout of `like`; NULL: any layout. */
static bool is_window(const struct kvi_llama_short *shortened,
                      const struct kvi_llama_section *section, const struct kvi_llama_section *like)
{
	if (section->kind != KVI_LLAMA_KV || !section->held)
		return false;
	if (!like)
		return !section->checkpoint;
	if (section->n_layers != like->n_layers || section->values != like->values ||
	    section->rotation_k != like->rotation_k || section->rotation_v != like->rotation_v)
		return false;
	for (size_t i = 0; i < kvi_llama_section_matrices(section); i++) {
		const struct kvi_llama_matrix *m =
			&shortened->f.matrices[section->first_matrix + i];
		const struct kvi_llama_matrix *n = &shortened->f.matrices[like->first_matrix + i];
		if (m->trans != n->trans || m->type != n->type || m->row_bytes != n->row_bytes ||
		    m->width != n->width)
			return false;
	}
	return true;
}

/* The slot's own window, NULL: there is none. */
static const struct kvi_llama_section *own_window(const struct kvi_llama_short *shortened)
{
	for (size_t i = 0; i < shortened->f.n_sections; i++)
		if (is_window(shortened, &shortened->f.sections[i], NULL))
			return &shortened->f.sections[i];
	return NULL;
}

/* Called with each whole cell of the window: its position and where it is. */
typedef kvarc_ret (*cell_fn)(void *opaque, uint64_t position, const struct llama_cells *one);

/* The cells of a section. */
static kvarc_ret each_cell(const struct kvi_llama_short *shortened,
                           const struct kvi_llama_section *section, cell_fn fn, void *opaque)
{
	const uint64_t whole = llama_whole_cells(shortened, section);
	kvarc_ret ret = KVARC_OK;
	kvi_scan_seek(shortened->s, section->cells_at);
	for (uint32_t i = 0; i < whole && !ret; i++) {
		struct llama_cells one = { section, i, 1, shortened->s->at, 0 };
		int32_t position;
		if (!kvi_llama_cell(shortened->s, &shortened->f.grammar, &position))
			return KVARC_IO;
		one.end = shortened->s->at;
		ret = fn(opaque, (uint32_t)position, &one);
	}
	return ret;
}

/* Passes the cells of all sections to fn, the slot's own first. */
static kvarc_ret all_cells(const struct kvi_llama_short *shortened,
                           const struct kvi_llama_section *own, cell_fn fn, void *opaque)
{
	kvarc_ret ret = each_cell(shortened, own, fn, opaque);
	for (size_t i = 0; i < shortened->f.n_sections && !ret; i++)
		if (&shortened->f.sections[i] != own &&
		    is_window(shortened, &shortened->f.sections[i], own))
			ret = each_cell(shortened, &shortened->f.sections[i], fn, opaque);
	return ret;
}

/* A map of the positions that have a cell. */
struct coverage {
	uint8_t *there; /* by position below n */
	uint64_t n;
};

/* A cell_fn. */
static kvarc_ret mark(void *opaque, uint64_t position, const struct llama_cells *one)
{
	struct coverage *c = opaque;
	(void)one;
	if (position < c->n)
		c->there[position] = 1;
	return KVARC_OK;
}

/* A cell_fn: ends the search with END at the first cell of position 0. */
static kvarc_ret find_zero(void *opaque, uint64_t position, const struct llama_cells *one)
{
	(void)opaque, (void)one;
	return position == 0 ? KVARC_END : KVARC_OK;
}

/* The number of positions of a window: of the longest one that does not begin with the first
 * token. 0: not known. */
static kvarc_ret window_size(const struct kvi_llama_short *shortened,
                             const struct kvi_llama_section *own, uint64_t *size)
{
	*size = 0;
	for (size_t i = 0; i < shortened->f.n_sections; i++) {
		const struct kvi_llama_section *k = &shortened->f.sections[i];
		if (k != own && !is_window(shortened, k, own))
			continue;
		kvarc_ret ret = each_cell(shortened, k, find_zero, NULL);
		if (ret && ret != KVARC_END)
			return ret;
		if (!ret && llama_whole_cells(shortened, k) == k->n_cells && k->n_cells > *size)
			*size = k->n_cells;
	}
	return KVARC_OK;
}

/*
 * The longest prefix of at most shortened->base tokens whose sliding window is in the slot and its
 * checkpoints together (llama_window.c): sets tokens, window and window_from when it is longer
 * than shortened->tokens. Returns OK, IO, MEM, MEMLIMIT.
 */
static kvarc_ret llama_window_choose(struct kvi_llama_short *shortened)
{
	const struct kvi_llama_section *own = own_window(shortened);
	struct coverage c = { NULL, shortened->base };
	uint64_t size, n = shortened->base;
	if (!own || shortened->f.memories.recurrent || shortened->base <= shortened->tokens)
		return KVARC_OK;
	kvarc_ret ret = window_size(shortened, own, &size);
	if (ret || size == 0)
		return ret;
	c.there = kvi_calloc(shortened->alloc, (size_t)c.n, 1);
	if (!c.there)
		return kvi_alloc_error(shortened->alloc);
	ret = all_cells(shortened, own, mark, &c);
	for (uint64_t i = n, run = 0; i-- > 0 && run < size;) {
		run++;
		if (!c.there[i]) { /* the prefix ends before it */
			n = i;
			run = 0;
		}
	}
	if (!ret && n > shortened->tokens) {
		shortened->tokens = n;
		shortened->state = NULL;
		shortened->window = true;
		shortened->window_from = n > size ? n - size : 0;
		/* the server goes back to a checkpoint unless there is one more */
		shortened->window_from -= shortened->window_from &&
		                          c.there[shortened->window_from - 1];
	}
	kvi_free(shortened->alloc, c.there);
	return ret;
}

/* The first cell of each position of the window. */
struct choice {
	struct llama_cells *list;
	uint64_t from, n;
};

/* A cell_fn. */
static kvarc_ret take(void *opaque, uint64_t position, const struct llama_cells *one)
{
	struct choice *c = opaque;
	if (position >= c->from && position - c->from < c->n &&
	    !c->list[position - c->from].section)
		c->list[position - c->from] = *one;
	return KVARC_OK;
}

/* The cells of that window. Returns OK, IO, MEM, MEMLIMIT. */
static kvarc_ret llama_window_pick(const struct kvi_llama_short *shortened, struct llama_runs *runs)
{
	struct choice c = { NULL, shortened->window_from,
		            shortened->tokens - shortened->window_from };
	c.list = kvi_calloc(shortened->alloc, (size_t)c.n, sizeof *c.list);
	if (!c.list)
		return kvi_alloc_error(shortened->alloc);
	kvarc_ret ret = all_cells(shortened, own_window(shortened), take, &c);
	for (uint64_t i = 0; i < c.n && !ret; i++)
		ret = c.list[i].section ? llama_runs_add(runs, shortened->alloc, &c.list[i])
		                        : KVARC_IO; /* the file changed */
	kvi_free(shortened->alloc, c.list);
	return ret;
}

/* ==== A salvaged llama.cpp slot with only the leading tokens that are whole ==== */

/* Finds the leading whole tokens of each track; *literals: all bytes outside tensors are there. */
static kvarc_ret read_losses(const struct kvi_alloc *alloc, kvarc_reader *r, uint64_t **whole,
                             bool *literals)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	kvarc_loss loss;
	uint64_t lost = 0;
	*whole = kvi_calloc(alloc, g->n_tracks, sizeof **whole);
	if (!*whole)
		return kvi_alloc_error(alloc);
	for (uint32_t i = 0; i < g->n_tracks; i++) {
		kvarc_ret ret = kvarc_reader_loss(r, i, &loss);
		if (ret)
			return ret;
		lost += loss.lost_bytes;
		(*whole)[i] = loss.whole_tokens;
	}
	kvarc_ret ret = kvarc_reader_loss(r, UINT32_MAX, &loss);
	*literals = loss.lost_bytes == lost;
	return ret;
}

static kvarc_ret shorten(struct kvi_llama_short *shortened, kvarc_slot_prefix *prefix)
{
	prefix->why = kvi_llama_obstacle(shortened);
	prefix->tokens = shortened->f.n_tokens;
	if (prefix->why)
		return KVARC_OPTIONS;
	if (kvi_llama_all_whole(shortened, true))
		return KVARC_END;
	kvarc_ret ret = kvi_llama_choose(shortened);
	if (ret)
		return ret;
	if (shortened->tokens == 0) {
		prefix->why = shortened->base ? "the sliding window or the recurrent state "
		                                "that goes with its whole tokens is lost"
		                              : "not one token is whole in all layers";
		return KVARC_OPTIONS;
	}
	prefix->whole_tokens = shortened->tokens;
	ret = kvi_llama_put(shortened);
	prefix->bytes = shortened->at;
	return ret;
}

static kvarc_ret parse_and_shorten(struct kvi_llama_short *shortened, const kvarc_source *source,
                                   kvarc_slot_prefix *prefix)
{
	const char *why;
	shortened->s = kvi_scan_open(shortened->alloc, source);
	shortened->buffer = kvi_malloc(shortened->alloc, KVI_LLAMA_COPY_BYTES);
	if (!shortened->s || !shortened->buffer)
		return kvi_alloc_error(shortened->alloc);
	kvarc_ret ret = kvi_llama_parse(&shortened->f, shortened->alloc, shortened->s, &why);
	if (ret == KVARC_END) {
		prefix->why = "it cannot be parsed";
		return KVARC_OPTIONS;
	}
	if (ret)
		return ret;
	ret = shorten(shortened, prefix);
	kvi_llama_free(&shortened->f, shortened->alloc);
	return ret;
}

kvarc_ret kvarc_salvage_slot(kvarc_reader *r, size_t item, const kvarc_source *source,
                             const kvarc_sink *sink, kvarc_slot_prefix *prefix)
{
	bool literals = false;
	if (!r || !source || !source->read || !sink || !sink->write || !prefix ||
	    item >= kvi_reader_n_items(r))
		return KVARC_PROG;
	*prefix = (kvarc_slot_prefix){ .why = "it is not a llama.cpp slot" };
	struct kvi_llama_short x = { .alloc = kvi_reader_alloc(r),
		                     .sink = sink,
		                     .limit = UINT64_MAX,
		                     .plan = kvi_reader_restore(r, item) };
	if (x.plan->kind != KVI_ITEM_LLAMA_SEQ)
		return KVARC_OPTIONS;
	uint64_t *whole = NULL;
	kvarc_ret ret = read_losses(x.alloc, r, &whole, &literals);
	x.whole = whole;
	if (!ret && !literals) {
		prefix->why = "bytes outside its tensors are lost";
		ret = KVARC_OPTIONS;
	} else if (!ret) {
		ret = parse_and_shorten(&x, source, prefix);
	}
	kvi_free(x.alloc, whole);
	kvi_free(x.alloc, x.buffer);
	kvi_free(x.alloc, x.s);
	return ret;
}
