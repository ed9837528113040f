/* SPDX-License-Identifier: BSD-3-Clause */
/* in_file.c - profiles that are fitted to the file that they go into */
#include "model/profile.h"
#include "stream/profile_handle.h"
#include "train.h"

double kvi_train_gain(const kvarc_trainer *t)
{
	int level = t->options.levels >> 3 & 1 ? 3 : 2;
	double saved = 0;
	size_t at = 0;
	for (size_t i = 0; i < t->n_stacks; i++)
		for (size_t k = 0; k < t->stacks[i].n_shapes; k++, at++) {
			const struct kvi_train_stack *s = &t->stacks[i];
			const kvarc_trained *x = &t->report[at];
			saved += (x->bits[1] - x->bits[level]) * s->all_tokens *
			         s->shapes[k].heads * s->shapes[k].channels;
		}
	return saved / 8 - (double)t->profile->file_bytes;
}

bool kvi_train_enough(const kvarc_trainer *t)
{
	for (size_t i = 0; i < t->n_stacks; i++) {
		const struct kvi_train_stack *s = &t->stacks[i];
		size_t n = kvi_train_layer_shapes(s, 0), rows = 0;
		for (size_t k = 0; k < n; k++)
			rows += kvi_train_rows(&s->shapes[k]);
		if (s->all_tokens >
		    (double)(KVI_TRAIN_ENOUGH * (1 + KVI_TRAIN_BELOW) * rows))
			return true;
	}
	return false;
}

/* Of one level, or of level 2 when it has to be. */
static kvarc_ret fit_import(kvarc_profile **p, kvarc_import *im, int *level,
                            double *bytes, const kvarc_common *common)
{
	kvarc_trainer_options o = {
		.flags = KVARC_TRAIN_IN_FILE, .levels = 1u << *level
	};
	kvarc_trainer *t;
	*p = NULL;
	if (common)
		o.common = *common;
	kvarc_ret ret = kvarc_trainer_open(&t, &o);
	if (!ret)
		ret = kvarc_trainer_add_import(t, im);
	if (!ret)
		ret = kvarc_trainer_run(t);
	if (!ret) {
		*level = t->options.levels >> 3 & 1 ? 3 : 2;
		*bytes = t->gain;
		ret = kvarc_trainer_profile(t, p);
	}
	kvarc_trainer_close(&t);
	/* nothing to fit is nothing to gain */
	return ret == KVARC_END || ret == KVARC_GEOMETRY ? KVARC_OK : ret;
}

kvarc_ret kvarc_train_import(kvarc_profile **p, kvarc_import *im, int level,
                             const kvarc_common *common)
{
	kvarc_profile *lower = NULL;
	double gains[2] = { 0, 0 };
	if (!p || !im || (level != 2 && level != 3))
		return KVARC_PROG;
	kvarc_ret ret = fit_import(p, im, &level, &gains[0], common);
	if (ret || level == 2)
		return ret;
	level = 2;
	ret = fit_import(&lower, im, &level, &gains[1], common);
	if (!ret && lower && (!*p || gains[1] > gains[0])) {
		kvarc_profile_close(p);
		*p = lower;
		lower = NULL;
	}
	kvarc_profile_close(&lower);
	if (ret)
		kvarc_profile_close(p);
	return ret;
}
