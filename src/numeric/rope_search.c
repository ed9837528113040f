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
	HEADS_MAX = 4,
	SAMPLES_MAX = 6,
	CHANNELS_MAX = 2 * KVI_ROPE_PAIRS_MAX,
	SIDE = 4, /* pairs whose sums are made side by side */
	/* Ropes are first judged by every other sample and fewer tokens, then the best ones by all:
	 * 152 ropes by 1536 tokens of 4 heads would take 40 ms. */
	FIRST_TOKENS = 64,
	BEST = 6
};
/*
 * Mean gain of a pair, in nats, below which keys are said not to turn. Noise
 * gives about 1 / tokens, a wrong head size up to 0.1, real keys some tenths.
 */
static const double least_gain = 0.1;
/* Larger numbers, whose squares are too large for sums, and NaNs count as 0. */
static const float most_value = 1e14f;

bool kvi_rope_make(struct kvi_rope *rope, double theta, uint32_t rotary, uint8_t pairing)
{
	if (!(theta > 1) || theta > 1e12 || rotary == 0 || rotary % 2 || rotary > CHANNELS_MAX ||
	    pairing > KVARC_ROPE_INTERLEAVED)
		return false;
	memset(rope, 0, sizeof *rope);
	rope->pairing = pairing;
	rope->rotary = rotary;
	uint64_t log_theta = kvi_rope_log(theta);
	for (uint32_t i = 0; i < rotary / 2; i++)
		rope->freq[i] = kvi_rope_rotations(log_theta, i, rotary);
	return true;
}

/* Keys of a sample: n tokens of some heads, and behind the last one SIDE more numbers. */
struct keys {
	size_t n, heads, channels;
	const int32_t *positions;
	float *v[2]; /* by pairing; of interleaved pairs the first channels, then the second ones */
};

/* Sums of a pair without rotation. */
struct pair_sums {
	double energy; /* |z|^2 */
	double left;   /* left_over of the mean of z */
};

/* Work memory: sums of the pairs of all heads of all samples; cosines and sines of tokens. */
struct search_work {
	struct pair_sums *fixed;
	float *turns;
};

/* Pairs of a head as two runs of channels that begin `apart`. */
struct pair_layout {
	size_t pairs, apart;
};

/* log of the share of the energy around a mean: 0 when it explains nothing */
static double left_over(double re, double im, double energy, double n)
{
	double share = (re * re + im * im) / (n * energy);
	return log(1 - share + 1e-6);
}

static struct pair_layout layout_of(const struct kvi_rope *rope, size_t channels)
{
	const size_t pairs = rope->rotary / 2;
	return (struct pair_layout){ pairs,
		                     rope->pairing == KVARC_ROPE_HALF ? pairs : channels / 2 };
}

/* Sums of n of SIDE pairs, in the order of tokens. */
typedef double lanes __attribute__((vector_size(SIDE * sizeof(double))));
typedef float few __attribute__((vector_size(SIDE * sizeof(float))));

static inline lanes wide(const float *p)
{
	few f;
	memcpy(&f, p, sizeof f);
	return __builtin_convertvector(f, lanes);
}

/* The sums of a pair are at `at`, those of the pairs of the next heads follow. */
static void sum_fixed(const struct keys *keys, const float *v, const struct pair_layout *layout,
                      struct pair_sums *at)
{
	const size_t row = keys->heads * keys->channels;
	for (size_t h = 0; h < keys->heads; h++, at += layout->pairs)
		for (size_t i = 0; i < layout->pairs; i += SIDE) {
			const float *p = v + h * keys->channels + i;
			lanes energy = { 0 }, re = { 0 }, im = { 0 };
			for (size_t t = 0; t < keys->n; t++, p += row) {
				const lanes x = wide(p), y = wide(p + layout->apart);
				energy += x * x + y * y;
				re += x;
				im += y;
			}
			for (size_t k = 0; k < SIDE && i + k < layout->pairs; k++)
				at[i + k] = (struct pair_sums){ energy[k],
					                        left_over(re[k], im[k], energy[k],
					                                  (double)keys->n) };
		}
}

/* Cosines of SIDE pairs, then their sines, and so on, for each token. */
static void make_turns(const struct keys *keys, const struct kvi_rope *rope, float *turns)
{
	const size_t pairs = rope->rotary / 2;
	for (size_t t = 0; t < keys->n; t++)
		for (size_t i = 0; i < pairs; i += SIDE, turns += 2 * SIDE)
			for (size_t k = 0; k < SIDE; k++) {
				const uint64_t freq = rope->freq[i + k < pairs ? i + k : i];
				const uint32_t angle = kvi_rotate_angle(freq, keys->positions[t]);
				turns[k] = kvi_cos4096[angle] / 16384.0f;
				turns[SIDE + k] = kvi_cos4096[(angle + 3072) & 4095] / 16384.0f;
			}
}

/* Gain of the pairs of all heads: how much less is left about the mean once RoPE is removed.
 */
static double sum_gains(const struct keys *keys, const float *v, const struct pair_layout *layout,
                        const struct pair_sums *fixed, const float *turns)
{
	const size_t row = keys->heads * keys->channels;
	const size_t step = (layout->pairs + SIDE - 1) / SIDE * 2 * SIDE;
	double sum = 0;
	for (size_t h = 0; h < keys->heads; h++, fixed += layout->pairs)
		for (size_t i = 0; i < layout->pairs; i += SIDE) {
			const float *p = v + h * keys->channels + i, *turn = turns + 2 * i;
			lanes re = { 0 }, im = { 0 };
			for (size_t t = 0; t < keys->n; t++, p += row, turn += step) {
				const lanes x = wide(p), y = wide(p + layout->apart);
				const lanes c = wide(turn), d = wide(turn + SIDE);
				re += x * c + y * d;
				im += y * c - x * d;
			}
			for (size_t k = 0; k < SIDE && i + k < layout->pairs; k++)
				if (fixed[i + k].energy > 0)
					sum += fixed[i + k].left - left_over(re[k], im[k],
					                                     fixed[i + k].energy,
					                                     (double)keys->n);
		}
	return sum;
}

/* Fixed sums of the pairs of a rope, whatever its frequencies are. */
static void fix_pairs(const struct keys *keys, size_t n_keys, const struct kvi_rope *rope,
                      const struct search_work *work)
{
	struct pair_sums *at = work->fixed;
	for (size_t i = 0; i < n_keys; i++) {
		const struct pair_layout layout = layout_of(rope, keys[i].channels);
		sum_fixed(&keys[i], keys[i].v[rope->pairing], &layout, at);
		at += keys[i].heads * layout.pairs;
	}
}

static bool same_positions(const struct keys *one, const struct keys *other)
{
	return one->n == other->n &&
	       !memcmp(one->positions, other->positions, one->n * sizeof *one->positions);
}

/* Mean gain over the pairs of a rope, weighted by how much of a head turns; after fix_pairs. */
static double rope_gain(const struct keys *keys, size_t n_keys, const struct kvi_rope *rope,
                        const struct search_work *work)
{
	const struct pair_sums *at = work->fixed;
	double sum = 0;
	size_t pairs = 0;
	for (size_t i = 0; i < n_keys; i++) {
		const struct pair_layout layout = layout_of(rope, keys[i].channels);
		if (!i || !same_positions(&keys[i], &keys[i - 1]))
			make_turns(&keys[i], rope, work->turns);
		sum += sum_gains(&keys[i], keys[i].v[rope->pairing], &layout, at, work->turns);
		at += keys[i].heads * layout.pairs;
		pairs += keys[i].heads * keys[i].channels / 2;
	}
	return sum / (double)pairs;
}

/* A rope with the mean gain that was found for it. */
struct rated_rope {
	struct kvi_rope rope;
	double gain;
};

/* Ropes that are tried: base x pairing x rotated share. */
enum { BASES = 19, SHARES = 4, ROPES = 2 * SHARES * BASES };

/* Rates all of them. Returns their number. */
static size_t rate_all(const struct keys *keys, size_t n_keys, double hint_theta,
                       const struct search_work *work, struct rated_rope *to)
{
	static const double bases[BASES] = { 0,     1e4,   1e5,   5e5, 1e6, 2e4, 4e4,
		                             1.5e5, 1.6e5, 2.5e5, 2e6, 3e6, 4e6, 5e6,
		                             8e6,   1e7,   1.1e7, 2e7, 1e8 };
	static const unsigned quarters[SHARES] = { 4, 2, 1, 3 };
	size_t n = 0;
	for (size_t q = 0; q < SHARES; q++)
		for (uint8_t pairing = 0; pairing < 2; pairing++) {
			const uint32_t rotary = (uint32_t)keys->channels * quarters[q] / 4;
			bool fixed = false;
			for (size_t b = 0; b < BASES; b++) {
				const double theta = b ? bases[b] : hint_theta;
				if (!kvi_rope_make(&to[n].rope, theta, rotary, pairing))
					continue;
				if (!fixed)
					fix_pairs(keys, n_keys, &to[n].rope, work);
				fixed = true;
				to[n].gain = rope_gain(keys, n_keys, &to[n].rope, work);
				n++;
			}
		}
	return n;
}

/* Moves the best of n ropes to the front. Returns how many, at most BEST. */
static size_t keep_best(struct rated_rope *rope, size_t n)
{
	const size_t kept = n < BEST ? n : BEST;
	for (size_t i = 0; i < kept; i++) {
		size_t best = i;
		for (size_t k = i + 1; k < n; k++)
			best = rope[k].gain > rope[best].gain ? k : best;
		const struct rated_rope other = rope[i];
		rope[i] = rope[best];
		rope[best] = other;
	}
	return kept;
}

/* The best rope, in *best where it gains something. Returns its gain. rope: memory for ROPES. */
static double search(struct kvi_rope *best, const struct keys *keys, size_t n_keys,
                     double hint_theta, const struct search_work *work, struct rated_rope *rope)
{
	struct keys some[SAMPLES_MAX];
	size_t n_some = 0;
	double most = 0;
	for (size_t i = 0; i < n_keys; i += 2) {
		some[n_some] = keys[i];
		some[n_some].n = keys[i].n < FIRST_TOKENS ? keys[i].n : FIRST_TOKENS;
		n_some++;
	}
	const size_t n = keep_best(rope, rate_all(some, n_some, hint_theta, work, rope));
	for (size_t i = 0; i < n; i++) {
		fix_pairs(keys, n_keys, &rope[i].rope, work);
		const double gain = rope_gain(keys, n_keys, &rope[i].rope, work);
		if (gain > most) {
			most = gain;
			*best = rope[i].rope;
		}
	}
	return most;
}

/* ----- samples ------------------------------------------------ */

/* Memory for keys of samples, work, and ropes. */
struct search_memory {
	void *block;
	struct rated_rope *ropes;
	struct search_work work;
	float *keys;
	size_t each; /* floats of the keys of a sample and pairing */
};

static bool memory_open(struct search_memory *memory, const struct kvi_alloc *alloc,
                        size_t n_samples, uint32_t channels)
{
	const size_t sums = n_samples * HEADS_MAX * (channels / 2) * sizeof *memory->work.fixed;
	const size_t turns = (size_t)TOKENS_MAX * (channels + 2 * SIDE);
	const size_t ropes = ROPES * sizeof *memory->ropes;
	memory->each = (size_t)TOKENS_MAX * HEADS_MAX * channels + SIDE;
	memory->block = kvi_malloc(
		alloc, ropes + sums + (turns + 2 * n_samples * memory->each) * sizeof(float));
	if (!memory->block)
		return false;
	memory->ropes = memory->block;
	memory->work.fixed = (void *)((uint8_t *)memory->block + ropes);
	memory->work.turns = (void *)((uint8_t *)memory->block + ropes + sums);
	memory->keys = memory->work.turns + turns;
	return true;
}

/* The numbers of a token, in both layouts of pairs. */
static void load_token(const struct kvi_rope_sample *sample, size_t t, const struct keys *keys,
                       size_t row)
{
	const size_t size = kvarc_dtype_bytes(sample->dtype), n = keys->heads * keys->channels;
	const size_t width = (size_t)sample->heads * sample->channels, half = keys->channels / 2;
	float *v = keys->v[KVARC_ROPE_HALF] + row * n;
	float *apart = keys->v[KVARC_ROPE_INTERLEAVED] + row * n;
	kvi_floats_widen(sample->dtype, sample->raw + t * width * size, n, v);
	for (size_t i = 0; i < n; i++)
		v[i] = v[i] < most_value && v[i] > -most_value ? v[i] : 0;
	for (size_t h = 0; h < keys->heads; h++, v += keys->channels, apart += keys->channels) {
		apart[keys->channels - 1] = 0; /* belongs to no pair where channels are odd */
		for (size_t i = 0; i < half; i++) {
			apart[i] = v[2 * i];
			apart[half + i] = v[2 * i + 1];
		}
	}
}

/* The tokens of a sample as floats, its first heads. v: for both layouts. */
static struct keys load_sample(const struct kvi_rope_sample *sample, float *v, size_t each)
{
	const uint32_t skip = sample->n > 4 * SINKS ? SINKS : 0, left = sample->n - skip;
	const struct keys keys = { .n = left < TOKENS_MAX ? left : TOKENS_MAX,
		                   .heads = sample->heads < HEADS_MAX ? sample->heads : HEADS_MAX,
		                   .channels = sample->channels,
		                   .positions = sample->positions + skip,
		                   .v = { v, v + each } };
	const size_t end = keys.n * keys.heads * keys.channels;
	for (size_t t = 0; t < keys.n; t++)
		load_token(sample, skip + t, &keys, t);
	for (size_t i = 0; i < SIDE; i++)
		keys.v[0][end + i] = keys.v[1][end + i] = 0;
	return keys;
}

static bool sample_usable(const struct kvi_rope_sample *sample, uint32_t channels)
{
	return kvi_float_format(sample->dtype) && sample->n >= TOKENS_MIN && sample->heads &&
	       sample->channels == channels;
}

/* Loads keys of some samples, spread over the layers that were given; memory->block is to be freed.
 * Returns their number. */
static size_t load_samples(const struct kvi_alloc *alloc, const struct kvi_rope_sample *samples,
                           size_t n_samples, uint32_t channels, struct keys *keys,
                           struct search_memory *memory)
{
	const size_t take = n_samples < SAMPLES_MAX ? n_samples : SAMPLES_MAX;
	size_t n_keys = 0;
	if (!memory_open(memory, alloc, take, channels))
		return 0;
	for (size_t i = 0; i < take; i++) {
		const struct kvi_rope_sample *s = &samples[i * n_samples / take];
		float *v = memory->keys + 2 * n_keys * memory->each;
		if (sample_usable(s, channels))
			keys[n_keys++] = load_sample(s, v, memory->each);
	}
	return n_keys;
}

bool kvi_rope_search(struct kvi_rope *best, const struct kvi_alloc *alloc,
                     const struct kvi_rope_sample *samples, size_t n_samples, double hint_theta)
{
	struct keys keys[SAMPLES_MAX];
	struct search_memory memory;
	uint32_t channels = n_samples ? samples[0].channels : 0;
	if (channels < 2 || channels > CHANNELS_MAX)
		return false;
	size_t n_keys = load_samples(alloc, samples, n_samples, channels, keys, &memory);
	double gain = n_keys ? search(best, keys, n_keys, hint_theta, &memory.work, memory.ropes)
	                     : 0;
	kvi_free(alloc, memory.block);
	return gain > least_gain;
}

bool kvi_rope_choose_pairing(struct kvi_rope *rope, const struct kvi_alloc *alloc,
                             const struct kvi_rope_sample *samples, size_t n_samples)
{
	struct keys keys[SAMPLES_MAX];
	struct search_memory memory;
	uint32_t channels = n_samples ? samples[0].channels : 0;
	struct kvi_rope other = *rope;
	double gain[2];
	if (channels < 2 || channels < rope->rotary || channels > CHANNELS_MAX)
		return false;
	size_t n_keys = load_samples(alloc, samples, n_samples, channels, keys, &memory);
	for (uint8_t i = 0; n_keys && i < 2; i++) {
		other.pairing = i;
		fix_pairs(keys, n_keys, &other, &memory.work);
		gain[i] = rope_gain(keys, n_keys, &other, &memory.work);
	}
	other.pairing = rope->pairing == KVARC_ROPE_HALF ? KVARC_ROPE_INTERLEAVED : KVARC_ROPE_HALF;
	bool changes = n_keys && gain[other.pairing] > gain[rope->pairing] + least_gain;
	kvi_free(alloc, memory.block);
	if (changes)
		rope->pairing = other.pairing;
	return n_keys;
}
