/* SPDX-License-Identifier: BSD-3-Clause */
/* coder.c - scratch memory and shared tables of the codecs */
#include "coder.h"

#include <pthread.h>

#include "codecs/grid/grid_sets.h"
#include "numeric/rotate.h"

enum { ENC_STRIDE = 64 };

/*
 * log2(2048 / f) in 1/256 bit by repeated squaring: integers only, so that
 * every machine chooses the same parameters.
 */
static uint16_t cost_of(uint32_t f)
{
	if (f == 0)
		return KVI_PROB_BITS << 9; /* never better than any other */
	uint64_t x = f;                    /* scaled to [2^30, 2^31) */
	unsigned whole = 31u - (unsigned)__builtin_clz(f), bits = 0;
	x <<= 30 - whole;
	for (unsigned i = 0; i < 8; i++) {
		x = x * x >> 30;
		bits <<= 1;
		if (x >> 31) {
			bits |= 1;
			x >>= 1;
		}
	}
	return (uint16_t)((KVI_PROB_BITS << 8) - (whole << 8 | bits));
}

kvarc_ret kvi_coder_table_make(struct kvi_tables *tables, const struct kvi_alloc *alloc, unsigned n,
                               unsigned symbols, unsigned stride, const uint16_t *freq)
{
	size_t lut = (size_t)n * KVI_PROB_TOTAL;
	uint32_t *buffer = kvi_array(alloc, lut + (size_t)n * stride, sizeof *buffer);
	if (!buffer)
		return kvi_alloc_error(alloc);
	*tables = (struct kvi_tables){ n, symbols, stride, buffer, buffer + lut };
	if (kvi_tables_build(tables, freq))
		return KVARC_OK;
	kvi_free(alloc, buffer);
	tables->lut = NULL;
	return KVARC_PROG;
}

/* Tables of decoders, which coders of any thread ask for. */
struct kvi_late_tables {
	pthread_mutex_t lock;
	struct kvi_tables grid; /* lut NULL: not made */
};

static void late_close(const struct kvi_alloc *alloc, struct kvi_late_tables *late)
{
	if (!late)
		return;
	pthread_mutex_destroy(&late->lock);
	kvi_free(alloc, late->grid.lut);
	kvi_free(alloc, late);
}

static struct kvi_late_tables *late_open(const struct kvi_alloc *alloc)
{
	struct kvi_late_tables *late = kvi_calloc(alloc, 1, sizeof *late);
	if (late && pthread_mutex_init(&late->lock, NULL)) {
		kvi_free(alloc, late);
		return NULL;
	}
	return late;
}

bool kvi_grid_decodes(struct kvi_coder *coder)
{
	struct kvi_late_tables *late = coder->tables->late;
	if (coder->grid.lut)
		return true;
	pthread_mutex_lock(&late->lock);
	if (!late->grid.lut)
		kvi_coder_table_make(&late->grid, coder->tables->alloc, KVI_GRID_TABLES,
		                     KVI_GRID_SYMBOLS, ENC_STRIDE, kvi_grid_set_0);
	if (late->grid.lut)
		coder->grid = late->grid;
	pthread_mutex_unlock(&late->lock);
	return coder->grid.lut;
}

/* Table set 0 for encoders. */
static bool grid_open(struct kvi_tables *grid, const struct kvi_alloc *alloc)
{
	uint32_t *enc = kvi_array(alloc, (size_t)KVI_GRID_TABLES * ENC_STRIDE, sizeof *enc);
	*grid = (struct kvi_tables){ .n_tables = KVI_GRID_TABLES,
		                     .symbols = KVI_GRID_SYMBOLS,
		                     .stride = ENC_STRIDE,
		                     .enc = enc };
	return enc && kvi_tables_build(grid, kvi_grid_set_0);
}

kvarc_ret kvi_coder_tables_open(struct kvi_coder_tables **out, const struct kvi_alloc *alloc)
{
	struct kvi_coder_tables *t = kvi_calloc(alloc, 1, sizeof *t);
	*out = NULL;
	if (!t)
		return kvi_alloc_error(alloc);
	t->alloc = alloc;
	t->late = late_open(alloc);
	if (!t->late || !grid_open(&t->grid, alloc)) {
		kvi_coder_tables_close(t);
		return kvi_alloc_error(alloc);
	}
	for (uint32_t f = 0; f <= KVI_PROB_TOTAL; f++)
		t->cost[f] = cost_of(f);
	for (unsigned i = 0; i + 1 < KVI_SCALE_PAIRS; i++)
		t->scale_pairs[i] = (uint16_t)((uint8_t)kvi_rot_scale[i] |
		                               (uint8_t)kvi_rot_scale[i ^ 32] << 8);
	*out = t;
	return KVARC_OK;
}

void kvi_coder_tables_close(struct kvi_coder_tables *tables)
{
	if (!tables)
		return;
	late_close(tables->alloc, tables->late);
	kvi_free(tables->alloc, tables->grid.enc);
	kvi_free(tables->alloc, tables->codes.lut);
	kvi_free(tables->alloc, tables);
}

kvarc_ret kvi_coder_open(struct kvi_coder **out, const struct kvi_alloc *alloc,
                         const struct kvi_coder_tables *tables, uint32_t isa_mask)
{
	struct kvi_coder *c = kvi_calloc(alloc, 1, sizeof *c);
	*out = c;
	if (!c)
		return kvi_alloc_error(alloc);
	c->alloc = alloc;
	c->tables = tables;
	c->grid = tables->grid;
	c->kernels = kvi_kernels_get(isa_mask);
	return KVARC_OK;
}

void kvi_coder_share(struct kvi_coder *coder, struct kvi_pool *pool)
{
	coder->pool = pool;
}

void kvi_coder_close(struct kvi_coder *coder)
{
	if (!coder)
		return;
	kvi_zstd_close(coder);
	for (int i = 0; i < KVI_N_SCRATCH; i++)
		kvi_free(coder->alloc, coder->scratch[i].p);
	kvi_free(coder->alloc, coder);
}

/* Rotations of the last chunk serve as long as positions do not change. */
const struct kvi_rotations *kvi_coder_rotations(struct kvi_coder *coder, const kvarc_rope *rope,
                                                const int32_t *positions, size_t n)
{
	if (kvi_rotations_equal(&coder->turns, rope, positions, n))
		return &coder->turns;
	void *buffer = kvi_scratch(coder, KVI_SCRATCH_ROTATIONS,
	                           kvi_rotations_bytes(rope->rotary / 2, n));
	coder->turns = (struct kvi_rotations){ .pairs = 0 };
	if (!buffer)
		return NULL;
	kvi_rotations_make(&coder->turns, buffer, rope, positions, n);
	return &coder->turns;
}

const struct kvi_token_turns *kvi_coder_token_turns(struct kvi_coder *coder, const kvarc_rope *rope,
                                                    const int32_t *positions, size_t n)
{
	if (kvi_token_turns_equal(&coder->token_turns, rope, positions, n))
		return &coder->token_turns;
	void *buffer = kvi_scratch(coder, KVI_SCRATCH_TURNS,
	                           kvi_token_turns_bytes(rope->rotary / 2, n));
	coder->token_turns = (struct kvi_token_turns){ .pairs = 0 };
	if (!buffer)
		return NULL;
	kvi_token_turns_make(&coder->token_turns, buffer, rope, positions, n);
	return &coder->token_turns;
}

void *kvi_scratch(struct kvi_coder *coder, enum kvi_scratch which, size_t bytes)
{
	if (bytes <= coder->scratch[which].bytes && coder->scratch[which].p)
		return coder->scratch[which].p;
	if (bytes == 0)
		bytes = 1;
	kvi_free(coder->alloc, coder->scratch[which].p);
	coder->scratch[which].p = kvi_malloc(coder->alloc, bytes);
	coder->scratch[which].bytes = coder->scratch[which].p ? bytes : 0;
	return coder->scratch[which].p;
}

void kvi_coder_exchange(struct kvi_coder *coder, const uint8_t *payload,
                        struct kvi_coder_memory *memory)
{
	const struct kvi_coder_memory given = *memory;
	for (unsigned i = 0; i < KVI_N_SCRATCH; i++) {
		uint8_t *p = coder->scratch[i].p;
		const size_t bytes = coder->scratch[i].bytes;
		if (!p || payload < p || payload >= p + bytes)
			continue;
		*memory = (struct kvi_coder_memory){ p, bytes };
		coder->scratch[i].p = given.p;
		coder->scratch[i].bytes = given.bytes;
		return;
	}
}

uint8_t *kvi_scratch_end(struct kvi_coder *coder, enum kvi_scratch which, size_t bytes)
{
	uint8_t *p = kvi_scratch(coder, which, bytes + 1);
	return p ? p + ((bytes + 1) & ~(size_t)1) : NULL;
}
