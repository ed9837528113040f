/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_util.c - caches of several layers and made-up profiles for them */
#include "layers_util.h"

#include "profile/profile_io.h"
#include "profile/profile_handle.h"

static const uint64_t freqs[4] = { 0x28be60db9391054aull, 0x041253f0c1d4c9b0ull,
	                           0x006817e0a5a3b8d2ull, 0x000a66d43a1d97b5ull };

static void add(struct cache *c, const struct layers_shape *s, uint32_t layer, unsigned kind,
                uint32_t track)
{
	bool rope = kind == KVARC_KEY && s->rope;
	assert_true(c->g.n_tensors < 16);
	c->tensors[c->g.n_tensors++] = (kvarc_tensor){ .layer = layer,
		                                       .kind = (uint8_t)kind,
		                                       .dtype = s->dtype,
		                                       .flags = rope ? KVARC_TENSOR_POST_ROPE : 0,
		                                       .heads = s->heads,
		                                       .channels = s->channels,
		                                       .track = track,
		                                       .rope = rope };
}

static size_t elements(const struct cache *c, size_t tensor)
{
	return cache_bytes(c, tensor) / kvarc_dtype_bytes(c->tensors[tensor].dtype);
}

/* The last tensor before this one with the same layout on its track. */
static const uint8_t *like(const struct cache *c, size_t tensor)
{
	for (size_t i = tensor; i-- > 0;)
		if (c->tensors[i].kind == c->tensors[tensor].kind &&
		    c->tensors[i].track == c->tensors[tensor].track)
			return c->data[i];
	return NULL;
}

/* A number of about 1 in a dtype. */
static void put_number(uint8_t *at, unsigned dtype, uint64_t z)
{
	float f = (float)((double)(int16_t)z / 16384.0 + 0.25);
	uint32_t bits;
	memcpy(&bits, &f, 4);
	if (dtype == KVARC_F32)
		memcpy(at, &bits, 4);
	else if (dtype == KVARC_BF16)
		memcpy(at, &(uint16_t){ (uint16_t)(bits >> 16) }, 2);
	else if (dtype == KVARC_F16)
		memcpy(at, &(uint16_t){ (uint16_t)(0x3800 + (z & 0x83ff)) }, 2);
	else
		*at = (uint8_t)(z & 0xb7);
}

static void fill(struct cache *c, size_t tensor, uint64_t *seed)
{
	size_t size = kvarc_dtype_bytes(c->tensors[tensor].dtype);
	const uint8_t *from = like(c, tensor);
	for (size_t i = 0; i < elements(c, tensor); i++) {
		uint8_t *at = c->data[tensor] + i * size;
		uint64_t z = rand_next(seed);
		if (from && z >> 40 & 31)
			memcpy(at, from + i * size, size);
		else
			put_number(at, c->tensors[tensor].dtype, z);
	}
}

void cache_make_layers(struct cache *c, const struct layers_shape *s, uint64_t seed)
{
	memset(c, 0, sizeof *c);
	c->ropes[0] = (kvarc_rope){ .pairing = seed % 2, .rotary = 8, .freq = freqs };
	c->g.n_ropes = s->rope;
	c->g.n_tracks = s->tracks;
	for (uint32_t track = 0; track < s->tracks; track++) {
		c->n[track] = s->tokens + 40 * track;
		for (uint32_t i = 0; i < s->layers; i++) {
			add(c, s, i, KVARC_VALUE, track);
			add(c, s, i, KVARC_KEY, track);
			if (i == s->latent_layer)
				add(c, s, i, KVARC_MLA_LATENT, track);
		}
	}
	cache_link(c);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		fill(c, i, &seed);
	for (uint32_t k = 0; k < s->tracks; k++)
		for (uint64_t t = 0; t < c->n[k]; t++) {
			c->ids[k][t] = (int32_t)(rand_next(&seed) % 50);
			c->positions[k][t] = (int32_t)(t % 90 == 89 ? 7 - (int64_t)t
			                                            : (int64_t)t + 3);
		}
}

static bool modelled(const struct cache *c, uint32_t layer, unsigned kind)
{
	for (size_t i = 0; i < c->g.n_tensors; i++)
		if (c->tensors[i].layer == layer && c->tensors[i].kind == kind)
			return true;
	return false;
}

static void choose_sources(const struct cache *c, struct kvi_model *m, uint64_t *seed)
{
	unsigned kinds[] = { m->kind, KVARC_KEY, KVARC_VALUE };
	for (unsigned i = 0; m->level == 3 && i < 3 && m->layer; i++) {
		unsigned delta = (unsigned)(1 + rand_next(seed) % 3);
		if (i && rand_next(seed) % 3 == 0)
			continue;
		delta = i == 0 || delta > m->layer ? 1 : delta;
		if (modelled(c, m->layer - delta, kinds[i]))
			m->lower[m->n_lower++] = (struct kvi_source){ (uint8_t)delta,
				                                      (uint8_t)kinds[i],
				                                      rand_next(seed) % 2, NULL };
	}
	for (unsigned k = 0; k < m->kind; k++)
		if (modelled(c, m->layer, k) && rand_next(seed) % 4)
			m->same[m->n_same++] = (struct kvi_source){ 0, (uint8_t)k,
				                                    rand_next(seed) % 2, NULL };
	if (rand_next(seed) % 2)
		m->flags |= KVI_MODEL_SELF;
	if ((m->flags & KVI_MODEL_SELF) && rand_next(seed) % 2)
		m->flags |= KVI_MODEL_SELF_HEAD;
	if (rand_next(seed) % 2) {
		m->flags |= KVI_MODEL_SCALE;
		m->n0 = (uint8_t)(1 + rand_next(seed) % 40);
		m->beta = m->kind && modelled(c, m->layer, KVARC_KEY)
		                  ? (uint8_t)(rand_next(seed) % 17)
		                  : 0;
		m->scale_kind = KVARC_KEY;
	}
	if (m->layer == 0 && rand_next(seed) % 2) {
		m->flags |= KVI_MODEL_TABLE;
		m->n_ids = 20;
		m->tshift = 1;
		m->unknown = (uint8_t)(rand_next(seed) % 9);
	}
}

/* The first lower source, of the same shape, is copied: 2^10 / 2^10. */
static void fill_model(struct kvi_model *m, uint64_t *seed)
{
	size_t stride = kvi_head_stride(m);
	for (size_t c = 0; c < m->C; c++) {
		size_t head = c / m->head_channels, s = c % m->head_channels;
		bool own = m->n_lower && m->lower[0].scope;
		m->step[c] = -9;
		m->k[c] = (int16_t)(m->n_lower ? -30 : 0);
		m->mean[c] = s < m->rotary ? 0 : (int32_t)(rand_next(seed) % 99);
		if (m->a_stride) {
			m->qa[c] = 10;
			m->a[c * m->a_stride + (own ? 0 : head * stride) + s] = 1 << 10;
		}
		/* Something small of the first slot of the first source. */
		if (m->b_stride && (m->n_same || c >= 2)) {
			m->qb[c] = 12;
			m->b[c * m->b_stride] =
				(int16_t)(m->n_same || head == 0 ||
			                                  !(m->flags & KVI_MODEL_SELF_HEAD)
			                          ? rand_next(seed) % 33
			                          : 0);
		}
	}
	for (uint32_t i = 0; i < m->n_ids; i++) {
		m->ids[i] = (int32_t)(2 * i);
		for (size_t c = 0; c < m->C; c++)
			m->table[i * m->C + c] = (int8_t)(rand_next(seed) % 7);
	}
}

static void add_models(struct kvi_profile *p, const struct cache *c, unsigned level, uint64_t *seed)
{
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		const kvarc_tensor *t = &c->tensors[i];
		if (t->track)
			continue;
		struct kvi_model *m = &p->models[p->n_models++];
		*m = (struct kvi_model){ .level = (uint8_t)level,
			                 .kind = t->kind,
			                 .layer = t->layer,
			                 .heads = t->heads,
			                 .head_channels = t->channels,
			                 .rope = t->rope };
		choose_sources(c, m, seed);
	}
}

kvarc_profile *layers_profile(const struct cache *c, uint64_t seed)
{
	const kvarc_common common = KVARC_COMMON_INIT;
	kvarc_profile *h;
	assert_int_equal(kvi_profile_handle_new(&h, &common), KVARC_OK);
	assert_int_equal(kvi_profile_new(&h->profile, &h->alloc), KVARC_OK);
	struct kvi_profile *p = h->profile;
	p->n_ropes = c->g.n_ropes;
	if (p->n_ropes) {
		p->ropes = kvi_calloc(&h->alloc, 1, sizeof *p->ropes);
		p->ropes->rotary = c->ropes[0].rotary;
		p->ropes->freq = kvi_array(&h->alloc, 4, 8);
		memcpy(p->ropes->freq, freqs, sizeof freqs);
	}
	p->models = kvi_calloc(&h->alloc, 2 * c->g.n_tensors, sizeof *p->models);
	assert_non_null(p->models);
	add_models(p, c, 2, &seed);
	add_models(p, c, 3, &seed);
	/* Shapes first: arrays need them. */
	for (size_t i = 0; i < p->n_models; i++)
		assert_int_equal(kvi_model_reserve(p, &p->models[i]), KVARC_OK);
	for (size_t i = 0; i < p->n_models; i++)
		fill_model(&p->models[i], &seed);
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	struct kvi_out out;
	kvi_out_init(&out, &h->alloc);
	assert_int_equal(kvi_profile_serialise(p, &out), KVARC_OK);
	kvi_out_free(&out);
	return h;
}
