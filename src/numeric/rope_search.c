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
	CHANNELS_MAX = 2 * KVI_ROPE_PAIRS_MAX
};
/*
 * Mean gain of a pair, in nats, below which keys are said not to turn. Noise
 * gives about 1 / tokens, a wrong head size up to 0.1, real keys some tenths.
 */
static const double least_gain = 0.1;

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

/* Sums of one pair of channels over the tokens of a sample. */
struct sums {
	double energy;               /* |z|^2 */
	double re, im;               /* z */
	double turned_re, turned_im; /* z with RoPE of its position removed */
};

/* log of the share of the energy around a mean: 0 when it explains nothing */
static double left_over(double re, double im, double energy, double n)
{
	double share = (re * re + im * im) / (n * energy);
	return log(1 - share + 1e-6);
}

/* Keys of one head: n rows of `stride` floats. */
struct keys {
	const float *v;
	size_t n, stride;
	const int32_t *positions;
};

static double pair_gain(const struct keys *keys, uint32_t a, uint32_t b, uint64_t freq)
{
	struct sums s = { 0 };
	double n = 0;
	for (size_t t = 0; t < keys->n; t++) {
		double x = keys->v[t * keys->stride + a];
		double y = keys->v[t * keys->stride + b];
		uint32_t angle = kvi_rotate_angle(freq, keys->positions[t]);
		double c = kvi_cos4096[angle] / 16384.0;
		double d = kvi_cos4096[(angle + 3072) & 4095] / 16384.0;
		double energy = x * x + y * y;
		if (!(energy < 1e30)) /* infinite or NaN */
			continue;
		n += 1;
		s.energy += energy;
		s.re += x;
		s.im += y;
		s.turned_re += x * c + y * d;
		s.turned_im += y * c - x * d;
	}
	if (!(s.energy > 0))
		return 0;
	return left_over(s.re, s.im, s.energy, n) -
	       left_over(s.turned_re, s.turned_im, s.energy, n);
}

/* Mean gain over the pairs of a rope, weighted by how much of a head turns. */
static double rope_gain(const struct kvi_rope *r, const struct keys *keys, size_t n_keys,
                        uint32_t channels)
{
	kvarc_rope rope = { .pairing = r->pairing, .rotary = r->rotary, .freq = r->freq };
	double sum = 0;
	for (size_t i = 0; i < n_keys; i++)
		for (uint32_t p = 0; p < r->rotary / 2; p++) {
			uint32_t a, b;
			kvi_rope_pair(&rope, p, &a, &b);
			sum += pair_gain(&keys[i], a, b, r->freq[p]);
		}
	return sum / ((double)n_keys * channels / 2);
}

/* The tokens of a sample as floats, its first heads as keys. */
static size_t load_sample(const struct kvi_rope_sample *sample, float *v, struct keys *keys)
{
	uint32_t skip = sample->n > 4 * SINKS ? SINKS : 0;
	size_t n = sample->n - skip, width = (size_t)sample->heads * sample->channels;
	size_t heads = sample->heads < HEADS_MAX ? sample->heads : HEADS_MAX;
	size_t size = kvarc_dtype_bytes(sample->dtype);
	n = n < TOKENS_MAX ? n : TOKENS_MAX;
	for (size_t t = 0; t < n; t++)
		kvi_floats_widen(sample->dtype, sample->raw + (skip + t) * width * size,
		                 heads * sample->channels, v + t * heads * sample->channels);
	for (size_t h = 0; h < heads; h++)
		keys[h] = (struct keys){ v + h * sample->channels, n, heads * sample->channels,
			                 sample->positions + skip };
	return heads;
}

static bool sample_usable(const struct kvi_rope_sample *sample, uint32_t channels)
{
	return kvi_float_format(sample->dtype) && sample->n >= TOKENS_MIN && sample->heads &&
	       sample->channels == channels;
}

/* Tries base x pairing x rotated share. */
static double search(struct kvi_rope *best, const struct keys *keys, size_t n_keys,
                     uint32_t channels, double hint_theta)
{
	static const double bases[] = { 0,   1e4, 1e5, 5e5, 1e6, 2e4, 4e4,   1.5e5, 1.6e5, 2.5e5,
		                        2e6, 3e6, 4e6, 5e6, 8e6, 1e7, 1.1e7, 2e7,   1e8 };
	static const unsigned quarters[] = { 4, 2, 1, 3 };
	double most = 0;
	for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
		for (size_t q = 0; q < 4; q++)
			for (uint8_t pairing = 0; pairing < 2; pairing++) {
				struct kvi_rope r;
				double theta = b ? bases[b] : hint_theta;
				uint32_t rotary = channels * quarters[q] / 4;
				if (!kvi_rope_make(&r, theta, rotary, pairing))
					continue;
				double gain = rope_gain(&r, keys, n_keys, channels);
				if (gain > most) {
					most = gain;
					*best = r;
				}
			}
	return most;
}

/* Loads keys of some samples, spread over the layers that were given; *memory is to be freed.
 * Returns their number. */
static size_t load_samples(const struct kvi_alloc *alloc, const struct kvi_rope_sample *samples,
                           size_t n_samples, uint32_t channels, struct keys *keys, float **memory)
{
	size_t per_sample = (size_t)TOKENS_MAX * HEADS_MAX * channels;
	size_t take = n_samples < SAMPLES_MAX ? n_samples : SAMPLES_MAX;
	size_t n_keys = 0;
	*memory = kvi_array(alloc, take * per_sample, sizeof **memory);
	for (size_t i = 0; *memory && i < take; i++) {
		const struct kvi_rope_sample *s = &samples[i * n_samples / take];
		if (sample_usable(s, channels))
			n_keys += load_sample(s, *memory + i * per_sample, keys + n_keys);
	}
	return n_keys;
}

bool kvi_rope_search(struct kvi_rope *best, const struct kvi_alloc *alloc,
                     const struct kvi_rope_sample *samples, size_t n_samples, double hint_theta)
{
	struct keys keys[SAMPLES_MAX * HEADS_MAX];
	uint32_t channels = n_samples ? samples[0].channels : 0;
	float *memory;
	if (channels < 2 || channels > CHANNELS_MAX)
		return false;
	size_t n_keys = load_samples(alloc, samples, n_samples, channels, keys, &memory);
	double gain = n_keys ? search(best, keys, n_keys, channels, hint_theta) : 0;
	kvi_free(alloc, memory);
	return gain > least_gain;
}

bool kvi_rope_choose_pairing(struct kvi_rope *rope, const struct kvi_alloc *alloc,
                             const struct kvi_rope_sample *samples, size_t n_samples)
{
	struct keys keys[SAMPLES_MAX * HEADS_MAX];
	uint32_t channels = n_samples ? samples[0].channels : 0;
	struct kvi_rope other = *rope;
	float *memory;
	if (channels < rope->rotary || channels > CHANNELS_MAX)
		return false;
	size_t n_keys = load_samples(alloc, samples, n_samples, channels, keys, &memory);
	other.pairing = rope->pairing == KVARC_ROPE_HALF ? KVARC_ROPE_INTERLEAVED : KVARC_ROPE_HALF;
	bool changes = n_keys && rope_gain(&other, keys, n_keys, channels) >
	                                 rope_gain(rope, keys, n_keys, channels) + least_gain;
	kvi_free(alloc, memory);
	if (changes)
		rope->pairing = other.pairing;
	return n_keys;
}
