/* SPDX-License-Identifier: BSD-3-Clause */
/* salvage_slot.c - a salvaged llama.cpp slot with only the leading tokens that are whole */
#include <string.h>

#include "format/restore.h"
#include "import_internal.h"
#include "llama_parse.h"
#include "reader/reader_internal.h"
#include "util/bytes.h"
#include "util/error.h"
#include "util/source.h"

enum {
	COPY_BYTES = 1 << 16,
	MATRIX_HEAD = 12, /* before the elements of a matrix */
	STATE_HEAD = 8,   /* magic and sequence of a checkpoint's state */
	PACKED_WORDS = 4  /* of a packed token list, without its tokens */
};

struct shortening {
	const struct kvi_alloc *alloc;
	const struct kvi_restore *plan;
	const kvarc_sink *sink;
	struct kvi_llama_file f;
	struct kvi_scan *s;
	uint64_t *whole;                          /* leading whole tokens of each track */
	uint8_t *buffer;                          /* COPY_BYTES */
	uint64_t at;                              /* in the sink */
	uint64_t tokens;                          /* to be written */
	uint64_t base;                            /* whole, but for what checkpoints hold */
	bool all;                                 /* all tokens: checkpoints alone are lost */
	const struct kvi_llama_checkpoint *state; /* whose state ends them, NULL: the slot's */
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

/* How many leading cells of a section are whole in all of its matrices. */
static uint64_t whole_cells(const struct shortening *x, const struct kvi_llama_section *k)
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

/* Of the cells from the first one on that have positions 0, 1, 2, ... */
static uint64_t prefix_cells(const struct shortening *x, const struct kvi_llama_section *k)
{
	uint64_t n = whole_cells(x, k);
	kvi_scan_seek(x->s, k->cells_at);
	for (uint64_t i = 0; i < n; i++) {
		int32_t position;
		if (!kvi_llama_cell(x->s, &x->f.grammar, &position) || (uint64_t)position != i)
			return i;
	}
	return n;
}

/* Number c: is everything of it whole? */
static bool checkpoint_whole(const struct shortening *x, size_t c)
{
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if (k->checkpoint == c + 1 && whole_cells(x, k) < k->n_cells)
			return false;
	}
	return true;
}

/* Are the slot's own memories whole, and its checkpoints if they count? */
static bool all_whole(const struct shortening *x, bool checkpoints)
{
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if ((checkpoints || !k->checkpoint) && whole_cells(x, k) < k->n_cells)
			return false;
	}
	return true;
}

/* Does a checkpoint hold this memory, so that its state can stand for it? */
static bool in_checkpoints(const struct shortening *x, const struct kvi_llama_section *k)
{
	const struct kvi_llama_grammar *g = &x->f.grammar;
	return k->recurrent || (g->n_blobs > 1 && k->blob + 1u == g->n_blobs);
}

/* The longest prefix that an engine can go on from: of the slot's own memories, or of a
 * checkpoint where these need tokens that are lost. */
static void choose(struct shortening *x)
{
	uint64_t base = x->f.n_tokens, own;
	bool rewinds = true;
	x->all = all_whole(x, false);
	x->tokens = base;
	if (x->all)
		return;
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if (k->checkpoint || in_checkpoints(x, k))
			continue;
		uint64_t n = prefix_cells(x, k);
		base = n < base ? n : base;
	}
	own = x->base = base;
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if (k->checkpoint || !in_checkpoints(x, k))
			continue;
		uint64_t n = k->recurrent ? 0 : prefix_cells(x, k);
		rewinds = rewinds && !k->recurrent;
		own = n < own ? n : own;
	}
	x->tokens = rewinds ? own : 0;
	for (size_t i = 0; i < x->f.n_checkpoints; i++) {
		const struct kvi_llama_checkpoint *c = &x->f.checkpoints[i];
		if (c->understood && c->n_tokens <= base && c->n_tokens > x->tokens &&
		    checkpoint_whole(x, i)) {
			x->tokens = c->n_tokens;
			x->state = c;
		}
	}
}

/* ----- writing -------------------------------------------------------- */

static kvarc_ret put(struct shortening *x, const void *p, size_t n)
{
	if (n && x->sink->write(x->sink->opaque, p, n, x->at))
		return KVARC_IO;
	x->at += n;
	return KVARC_OK;
}

static kvarc_ret put32(struct shortening *x, uint64_t v)
{
	uint8_t b[4];
	kvi_store32(b, (uint32_t)v);
	return put(x, b, sizeof b);
}

static kvarc_ret copy(struct shortening *x, uint64_t from, uint64_t bytes)
{
	kvarc_ret ret = KVARC_OK;
	while (bytes && !ret) {
		size_t n = bytes < COPY_BYTES ? (size_t)bytes : COPY_BYTES;
		if (kvi_source_read(x->s->src, x->buffer, n, from))
			return KVARC_IO;
		ret = put(x, x->buffer, n);
		from += n;
		bytes -= n;
	}
	return ret;
}

/* Magic, version and the token list, packed or plain. */
static kvarc_ret put_header(struct shortening *x)
{
	enum { PLAIN_TOKENS_AT = 12 };
	bool packed = x->f.tokens_at != PLAIN_TOKENS_AT;
	kvarc_ret ret = copy(x, 0, 8);
	if (!ret)
		ret = put32(x, x->tokens + (packed ? PACKED_WORDS : 0));
	if (!ret && packed)
		ret = copy(x, PLAIN_TOKENS_AT, 8); /* mark and version */
	if (!ret && packed)
		ret = put32(x, x->tokens);
	if (!ret)
		ret = copy(x, x->f.tokens_at, 4 * x->tokens);
	if (!ret && packed)
		ret = put32(x, 0); /* no media */
	return ret;
}

static kvarc_ret put_matrix(struct shortening *x, const struct kvi_llama_matrix *m,
                            uint32_t n_cells)
{
	kvarc_ret ret = copy(x, m->at - MATRIX_HEAD, MATRIX_HEAD);
	if (!m->trans)
		return ret ? ret : copy(x, m->at, x->tokens * m->row_bytes);
	for (uint32_t c = 0; c < m->width && !ret; c++)
		ret = copy(x, m->at + c * m->row_bytes * n_cells, x->tokens * m->row_bytes);
	return ret;
}

/* One KV memory of one stream, its first cells alone. */
static kvarc_ret put_section(struct shortening *x, const struct kvi_llama_section *k)
{
	uint64_t cells_end = k->cells_at;
	kvarc_ret ret = KVARC_OK;
	int32_t position;
	if (x->f.grammar.streams)
		ret = put32(x, 1);
	if (!ret)
		ret = put32(x, x->tokens);
	kvi_scan_seek(x->s, k->cells_at);
	for (uint32_t i = 0; i < k->n_cells; i++) {
		if (!kvi_llama_cell(x->s, &x->f.grammar, &position))
			return KVARC_IO;
		if (i + 1 == x->tokens)
			cells_end = x->s->at;
	}
	uint64_t head = x->s->at;
	if (!ret)
		ret = copy(x, k->cells_at, cells_end - k->cells_at);
	if (!ret)
		ret = copy(x, head, section_begin(&x->f, k) - MATRIX_HEAD - head);
	for (size_t i = 0; i < kvi_llama_section_matrices(k) && !ret; i++)
		ret = put_matrix(x, &x->f.matrices[k->first_matrix + i], k->n_cells);
	return ret;
}

/* The checkpoints that do not lie beyond the tokens. */
static kvarc_ret put_checkpoints(struct shortening *x)
{
	uint32_t n = 0;
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
	return ret;
}

static kvarc_ret put_all(struct shortening *x)
{
	kvarc_ret ret = x->all ? copy(x, 0, x->f.appendix_at) : put_header(x);
	for (size_t i = 0; i < x->f.n_sections && !ret && !x->all; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if (!k->checkpoint && !(x->state && in_checkpoints(x, k)))
			ret = put_section(x, k);
	}
	if (!ret && x->state)
		ret = copy(x, x->state->state_at + STATE_HEAD, x->state->state_bytes - STATE_HEAD);
	return ret ? ret : put_checkpoints(x);
}

/* ----- all of it ------------------------------------------------------ */

/* Leading whole tokens of each track; *literals: all bytes outside tensors are there. */
static kvarc_ret read_losses(struct shortening *x, kvarc_reader *r, bool *literals)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	kvarc_loss loss;
	uint64_t lost = 0;
	x->whole = kvi_calloc(x->alloc, g->n_tracks, sizeof *x->whole);
	if (!x->whole)
		return kvi_alloc_error(x->alloc);
	for (uint32_t i = 0; i < g->n_tracks; i++) {
		kvarc_ret ret = kvarc_reader_loss(r, i, &loss);
		if (ret)
			return ret;
		lost += loss.lost_bytes;
		x->whole[i] = loss.whole_tokens;
	}
	kvarc_ret ret = kvarc_reader_loss(r, UINT32_MAX, &loss);
	*literals = loss.lost_bytes == lost;
	return ret;
}

/* Why a slot that was parsed cannot be shortened, or NULL. */
static const char *obstacle(const struct shortening *x)
{
	if (!x->f.tokens_at)
		return "its tokens are not plain text";
	for (size_t i = 0; i < x->f.n_sections; i++)
		for (size_t k = 0; k < i; k++)
			if (x->f.sections[i].checkpoint == x->f.sections[k].checkpoint &&
			    x->f.sections[i].blob == x->f.sections[k].blob &&
			    !x->f.sections[i].recurrent)
				return "it holds several streams";
	return NULL;
}

static kvarc_ret shorten(struct shortening *x, kvarc_slot_prefix *prefix)
{
	prefix->why = obstacle(x);
	prefix->tokens = x->f.n_tokens;
	if (prefix->why)
		return KVARC_OPTIONS;
	if (all_whole(x, true))
		return KVARC_END;
	choose(x);
	if (x->tokens == 0) {
		prefix->why = x->base ? "the sliding window or the recurrent state "
		                        "that goes with its whole tokens is lost"
		                      : "not one token is whole in all layers";
		return KVARC_OPTIONS;
	}
	prefix->whole_tokens = x->tokens;
	kvarc_ret ret = put_all(x);
	prefix->bytes = x->at;
	return ret;
}

static kvarc_ret parse_and_shorten(struct shortening *x, const kvarc_source *source,
                                   kvarc_slot_prefix *prefix)
{
	const char *why;
	x->s = kvi_scan_open(x->alloc, source);
	x->buffer = kvi_malloc(x->alloc, COPY_BYTES);
	if (!x->s || !x->buffer)
		return kvi_alloc_error(x->alloc);
	kvarc_ret ret = kvi_llama_parse(&x->f, x->alloc, x->s, &why);
	if (ret == KVARC_END) {
		prefix->why = "it cannot be parsed";
		return KVARC_OPTIONS;
	}
	if (ret)
		return ret;
	ret = shorten(x, prefix);
	kvi_llama_free(&x->f, x->alloc);
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
	struct shortening x = { .alloc = kvi_reader_alloc(r),
		                .sink = sink,
		                .plan = kvi_reader_restore(r, item) };
	if (x.plan->kind != KVI_ITEM_LLAMA_SEQ)
		return KVARC_OPTIONS;
	kvarc_ret ret = read_losses(&x, r, &literals);
	if (!ret && !literals) {
		prefix->why = "bytes outside its tensors are lost";
		ret = KVARC_OPTIONS;
	} else if (!ret) {
		ret = parse_and_shorten(&x, source, prefix);
	}
	kvi_free(x.alloc, x.whole);
	kvi_free(x.alloc, x.buffer);
	kvi_free(x.alloc, x.s);
	return ret;
}
