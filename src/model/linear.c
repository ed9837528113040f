/* SPDX-License-Identifier: BSD-3-Clause */
/* linear.c - a tensor's linear model at work on a segment (spec linear 2 to 4) */
#include "linear.h"

#include <string.h>

#include "model/formats.h"
#include "model/rotate.h"

enum { SCALE_START = 13, SCALE_SOURCE_MAX = 255 };

kvarc_ret kvi_features_open(struct kvi_features **out,
                            const struct kvi_alloc *alloc,
                            const struct kvi_model *m, size_t n_tokens)
{
	size_t room = kvi_token_room(n_tokens);
	size_t n = m->heads * kvi_head_room(m) * room;
	struct kvi_features *f = kvi_calloc(alloc, 1, sizeof *f);
	*out = f;
	if (!f)
		return kvi_alloc_error(alloc);
	f->n_tokens = n_tokens;
	f->tokens_room = room;
	f->r = kvi_array(alloc, n, sizeof *f->r);
	f->w = kvi_array(alloc, room, sizeof *f->w);
	if (m->level > 2) /* models of level 2 have no lower sources */
		f->z = kvi_array(alloc, n, sizeof *f->z);
	if (f->r && f->w && (f->z || m->level <= 2))
		return KVARC_OK;
	kvi_features_close(f, alloc);
	*out = NULL;
	return kvi_alloc_error(alloc);
}

void kvi_features_close(struct kvi_features *f, const struct kvi_alloc *alloc)
{
	if (!f)
		return;
	kvi_free(alloc, f->z);
	kvi_free(alloc, f->r);
	kvi_free(alloc, f->w);
	kvi_free(alloc, f);
}

size_t kvi_turns_bytes(size_t pairs, size_t n_tokens)
{
	size_t room = kvi_token_room(n_tokens);
	return pairs * sizeof(uint64_t) + n_tokens * sizeof(int32_t) +
	       pairs * room * (2 * sizeof(int16_t) + 1);
}

/* Cosine and sine of one pair at one position (spec linear 2). */
static void turn_one(uint64_t freq, int32_t position, int16_t *turn,
                     uint8_t *angle_class)
{
	uint64_t full = (uint64_t)(int64_t)position * freq;
	uint32_t i = kvi_rotate_angle(freq, position);
	int32_t d = (int32_t)((int64_t)(full - ((uint64_t)i << 52)) >> 36);
	int32_t c0 = kvi_cos4096[i], s0 = kvi_cos4096[(i + 3072) & 4095];
	turn[0] = (int16_t)(c0 - ((((s0 * d) >> 15) * 1608 + (1 << 20)) >> 21));
	turn[1] = (int16_t)(s0 + ((((c0 * d) >> 15) * 1608 + (1 << 20)) >> 21));
	*angle_class = i >> 5 & 63;
}

void kvi_turns_make(struct kvi_turns *t, void *memory, const kvarc_rope *rope,
                    const int32_t *positions, size_t n_tokens)
{
	t->pairs = rope->rotary / 2;
	t->n_tokens = n_tokens;
	t->tokens_room = kvi_token_room(n_tokens);
	t->freq = memory;
	t->turn = (int16_t *)(void *)(t->freq + t->pairs);
	t->positions = (int32_t *)(void *)(t->turn +
	                                   2 * t->pairs * t->tokens_room);
	t->angle_class = (uint8_t *)(t->positions + n_tokens);
	memcpy(t->freq, rope->freq, t->pairs * sizeof *t->freq);
	memcpy(t->positions, positions, n_tokens * sizeof *positions);
	int16_t *turn = t->turn;
	uint8_t *class = t->angle_class;
	for (size_t p = 0; p < t->pairs; p++)
		for (size_t i = 0; i < t->tokens_room; i++, turn += 2)
			turn_one(rope->freq[p], i < n_tokens ? positions[i] : 0,
			         turn, class++);
}

bool kvi_turns_same(const struct kvi_turns *t, const kvarc_rope *rope,
                    const int32_t *positions, size_t n_tokens)
{
	return t->pairs == rope->rotary / 2 && t->n_tokens == n_tokens &&
	       !memcmp(t->freq, rope->freq, t->pairs * sizeof *t->freq) &&
	       !memcmp(t->positions, positions, n_tokens * sizeof *positions);
}

size_t kvi_linear_bytes(const struct kvi_linear_in *in)
{
	size_t room = kvi_token_room(in->n_tokens);
	return room * (2 * KVI_PANEL * sizeof(int32_t) +
	               (KVI_PANEL + 1) * sizeof(int16_t) + sizeof(int8_t *));
}

/* The row of the token table of an id; NULL: none. */
static const int8_t *table_row(const struct kvi_model *m, int32_t id)
{
	size_t lo = 0, hi = m->n_ids;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (m->ids[mid] < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < m->n_ids && m->ids[lo] == id ? m->table + lo * m->C : NULL;
}

static void begin_table(struct kvi_linear *l)
{
	const struct kvi_linear_in *in = l->in;
	const struct kvi_model *m = in->model;
	for (size_t t = 0; t < l->tokens_room; t++) {
		bool there = t < in->n_tokens;
		l->ids[t] = there && in->ids ? table_row(m, in->ids[t]) : NULL;
		l->unknown[t] = there && !l->ids[t] ? m->unknown : 0;
	}
}

static void begin_scale(const struct kvi_linear *l)
{
	const struct kvi_model *m = l->in->model;
	const struct kvi_features *from = l->only_z ? NULL : l->in->scale;
	struct kvi_features *f = l->out;
	f->n = m->flags & KVI_MODEL_SCALE ? m->n0 : 1;
	for (size_t t = 0; t < l->tokens_room; t++) {
		uint32_t q = from ? from->w[t] / from->n : 0;
		if (q > SCALE_SOURCE_MAX)
			q = SCALE_SOURCE_MAX;
		f->w[t] = SCALE_START * f->n;
		if (m->flags & KVI_MODEL_SCALE && from)
			f->w[t] = f->n * (SCALE_START * (16u - m->beta) +
			                  m->beta * q) >> 4;
	}
}

void kvi_linear_begin(struct kvi_linear *l, void *memory)
{
	size_t room = kvi_token_room(l->in->n_tokens);
	l->tokens_room = room;
	l->ids = memory;
	l->below = (int32_t *)(void *)(l->ids + room);
	l->sum = l->below + KVI_PANEL * room;
	l->table = (int16_t *)(void *)(l->sum + KVI_PANEL * room);
	l->unknown = l->table + KVI_PANEL * room;
	l->out->n_tokens = l->in->n_tokens;
	l->out->tokens_room = room;
	if (l->in->model->flags & KVI_MODEL_TABLE)
		begin_table(l);
	begin_scale(l);
}

/* Up to KVI_PANEL slots of one head that are predicted together. */
struct panel {
	size_t head, first, slots; /* first: in the head */
	size_t c;                  /* of all slots */
	const int32_t *below, *sum;
	const int16_t *table;
};

static void fill(int32_t *sum, size_t tokens, const uint8_t *q, size_t rows)
{
	for (size_t r = 0; r < rows; r++) {
		int32_t half = q[r] ? (int32_t)1 << (q[r] - 1) : 0;
		for (size_t t = 0; t < tokens; t++)
			*sum++ = half;
	}
}

/* Feature rows of a source from the first that a head sees; how many. */
static size_t source_rows(const struct kvi_source *s, size_t head,
                          size_t *first)
{
	size_t pairs = kvi_head_room(s->model) / 2;
	*first = s->scope ? head % s->model->heads * pairs : 0;
	return s->scope ? pairs : s->model->heads * pairs;
}

/* The part of a row of coefficients that belongs to other tensors. Returns
 * the entries of a row that it took. */
static size_t add_sources(const struct kvi_linear *l, const struct panel *p,
                          const struct kvi_linear_block *b,
                          const struct kvi_source *s, size_t n,
                          const int16_t *const *features, const int16_t *coef,
                          size_t coef_stride, int32_t *sum)
{
	size_t done = 0, stride = 2 * l->tokens_room, first;
	for (size_t i = 0; i < n; i++) {
		size_t pairs = source_rows(&s[i], p->head, &first);
		l->kernels->slot_rows(
			sum, p->slots, coef + done, coef_stride,
			features[i] + first * stride + 2 * b->first, stride,
			pairs, b->steps * KVI_LANES);
		done += 2 * pairs;
	}
	return done;
}

static void sum_below(const struct kvi_linear *l, struct panel *p,
                      const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	const int16_t *z[KVI_LOWER_MAX];
	if (!m->n_lower || l->only_z)
		return;
	for (size_t i = 0; i < m->n_lower; i++)
		z[i] = l->in->lower[i]->z;
	fill(l->below, b->steps * KVI_LANES, m->qa + p->c, p->slots);
	add_sources(l, p, b, m->lower, m->n_lower, z, m->a + p->c * m->a_stride,
	            m->a_stride, l->below);
	p->below = l->below;
}

/* Returns where the coefficients of this panel's own slots start in a row. */
static size_t sum_same(const struct kvi_linear *l, struct panel *p,
                       const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	const int16_t *r[KVI_SAME_MAX], *coef = m->b + p->c * m->b_stride;
	size_t tokens = b->steps * KVI_LANES, stride = 2 * l->tokens_room;
	if (!m->b_stride || !l->predicts)
		return 0;
	for (size_t i = 0; i < m->n_same; i++)
		r[i] = l->in->same[i]->r;
	fill(l->sum, tokens, m->qb + p->c, p->slots);
	size_t own = add_sources(l, p, b, m->same, m->n_same, r, coef,
	                         m->b_stride, l->sum);
	p->sum = l->sum;
	if (!(m->flags & KVI_MODEL_SELF))
		return own;
	size_t head = p->head * kvi_head_room(m);
	size_t before = m->flags & KVI_MODEL_SELF_HEAD ? head : 0;
	size_t n = head + p->first - before;
	l->kernels->slot_rows(l->sum, p->slots, coef + own, m->b_stride,
	                      l->out->r + before / 2 * stride + 2 * b->first,
	                      stride, n / 2, tokens);
	return own + n;
}

/* Token table, slots of the panel by token. */
static void sum_table(const struct kvi_linear *l, struct panel *p,
                      const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	size_t tokens = b->steps * KVI_LANES;
	if (!(m->flags & KVI_MODEL_TABLE))
		return;
	for (size_t t = 0; t < tokens; t++) {
		const int8_t *row = l->ids[b->first + t];
		for (size_t s = 0; s < p->slots; s++) {
			int v = row ? row[p->c + s] * (1 << m->tshift) : 0;
			l->table[s * tokens + t] = (int16_t)v;
		}
	}
	p->table = l->table;
}

static void set_slot(const struct kvi_linear *l, const struct panel *p,
                     const struct kvi_linear_block *b, size_t s, size_t own,
                     uint32_t **ctx, struct kvi_slot *slot)
{
	const struct kvi_model *m = l->in->model;
	size_t c = p->c + s, tokens = b->steps * KVI_LANES;
	size_t row = b->row[c], n = b->steps * b->lanes;
	bool coded = row < b->n_coded;
	*slot = (struct kvi_slot){
		.x = b->x + row * n, .known = !b->reader || !coded,
		.mean = m->mean[c], .k = m->k[c], .step = m->step[c],
		.table = p->table ? p->table + s * tokens : NULL,
	};
	if (p->below) {
		slot->qa = m->qa[c];
		slot->below = p->below + s * tokens;
	}
	if (p->sum) {
		slot->qb = m->qb[c];
		slot->sum = p->sum + s * tokens;
		slot->coef = m->b + c * m->b_stride + own;
	}
	if (*ctx && coded) {
		slot->ctx = *ctx;
		*ctx += n;
	}
}

/* How a rotated pair of this panel turns. */
static void set_turn(const struct kvi_linear *l, const struct panel *p,
                     const struct kvi_linear_block *b, size_t s,
                     struct kvi_slot_job *j)
{
	size_t at = (p->first + s) / 2 * l->turns->tokens_room + b->first;
	int d = kvi_clamp(j->slot[0].k - j->slot[1].k, -32, 32) + 32;
	j->pair = true;
	j->turn = l->turns->turn + 2 * at;
	j->angle_class = l->turns->angle_class + at;
	j->scales = kvi_rot_scale + d * 64;
}

static bool apply_panel(const struct kvi_linear *l, struct panel *p,
                        const struct kvi_linear_block *b,
                        struct kvi_slot_block *kb, uint32_t **ctx)
{
	const struct kvi_model *m = l->in->model;
	const size_t stride = 2 * l->tokens_room;
	size_t row = (p->head * kvi_head_room(m) + p->first) / 2;
	sum_table(l, p, b);
	sum_below(l, p, b);
	size_t own = sum_same(l, p, b), done;
	for (size_t s = 0; s < p->slots; s += done) {
		size_t at = (row + s / 2) * stride + 2 * b->first;
		bool pair = p->first + s < m->rotary;
		struct kvi_slot_job j = {
			.half = s & 1, .r = l->out->r + at,
			.z = l->out->z ? l->out->z + at : NULL,
			.near = l->out->r + row * stride + 2 * b->first,
			.n_near = m->flags & KVI_MODEL_SELF && p->sum
			                  ? (s + 1) / 2 : 0,
			.stride = stride,
		};
		done = pair ? 2 : 1;
		for (size_t i = 0; i < done; i++)
			set_slot(l, p, b, s + i, own, ctx, &j.slot[i]);
		if (pair)
			set_turn(l, p, b, s, &j);
		j.n = l->out->n;
		j.grow = p->c + s < KVI_SCALE_SLOTS;
		if (!l->kernels->slot(kb, &j))
			return false;
		if (kb->w && j.grow)
			l->out->n += (uint32_t)done;
	}
	return true;
}

bool kvi_linear_apply(const struct kvi_linear *l,
                      const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	const bool scale = m->flags & KVI_MODEL_SCALE && !l->only_z;
	uint32_t *ctx = b->ctx;
	struct kvi_slot_block kb = {
		.tokens = b->steps * KVI_LANES, .lanes = b->lanes,
		.fmt = &kvi_float_format(l->in->dtype)->grid,
		.tables = l->tables,
		.unknown = m->flags & KVI_MODEL_TABLE ? l->unknown + b->first
		                                      : NULL,
		.w = scale ? l->out->w + b->first : NULL,
		.reader = b->reader,
	};
	l->out->n = scale ? m->n0 : 1;
	for (size_t h = 0; h < m->heads; h++)
		for (size_t c = 0; c < m->head_channels; c += KVI_PANEL) {
			struct panel p = { .head = h, .first = c,
				           .slots = KVI_PANEL,
				           .c = h * m->head_channels + c };
			if (m->head_channels - c < KVI_PANEL)
				p.slots = m->head_channels - c;
			if (!apply_panel(l, &p, b, &kb, &ctx))
				return false;
		}
	return true;
}
