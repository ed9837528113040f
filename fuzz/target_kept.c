/* SPDX-License-Identifier: BSD-3-Clause */
/* target_kept.c - fuzz target: files of converted weights of a small model
 *
 * Data: changes of a right file, of three bytes each: where it is (of 16 bits, in units of mode
 * bits 4..7 plus 1), and what is added; with an odd number of bytes, the last one is a number of
 * bytes that are cut off. Mode, bit 0: the data are the file. Bit 1: checks are made right after
 * the changes. Bit 2: two workers.
 */
#include "weight_cache/weight_cache.h"
#include "util/bytes.h"
#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

enum { N = 16, WORDS = 3, LARGEST = 1 << 16 };

/* One layer of N channels; all matrices are the same numbers. */
struct model {
	struct kvi_model_file file;
	struct kvi_model_layer layer;
	float numbers[N * N];
};

static struct kvi_matrix matrix(const struct model *m, uint64_t rows)
{
	return (struct kvi_matrix){
		.type = KVI_NUM_F32, .rows = rows, .columns = N, .data = (const uint8_t *)m->numbers
	};
}

static void make_model(struct model *m, const struct kvi_alloc *alloc)
{
	struct kvi_matrix vector = matrix(m, 1), square = matrix(m, N);
	for (size_t i = 0; i < N * N; i++)
		m->numbers[i] = (float)(i * 37 % 256) / 256 - .5f;
	m->layer = (struct kvi_model_layer){ .input_norm = vector,
		                             .q = square,
		                             .k = square,
		                             .v = square,
		                             .o = square,
		                             .ffn_norm = vector,
		                             .gate = square,
		                             .up = square,
		                             .down = square };
	m->file = (struct kvi_model_file){ .alloc = alloc,
		                           .n_layers = 1,
		                           .width = N,
		                           .heads = 1,
		                           .kv_heads = 1,
		                           .head_channels = N,
		                           .ffn = N,
		                           .vocabulary = WORDS,
		                           .norm_epsilon = .5f,
		                           .attention_scale = 1,
		                           .embedding_scale = 1,
		                           .embedding = matrix(m, WORDS),
		                           .layers = &m->layer };
}

struct file {
	_Alignas(64) uint8_t bytes[LARGEST];
	size_t n;
};

static bool append(void *opaque, const void *p, size_t n)
{
	struct file *f = opaque;
	FUZZ_CHECK(n <= LARGEST - f->n);
	memcpy(f->bytes + f->n, p, n);
	f->n += n;
	return true;
}

static bool compare(void *opaque, const void *p, size_t n)
{
	struct file *f = opaque;
	bool same = memcmp(f->bytes + f->n, p, n) == 0;
	f->n += n;
	return same;
}

/* The file of the model, made once; NULL where memory is short on purpose. */
static const struct file *right_file(const struct kvi_engine_options *o,
                                     const struct kvi_h128 *stamp)
{
	static struct file f;
	struct kvi_weight_cache_layout l;
	struct kvi_engine *e;
	if (f.n)
		return &f;
	if (kvi_engine_make(&e, o))
		return NULL;
	FUZZ_CHECK(kvi_weight_cache_layout(e, stamp, &l) && l.bytes <= LARGEST);
	if (kvi_weight_cache_header(e, &l, f.bytes, o->pool)) {
		f.n = l.header;
		FUZZ_CHECK(kvi_weight_cache_parts(e, append, &f) && f.n == l.bytes);
	}
	kvi_engine_close(&e);
	return f.n ? &f : NULL;
}

static void change(struct file *f, const uint8_t *data, size_t n, uint8_t mode)
{
	if (mode & 1) {
		f->n = n < LARGEST ? n : LARGEST;
		if (n)
			memcpy(f->bytes, data, f->n);
		return;
	}
	for (; n >= 3; n -= 3, data += 3)
		f->bytes[kvi_load16(data) * (1 + (mode >> 4)) % f->n] += data[2];
	if (n == 1)
		f->n -= data[0] % f->n;
}

/* Hashes of the header and of the parts, whose offsets the right file states. */
static void seal(struct file *f, const struct file *right, const struct kvi_weight_cache_layout *l)
{
	size_t at = l->header;
	if (f->n != l->bytes)
		return;
	for (size_t i = 0; i < l->parts; i++) {
		size_t entry = 64 + 16 * i;
		size_t bytes = (size_t)kvi_load64(right->bytes + entry);
		kvi_store64(f->bytes + entry + 8, kvi_h64(f->bytes + at, bytes));
		at += bytes;
	}
	kvi_store64(f->bytes + l->header - 8, kvi_h64(f->bytes, l->header - 8));
}

/* All that is not a hash of the weights, or the digest. */
static bool same_shape(const struct file *a, const struct file *b,
                       const struct kvi_weight_cache_layout *l)
{
	bool same = a->n == b->n && memcmp(a->bytes, b->bytes, 32) == 0 &&
	            memcmp(a->bytes + 48, b->bytes + 48, 16) == 0;
	for (size_t i = 0; same && i < l->parts; i++)
		same = memcmp(a->bytes + 64 + 16 * i, b->bytes + 64 + 16 * i, 8) == 0;
	return same;
}

/* What was taken is what was kept, or what somebody made right after he changed it. */
static void read_file(struct file *f, const struct kvi_engine_options *o, const struct file *right,
                      const struct kvi_h128 *stamp, const struct fuzz_env *env)
{
	struct kvi_engine_layer layer = { .window = 0 };
	struct kvi_engine e = {
		.alloc = o->alloc, .file = o->file, .arithmetic = o->arithmetic, .layers = &layer
	};
	struct kvi_weight_cache_layout l;
	FUZZ_CHECK(kvi_weight_cache_layout(&e, stamp, &l));
	if (env->mode & 2)
		seal(f, right, &l);
	bool good = kvi_weight_cache_read(&e, &l, f->bytes, f->n, o->pool);
	bool same = f->n == right->n && memcmp(f->bytes, right->bytes, f->n) == 0;
	FUZZ_CHECK(good || !same || env->failing);
	FUZZ_CHECK(!good || same || env->mode & 3);
	FUZZ_CHECK(!good || same_shape(f, right, &l));
	f->n = l.header;
	FUZZ_CHECK(!good || (kvi_weight_cache_parts(&e, compare, f) && f->n == l.bytes));
	FUZZ_CHECK(good || !layer.q.w[0]);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	const struct kvi_h128 stamp = { 1, 2 };
	static struct model m;
	static struct file f;
	struct kvi_alloc alloc;
	struct kvi_pool *pool;
	kvi_alloc_init(&alloc, &env->allocator, FUZZ_MEMLIMIT);
	make_model(&m, &alloc);
	if (kvi_pool_open(&pool, &alloc, env->mode & 4 ? 2 : 1))
		return;
	const struct kvi_engine_options o = {
		.alloc = &alloc, .file = &m.file, .pool = pool, .error = &env->error
	};
	const struct file *right = right_file(&o, &stamp);
	FUZZ_CHECK(right || env->failing);
	if (right) {
		f = *right;
		change(&f, data, n, env->mode);
		read_file(&f, &o, right, &stamp, env);
	}
	kvi_pool_close(pool);
}
