/* SPDX-License-Identifier: BSD-3-Clause */
/* rope_search.c - rotary embeddings by their base, and finding the base of stored keys */
#include "rope_search.h"

#include <math.h>
#include <string.h>

#include "formats.h"
#include "rope_rotations.h"
#include "rotate.h"

enum {
	TOKENS_MIN = 16, /* fewer say nothing */
	TOKENS_MAX = 256,
	SINKS = 4, /* first tokens of a context are often outliers */
	CHANNELS_MAX = 2 * KVI_ROPE_PAIRS_MAX,
	SIDE = 4, /* pairs whose sums are made side by side */
	/* Ways are first judged by few bases and tokens, as a wrong base gains, too, while few
	 * turns were made; then the best ones by all bases and more tokens, the best ropes by all
	 * samples and tokens. */
	COARSE_TOKENS = 32,
	COARSE_BASES = 3,
	FINE_TOKENS = 64,
	HEADS_MAX = 2, /* of a sample */
	WAYS_KEPT = 2,
	ROPES_KEPT = 3,
	BASES_MAX = 20
};
/*
 * Mean gain of a pair, in nats, below which keys are said not to turn. Noise
 * gives about 1 / tokens, a wrong head size up to 0.1, real keys some tenths.
 */
static const double least_gain = 0.1;
/* Larger numbers, whose squares are too large for sums, and NaNs count as 0. */
static const float most_value = 1e14f;
/* Larger bases are of no model. */
#define THETA_MAX 1e12

bool kvi_rope_make(struct kvi_rope *rope, double theta, uint32_t rotary, uint8_t pairing)
{
	if (!(theta > 1) || theta > THETA_MAX || rotary == 0 || rotary % 2 ||
	    rotary > CHANNELS_MAX || pairing > KVARC_ROPE_INTERLEAVED)
		return false;
	memset(rope, 0, sizeof *rope);
	rope->pairing = pairing;
	rope->rotary = rotary;
	uint64_t log_theta = kvi_rope_log(theta);
	for (uint32_t i = 0; i < rotary / 2; i++)
		rope->freq[i] = kvi_rope_rotations(log_theta, i, rotary);
	return true;
}

/* How channels are paired, and how many of a head turn. */
struct rope_way {
	uint8_t pairing;
	uint32_t rotary;
};

/* Keys of a head: n tokens, and behind the last one SIDE more numbers. */
struct keys {
	size_t n, channels;
	const int32_t *positions;
	float *v; /* of interleaved pairs the first channels, then the second ones */
};

/* Keys of some heads, with one pairing. */
struct key_set {
	struct keys keys[2 * HEADS_MAX];
	size_t n;
};

/* Sums of a pair without rotation. */
struct fixed_sums {
	float energy; /* |z|^2 */
	float left;   /* left_over of the mean of z */
};

/* Memory for the keys of one set, the sums of all of its pairs, and cosines and sines of tokens. */
struct search_memory {
	void *block;
	struct fixed_sums *fixed;
	float *turns, *keys;
};

/* Numbers of SIDE pairs. */
enum { ANGLES = KVI_ROPE_PAIRS_MAX + SIDE };
typedef float lanes __attribute__((vector_size(SIDE * sizeof(float))));
typedef int32_t masks __attribute__((vector_size(SIDE * sizeof(int32_t))));

static inline lanes load(const float *p)
{
	lanes v;
	memcpy(&v, p, sizeof v);
	return v;
}

/* Pairs of a head as two runs of channels that begin `apart`. */
struct pair_layout {
	size_t pairs, apart;
};

static struct pair_layout layout_of(const struct rope_way *way, size_t channels)
{
	const size_t pairs = way->rotary / 2;
	return (struct pair_layout){ pairs,
		                     way->pairing == KVARC_ROPE_HALF ? pairs : channels / 2 };
}

/* ----- what a rope explains ------------------------------------------------ */

/* The share of the energy around a mean: 1 when it explains nothing. */
static float left_over(float re, float im, float energy, float n)
{
	const float left = 1 - (re * re + im * im) / (n * energy);
	return (left > 0 ? left : 0) + 1e-6f;
}

/* Fixed sums of the pairs of a head, whatever their frequencies are. */
static void sum_fixed(const struct keys *keys, const struct pair_layout *layout,
                      struct fixed_sums *at)
{
	for (size_t i = 0; i < layout->pairs; i += SIDE) {
		const float *p = keys->v + i;
		lanes energy = { 0 }, re = { 0 }, im = { 0 };
		for (size_t t = 0; t < keys->n; t++, p += keys->channels) {
			const lanes x = load(p), y = load(p + layout->apart);
			energy += x * x + y * y;
			re += x;
			im += y;
		}
		for (size_t k = 0; k < SIDE && i + k < layout->pairs; k++)
			at[i + k] = (struct fixed_sums){
				energy[k], left_over(re[k], im[k], energy[k], (float)keys->n)
			};
	}
}

/* Fixed sums of the pairs of a set. */
static void fix_pairs(const struct key_set *set, const struct rope_way *way,
                      const struct search_memory *memory)
{
	struct fixed_sums *at = memory->fixed;
	for (size_t i = 0; i < set->n; i++) {
		const struct pair_layout layout = layout_of(way, set->keys[i].channels);
		sum_fixed(&set->keys[i], &layout, at);
		at += layout.pairs;
	}
}

/* Floats of a token's turns: cosines of SIDE pairs, then their sines, and so on. */
static size_t turns_step(size_t pairs)
{
	return (pairs + SIDE - 1) / SIDE * 2 * SIDE;
}

/* Turns of SIDE pairs at each token. angles: radians of a pair from one position to the next. */
static void make_some_turns(const struct keys *keys, const double *angles, float *to, size_t step)
{
	lanes c = { 0 }, s = { 0 }, by_c, by_s;
	for (size_t k = 0; k < SIDE; k++) {
		by_c[k] = (float)cos(angles[k]);
		by_s[k] = (float)sin(angles[k]);
	}
	for (size_t t = 0; t < keys->n; t++, to += step) {
		const lanes was = c;
		const int64_t position = keys->positions[t];
		const bool next = t && position == (int64_t)keys->positions[t - 1] + 1;
		if (next) {
			c = was * by_c - s * by_s;
			s = s * by_c + was * by_s;
		}
		for (size_t k = 0; k < SIDE && !next; k++) {
			c[k] = (float)cos(angles[k] * (double)position);
			s[k] = (float)sin(angles[k] * (double)position);
		}
		memcpy(to, &c, sizeof c);
		memcpy(to + SIDE, &s, sizeof s);
	}
}

static void make_turns(const struct keys *keys, size_t pairs, const double *angles, float *turns)
{
	for (size_t i = 0; i < pairs; i += SIDE)
		make_some_turns(keys, angles + i, turns + 2 * i, turns_step(pairs));
}

/* Gain of the pairs of a head: how much less is left about the mean once RoPE is removed. */
static double sum_gains(const struct keys *keys, const struct pair_layout *layout,
                        const struct fixed_sums *fixed, const float *turns)
{
	double gain = 0;
	for (size_t i = 0; i < layout->pairs; i += SIDE) {
		const float *p = keys->v + i, *turn = turns + 2 * i;
		lanes re = { 0 }, im = { 0 };
		double ratio = 1; /* of SIDE pairs, each 1e-6 to 1e6 */
		for (size_t t = 0; t < keys->n;
		     t++, p += keys->channels, turn += turns_step(layout->pairs)) {
			const lanes x = load(p), y = load(p + layout->apart);
			const lanes c = load(turn), d = load(turn + SIDE);
			re += x * c + y * d;
			im += y * c - x * d;
		}
		for (size_t k = 0; k < SIDE && i + k < layout->pairs; k++)
			if (fixed[i + k].energy > 0)
				ratio *= fixed[i + k].left / left_over(re[k], im[k],
				                                       fixed[i + k].energy,
				                                       (float)keys->n);
		gain += log(ratio);
	}
	return gain;
}

static bool same_positions(const struct keys *one, const struct keys *other)
{
	return one->n == other->n &&
	       !memcmp(one->positions, other->positions, one->n * sizeof *one->positions);
}

/* Mean gain over the pairs of a way, weighted by how much of a head turns; after fix_pairs. */
static double mean_gain(const struct key_set *set, const struct rope_way *way, const double *angles,
                        const struct search_memory *memory)
{
	const struct fixed_sums *at = memory->fixed;
	double sum = 0;
	size_t pairs = 0;
	for (size_t i = 0; i < set->n; i++) {
		const struct keys *keys = &set->keys[i];
		const struct pair_layout layout = layout_of(way, keys->channels);
		if (!i || !same_positions(keys, keys - 1))
			make_turns(keys, layout.pairs, angles, memory->turns);
		sum += sum_gains(keys, &layout, at, memory->turns);
		at += layout.pairs;
		pairs += keys->channels / 2;
	}
	return sum / (double)pairs;
}

/* ----- samples ------------------------------------------------ */

/* Samples of keys, of several layers. */
struct search_samples {
	const struct kvi_rope_sample *list;
	size_t n;
};

static bool memory_open(struct search_memory *memory, const struct kvi_alloc *alloc,
                        const struct search_samples *samples)
{
	const size_t channels = samples->n ? samples->list->channels : 0;
	if (channels < 2 || channels > CHANNELS_MAX)
		return false;
	const size_t sums = 2 * HEADS_MAX * (channels / 2);
	const size_t turns = TOKENS_MAX * (channels + 2 * SIDE);
	const size_t few = 2 * HEADS_MAX * FINE_TOKENS, most = few > TOKENS_MAX ? few : TOKENS_MAX;
	memory->block = kvi_malloc(alloc, sums * sizeof *memory->fixed +
	                                          (turns + most * channels + SIDE) * sizeof(float));
	if (!memory->block)
		return false;
	memory->fixed = memory->block;
	memory->turns = (float *)(void *)(memory->fixed + sums);
	memory->keys = memory->turns + turns;
	return true;
}

/* The channels of a head that are first of an interleaved pair, then those that are second. */
static void part_pairs(float *head, size_t channels)
{
	const size_t half = channels / 2;
	float second[CHANNELS_MAX / 2];
	for (size_t i = 0; i < half; i++) {
		second[i] = head[2 * i + 1];
		head[i] = head[2 * i];
	}
	memcpy(head + half, second, half * sizeof *second);
}

/* Up to SIDE - 1 floats behind them are set, too. */
static void clear_large(float *v, size_t n)
{
	for (size_t i = 0; i < n; i += SIDE) {
		const lanes x = load(v + i);
		const lanes kept = (lanes)((masks)x & (x < most_value) & (x > -most_value));
		memcpy(v + i, &kept, sizeof kept);
	}
}

static bool sample_usable(const struct kvi_rope_sample *sample, uint32_t channels)
{
	return kvi_float_format(sample->dtype) && sample->n >= TOKENS_MIN && sample->heads &&
	       sample->channels == channels;
}

/* Adds the first tokens of a head to a set, as floats. */
static void load_head(const struct kvi_rope_sample *sample, size_t head, size_t most,
                      uint8_t pairing, const struct search_memory *memory, struct key_set *set)
{
	const uint32_t skip = sample->n > 4 * SINKS ? SINKS : 0, left = sample->n - skip;
	const size_t n = left < most ? left : most, channels = sample->channels;
	const size_t size = kvarc_dtype_bytes(sample->dtype), row = sample->heads * channels * size;
	const uint8_t *raw = sample->raw + skip * row + head * channels * size;
	const struct keys *before = set->n ? &set->keys[set->n - 1] : NULL;
	float *v = before ? before->v + before->n * channels : memory->keys;
	set->keys[set->n++] = (struct keys){ n, channels, sample->positions + skip, v };
	for (size_t t = 0; t < n; t++, v += channels, raw += row) {
		kvi_floats_widen(sample->dtype, raw, channels, v);
		clear_large(v, channels);
		if (pairing == KVARC_ROPE_INTERLEAVED)
			part_pairs(v, channels);
	}
	memset(v, 0, SIDE * sizeof *v);
}

/* Loads the first tokens of a few heads. */
static struct key_set load_few(const struct search_samples *samples, size_t most, uint8_t pairing,
                               const struct search_memory *memory)
{
	struct key_set set = { .n = 0 };
	for (size_t i = 0; i<samples->n; i += samples->n> 1 ? samples->n - 1 : 1) {
		const struct kvi_rope_sample *s = &samples->list[i];
		if (sample_usable(s, samples->list->channels))
			for (uint32_t h = 0; h < s->heads && h < HEADS_MAX; h++)
				load_head(s, h, most, pairing, memory, &set);
	}
	return set;
}

/* ----- the search ------------------------------------------------ */

/* A rope with the mean gain that was found for it. */
struct rated_rope {
	struct rope_way way;
	size_t base; /* its index */
	double gain;
};

/* Shares of a head's channels that are tried, with either pairing. */
enum { SHARES = 4 };

/* Puts a rope among the best ones, which lie in the order of their gains. */
static void keep_best(struct rated_rope *best, size_t most, const struct rated_rope *rope)
{
	size_t at = most;
	while (at > 0 && rope->gain > best[at - 1].gain)
		at--;
	for (size_t i = most; i-- > at + 1;)
		best[i] = best[i - 1];
	if (at < most)
		best[at] = *rope;
}

static void angles_of_base(double theta, uint32_t rotary, double *angles)
{
	const double step = pow(theta, -2.0 / rotary);
	angles[0] = 1;
	for (uint32_t i = 1; i < rotary / 2 + SIDE; i++)
		angles[i] = angles[i - 1] * step;
}

/* Bases of models, ascending. */
struct base_list {
	double p[BASES_MAX];
	size_t n;
};

static struct base_list bases_with(double hint_theta)
{
	static const double usual[] = { 1e4, 2e4, 4e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6,
		                        2e6, 3e6, 4e6, 5e6, 8e6,   1e7,   1.1e7, 2e7, 1e8 };
	struct base_list bases = { .n = 0 };
	bool has_hint = !(hint_theta > 1) || hint_theta > THETA_MAX;
	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
		if (!has_hint && hint_theta <= usual[i]) {
			bases.p[bases.n++] = hint_theta;
			has_hint = true;
		}
		bases.p[bases.n++] = usual[i];
	}
	if (!has_hint)
		bases.p[bases.n++] = hint_theta;
	return bases;
}

/* Rates a way with every step-th base from one to another, and keeps the best ones. */
static void rate_bases(const struct key_set *set, const struct rope_way *way,
                       const struct base_list *bases, size_t from, size_t to, size_t step,
                       const struct search_memory *memory, struct rated_rope *best, size_t most)
{
	double angles[ANGLES];
	fix_pairs(set, way, memory);
	for (size_t b = from; b < to && b < bases->n; b += step) {
		struct rated_rope rope = { *way, b, 0 };
		angles_of_base(bases->p[b], way->rotary, angles);
		rope.gain = mean_gain(set, way, angles, memory);
		keep_best(best, most, &rope);
	}
}

/* The best ways, each with the best of some bases. */
static void rate_ways(const struct search_samples *samples, const struct base_list *bases,
                      const struct search_memory *memory, struct rated_rope *best)
{
	for (uint8_t pairing = 0; pairing < 2; pairing++) {
		const struct key_set set = load_few(samples, COARSE_TOKENS, pairing, memory);
		for (uint32_t share = SHARES; share > 0 && set.n; share--) {
			const uint32_t rotary = samples->list->channels * share / SHARES;
			const struct rope_way way = { pairing, rotary };
			struct rated_rope rope = { .gain = 0 };
			if (rotary == 0 || rotary % 2)
				continue;
			rate_bases(&set, &way, bases, 0, bases->n, COARSE_BASES, memory, &rope, 1);
			keep_best(best, WAYS_KEPT, &rope);
		}
	}
}

/* A way with its angles, and the mean gain over all samples that was found for it. */
struct rated_turn {
	struct rope_way way;
	double angles[ANGLES], gain;
};

/* Adds the gains of a head. */
static void rate_head(const struct kvi_rope_sample *sample, size_t head,
                      const struct search_memory *memory, struct rated_turn *turns, size_t n)
{
	struct key_set one = { .n = 0 };
	for (size_t i = 0; i < n; i++) {
		const struct rope_way *way = &turns[i].way;
		if (!i || way->pairing != turns[i - 1].way.pairing) {
			one.n = 0;
			load_head(sample, head, TOKENS_MAX, way->pairing, memory, &one);
		}
		fix_pairs(&one, way, memory);
		turns[i].gain += mean_gain(&one, way, turns[i].angles, memory);
	}
}

/* Fills the gains. false: no sample is usable. */
static bool rate_all(const struct search_samples *samples, const struct search_memory *memory,
                     struct rated_turn *turns, size_t n)
{
	size_t heads = 0;
	for (size_t i = 0; i < n; i++)
		turns[i].gain = 0;
	for (size_t i = 0; i < samples->n; i++) {
		const struct kvi_rope_sample *s = &samples->list[i];
		if (sample_usable(s, samples->list->channels))
			for (uint32_t h = 0; h < s->heads && h < HEADS_MAX; h++, heads++)
				rate_head(s, h, memory, turns, n);
	}
	for (size_t i = 0; i < n && heads; i++)
		turns[i].gain /= (double)heads;
	return heads != 0;
}

/* The best rope. Returns its gain; 0: none gains anything. */
static double search(struct kvi_rope *rope, const struct search_samples *samples, double hint_theta,
                     const struct search_memory *memory)
{
	const struct base_list bases = bases_with(hint_theta);
	struct rated_rope ways[WAYS_KEPT] = { 0 }, ropes[ROPES_KEPT] = { 0 }, best = { 0 };
	struct rated_turn turns[ROPES_KEPT];
	size_t n = 0;
	rate_ways(samples, &bases, memory, ways);
	for (size_t i = 0; i < WAYS_KEPT && ways[i].gain > 0; i++) {
		const struct rope_way *way = &ways[i].way;
		const size_t at = ways[i].base, before = at < COARSE_BASES ? at : COARSE_BASES;
		const struct key_set set = load_few(samples, FINE_TOKENS, way->pairing, memory);
		rate_bases(&set, way, &bases, at - before, at + COARSE_BASES + 1, 1, memory, ropes,
		           ROPES_KEPT);
	}
	for (; n < ROPES_KEPT && ropes[n].gain > 0; n++) {
		turns[n].way = ropes[n].way;
		angles_of_base(bases.p[ropes[n].base], ropes[n].way.rotary, turns[n].angles);
	}
	(void)rate_all(samples, memory, turns, n);
	for (size_t i = 0; i < n; i++) {
		ropes[i].gain = turns[i].gain;
		keep_best(&best, 1, &ropes[i]);
	}
	return best.gain > 0 && kvi_rope_make(rope, bases.p[best.base], best.way.rotary,
	                                      best.way.pairing)
	               ? best.gain
	               : 0;
}

bool kvi_rope_search(struct kvi_rope *best, const struct kvi_alloc *alloc,
                     const struct kvi_rope_sample *samples, size_t n_samples, double hint_theta)
{
	const struct search_samples given = { samples, n_samples };
	struct search_memory memory;
	if (!memory_open(&memory, alloc, &given))
		return false;
	const double gain = search(best, &given, hint_theta, &memory);
	kvi_free(alloc, memory.block);
	return gain > least_gain;
}

bool kvi_rope_choose_pairing(struct kvi_rope *rope, const struct kvi_alloc *alloc,
                             const struct kvi_rope_sample *samples, size_t n_samples)
{
	const struct search_samples given = { samples, n_samples };
	const uint8_t other = rope->pairing == KVARC_ROPE_HALF ? KVARC_ROPE_INTERLEAVED
	                                                       : KVARC_ROPE_HALF;
	struct rated_turn turns[2];
	struct search_memory memory;
	if (!memory_open(&memory, alloc, &given))
		return false;
	for (uint8_t i = 0; i < 2; i++) {
		turns[i] = (struct rated_turn){ .way = { i, rope->rotary } };
		for (uint32_t k = 0; k < rope->rotary / 2; k++)
			turns[i].angles[k] = (double)rope->freq[k] * (0x1p-64 * 6.283185307179586);
	}
	const bool usable = rope->rotary <= samples->channels &&
	                    rate_all(&given, &memory, turns, 2);
	kvi_free(alloc, memory.block);
	if (usable && turns[other].gain > turns[rope->pairing].gain + least_gain)
		rope->pairing = other;
	return usable;
}
