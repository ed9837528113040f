/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_shorten.c - a llama.cpp file with only its leading tokens */
#include "llama_shorten.h"

#include <string.h>

#include "util/bytes.h"
#include "util/list.h"
#include "util/source.h"

enum {
	TOKENS_AT = 12,   /* of the token list, behind magic, version and its length */
	MATRIX_HEAD = 12, /* before the elements of a matrix */
	STATE_HEAD = 8,   /* magic and sequence of a checkpoint's state */
	PACKED_WORDS = 4  /* of a packed token list, without its tokens */
};

/* ----- what is whole -------------------------------------------------- */

static uint64_t section_begin(const struct kvi_llama_file *f, const struct kvi_llama_section *k)
{
	return f->matrices[k->first_matrix].at;
}

static uint64_t section_end(const struct kvi_llama_file *f, const struct kvi_llama_section *k)
{
	const struct kvi_llama_matrix *last =
		&f->matrices[k->first_matrix + kvi_llama_section_matrices(k) - 1];
	return last->at + last->bytes;
}

/* The cell that byte `at` of a section is of; 0 where rows are not cells. */
static uint64_t cell_of(const struct kvi_llama_file *f, const struct kvi_llama_section *k,
                        uint64_t at)
{
	for (size_t i = kvi_llama_section_matrices(k); i-- > 0;) {
		const struct kvi_llama_matrix *m = &f->matrices[k->first_matrix + i];
		if (at >= m->at)
			return m->trans || k->recurrent ? 0 : (at - m->at) / m->row_bytes;
	}
	return 0;
}

uint64_t kvi_llama_whole_cells(const struct kvi_llama_short *x, const struct kvi_llama_section *k)
{
	uint64_t cells = k->n_cells, base = 0;
	uint64_t begin = section_begin(&x->f, k), end = section_end(&x->f, k);
	for (size_t i = 0; i < x->plan->n_pieces && base < end; i++) {
		const struct kvi_piece *p = &x->plan->pieces[i];
		if (p->type == KVI_PIECE_AREA && base >= begin) {
			uint64_t whole = x->whole[p->track];
			uint64_t here = whole > p->t0 ? whole - p->t0 : 0;
			uint64_t cell = cell_of(&x->f, k, base);
			if (here < p->n_tokens && k->recurrent)
				return 0;
			if (here < p->n_tokens && cell + here < cells)
				cells = cell + here;
		}
		base += p->bytes;
	}
	return cells;
}

/* How many positions from 0 on all have one cell, in any order, that is whole. 0, too, when a
 * position has two cells: of two sequences. */
static kvarc_ret prefix_cells(const struct kvi_llama_short *x, const struct kvi_llama_section *k,
                              uint64_t *prefix)
{
	enum { WHOLE = 1, LOST = 2 };
	uint64_t whole = kvi_llama_whole_cells(x, k);
	uint8_t *seen = kvi_calloc(x->alloc, k->n_cells, 1);
	bool twice = false;
	*prefix = 0;
	if (!seen)
		return kvi_alloc_error(x->alloc);
	kvi_scan_seek(x->s, k->cells_at);
	for (uint64_t i = 0; i < k->n_cells && !twice; i++) {
		int32_t position;
		if (!kvi_llama_cell(x->s, &x->f.grammar, &position))
			break;
		if ((uint32_t)position >= k->n_cells)
			continue;
		twice = seen[position];
		seen[position] = i < whole ? WHOLE : LOST;
	}
	while (!twice && *prefix < k->n_cells && seen[*prefix] == WHOLE)
		++*prefix;
	kvi_free(x->alloc, seen);
	return x->s->bad ? KVARC_IO : KVARC_OK;
}

/* Number c: is everything of it whole? */
static bool checkpoint_whole(const struct kvi_llama_short *x, size_t c)
{
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if (k->checkpoint == c + 1 && kvi_llama_whole_cells(x, k) < k->n_cells)
			return false;
	}
	return true;
}

bool kvi_llama_all_whole(const struct kvi_llama_short *x, bool checkpoints)
{
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if ((checkpoints || !k->checkpoint) && kvi_llama_whole_cells(x, k) < k->n_cells)
			return false;
	}
	return true;
}

bool kvi_llama_in_checkpoints(const struct kvi_llama_short *x, const struct kvi_llama_section *k)
{
	const struct kvi_llama_grammar *g = &x->f.grammar;
	return k->recurrent || (g->n_blobs > 1 && k->blob + 1u == g->n_blobs);
}

/* Lowers *n to the prefix of the slot's own memories: those that checkpoints hold, or the others.
 * *rewinds: none of them is a recurrent state. */
static kvarc_ret own_prefix(const struct kvi_llama_short *x, bool held, uint64_t *n, bool *rewinds)
{
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		uint64_t prefix = 0;
		if (k->checkpoint || kvi_llama_in_checkpoints(x, k) != held)
			continue;
		kvarc_ret ret = k->recurrent ? KVARC_OK : prefix_cells(x, k, &prefix);
		if (ret)
			return ret;
		*rewinds = *rewinds && !k->recurrent;
		*n = prefix < *n ? prefix : *n;
	}
	return KVARC_OK;
}

/* Are all tokens wanted? The list may name one that has no cell yet. base: the prefix of all. */
static bool wants_all(const struct kvi_llama_short *x, uint64_t base)
{
	uint64_t cells = 0;
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if (!k->checkpoint && !kvi_llama_in_checkpoints(x, k) && k->n_cells > cells)
			cells = k->n_cells;
	}
	if (x->strict && base != x->f.n_tokens)
		return false;
	return x->limit >= x->f.n_tokens || (base == cells && x->limit >= base);
}

kvarc_ret kvi_llama_choose(struct kvi_llama_short *x)
{
	uint64_t base = x->f.n_tokens, own;
	bool rewinds = true;
	kvarc_ret ret = own_prefix(x, false, &base, &rewinds);
	x->tokens = x->f.n_tokens;
	x->all = wants_all(x, base) && kvi_llama_all_whole(x, false);
	x->base = base < x->limit ? base : x->limit;
	if (ret || x->all)
		return ret;
	own = x->base;
	ret = own_prefix(x, true, &own, &rewinds);
	x->tokens = rewinds ? own : 0;
	for (size_t i = 0; i < x->f.n_checkpoints && !ret; i++) {
		const struct kvi_llama_checkpoint *c = &x->f.checkpoints[i];
		if (c->understood && c->n_tokens <= x->base && c->n_tokens > x->tokens &&
		    checkpoint_whole(x, i)) {
			x->tokens = c->n_tokens;
			x->state = c;
		}
	}
	return ret ? ret : kvi_llama_window_choose(x);
}

const char *kvi_llama_obstacle(const struct kvi_llama_short *x)
{
	const struct kvi_llama_grammar *g = &x->f.grammar;
	size_t own = 0;
	if (!x->f.tokens_at)
		return "its tokens are not plain text";
	for (size_t i = 0; i < x->f.n_sections; i++) {
		own += !x->f.sections[i].checkpoint;
		for (size_t k = 0; k < i; k++)
			if (x->f.sections[i].checkpoint == x->f.sections[k].checkpoint &&
			    x->f.sections[i].blob == x->f.sections[k].blob &&
			    !x->f.sections[i].recurrent)
				return "it holds several streams";
	}
	return own == g->n_blobs + (g->recurrent ? 1u : 0u) ? NULL : "one of its memories is empty";
}

/* ----- writing -------------------------------------------------------- */

static kvarc_ret put(struct kvi_llama_short *x, const void *p, size_t n)
{
	if (n && x->sink && x->sink->write(x->sink->opaque, p, n, x->at))
		return KVARC_IO;
	x->at += n;
	return KVARC_OK;
}

static kvarc_ret put32(struct kvi_llama_short *x, uint64_t v)
{
	uint8_t b[4];
	kvi_store32(b, (uint32_t)v);
	return put(x, b, sizeof b);
}

static kvarc_ret copy_bytes(struct kvi_llama_short *x, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t n = bytes < KVI_LLAMA_COPY_BYTES ? (size_t)bytes : KVI_LLAMA_COPY_BYTES;
		if (kvi_source_read(x->s->src, x->buffer, n, from))
			return KVARC_IO;
		ret = put(x, x->buffer, n);
		from += n;
		bytes -= n;
	}
	return ret;
}

/* Literal bytes go to the sink, elements to the map if there is one. */
static kvarc_ret copy(struct kvi_llama_short *x, uint64_t from, uint64_t bytes)
{
	struct kvi_llama_map *m = x->map;
	if (!m)
		return copy_bytes(x, from, bytes);
	for (size_t i = kvi_llama_map_piece(m, from); bytes; i++) {
		uint64_t left = m->starts[i + 1] - from, n = left < bytes ? left : bytes;
		kvarc_ret ret = KVARC_OK;
		if (m->plan->pieces[i].type != KVI_PIECE_AREA)
			ret = copy_bytes(x, from, n);
		else if (!kvi_llama_map_add(m, from, x->at, n))
			ret = kvi_alloc_error(x->alloc);
		else
			x->at += n;
		if (ret)
			return ret;
		from += n;
		bytes -= n;
	}
	return KVARC_OK;
}

/* Magic, version and the token list, packed or plain; of a session what stands before its
 * memory, without outputs: they belong to the last token. */
static kvarc_ret put_header(struct kvi_llama_short *x)
{
	enum { NO_OUTPUTS = 20 };
	static const uint8_t none[NO_OUTPUTS];
	bool packed = x->f.tokens_at != TOKENS_AT;
	kvi_scan_seek(x->s, TOKENS_AT - 4);
	uint64_t end = TOKENS_AT + 4 * (uint64_t)kvi_scan32(x->s);
	kvarc_ret ret = copy(x, 0, TOKENS_AT - 4);
	if (!ret)
		ret = put32(x, x->tokens + (packed ? PACKED_WORDS : 0));
	if (!ret && packed)
		ret = copy(x, TOKENS_AT, 8); /* mark and version */
	if (!ret && packed)
		ret = put32(x, x->tokens);
	if (!ret)
		ret = copy(x, x->f.tokens_at, 4 * x->tokens);
	if (!ret && packed)
		ret = put32(x, 0); /* no media */
	if (!ret)
		ret = copy(x, end, x->f.memory_at - end);
	return ret || !x->f.grammar.outputs ? ret : put(x, none, sizeof none);
}

kvarc_ret kvi_llama_runs_add(struct kvi_llama_runs *runs, const struct kvi_alloc *alloc,
                             const struct kvi_llama_cells *one)
{
	struct kvi_llama_cells *last = runs->n ? &runs->list[runs->n - 1] : NULL;
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

/* Those with positions below the number of tokens, where the window has no cells of its own.
 * *end: of the descriptions of all cells. */
static kvarc_ret pick_cells(struct kvi_llama_short *x, const struct kvi_llama_section *k,
                            bool window, struct kvi_llama_runs *runs, uint64_t *end)
{
	kvarc_ret ret = KVARC_OK;
	kvi_scan_seek(x->s, k->cells_at);
	for (uint32_t i = 0; i < k->n_cells && !ret; i++) {
		struct kvi_llama_cells one = { k, i, 1, x->s->at, 0 };
		int32_t position;
		if (!kvi_llama_cell(x->s, &x->f.grammar, &position))
			return KVARC_IO;
		one.end = x->s->at;
		if (!window && (uint64_t)position < x->tokens)
			ret = kvi_llama_runs_add(runs, x->alloc, &one);
	}
	*end = x->s->at;
	return ret || !window ? ret : kvi_llama_window_pick(x, runs);
}

/* Matrix number i of a section, and of those that its cells come from. */
static kvarc_ret put_matrix(struct kvi_llama_short *x, const struct kvi_llama_section *k, size_t i,
                            const struct kvi_llama_runs *runs)
{
	const struct kvi_llama_matrix *m = &x->f.matrices[k->first_matrix + i];
	const uint32_t channels = m->trans ? m->width : 1;
	kvarc_ret ret = copy(x, m->at - MATRIX_HEAD, MATRIX_HEAD);
	for (uint32_t c = 0; c < channels; c++)
		for (size_t j = 0; j < runs->n && !ret; j++) {
			const struct kvi_llama_cells *run = &runs->list[j];
			uint64_t row = (uint64_t)c * run->section->n_cells + run->cell;
			m = &x->f.matrices[run->section->first_matrix + i];
			ret = copy(x, m->at + row * m->row_bytes, run->n * m->row_bytes);
		}
	return ret;
}

static kvarc_ret put_empty_streams(struct kvi_llama_short *x, uint32_t n)
{
	kvarc_ret ret = KVARC_OK;
	for (uint32_t i = 0; i < n && !ret; i++)
		ret = put32(x, 0);
	return ret;
}

/* head: of what stands between cells and matrices. */
static kvarc_ret put_cells(struct kvi_llama_short *x, const struct kvi_llama_section *k,
                           const struct kvi_llama_runs *runs, uint64_t head)
{
	kvarc_ret ret = put32(x, runs->cells);
	for (size_t i = 0; i < runs->n && !ret; i++)
		ret = copy(x, runs->list[i].at, runs->list[i].end - runs->list[i].at);
	if (!ret)
		ret = copy(x, head, section_begin(&x->f, k) - MATRIX_HEAD - head);
	for (size_t i = 0; i < kvi_llama_section_matrices(k) && !ret; i++)
		ret = put_matrix(x, k, i, runs);
	return ret;
}

/* One KV memory, with the one stream that is not empty. */
static kvarc_ret put_section(struct kvi_llama_short *x, const struct kvi_llama_section *k)
{
	const bool window = x->window && kvi_llama_in_checkpoints(x, k);
	struct kvi_llama_runs runs = { 0 };
	uint64_t head;
	kvarc_ret ret = pick_cells(x, k, window, &runs, &head);
	if (!ret && x->f.grammar.streams)
		ret = put32(x, k->n_streams);
	if (!ret)
		ret = put_empty_streams(x, k->stream);
	if (!ret)
		ret = put_cells(x, k, &runs, head);
	if (!ret)
		ret = put_empty_streams(x, k->n_streams - k->stream - 1);
	kvi_free(x->alloc, runs.list);
	return ret;
}

static kvarc_ret put64(struct kvi_llama_short *x, uint64_t v)
{
	kvarc_ret ret = put32(x, v & UINT32_MAX);
	return ret ? ret : put32(x, v >> 32);
}

/* Whether a checkpoint is made of the whole prefix: the server goes back to one from a window
 * that begins with the first token. */
static bool makes_checkpoint(const struct kvi_llama_short *x)
{
	return x->f.n_checkpoints && x->window_section && x->window_from == 0;
}

static kvarc_ret put_made_checkpoint(struct kvi_llama_short *x)
{
	kvarc_ret ret = put64(x, x->tokens);
	if (!ret)
		ret = put32(x, 0); /* first and last position */
	if (!ret)
		ret = put32(x, x->tokens - 1);
	if (!ret)
		ret = put64(x, STATE_HEAD + x->window_bytes);
	if (!ret)
		ret = copy(x, x->f.checkpoints[0].state_at, STATE_HEAD);
	if (!ret)
		ret = put_section(x, x->window_section);
	for (int i = 0; i < 2 && !ret; i++)
		ret = put64(x, 0); /* no states of other models */
	return ret;
}

/* The checkpoints that do not lie beyond the tokens. */
static kvarc_ret put_checkpoints(struct kvi_llama_short *x)
{
	uint32_t n = makes_checkpoint(x);
	kvarc_ret ret = KVARC_OK;
	for (int pass = 0; pass < 2 && !ret; pass++) {
		if (pass && n)
			ret = copy(x, x->f.appendix_at, 8); /* magic, version */
		if (pass && n && !ret)
			ret = put32(x, n);
		for (size_t i = 0; i < x->f.n_checkpoints && !ret; i++) {
			const struct kvi_llama_checkpoint *c = &x->f.checkpoints[i];
			if (c->n_tokens > x->tokens || !checkpoint_whole(x, i))
				continue;
			n += !pass;
			if (pass)
				ret = copy(x, c->at, c->end - c->at);
		}
	}
	return ret || !makes_checkpoint(x) ? ret : put_made_checkpoint(x);
}

kvarc_ret kvi_llama_put(struct kvi_llama_short *x)
{
	if (x->all && kvi_llama_all_whole(x, true))
		return copy(x, 0, x->s->end);
	kvarc_ret ret = x->all ? copy(x, 0, x->f.appendix_at) : put_header(x);
	for (size_t i = 0; i < x->f.n_sections && !ret && !x->all; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		const uint64_t at = x->at;
		if (k->checkpoint || (x->state && kvi_llama_in_checkpoints(x, k)))
			continue;
		ret = put_section(x, k);
		if (!k->recurrent && kvi_llama_in_checkpoints(x, k) && !x->f.grammar.recurrent) {
			x->window_section = k;
			x->window_bytes = x->at - at;
		}
	}
	if (!ret && x->state)
		ret = copy(x, x->state->state_at + STATE_HEAD, x->state->state_bytes - STATE_HEAD);
	return ret ? ret : put_checkpoints(x);
}
