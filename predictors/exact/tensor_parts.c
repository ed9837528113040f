/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_parts.c - what an engine has of each layer of a model (spec/arithmetic.md 2, 9) */
#include "tensor_parts.h"

#include "float8.h"
#include "util/ckd.h"

enum { ALIGN = 64, GROUP_OF_W8 = 64, GROUP_OF_W15 = 128 };

struct list {
	struct kvi_engine_part *parts;
	size_t n;
	uint32_t number; /* number of the next part, whether the model has it or not */
};

static void add(struct list *list, const struct kvi_engine_part *part)
{
	uint32_t number = list->number++;
	if (part->from->data) {
		list->parts[list->n] = *part;
		list->parts[list->n++].number = number;
	}
}

static void add_vectors(struct list *list, const struct kvi_model_layer *from,
                        struct kvi_row_order slots, float plus, struct kvi_engine_layer *layer)
{
	const struct {
		const char *name;
		const struct kvi_matrix *from;
		float **to;
		bool slots;
		float plus;
	} v[] = {
		{ "input norm", &from->input_norm, &layer->norm, false, plus },
		{ "input norm bias", &from->input_norm_bias, &layer->norm_bias, false, 0 },
		{ "query bias", &from->q_bias, &layer->q_bias, true, 0 },
		{ "key bias", &from->k_bias, &layer->k_bias, true, 0 },
		{ "value bias", &from->v_bias, &layer->v_bias, false, 0 },
		{ "output bias", &from->o_bias, &layer->o_bias, false, 0 },
		{ "query norm", &from->q_norm, &layer->q_norm, true, plus },
		{ "key norm", &from->k_norm, &layer->k_norm, true, plus },
		{ "norm after attention", &from->after_attention_norm, &layer->after_attention,
		  false, plus },
		{ "feed-forward norm", &from->ffn_norm, &layer->ffn_norm, false, plus },
		{ "feed-forward norm bias", &from->ffn_norm_bias, &layer->ffn_norm_bias, false, 0 },
		{ "up bias", &from->up_bias, &layer->up_bias, false, 0 },
		{ "down bias", &from->down_bias, &layer->down_bias, false, 0 },
		{ "norm after feed-forward", &from->after_ffn_norm, &layer->after_ffn, false,
		  plus },
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
                         struct kvi_row_order slots, struct kvi_engine_layer *layer)
{
	const struct {
		const char *name;
		const struct kvi_matrix *from;
		enum kvi_matrix_kind kind;
		bool slots;
		struct kvi_operand *to;
	} w[] = {
		{ "queries", &from->q, KVI_MATRIX_Q, true, &layer->q },
		{ "keys", &from->k, KVI_MATRIX_KV, true, &layer->k },
		{ "values", &from->v, KVI_MATRIX_KV, false, &layer->v },
		{ "attention output", &from->o, KVI_MATRIX_O, false, &layer->o },
		{ "gate", &from->gate, KVI_MATRIX_FFN, false, &layer->gate },
		{ "up", &from->up, KVI_MATRIX_FFN, false, &layer->up },
		{ "down", &from->down, KVI_MATRIX_DOWN, false, &layer->down },
	};
	const struct kvi_row_order plain = { 0 };
	for (size_t i = 0; i < sizeof w / sizeof *w; i++)
		add(list, &(struct kvi_engine_part){ .name = w[i].name,
		                                     .from = w[i].from,
		                                     .kind = w[i].kind,
		                                     .order = w[i].slots ? slots : plain,
		                                     .operand = w[i].to });
}

size_t kvi_engine_parts(struct kvi_engine *engine, uint32_t layer,
                        struct kvi_engine_part parts[KVI_LAYER_PARTS])
{
	const struct kvi_model_file *m = engine->file;
	struct kvi_engine_layer *l = &engine->layers[layer];
	struct list list = { parts, 0, kvi_engine_part_number(layer, 0) };
	const struct kvi_row_order slots = { m->head_channels, l->rope ? l->rope->rotary : 0,
		                             m->interleaved };
	add_vectors(&list, &m->layers[layer], slots, m->norm_plus_one ? 1 : 0, l);
	add_operands(&list, &m->layers[layer], slots, l);
	return list.n;
}

bool kvi_engine_part_form(const struct kvi_engine *engine, const struct kvi_engine_part *part,
                          struct kvi_part_form *form)
{
	const struct kvi_matrix *m = part->from;
	struct kvi_number_groups native = kvi_number_groups(m->type);
	bool wide = kvi_planes(&engine->arithmetic, part->kind) == 2;
	*form = (struct kvi_part_form){ .minima = false };
	if (part->vector) {
		if (kvi_mul(m->columns, sizeof(float), &form->bytes) ||
		    kvi_add(form->bytes, ALIGN - 1, &form->bytes))
			return false;
		form->bytes -= form->bytes % ALIGN;
		return true;
	}
	form->e4m3 = engine->arithmetic.fp8 && part->kind != KVI_MATRIX_HEAD;
	if (form->e4m3)
		return kvi_e4m3_bytes(m->rows, m->columns, &form->bytes);
	form->group = native.group ? native.group : wide ? GROUP_OF_W15 : GROUP_OF_W8;
	form->planes = !native.group && wide ? 2 : 1;
	form->minima = native.minima;
	return kvi_operand_bytes(m->rows, m->columns, form->group, form->planes, form->minima,
	                         &form->bytes);
}

void kvi_engine_part_at(const struct kvi_engine_part *part, const struct kvi_part_form *form,
                        const void *memory)
{
	const struct kvi_matrix *m = part->from;
	if (part->vector)
		*part->vector = (float *)(uintptr_t)memory;
	else if (form->e4m3)
		kvi_e4m3_at(part->operand, memory, m->rows, m->columns);
	else
		kvi_operand_at(part->operand, memory, m->rows, m->columns, form->group,
		               form->planes, form->minima);
}
