/* SPDX-License-Identifier: BSD-3-Clause */
/* train_identify.c - what a profile says of the predictor that it was fitted to */
#include <stdio.h>

#include "token_blind/token_blind.h"
#include "format/frame.h"
#include "train_predict.h"

struct kvi_engine_level kvi_train_level_of(const kvarc_trainer *t, unsigned level)
{
	const struct kvi_engine_level own = kvi_engine_level(level);
	return t->options.model.blind
	               ? kvi_engine_choice(&own, KVARC_ARITHMETIC_LEVEL, KVARC_LOOP_OPEN)
	               : own;
}

kvarc_ret kvi_train_identify(kvarc_trainer *t)
{
	const struct kvi_train_predictor *p = t->predictor;
	uint8_t b[16];
	char text[2 * sizeof b + 1];
	kvi_store_h128(b, kvi_token_blind_digest(p->engine, t->options.model.blind));
	for (size_t i = 0; i < sizeof b; i++)
		snprintf(text + 2 * i, 3, "%02x", b[i]);
	kvarc_ret ret = kvarc_trainer_identity(t, "weights", text);
	const struct kvi_engine_level own = kvi_train_level_of(t, p->level);
	const struct kvi_engine_level l = { p->arithmetic, p->closed };
	char key[KVI_ARITHMETIC_KEY_BYTES];
	kvi_arithmetic_key(key, p->level);
	if (!ret && !kvi_engine_level_equal(&own, &l))
		ret = kvarc_trainer_identity(t, key, kvi_engine_text(&l));
	if (!ret && p->file->name[0] && !kvi_identity_get(&t->identity, "model"))
		ret = kvarc_trainer_identity(t, "model", p->file->name);
	return ret;
}
