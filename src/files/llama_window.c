/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * llama_window.c - the sliding window of a prefix, from the slot's own and those of checkpoints
 *
 * The window of a slot holds the last positions alone, so it cannot be rewound. Checkpoints hold
 * the windows of earlier tokens of the same sequence: a prefix whose window lies in all of these
 * together is restored as if the slot had been saved there.
 */
#include "llama_shorten.h"

/* Is it a part of the window, of one layout with `like`? NULL: any. */
static bool is_window(const struct kvi_llama_short *x, const struct kvi_llama_section *k,
                      const struct kvi_llama_section *like)
{
	if (k->recurrent || !kvi_llama_in_checkpoints(x, k))
		return false;
	if (!like)
		return !k->checkpoint;
	if (k->n_layers != like->n_layers || k->values != like->values ||
	    k->rotation_k != like->rotation_k || k->rotation_v != like->rotation_v)
		return false;
	for (size_t i = 0; i < kvi_llama_section_matrices(k); i++) {
		const struct kvi_llama_matrix *m = &x->f.matrices[k->first_matrix + i];
		const struct kvi_llama_matrix *n = &x->f.matrices[like->first_matrix + i];
		if (m->trans != n->trans || m->type != n->type || m->row_bytes != n->row_bytes ||
		    m->width != n->width)
			return false;
	}
	return true;
}

/* The slot's own window, NULL: there is none. */
static const struct kvi_llama_section *own_window(const struct kvi_llama_short *x)
{
	for (size_t i = 0; i < x->f.n_sections; i++)
		if (is_window(x, &x->f.sections[i], NULL))
			return &x->f.sections[i];
	return NULL;
}

/* Called with each whole cell of the window: its position and where it is. */
typedef kvarc_ret (*cell_fn)(void *opaque, uint64_t position, const struct kvi_llama_cells *one);

/* The cells of section k. */
static kvarc_ret each_cell(const struct kvi_llama_short *x, const struct kvi_llama_section *k,
                           cell_fn fn, void *opaque)
{
	const uint64_t whole = kvi_llama_whole_cells(x, k);
	kvarc_ret ret = KVARC_OK;
	kvi_scan_seek(x->s, k->cells_at);
	for (uint32_t i = 0; i < whole && !ret; i++) {
		struct kvi_llama_cells one = { k, i, 1, x->s->at, 0 };
		int32_t position;
		if (!kvi_llama_cell(x->s, &x->f.grammar, &position))
			return KVARC_IO;
		one.end = x->s->at;
		ret = fn(opaque, (uint32_t)position, &one);
	}
	return ret;
}

/* Those of all sections, the slot's own first. */
static kvarc_ret all_cells(const struct kvi_llama_short *x, const struct kvi_llama_section *own,
                           cell_fn fn, void *opaque)
{
	kvarc_ret ret = each_cell(x, own, fn, opaque);
	for (size_t i = 0; i < x->f.n_sections && !ret; i++)
		if (&x->f.sections[i] != own && is_window(x, &x->f.sections[i], own))
			ret = each_cell(x, &x->f.sections[i], fn, opaque);
	return ret;
}

/* Which positions there are. */
struct coverage {
	uint8_t *there; /* of each position below n */
	uint64_t n;
};

/* A cell_fn. */
static kvarc_ret mark(void *opaque, uint64_t position, const struct kvi_llama_cells *one)
{
	struct coverage *c = opaque;
	(void)one;
	if (position < c->n)
		c->there[position] = 1;
	return KVARC_OK;
}

/* A cell_fn: ends the search with END at the first cell of position 0. */
static kvarc_ret find_zero(void *opaque, uint64_t position, const struct kvi_llama_cells *one)
{
	(void)opaque, (void)one;
	return position == 0 ? KVARC_END : KVARC_OK;
}

/* The number of positions of a window: of the longest one that does not begin with the first
 * token. 0: not known. */
static kvarc_ret window_size(const struct kvi_llama_short *x, const struct kvi_llama_section *own,
                             uint64_t *size)
{
	*size = 0;
	for (size_t i = 0; i < x->f.n_sections; i++) {
		const struct kvi_llama_section *k = &x->f.sections[i];
		if (k != own && !is_window(x, k, own))
			continue;
		kvarc_ret ret = each_cell(x, k, find_zero, NULL);
		if (ret && ret != KVARC_END)
			return ret;
		if (!ret && kvi_llama_whole_cells(x, k) == k->n_cells && k->n_cells > *size)
			*size = k->n_cells;
	}
	return KVARC_OK;
}

kvarc_ret kvi_llama_window_choose(struct kvi_llama_short *x)
{
	const struct kvi_llama_section *own = own_window(x);
	struct coverage c = { NULL, x->base };
	uint64_t size, n = x->base;
	if (!own || x->f.grammar.recurrent || x->base <= x->tokens)
		return KVARC_OK;
	kvarc_ret ret = window_size(x, own, &size);
	if (ret || size == 0)
		return ret;
	c.there = kvi_calloc(x->alloc, (size_t)c.n, 1);
	if (!c.there)
		return kvi_alloc_error(x->alloc);
	ret = all_cells(x, own, mark, &c);
	for (uint64_t i = n, run = 0; i-- > 0 && run < size;) {
		run++;
		if (!c.there[i]) { /* the prefix ends before it */
			n = i;
			run = 0;
		}
	}
	if (!ret && n > x->tokens) {
		x->tokens = n;
		x->state = NULL;
		x->window = true;
		x->window_from = n > size ? n - size : 0;
		/* the server goes back to a checkpoint unless there is one more */
		x->window_from -= x->window_from && c.there[x->window_from - 1];
	}
	kvi_free(x->alloc, c.there);
	return ret;
}

/* The first cell of each position of the window. */
struct choice {
	struct kvi_llama_cells *list;
	uint64_t from, n;
};

/* A cell_fn. */
static kvarc_ret take(void *opaque, uint64_t position, const struct kvi_llama_cells *one)
{
	struct choice *c = opaque;
	if (position >= c->from && position - c->from < c->n &&
	    !c->list[position - c->from].section)
		c->list[position - c->from] = *one;
	return KVARC_OK;
}

kvarc_ret kvi_llama_window_pick(const struct kvi_llama_short *x, struct kvi_llama_runs *runs)
{
	struct choice c = { NULL, x->window_from, x->tokens - x->window_from };
	c.list = kvi_calloc(x->alloc, (size_t)c.n, sizeof *c.list);
	if (!c.list)
		return kvi_alloc_error(x->alloc);
	kvarc_ret ret = all_cells(x, own_window(x), take, &c);
	for (uint64_t i = 0; i < c.n && !ret; i++)
		ret = c.list[i].section ? kvi_llama_runs_add(runs, x->alloc, &c.list[i])
		                        : KVARC_IO; /* the file changed */
	kvi_free(x->alloc, c.list);
	return ret;
}
