/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rope_scaling.c - RoPE frequencies of a model, with their scaling: binary64 sums, products and
 * quotients alone, so that every machine computes the same (spec/arithmetic.md 10)
 */
#include "model_internal.h"

#include "numeric/rope_rotations.h"

bool kvi_rope_divide(uint64_t *freq, double by)
{
	/* the quotient stays below 2^64: frequencies are at most 1 / (2 pi) turns */
	if (!(by >= 0.25) || !(by <= 1048576))
		return false;
	*freq = (uint64_t)((double)(*freq >> 16) / by + 0.5) << 16;
	return true;
}

/* Scales a frequency as llama 3 (spec/arithmetic.md 10), by its turns in the original context: low
 * or fewer are divided by the factor, high or more stay, between them is a blend of both. */
static bool scale_llama3(const struct kvi_rope_rule *r, uint64_t *freq)
{
	double f = (double)(*freq >> 16), turns = f * 0x1p-48 * r->context;
	if (turns >= r->high)
		return true;
	if (turns <= r->low)
		return kvi_rope_divide(freq, r->factor);
	double blend = (turns - r->low) / (r->high - r->low);
	f = (1 - blend) * (f / r->factor) + blend * f;
	*freq = (uint64_t)(f + 0.5) << 16;
	return true;
}

bool kvi_rope_rule_freq(const struct kvi_rope_rule *r, uint64_t *freq)
{
	if (!(r->theta > 1) || !(r->theta <= 1e12) || r->rotary % 2 ||
	    (r->scaling && (!(r->factor >= 1) || !(r->factor <= 1048576))))
		return false;
	if (r->scaling == KVI_ROPE_LLAMA3 &&
	    (!(r->low > 0) || !(r->high > r->low) || !(r->high <= 1e6) || !(r->context >= 1) ||
	     !(r->context <= 1e9)))
		return false;
	uint64_t log_theta = kvi_rope_log(r->theta);
	bool good = true;
	for (uint32_t i = 0; i < r->rotary / 2; i++) {
		freq[i] = kvi_rope_rotations(log_theta, i, r->rotary);
		if (r->scaling == KVI_ROPE_LINEAR)
			good = kvi_rope_divide(&freq[i], r->factor) && good;
		else if (r->scaling == KVI_ROPE_LLAMA3)
			good = scale_llama3(r, &freq[i]) && good;
	}
	return good;
}

/* GGUF files of llama 3 have the factors of its frequencies as a tensor. */
static kvarc_ret divide_by_tensor(const struct kvi_weights *tensors, struct kvi_model_rope *rope,
                                  kvarc_error *error)
{
	struct kvi_weight *w = kvi_weights_find(tensors, "rope_freqs.weight");
	uint32_t n = rope->rotary / 2;
	float by;
	if (!w)
		return KVARC_OK;
	if (!w->plain)
		return kvi_fail(error, KVARC_DATA,
		                "tensor rope_freqs.weight has more than two axes: the file is "
		                "damaged");
	if (w->type == KVI_NUM_NONE || kvi_number_groups(w->type).group)
		return kvi_fail(error, KVARC_OPTIONS,
		                "tensor rope_freqs.weight has numbers of "
		                "type %s: known are F32, F16 and BF16",
		                w->type_name);
	if (w->rows != 1 || w->columns != n)
		return kvi_fail(
			error, KVARC_DATA,
			"tensor rope_freqs.weight has %llu x %llu "
			"numbers, but the model's sizes ask for 1 x %u: the file is damaged",
			(unsigned long long)w->rows, (unsigned long long)w->columns, (unsigned)n);
	/* the vector as a column: row i is factor i */
	struct kvi_matrix f = { .type = w->type,
		                .transposed = true,
		                .rows = n,
		                .columns = 1,
		                .stride = 1,
		                .data = w->data };
	for (uint32_t i = 0; i < n; i++)
		if (!kvi_matrix_row(&f, i, &by) || !kvi_rope_divide(&rope->freq[i], (double)by))
			return kvi_fail(error, KVARC_DATA,
			                "tensor rope_freqs.weight has a factor "
			                "that is not possible: the file is damaged");
	return KVARC_OK;
}

kvarc_ret kvi_rope_bind(struct kvi_model_file *file, const struct kvi_model_spec *spec,
                        const struct kvi_weights *tensors, kvarc_error *error)
{
	while (file->n_ropes < 2 && spec->ropes[file->n_ropes].theta != 0) {
		const struct kvi_rope_rule *r = &spec->ropes[file->n_ropes];
		struct kvi_model_rope *rope = &file->ropes[file->n_ropes];
		if (r->rotary < 2 || r->rotary % 2 || r->rotary > file->head_channels)
			return kvi_fail(error, KVARC_DATA,
			                "%u channels of a head cannot turn: heads have %u",
			                (unsigned)r->rotary, (unsigned)file->head_channels);
		rope->freq = kvi_array(file->alloc, r->rotary / 2, sizeof *rope->freq);
		if (!rope->freq)
			return kvi_fail_alloc(error, file->alloc);
		rope->rotary = r->rotary;
		file->n_ropes++;
		if (!kvi_rope_rule_freq(r, rope->freq))
			return kvi_fail(error, KVARC_DATA,
			                "base or scaling of the model's rotary "
			                "embedding is not possible");
		kvarc_ret ret = file->n_ropes == 1 && !spec->safetensors
		                        ? divide_by_tensor(tensors, rope, error)
		                        : KVARC_OK;
		if (ret)
			return ret;
	}
	return KVARC_OK;
}
