/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_io.c - a profile's content to and from memory (spec profile 2, 3) */
#include "format/geometry_check.h"
#include "profile_tensors.h"
#include "profile_internal.h"
#include "util/ckd.h"

/* Fewest bytes that an entry takes: bounds what a count may announce. */
enum { ROPE_BYTES_MIN = 9, MODEL_BYTES_MIN = 17 };
enum { SLOT_BYTES = 2 + 2 + 4 /* step, k, mean */ };

/* ---------------------------------------------------------------- planes */

/* Zigzag: numbers near zero of both signs have high planes of zeros. */
static uint32_t zigzag(int32_t v)
{
	return (uint32_t)v << 1 ^ (v < 0 ? UINT32_MAX : 0);
}

static int32_t unzigzag(uint32_t u)
{
	return (int32_t)(u >> 1 ^ (u & 1 ? UINT32_MAX : 0));
}

/* Place in the lowest plane of n numbers; the next planes follow. */
struct planes {
	uint8_t *at;
	size_t n;
};

static void put_run(void *ctx, int16_t *p, size_t n)
{
	struct planes *to = ctx;
	for (size_t i = 0; i < n; i++) {
		uint32_t u = zigzag(p[i]);
		to->at[i] = (uint8_t)u;
		to->at[i + to->n] = (uint8_t)(u >> 8);
	}
	to->at += n;
}

struct const_planes {
	const uint8_t *at;
	size_t n;
};

static void get_run(void *ctx, int16_t *p, size_t n)
{
	struct const_planes *from = ctx;
	for (size_t i = 0; i < n; i++)
		p[i] = (int16_t)unzigzag(from->at[i] | (uint32_t)from->at[i + from->n] << 8);
	from->at += n;
}

static void put_planes32(struct kvi_out *out, const int32_t *p, size_t n)
{
	uint8_t *to = kvi_out_reserve(out, 4 * n);
	for (size_t i = 0; to && i < n; i++)
		for (unsigned b = 0; b < 4; b++)
			to[b * n + i] = (uint8_t)(zigzag(p[i]) >> 8 * b);
	out->n += to ? 4 * n : 0;
}

static void get_planes32(struct kvi_in *in, int32_t *p, size_t n)
{
	const uint8_t *from = kvi_get_bytes(in, 4 * n);
	for (size_t i = 0; from && i < n; i++)
		p[i] = unzigzag(from[i] | (uint32_t)from[n + i] << 8 |
		                (uint32_t)from[2 * n + i] << 16 | (uint32_t)from[3 * n + i] << 24);
}

static void put_planes16(struct kvi_out *out, int16_t *p, size_t n)
{
	struct planes to = { kvi_out_reserve(out, 2 * n), n };
	if (!to.at)
		return;
	put_run(&to, p, n);
	out->n += 2 * n;
}

static void get_planes16(struct kvi_in *in, int16_t *p, size_t n)
{
	struct const_planes from = { kvi_get_bytes(in, 2 * n), n };
	if (from.at)
		get_run(&from, p, n);
}

/* ---------------------------------------------------------------- writing */

static void put_model_head(struct kvi_out *out, const struct kvi_model *m)
{
	kvi_put8(out, m->level);
	kvi_put_varint(out, m->layer);
	kvi_put8(out, m->kind);
	kvi_put_varint(out, m->heads);
	kvi_put_varint(out, m->head_channels);
	kvi_put_varint(out, m->rope);
	kvi_put8(out, m->flags);
	kvi_put_varint(out, m->n_lower);
	for (unsigned i = 0; i < m->n_lower; i++) {
		kvi_put8(out, m->lower[i].delta);
		kvi_put8(out, m->lower[i].kind);
		kvi_put8(out, m->lower[i].scope);
	}
	kvi_put_varint(out, m->n_same);
	for (unsigned i = 0; i < m->n_same; i++) {
		kvi_put8(out, m->same[i].kind);
		kvi_put8(out, m->same[i].scope);
	}
	if (!(m->flags & KVI_MODEL_SCALE))
		return;
	kvi_put8(out, m->n0);
	kvi_put8(out, m->beta);
	if (m->beta)
		kvi_put8(out, m->scale_kind);
}

typedef void row_walk(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx);

static void put_matrix(struct kvi_out *out, const struct kvi_model *m, const uint8_t *q,
                       size_t rows, uint64_t entries, row_walk *walk)
{
	struct planes to = { NULL, (size_t)entries };
	kvi_put_bytes(out, q, rows);
	to.at = kvi_out_reserve(out, 2 * to.n);
	if (!to.at)
		return;
	for (size_t c = 0; c < rows; c++)
		walk(m, c, put_run, &to);
	out->n += 2 * to.n;
}

static void put_model(struct kvi_out *out, const struct kvi_model *m)
{
	put_model_head(out, m);
	put_planes16(out, m->step, m->C);
	put_planes16(out, m->k, m->C);
	put_planes32(out, m->mean, m->C);
	if (m->a_stride)
		put_matrix(out, m, m->qa, m->C, kvi_model_entries_a(m), kvi_model_row_a);
	if (m->b_stride)
		put_matrix(out, m, m->qb, m->C, kvi_model_entries_b(m), kvi_model_row_b);
	if (m->m_stride)
		put_matrix(out, m, m->qm, m->C, kvi_model_entries_m(m), kvi_model_row_m);
	if (m->d_stride) {
		kvi_put_varint(out, m->width);
		put_matrix(out, m, m->e, m->width, kvi_model_entries_d(m), kvi_model_row_d);
	}
	if (!(m->flags & KVI_MODEL_TABLE))
		return;
	kvi_put8(out, m->tshift);
	kvi_put8(out, m->unknown);
	kvi_put_varint(out, m->n_ids);
	put_planes32(out, m->ids, m->n_ids);
	kvi_put_bytes(out, m->table, m->n_ids * m->C);
}

void kvi_profile_put(const struct kvi_profile *p, struct kvi_out *out)
{
	kvi_identity_put(out, &p->identity);
	kvi_put_varint(out, p->n_ropes);
	for (size_t i = 0; i < p->n_ropes; i++) {
		kvi_put_varint(out, p->ropes[i].rotary);
		for (size_t k = 0; k < p->ropes[i].rotary / 2; k++)
			kvi_put64(out, p->ropes[i].freq[k]);
	}
	kvi_put_varint(out, p->n_models);
	for (size_t i = 0; i < p->n_models; i++)
		put_model(out, &p->models[i]);
}

kvarc_ret kvi_profile_serialise(struct kvi_profile *p, struct kvi_out *out)
{
	size_t start = out->n;
	kvi_profile_put(p, out);
	if (out->failed)
		return kvi_alloc_error(out->alloc);
	p->digest = kvi_h128(out->p + start, out->n - start);
	return KVARC_OK;
}

/* ---------------------------------------------------------------- reading */

static kvarc_ret parse_ropes(struct kvi_profile *p, struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MAX_ROPES);
	if (in->bad || n > kvi_in_remaining(in) / ROPE_BYTES_MIN)
		return KVARC_DATA;
	if (n == 0)
		return KVARC_OK;
	p->ropes = kvi_calloc(p->alloc, n, sizeof *p->ropes);
	if (!p->ropes)
		return kvi_alloc_error(p->alloc);
	p->n_ropes = n;
	for (size_t i = 0; i < n; i++) {
		struct kvi_profile_rope *r = &p->ropes[i];
		r->rotary = (uint32_t)kvi_get_varint(in, KVI_MAX_ROTARY);
		size_t pairs = r->rotary / 2;
		if (in->bad || pairs == 0 || r->rotary % 2 ||
		    pairs > kvi_in_remaining(in) / sizeof *r->freq)
			return KVARC_DATA;
		r->freq = kvi_array(p->alloc, pairs, sizeof *r->freq);
		if (!r->freq)
			return kvi_alloc_error(p->alloc);
		for (size_t k = 0; k < pairs; k++)
			r->freq[k] = kvi_get64(in);
	}
	return KVARC_OK;
}

static void parse_sources(struct kvi_model *m, struct kvi_in *in)
{
	m->n_lower = (unsigned)kvi_get_varint(in, KVI_LOWER_MAX);
	for (unsigned i = 0; i < m->n_lower; i++) {
		m->lower[i].delta = kvi_get8(in);
		m->lower[i].kind = kvi_get8(in);
		m->lower[i].scope = kvi_get8(in);
	}
	m->n_same = (unsigned)kvi_get_varint(in, KVI_SAME_MAX);
	for (unsigned i = 0; i < m->n_same; i++) {
		m->same[i].kind = kvi_get8(in);
		m->same[i].scope = kvi_get8(in);
	}
}

static kvarc_ret parse_model_head(const struct kvi_profile *p, struct kvi_model *m,
                                  struct kvi_in *in)
{
	m->level = kvi_get8(in);
	m->layer = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	m->kind = kvi_get8(in);
	m->heads = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	m->head_channels = (uint32_t)kvi_get_varint(in, UINT16_MAX);
	m->rope = (uint32_t)kvi_get_varint(in, KVI_MAX_ROPES);
	m->flags = kvi_get8(in);
	parse_sources(m, in);
	if (m->flags & KVI_MODEL_SCALE) {
		m->n0 = kvi_get8(in);
		m->beta = kvi_get8(in);
		if (m->beta)
			m->scale_kind = kvi_get8(in);
	}
	return in->bad ? KVARC_DATA : kvi_model_resolve(p, m);
}

/* Bytes of the arrays before the table; the model is resolved. */
static uint64_t array_bytes(const struct kvi_model *m)
{
	uint64_t bytes = m->C * (uint64_t)SLOT_BYTES;
	if (m->n_lower)
		bytes += m->C + 2 * kvi_model_entries_a(m);
	if (m->n_same || m->flags & KVI_MODEL_SELF)
		bytes += m->C + 2 * kvi_model_entries_b(m);
	if (m->flags & KVI_MODEL_BASIS)
		bytes += m->C + 2 * kvi_model_entries_m(m);
	return bytes;
}

/* A row of D and its shift are a byte and entries, as many in each row. */
static bool look_at_width(struct kvi_model *m, struct kvi_in *in)
{
	m->width = (uint32_t)kvi_get_varint(in, KVI_CORRECTS_WIDTH_MAX);
	return !in->bad && m->width >= 1 &&
	       m->width + 2 * kvi_model_entries_d(m) <= kvi_in_remaining(in);
}

/* The head of a table or of a correction, behind the arrays (no model has both);
 * proves that all arrays are there. */
static bool look_ahead(struct kvi_model *m, struct kvi_in in)
{
	uint64_t bytes = array_bytes(m);
	if (bytes > kvi_in_remaining(&in))
		return false;
	kvi_get_bytes(&in, (size_t)bytes);
	if (m->flags & KVI_MODEL_CORRECTS)
		return look_at_width(m, &in);
	if (!(m->flags & KVI_MODEL_TABLE))
		return true;
	m->tshift = kvi_get8(&in);
	m->unknown = kvi_get8(&in);
	m->n_ids = (uint32_t)kvi_get_varint(&in, KVI_TABLE_ROWS_MAX);
	return !in.bad && m->tshift <= KVI_TABLE_SHIFT_MAX && m->unknown <= KVI_UNKNOWN_MAX &&
	       m->n_ids <= kvi_in_remaining(&in) / (4 + m->C);
}

static void get_matrix(struct kvi_in *in, const struct kvi_model *m, uint8_t *q, size_t rows,
                       uint64_t entries, row_walk *walk)
{
	struct const_planes from = { NULL, (size_t)entries };
	const uint8_t *shifts = kvi_get_bytes(in, rows);
	from.at = kvi_get_bytes(in, 2 * from.n);
	if (!shifts || !from.at)
		return;
	memcpy(q, shifts, rows);
	for (size_t c = 0; c < rows; c++)
		walk(m, c, get_run, &from);
}

static void parse_arrays(struct kvi_model *m, struct kvi_in *in)
{
	get_planes16(in, m->step, m->C);
	get_planes16(in, m->k, m->C);
	get_planes32(in, m->mean, m->C);
	if (m->a_stride)
		get_matrix(in, m, m->qa, m->C, kvi_model_entries_a(m), kvi_model_row_a);
	if (m->b_stride)
		get_matrix(in, m, m->qb, m->C, kvi_model_entries_b(m), kvi_model_row_b);
	if (m->m_stride)
		get_matrix(in, m, m->qm, m->C, kvi_model_entries_m(m), kvi_model_row_m);
	/* look_ahead has read what stands in front of the next arrays. */
	if (m->d_stride) {
		kvi_get_varint(in, KVI_CORRECTS_WIDTH_MAX);
		get_matrix(in, m, m->e, m->width, kvi_model_entries_d(m), kvi_model_row_d);
	}
	if (!(m->flags & KVI_MODEL_TABLE))
		return;
	kvi_get_bytes(in, 2);
	kvi_get_varint(in, KVI_TABLE_ROWS_MAX);
	get_planes32(in, m->ids, m->n_ids);
	const uint8_t *rows = kvi_get_bytes(in, m->n_ids * m->C);
	if (rows && m->n_ids)
		memcpy(m->table, rows, m->n_ids * m->C);
}

/* Sources come before the models that use them: they are in p already. */
static kvarc_ret parse_models(struct kvi_profile *p, struct kvi_in *in)
{
	size_t n = (size_t)kvi_get_varint(in, KVI_MODELS_MAX);
	if (in->bad || n == 0 || n > kvi_in_remaining(in) / MODEL_BYTES_MIN)
		return KVARC_DATA;
	p->models = kvi_calloc(p->alloc, n, sizeof *p->models);
	if (!p->models)
		return kvi_alloc_error(p->alloc);
	for (size_t i = 0; i < n; i++) {
		struct kvi_model *m = &p->models[i];
		kvarc_ret ret = parse_model_head(p, m, in);
		if (ret)
			return ret;
		if ((i && kvi_model_compare(m - 1, m) >= 0) || !look_ahead(m, *in))
			return KVARC_DATA;
		p->n_models = i + 1;
		ret = kvi_model_make_arrays(p, m);
		if (ret)
			return ret;
		parse_arrays(m, in);
		if (in->bad || !kvi_model_values_good(m))
			return KVARC_DATA;
	}
	return kvi_in_remaining(in) ? KVARC_DATA : KVARC_OK;
}

kvarc_ret kvi_profile_parse(struct kvi_profile **out, const struct kvi_alloc *alloc,
                            const uint8_t *content, size_t bytes)
{
	struct kvi_in in = kvi_in_make(content, bytes);
	kvarc_ret ret = kvi_profile_new(out, alloc);
	if (ret)
		return ret;
	struct kvi_profile *p = *out;
	ret = kvi_identity_get_pairs(&p->identity, alloc, &in, KVI_PROFILE_PAIRS);
	if (ret == KVARC_OK)
		ret = parse_ropes(p, &in);
	if (ret == KVARC_OK)
		ret = parse_models(p, &in);
	if (ret) {
		kvi_profile_free(p);
		*out = NULL;
		return ret;
	}
	p->digest = kvi_h128(content, bytes);
	return KVARC_OK;
}
