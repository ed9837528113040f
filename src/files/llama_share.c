/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_share.c - one track for a memory and its context checkpoints */
#include "llama_share.h"

#include <stdlib.h>
#include <string.h>

#include "import_internal.h"
#include "util/list.h"

enum {
	RUNS_MAX = 1024, /* more are not shared: each is looked at for each new one */
	SECTION_RUNS_MAX = 64,
	COMPARE_BYTES = 1 << 16
};

struct sharing {
	struct kvi_llama_shared *sh;
	const struct kvi_alloc *alloc;
	struct kvi_scan *s;
	const struct kvi_llama_file *f;
	uint8_t *buffer[2]; /* COMPARE_BYTES each */
	bool full;          /* too many runs */
};

/* The same layers, types and widths, by rows. */
static bool alike(const struct kvi_llama_file *f, size_t a, size_t b)
{
	const struct kvi_llama_section *x = &f->sections[a], *y = &f->sections[b];
	if (y->recurrent || x->recurrent || x->blob != y->blob || x->n_layers != y->n_layers ||
	    x->rotation_k != y->rotation_k || x->rotation_v != y->rotation_v)
		return false;
	for (size_t i = 0; i < kvi_llama_section_matrices(x); i++) {
		const struct kvi_llama_matrix *m = &f->matrices[x->first_matrix + i];
		const struct kvi_llama_matrix *n = &f->matrices[y->first_matrix + i];
		if (m->trans || n->trans || m->type != n->type || m->row_bytes != n->row_bytes)
			return false;
	}
	return true;
}

/* 1: the same bytes, 0: others, -1: reading failed. */
static int compare(struct sharing *x, uint64_t a, uint64_t b, uint64_t bytes)
{
	while (bytes) {
		size_t n = bytes < COMPARE_BYTES ? (size_t)bytes : COMPARE_BYTES;
		if (kvi_source_read(x->s->src, x->buffer[0], n, a) ||
		    kvi_source_read(x->s->src, x->buffer[1], n, b))
			return -1;
		if (memcmp(x->buffer[0], x->buffer[1], n))
			return 0;
		a += n;
		b += n;
		bytes -= n;
	}
	return 1;
}

/* Are the rows of two cells and the n - 1 behind them the same in all matrices? */
static int same_rows(struct sharing *x, size_t section_a, uint32_t cell_a, size_t section_b,
                     uint32_t cell_b, uint32_t n)
{
	const struct kvi_llama_section *a = &x->f->sections[section_a];
	const struct kvi_llama_section *b = &x->f->sections[section_b];
	int ret = 1;
	for (size_t i = 0; i < kvi_llama_section_matrices(a) && ret == 1; i++) {
		const struct kvi_llama_matrix *m = &x->f->matrices[a->first_matrix + i];
		const struct kvi_llama_matrix *k = &x->f->matrices[b->first_matrix + i];
		ret = compare(x, m->at + cell_a * m->row_bytes, k->at + cell_b * k->row_bytes,
		              n * m->row_bytes);
	}
	return ret;
}

static kvarc_ret add_span(struct sharing *x, const struct kvi_llama_span *span)
{
	struct kvi_llama_shared *sh = x->sh;
	if (!kvi_array_grow(x->alloc, &sh->spans, &sh->cap_spans, sh->n_spans, sizeof *sh->spans))
		return kvi_alloc_error(x->alloc);
	sh->spans[sh->n_spans++] = *span;
	return KVARC_OK;
}

static kvarc_ret add_run(struct sharing *x, const struct kvi_llama_run *run)
{
	struct kvi_llama_shared *sh = x->sh;
	x->full = x->full || sh->n_runs == RUNS_MAX;
	if (x->full)
		return KVARC_OK;
	if (!kvi_array_grow(x->alloc, &sh->runs, &sh->cap_runs, sh->n_runs, sizeof *sh->runs))
		return kvi_alloc_error(x->alloc);
	sh->runs[sh->n_runs] = *run;
	const struct kvi_llama_span span = { run->section, sh->n_runs++, run->cell, run->n, 0 };
	return add_span(x, &span);
}

/* The run that has a position, or else n_runs; *n becomes how many positions from there
 * on all are in it, or in none. */
static size_t find_run(const struct kvi_llama_shared *sh, int64_t position, uint32_t *n)
{
	size_t found = sh->n_runs;
	for (size_t i = 0; i < sh->n_runs; i++) {
		const struct kvi_llama_run *r = &sh->runs[i];
		int64_t end = r->position + r->n;
		if (position >= r->position && position < end) {
			if (end - position < *n)
				*n = (uint32_t)(end - position);
			return i;
		}
		if (r->position > position && r->position - position < *n)
			*n = (uint32_t)(r->position - position);
	}
	return found;
}

/* Cells whose positions follow each other: shared where they can be, else new. */
static kvarc_ret add_cells(struct sharing *x, struct kvi_llama_run rest)
{
	kvarc_ret ret = KVARC_OK;
	while (rest.n && !ret && !x->full) {
		struct kvi_llama_run part = rest;
		size_t i = find_run(x->sh, rest.position, &part.n);
		int same = 0;
		if (i < x->sh->n_runs) {
			const struct kvi_llama_run *r = &x->sh->runs[i];
			uint32_t skip = (uint32_t)(rest.position - r->position);
			const struct kvi_llama_span span = { rest.section, i, rest.cell, part.n,
				                             skip };
			same = same_rows(x, r->section, r->cell + skip, rest.section, rest.cell,
			                 part.n);
			if (same < 0)
				return KVARC_IO;
			if (same)
				ret = add_span(x, &span);
		}
		if (!same)
			ret = add_run(x, &part);
		rest.cell += part.n;
		rest.position += part.n;
		rest.n -= part.n;
	}
	return ret;
}

static kvarc_ret add_section(struct sharing *x, size_t section)
{
	const struct kvi_llama_section *k = &x->f->sections[section];
	struct kvi_llama_run run = { .section = section };
	unsigned runs = 0;
	kvarc_ret ret = KVARC_OK;
	uint64_t at = k->cells_at;
	for (uint32_t i = 0; i <= k->n_cells && !ret && !x->full; i++) {
		int32_t position = -1;
		kvi_scan_seek(x->s, at); /* comparing may take its own way */
		if (i < k->n_cells && !kvi_llama_cell(x->s, &x->f->grammar, &position))
			return KVARC_IO; /* the file changed since the parse */
		at = x->s->at;
		if (run.n && i < k->n_cells && run.position + run.n == position) {
			run.n++;
			continue;
		}
		if (run.n) {
			x->full = x->full || ++runs > SECTION_RUNS_MAX;
			ret = add_cells(x, run);
		}
		run.position = position;
		run.cell = i;
		run.n = 1;
	}
	return ret;
}

struct ordered {
	struct kvi_llama_run run;
	size_t was;
};

static int by_position(const void *a, const void *b)
{
	const struct ordered *x = a, *y = b;
	if (x->run.position != y->run.position)
		return x->run.position < y->run.position ? -1 : 1;
	return x->was < y->was ? -1 : x->was > y->was;
}

/* Puts the runs in order of position and numbers their tokens. */
static kvarc_ret order_runs(struct sharing *x)
{
	struct kvi_llama_shared *sh = x->sh;
	struct ordered *o = kvi_array(x->alloc, sh->n_runs, sizeof *o);
	size_t *now = kvi_array(x->alloc, sh->n_runs, sizeof *now);
	kvarc_ret ret = o && now ? KVARC_OK : kvi_alloc_error(x->alloc);
	for (size_t i = 0; i < sh->n_runs && !ret; i++)
		o[i] = (struct ordered){ sh->runs[i], i };
	if (!ret)
		qsort(o, sh->n_runs, sizeof *o, by_position);
	for (size_t i = 0; i < sh->n_runs && !ret; i++) {
		now[o[i].was] = i;
		sh->runs[i] = o[i].run;
		sh->runs[i].t0 = sh->n_tokens;
		sh->n_tokens += sh->runs[i].n;
	}
	for (size_t i = 0; i < sh->n_spans && !ret; i++)
		sh->spans[i].run = now[sh->spans[i].run];
	kvi_free(x->alloc, o);
	kvi_free(x->alloc, now);
	return ret;
}

static kvarc_ret share_all(struct sharing *x, size_t like)
{
	kvarc_ret ret = add_section(x, like);
	for (size_t i = 0; i < x->f->n_sections && !ret && !x->full; i++)
		if (x->f->sections[i].checkpoint && alike(x->f, like, i))
			ret = add_section(x, i);
	return ret || x->full ? ret : order_runs(x);
}

kvarc_ret kvi_llama_share(struct kvi_llama_shared *sh, const struct kvi_alloc *alloc,
                          struct kvi_scan *s, const struct kvi_llama_file *f, size_t like)
{
	struct sharing x = { .sh = sh, .alloc = alloc, .s = s, .f = f };
	bool any = false;
	*sh = (struct kvi_llama_shared){ .like = like };
	for (size_t i = 0; i < f->n_sections; i++)
		any = any || (f->sections[i].checkpoint && alike(f, like, i));
	if (!any || !alike(f, like, like))
		return KVARC_OK;
	x.buffer[0] = kvi_malloc(alloc, COMPARE_BYTES);
	x.buffer[1] = kvi_malloc(alloc, COMPARE_BYTES);
	kvarc_ret ret = x.buffer[0] && x.buffer[1] ? share_all(&x, like) : kvi_alloc_error(alloc);
	kvi_free(alloc, x.buffer[0]);
	kvi_free(alloc, x.buffer[1]);
	if (ret || x.full)
		kvi_llama_shared_free(sh, alloc);
	return ret;
}

void kvi_llama_shared_free(struct kvi_llama_shared *sh, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, sh->runs);
	kvi_free(alloc, sh->spans);
	*sh = (struct kvi_llama_shared){ .like = sh->like };
}

bool kvi_llama_shares(const struct kvi_llama_shared *sh, size_t section)
{
	for (size_t i = 0; i < sh->n_spans; i++)
		if (sh->spans[i].section == section)
			return true;
	return false;
}
