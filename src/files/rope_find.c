/* SPDX-License-Identifier: BSD-3-Clause */
/* rope_find.c - the rotary embedding of imported keys: given, of a profile or model, or fitted */
#include <stdio.h>
#include <string.h>

#include "predictor_handle.h"
#include "import_internal.h"
#include "profile/profile_io.h"
#include "util/error.h"

enum {
	SAMPLE_TOKENS = 512,
	SAMPLE_TOKENS_MIN = 32, /* fewer say nothing about angles */
	SAMPLE_BYTES = 1 << 21, /* bytes of a tensor */
	SAMPLES = 3,
	GROUPS_MAX = 16 /* groups that are searched */
};

static bool is_float(uint8_t dtype)
{
	return dtype >= KVARC_F32 && dtype <= KVARC_E5M2;
}

static bool is_key(const kvarc_tensor *tensor)
{
	return (tensor->kind == KVARC_KEY || tensor->kind == KVARC_MLA_LATENT ||
	        tensor->kind == KVARC_INDEXER_KEY) &&
	       tensor->role == KVARC_WHOLE && is_float(tensor->dtype) &&
	       !(tensor->flags & KVARC_TENSOR_HADAMARD);
}

/* The model of the options, where it has such keys in the layer; NULL: it has not. */
static const struct kvi_model_file *model_of(const kvarc_import *im, const kvarc_tensor *tensor)
{
	const struct kvi_model_file *m = im->options.predictor
	                                         ? kvi_predictor_file(im->options.predictor)
	                                         : NULL;
	return m && tensor->kind == KVARC_KEY && tensor->layer < m->n_layers &&
	                       (tensor->heads == 1 || tensor->heads == m->kv_heads) &&
	                       (uint64_t)tensor->heads * tensor->channels ==
	                               (uint64_t)m->kv_heads * m->head_channels
	               ? m
	               : NULL;
}

/* The index of the RoPE that the model applies to keys of this layer; -1: there is no model. */
static int turned_by(const kvarc_import *im, const kvarc_tensor *tensor)
{
	const struct kvi_model_file *m = model_of(im, tensor);
	return m ? m->layers[tensor->layer].rope : -1;
}

/* Keys of one track, shape and type share a rope, unless the model says that they do not. */
static bool alike(const kvarc_import *im, const kvarc_tensor *tensor, const kvarc_tensor *b)
{
	return tensor->track == b->track && tensor->kind == b->kind && tensor->dtype == b->dtype &&
	       tensor->heads == b->heads && tensor->channels == b->channels &&
	       turned_by(im, tensor) == turned_by(im, b);
}

/* Parses a positive number, "10000", "1e6", "500000.5", in any locale. */
static bool parse_number(const char **p, double *v)
{
	const char *start = *p;
	double scale = 1;
	*v = 0;
	for (; **p >= '0' && **p <= '9'; ++*p)
		*v = *v * 10 + (**p - '0');
	if (**p == '.')
		for (++*p; **p >= '0' && **p <= '9'; ++*p)
			*v += (**p - '0') * (scale /= 10);
	if (*p != start && (**p == 'e' || **p == 'E')) {
		int e = 0;
		for (++*p; **p >= '0' && **p <= '9' && e < 100; ++*p)
			e = e * 10 + (**p - '0');
		while (e-- > 0)
			*v *= 10;
	}
	return *p != start;
}

struct manual {
	double theta;
	uint8_t pairing;
	bool has_pairing;
	uint32_t rotary; /* 0: all channels */
};

/* Parses "THETA[,half|interleaved][,DIMS]". */
static bool parse_manual(const char *p, struct manual *manual)
{
	memset(manual, 0, sizeof *manual);
	if (!parse_number(&p, &manual->theta) || !(manual->theta > 1) || manual->theta > 1e12)
		return false;
	if (!strncmp(p, ",half", 5)) {
		manual->has_pairing = true;
		manual->pairing = KVARC_ROPE_HALF;
		p += 5;
	} else if (!strncmp(p, ",interleaved", 12)) {
		manual->has_pairing = true;
		manual->pairing = KVARC_ROPE_INTERLEAVED;
		p += 12;
	}
	if (*p == ',') {
		double dims;
		p++;
		if (!parse_number(&p, &dims) || dims < 2 || dims > 2 * KVI_ROPE_PAIRS_MAX)
			return false;
		manual->rotary = (uint32_t)dims;
	}
	return *p == '\0';
}

/* Index + 1 of a rope, which is added when it is new; 0 when there are too
 * many or it does not fit. */
static uint32_t add_rope(kvarc_import *im, const struct kvi_rope *r, uint32_t channels)
{
	if (r->rotary > channels)
		return 0;
	for (size_t i = 0; i < im->n_ropes; i++)
		if (im->ropes[i].pairing == r->pairing && im->ropes[i].rotary == r->rotary &&
		    !memcmp(im->ropes[i].freq, r->freq, r->rotary / 2 * sizeof *r->freq))
			return (uint32_t)i + 1;
	if (im->n_ropes >= KVI_IMPORT_ROPES_MAX)
		return 0;
	im->ropes[im->n_ropes++] = *r;
	return (uint32_t)im->n_ropes;
}

/* The tensors that a search looks at: first, middle and last of a group. */
struct group {
	uint32_t tensors[SAMPLES];
	size_t n;
	uint32_t tokens;
	double hint; /* theta, 0: none */
};

static void make_group(const kvarc_import *im, uint32_t first, struct group *group)
{
	const kvarc_tensor *like = &im->tensors[first].pub;
	size_t count = 0, seen = 0;
	for (size_t i = first; i < im->n_tensors; i++)
		count += is_key(&im->tensors[i].pub) && alike(im, &im->tensors[i].pub, like);
	group->n = 0;
	for (size_t i = first; i < im->n_tensors; i++) {
		if (!is_key(&im->tensors[i].pub) || !alike(im, &im->tensors[i].pub, like))
			continue;
		if (seen == 0 || seen == count / 2 || seen == count - 1)
			if (group->n < SAMPLES)
				group->tensors[group->n++] = (uint32_t)i;
		seen++;
	}
	uint64_t row = (uint64_t)like->heads * like->channels * kvarc_dtype_bytes(like->dtype);
	uint64_t tokens = im->tracks[like->track].n;
	if (tokens > SAMPLE_TOKENS)
		tokens = SAMPLE_TOKENS;
	if (tokens > SAMPLE_BYTES / row)
		tokens = SAMPLE_BYTES / row;
	group->tokens = (uint32_t)tokens;
}

/* The elements of a group's samples. */
struct samples {
	int32_t positions[SAMPLE_TOKENS];
	uint8_t *raw[SAMPLES];
};

/* Splits the samples into heads of `channels`. */
static void split(const kvarc_import *im, const struct group *group, const struct samples *from,
                  uint32_t channels, struct kvi_rope_sample sample[SAMPLES])
{
	for (size_t i = 0; i < group->n; i++) {
		const kvarc_tensor *t = &im->tensors[group->tensors[i]].pub;
		sample[i] = (struct kvi_rope_sample){
			t->dtype, group->tokens,   t->heads * t->channels / channels,
			channels, from->positions, from->raw[i]
		};
	}
}

static bool search(const kvarc_import *im, const struct group *group, const struct samples *from,
                   uint32_t channels, struct kvi_rope *best)
{
	struct kvi_rope_sample s[SAMPLES];
	split(im, group, from, channels, s);
	return kvi_rope_search(best, &im->alloc, s, group->n, group->hint);
}

/*
 * The head size is not in llama.cpp files. A size at which RoPE rotates all channels
 * of a head is the right one; a multiple of it shows partial rotation.
 */
static bool search_sizes(const kvarc_import *im, const struct group *group,
                         const struct samples *from, uint32_t *channels, struct kvi_rope *best)
{
	static const uint32_t sizes[] = { 64, 128, 96, 80, 256, 32, 112, 192 };
	const kvarc_tensor *t = &im->tensors[group->tensors[0]].pub;
	uint32_t width = t->heads * t->channels;
	struct kvi_rope r;
	*channels = 0;
	if (t->heads > 1 || im->gguf.present || t->kind != KVARC_KEY) {
		*channels = t->channels;
		return search(im, group, from, t->channels, best);
	}
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (width % sizes[i] || !search(im, group, from, sizes[i], &r))
			continue;
		/* compare r.rotary / sizes[i] with the best so far */
		if (!*channels ||
		    (uint64_t)r.rotary * *channels > (uint64_t)best->rotary * sizes[i]) {
			*best = r;
			*channels = sizes[i];
		}
		if (r.rotary == sizes[i])
			break;
	}
	return *channels != 0;
}

/* Reads samples. False: memory or reading failed; a rope is advice. Free in either case. */
static bool read_samples(kvarc_import *im, const struct group *group, struct samples *samples)
{
	const kvarc_tensor *like = &im->tensors[group->tensors[0]].pub;
	size_t bytes = (size_t)group->tokens * like->heads * like->channels *
	               kvarc_dtype_bytes(like->dtype);
	int32_t ids[SAMPLE_TOKENS];
	memset(samples->raw, 0, sizeof samples->raw);
	bool good = !kvi_import_tokens(im, like->track, 0, group->tokens, samples->positions, ids);
	for (size_t i = 0; i < group->n && good; i++) {
		samples->raw[i] = kvi_malloc(&im->alloc, bytes);
		good = samples->raw[i] && !kvarc_import_fetch(im, group->tensors[i], 0, like->heads,
		                                              0, group->tokens, samples->raw[i]);
	}
	return good;
}

static void free_samples(kvarc_import *im, struct samples *samples)
{
	for (size_t i = 0; i < SAMPLES; i++)
		kvi_free(&im->alloc, samples->raw[i]);
}

static bool find_by_fitting(kvarc_import *im, const struct group *group, uint32_t *channels,
                            struct kvi_rope *best)
{
	struct samples s;
	if (group->tokens < SAMPLE_TOKENS_MIN)
		return false;
	bool good = read_samples(im, group, &s) && search_sizes(im, group, &s, channels, best);
	free_samples(im, &s);
	return good;
}

/* The model that a profile of the options has of a key. */
static const struct kvi_model *find_model(const kvarc_import *im, const kvarc_tensor *tensor,
                                          const struct kvi_profile **profile)
{
	for (size_t i = 0; i < im->options.n_profiles; i++) {
		const struct kvi_profile *p = kvi_profile_of(im->options.profiles[i]);
		const struct kvi_model *m = kvi_profile_model(p, 3, tensor->layer, tensor->kind);
		if (!m)
			m = kvi_profile_model(p, 2, tensor->layer, tensor->kind);
		if (m && m->C == (size_t)tensor->heads * tensor->channels &&
		    (tensor->heads == 1 || tensor->heads == m->heads)) {
			*profile = p;
			return m;
		}
	}
	return NULL;
}

static bool is_llama(const kvarc_import *im, uint32_t tensor)
{
	uint16_t kind = im->items[im->areas[im->tensors[tensor].area].item].kind;
	return kind == KVI_ITEM_LLAMA_SEQ || kind == KVI_ITEM_LLAMA_SESSION;
}

static void set_rope(struct kvi_rope *r, uint32_t rotary, const uint64_t *freq, uint8_t pairing)
{
	memset(r, 0, sizeof *r);
	r->rotary = rotary;
	r->pairing = pairing;
	memcpy(r->freq, freq, rotary / 2 * sizeof *freq);
}

/* Changes the pairing of a rope where the keys show another one. */
static void choose_pairing(kvarc_import *im, const struct group *group, uint32_t channels,
                           struct kvi_rope *r)
{
	struct samples from;
	struct kvi_rope_sample s[SAMPLES];
	if (read_samples(im, group, &from)) {
		split(im, group, &from, channels, s);
		(void)kvi_rope_choose_pairing(r, &im->alloc, s, group->n);
	}
	free_samples(im, &from);
}

/*
 * Frequencies and head size from a profile; how channels are paired is not in it
 * and shows in the keys, or else by who wrote the file. *turns: there is a rope.
 */
static bool from_profile(kvarc_import *im, const struct group *group, uint32_t *channels,
                         struct kvi_rope *r, bool *turns)
{
	const struct kvi_profile *p;
	const struct kvi_model *m = find_model(im, &im->tensors[group->tensors[0]].pub, &p);
	if (!m || m->rotary > 2 * KVI_ROPE_PAIRS_MAX)
		return false;
	*channels = m->head_channels;
	*turns = m->rope;
	if (!m->rope)
		return true;
	bool llama = is_llama(im, group->tensors[0]);
	set_rope(r, m->rotary, p->ropes[m->rope - 1].freq,
	         llama ? KVARC_ROPE_INTERLEAVED : KVARC_ROPE_HALF);
	choose_pairing(im, group, *channels, r);
	return true;
}

/* As from_profile, from the model that is to predict the cache. llama.cpp reorders the rows of its
 * own architecture so that pairs are neighbours. */
static bool from_predictor(kvarc_import *im, const struct group *group, uint32_t *channels,
                           struct kvi_rope *r, bool *turns)
{
	const kvarc_tensor *t = &im->tensors[group->tensors[0]].pub;
	const struct kvi_model_file *m = model_of(im, t);
	if (!m)
		return false;
	const struct kvi_model_rope *own = &m->ropes[m->layers[t->layer].rope];
	*channels = m->head_channels;
	*turns = m->n_ropes && own->rotary;
	if (!*turns)
		return true;
	bool llama = is_llama(im, group->tensors[0]) && !strcmp(m->arch, "llama");
	if (own->rotary > 2 * KVI_ROPE_PAIRS_MAX)
		return false;
	set_rope(r, own->rotary, own->freq, llama ? KVARC_ROPE_INTERLEAVED : KVARC_ROPE_HALF);
	choose_pairing(im, group, *channels, r);
	return true;
}

static bool from_model(const kvarc_import *im, const kvarc_tensor *tensor, struct kvi_rope *r)
{
	const struct kvi_gguf *g = &im->gguf;
	if (!g->present || g->scaled || g->rotary > tensor->channels ||
	    !kvi_rope_make(r, g->theta, g->rotary, g->pairing))
		return false;
	for (uint32_t i = 0; g->linear != 1 && i < r->rotary / 2; i++)
		r->freq[i] = (uint64_t)((double)r->freq[i] / g->linear);
	return true;
}

/* The head size of a llama.cpp file: from the user's DIMS, else by fitting. */
static bool from_user(kvarc_import *im, const struct manual *manual, const struct group *group,
                      uint32_t *channels, struct kvi_rope *r)
{
	const struct kvi_imp_tensor *t = &im->tensors[group->tensors[0]];
	bool llama = is_llama(im, group->tensors[0]);
	uint8_t pairing = manual->has_pairing ? manual->pairing
	                  : llama             ? KVARC_ROPE_INTERLEAVED
	                                      : KVARC_ROPE_HALF;
	if (llama && t->pub.heads == 1 && !im->gguf.present && t->pub.kind == KVARC_KEY) {
		if (manual->rotary && t->pub.channels % manual->rotary == 0)
			*channels = manual->rotary;
		else if (!find_by_fitting(im, group, channels, r))
			return false;
	}
	return kvi_rope_make(r, manual->theta, manual->rotary ? manual->rotary : *channels,
	                     pairing);
}

/* Heads of a tensor become `channels` wide if that divides it. */
static void reshape(kvarc_tensor *tensor, uint32_t channels)
{
	uint64_t width = (uint64_t)tensor->heads * tensor->channels;
	if (width % channels == 0 && width / channels <= 65535)
		kvi_import_shape(tensor, width, (uint32_t)(width / channels));
}

/*
 * Gives a rope to all keys of a group; values of the same track and width
 * take the head size that was found with it.
 */
static void apply(kvarc_import *im, uint32_t first, uint32_t channels, uint32_t rope)
{
	kvarc_tensor like = im->tensors[first].pub;
	bool reshaped = channels != like.channels;
	uint64_t width = (uint64_t)like.heads * like.channels;
	for (size_t i = first; i < im->n_tensors; i++) {
		kvarc_tensor *t = &im->tensors[i].pub;
		if (is_key(t) && alike(im, t, &like)) {
			reshape(t, channels);
			t->rope = rope;
		} else if (reshaped && t->kind == KVARC_VALUE && t->track == like.track &&
		           t->heads == 1 && t->role == KVARC_WHOLE && t->channels == width) {
			reshape(t, channels);
		}
	}
}

/* The number of an earlier key of the same file, layer, width and kind of track, which has the
 * same rope, as streams of a cache share ropes; -1: there is none. */
static int64_t twin_of(const kvarc_import *im, uint32_t tensor)
{
	const kvarc_tensor *t = &im->tensors[tensor].pub;
	uint32_t item = im->areas[im->tensors[tensor].area].item;
	for (uint32_t i = 0; i < tensor; i++) {
		const kvarc_tensor *x = &im->tensors[i].pub;
		if (x->track != t->track && x->layer == t->layer && is_key(x) &&
		    x->kind == t->kind && x->dtype == t->dtype &&
		    x->heads * x->channels == t->heads * t->channels &&
		    im->areas[im->tensors[i].area].item == item &&
		    im->tracks[x->track].pub.kind == im->tracks[t->track].pub.kind)
			return i;
	}
	return -1;
}

static void find_rope(kvarc_import *im, uint32_t tensor, const struct manual *manual)
{
	kvarc_tensor like = im->tensors[tensor].pub;
	uint32_t channels = like.channels, rope = 0;
	bool known = false, turns = false;
	int64_t twin = twin_of(im, tensor);
	if (twin >= 0) {
		rope = im->tensors[twin].pub.rope;
		channels = im->tensors[twin].pub.channels;
	} else {
		struct group g;
		struct kvi_rope r;
		make_group(im, tensor, &g);
		g.hint = manual ? manual->theta : im->gguf.present ? im->gguf.theta : 0;
		known = !manual && (from_predictor(im, &g, &channels, &r, &turns) ||
		                    from_profile(im, &g, &channels, &r, &turns));
		bool good = known    ? turns
		            : manual ? from_user(im, manual, &g, &channels, &r)
		                     : find_by_fitting(im, &g, &channels, &r) ||
		                               from_model(im, &like, &r);
		if (good)
			rope = add_rope(im, &r, channels);
	}
	if (rope || known)
		apply(im, tensor, channels, rope);
	else if (manual)
		kvi_import_note(im, "the RoPE that was given does not fit %u channels",
		                like.channels);
}

kvarc_ret kvi_import_find_ropes(kvarc_import *im)
{
	const char *how = im->options.rope;
	struct manual m;
	bool manual = how && strcmp(how, "auto") && strcmp(how, "none");
	if ((how && !strcmp(how, "none")) || im->n_tensors == 0)
		return KVARC_OK;
	if (manual && !parse_manual(how, &m))
		return kvi_fail(im->error, KVARC_PROG,
		                "rope must be auto, none or THETA[,half|interleaved][,DIMS]");
	uint8_t *done = kvi_calloc(&im->alloc, im->n_tensors, 1);
	if (!done)
		return kvi_fail_alloc(im->error, &im->alloc);
	unsigned groups = 0;
	for (uint32_t i = 0; i < im->n_tensors && groups < GROUPS_MAX; i++) {
		kvarc_tensor like = im->tensors[i].pub;
		if (done[i] || !is_key(&like))
			continue;
		for (size_t k = i; k < im->n_tensors; k++)
			done[k] |= alike(im, &im->tensors[k].pub, &like);
		groups += twin_of(im, i) < 0;
		find_rope(im, i, manual ? &m : NULL);
	}
	kvi_free(&im->alloc, done);
	return KVARC_OK;
}
