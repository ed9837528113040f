/* SPDX-License-Identifier: BSD-3-Clause */
/* stages.c - bits per element after each stage of a predictor, by tensor */
#include "config.h"

#include "stages.h"

#include <stdlib.h>
#include <string.h>

struct taking {
	struct stages *to;
	const kvarc_geometry *g;
};

static void take(void *opaque, const kvarc_measured *measured)
{
	struct taking *t = opaque;
	struct stages *s = t->to;
	const kvarc_tensor *x = &t->g->tensors[measured->tensor];
	uint32_t n = x->heads * x->channels;
	struct stage_row *rows = realloc(s->rows, (s->n + 1) * sizeof(*rows));
	float *copy = malloc(n * sizeof(*copy));

	if (rows)
		s->rows = rows;
	if (!rows || !copy) {
		free(copy);
		s->no_memory = true;
		return;
	}
	memcpy(copy, measured->channel_bits, n * sizeof(*copy));
	rows += s->n++;
	*rows = (struct stage_row){ x->layer, shape_kind(x), n, *measured };
	rows->m.channel_bits = copy;
	s->tokens = measured->tokens;
}

kvarc_ret stages_make(struct stages *stages, kvarc_reader *r)
{
	struct taking t = { stages, kvarc_reader_geometry(r) };
	kvarc_predictor_info x;
	kvarc_ret ret;

	memset(stages, 0, sizeof(*stages));
	if (kvarc_reader_predictor(r, 0, &x) != KVARC_OK)
		return KVARC_END;
	stages->level = x.level;
	ret = kvarc_reader_measure(r, 0, take, &t);
	return ret == KVARC_OK && stages->no_memory ? KVARC_MEM : ret;
}

void stages_free(struct stages *stages)
{
	for (size_t i = 0; i < stages->n; i++)
		free((float *)(uintptr_t)stages->rows[i].m.channel_bits);
	free(stages->rows);
	memset(stages, 0, sizeof(*stages));
}
