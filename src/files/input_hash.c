/* SPDX-License-Identifier: BSD-3-Clause */
/* input_hash.c - hashes the files of an import while threads read ahead */
#include "input_hash.h"

#include "format/frame.h"
#include "util/pool.h"

enum { PIECE_BYTES = 1 << 20, PIECES_MAX = 4 };

/* A piece on its way through a worker. */
struct hash_piece {
	struct kvi_job job;
	const kvarc_source *src;
	uint64_t at;
	size_t bytes;
	kvarc_ret ret;
	uint8_t *buffer;
};

struct hash_reading {
	const kvarc_import *im;
	struct kvi_pool *pool;
	struct hash_piece pieces[PIECES_MAX]; /* a ring */
	unsigned n_pieces, first, n_busy;
	size_t item; /* item and offset of the next piece */
	uint64_t at;
};

static void read_piece(struct kvi_job *job, unsigned worker)
{
	struct hash_piece *p = (struct hash_piece *)job;
	(void)worker;
	p->ret = kvi_source_read(p->src, p->buffer, p->bytes, p->at);
}

/* Starts to read the next piece; false: there is none. */
static bool start_piece(struct hash_reading *reading)
{
	while (reading->item < reading->im->n_items &&
	       reading->at == reading->im->items[reading->item].src.size) {
		reading->item++;
		reading->at = 0;
	}
	if (reading->item == reading->im->n_items)
		return false;
	struct hash_piece *p =
		&reading->pieces[(reading->first + reading->n_busy++) % reading->n_pieces];
	p->job.run = read_piece;
	p->src = &reading->im->items[reading->item].src;
	p->at = reading->at;
	p->bytes = p->src->size - p->at < PIECE_BYTES ? (size_t)(p->src->size - p->at)
	                                              : PIECE_BYTES;
	reading->at += p->bytes;
	kvi_pool_submit(reading->pool, &p->job);
	return true;
}

static kvarc_ret hash_all(struct hash_reading *reading, struct kvi_h128 *hash)
{
	kvarc_ret ret = KVARC_OK;
	for (bool more = true; more || reading->n_busy;) {
		while (more && !ret && reading->n_busy < reading->n_pieces)
			more = start_piece(reading);
		if (!reading->n_busy)
			break;
		struct hash_piece *p = &reading->pieces[reading->first];
		kvi_pool_wait(reading->pool, &p->job);
		ret = ret ? ret : p->ret;
		if (!ret)
			*hash = kvi_h128_fold(*hash, p->buffer, p->bytes);
		reading->first = (reading->first + 1) % reading->n_pieces;
		reading->n_busy--;
	}
	return ret;
}

static kvarc_ret open_reading(struct hash_reading *reading, const struct kvi_alloc *alloc,
                              const kvarc_common *common)
{
	/* The caller has nothing else to do here but to read and hash: it is a worker. */
	unsigned threads = (common->threads ? common->threads : 1) + !!common->overlap;
	threads = threads < PIECES_MAX ? threads : PIECES_MAX;
	kvarc_ret ret = kvi_pool_open(&reading->pool, alloc, threads);
	if (ret)
		return ret;
	reading->n_pieces = kvi_pool_workers(reading->pool) > 1 ? PIECES_MAX : 1;
	for (unsigned i = 0; i < reading->n_pieces; i++) {
		reading->pieces[i].buffer = kvi_malloc(alloc, PIECE_BYTES);
		if (!reading->pieces[i].buffer)
			return kvi_alloc_error(alloc);
	}
	return KVARC_OK;
}

kvarc_ret kvi_input_hash(const kvarc_import *im, const kvarc_common *common, struct kvi_h128 *hash)
{
	struct hash_reading h = { .im = im };
	kvarc_ret ret = open_reading(&h, &im->alloc, common);
	if (!ret)
		ret = hash_all(&h, hash);
	kvi_pool_close(h.pool);
	for (unsigned i = 0; i < PIECES_MAX; i++)
		kvi_free(&im->alloc, h.pieces[i].buffer);
	return ret;
}
