/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_parts.c - what an engine has of each layer of a model (spec/arithmetic.md 2, 9) */
#include "tensor_parts.h"

#include "float8.h"
#include "util/ckd.h"

enum { ALIGN = 64, GROUP_OF_W8 = 64, GROUP_OF_W15 = 128 };

struct list {
	struct kvi_engine_part *parts;
	size_t n;
};

static void add(struct list *list, const struct kvi_engine_part *p)
{
	if (p->from->data)
		list->parts[list->n++] = *p;
}

static void add_vectors(struct list *list, const struct kvi_model_layer *from,
                        struct kvi_row_order slots, float plus, struct kvi_engine_layer *l)
{
	const struct {
		const char *name;
		const struct kvi_matrix *from;
		float **to;
		bool slots;
		float plus;
	} v[] = {
		{ "input norm", &from->input_norm, &l->norm, false, plus },
		{ "input norm bias", &from->input_norm_bias, &l->norm_bias, false, 0 },
		{ "query bias", &from->q_bias, &l->q_bias, true, 0 },
		{ "key bias", &from->k_bias, &l->k_bias, true, 0 },
		{ "value bias", &from->v_bias, &l->v_bias, false, 0 },
		{ "output bias", &from->o_bias, &l->o_bias, false, 0 },
		{ "query norm", &from->q_norm, &l->q_norm, true, plus },
		{ "key norm", &from->k_norm, &l->k_norm, true, plus },
		{ "norm after attention", &from->after_attention_norm, &l->after_attention, false,
		  plus },
		{ "feed-forward norm", &from->ffn_norm, &l->ffn_norm, false, plus },
		{ "feed-forward norm bias", &from->ffn_norm_bias, &l->ffn_norm_bias, false, 0 },
		{ "up bias", &from->up_bias, &l->up_bias, false, 0 },
		{ "down bias", &from->down_bias, &l->down_bias, false, 0 },
		{ "norm after feed-forward", &from->after_ffn_norm, &l->after_ffn, false, plus },
	};
	const struct kvi_row_order plain = { 0 };
	for (size_t i = 0; i < sizeof v / sizeof *v; i++)
		add(list, &(struct kvi_engine_part){ .name = v[i].name,
		                                     .from = v[i].from,
		                                     .order = v[i].slots ? slots : plain,
		                                     .vector = v[i].to,
		                                     .plus = v[i].plus });
}

static void add_operands(struct list *list, const struct kvi_model_layer *from,
                         struct kvi_row_order slots, struct kvi_engine_layer *l)
{
	const struct {
		const char *name;
		const struct kvi_matrix *from;
		enum kvi_matrix_kind kind;
		bool slots;
		struct kvi_operand *to;
	} w[] = {
		{ "queries", &from->q, KVI_MATRIX_Q, true, &l->q },
		{ "keys", &from->k, KVI_MATRIX_KV, true, &l->k },
		{ "values", &from->v, KVI_MATRIX_KV, false, &l->v },
		{ "attention output", &from->o, KVI_MATRIX_O, false, &l->o },
		{ "gate", &from->gate, KVI_MATRIX_FFN, false, &l->gate },
		{ "up", &from->up, KVI_MATRIX_FFN, false, &l->up },
		{ "down", &from->down, KVI_MATRIX_DOWN, false, &l->down },
	};
	const struct kvi_row_order plain = { 0 };
	for (size_t i = 0; i < sizeof w / sizeof *w; i++)
		add(list, &(struct kvi_engine_part){ .name = w[i].name,
		                                     .from = w[i].from,
		                                     .kind = w[i].kind,
		                                     .order = w[i].slots ? slots : plain,
		                                     .operand = w[i].to });
}

size_t kvi_engine_parts(struct kvi_engine *e, uint32_t layer,
                        struct kvi_engine_part parts[KVI_LAYER_PARTS])
{
	const struct kvi_model_file *m = e->file;
	struct kvi_engine_layer *l = &e->layers[layer];
	struct list list = { parts, 0 };
	const struct kvi_row_order slots = { m->head_channels, l->rope ? l->rope->rotary : 0,
		                             m->interleaved };
	add_vectors(&list, &m->layers[layer], slots, m->norm_plus_one ? 1 : 0, l);
	add_operands(&list, &m->layers[layer], slots, l);
	return list.n;
}

bool kvi_engine_part_form(const struct kvi_engine *e, const struct kvi_engine_part *p,
                          struct kvi_part_form *f)
{
	const struct kvi_matrix *m = p->from;
	struct kvi_number_groups native = kvi_number_groups(m->type);
	bool wide = kvi_planes(&e->arithmetic, p->kind) == 2;
	*f = (struct kvi_part_form){ .minima = false };
	if (p->vector) {
		if (kvi_mul(m->columns, sizeof(float), &f->bytes) ||
		    kvi_add(f->bytes, ALIGN - 1, &f->bytes))
			return false;
		f->bytes -= f->bytes % ALIGN;
		return true;
	}
	f->e4m3 = e->arithmetic.fp8 && p->kind != KVI_MATRIX_HEAD;
	if (f->e4m3)
		return kvi_e4m3_bytes(m->rows, m->columns, &f->bytes);
	f->group = native.group ? native.group : wide ? GROUP_OF_W15 : GROUP_OF_W8;
	f->planes = !native.group && wide ? 2 : 1;
	f->minima = native.minima;
	return kvi_operand_bytes(m->rows, m->columns, f->group, f->planes, f->minima, &f->bytes);
}

void kvi_engine_part_at(const struct kvi_engine_part *p, const struct kvi_part_form *f,
                        const void *memory)
{
	const struct kvi_matrix *m = p->from;
	if (p->vector)
		*p->vector = (float *)(uintptr_t)memory;
	else if (f->e4m3)
		kvi_e4m3_at(p->operand, memory, m->rows, m->columns);
	else
		kvi_operand_at(p->operand, memory, m->rows, m->columns, f->group, f->planes,
		               f->minima);
}
