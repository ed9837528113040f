/* SPDX-License-Identifier: BSD-3-Clause */
/* device_model.c - brings the weights of a model into the memory of a device */
#include "config.h"

#include "device_model.h"

#include "predictor_handle.h"
#include "reader/reader_located.h"
#include "util/ckd.h"
#include "util/error.h"
#include "writer/writer_coded.h"

/* Rows of a table that are copied together; parts of memory are multiples of MODEL_PART. */
enum { TABLE_ROWS = 1024, MODEL_PART = 256 };

static uint64_t part_bytes(uint64_t n)
{
	return (n + MODEL_PART - 1) / MODEL_PART * MODEL_PART;
}

static uint64_t table_bytes(const struct kvi_matrix *matrix)
{
	return matrix->data ? part_bytes(matrix->rows * matrix->columns * sizeof(float)) : 0;
}

/* ----- open and close ------------------------------------------------ */

static kvarc_ret measure(struct kvarc_device_model *model)
{
	const struct kvi_model_file *file = kvi_engine_model(model->engine);
	model->bytes = table_bytes(&file->embedding) + table_bytes(&file->positions);
	for (size_t l = 0; l < file->n_layers; l++)
		if (kvi_add(model->bytes, part_bytes(kvi_gpu_exact_layer_bytes(model->engine, l)),
		            &model->bytes))
			return kvi_fail_alloc(model->d->error, &model->d->alloc);
	model->weights_bytes = model->bytes;
	if (kvi_add(model->bytes, kvi_model_check_bytes(model), &model->bytes))
		return kvi_fail_alloc(model->d->error, &model->d->alloc);
	return KVARC_OK;
}

/* The engine of a model, in a form that kernels take. */
static kvarc_ret find_engine(struct kvarc_device_model *model, const struct kvi_located_model *of)
{
	struct kvarc_device *d = model->d;
	kvarc_ret ret = kvi_predictor_engine(of->predictor, &of->arithmetic, d->common.isa_mask,
	                                     &model->engine, d->error);
	if (ret)
		return ret;
	if (!kvi_gpu_exact_model_of(&model->m, model->engine))
		return kvi_fail(d->error, KVARC_OPTIONS,
		                "there are no kernels for the arithmetic of the archive, or for "
		                "the weights of its model: leave it to the host");
	return KVARC_OK;
}

static kvarc_ret open_model(struct kvarc_device_model *model, const struct kvi_located_model *of)
{
	struct kvarc_device *d = model->d;
	kvarc_ret ret = find_engine(model, of);
	if (!ret)
		ret = measure(model);
	if (!ret)
		ret = kvi_device_enter(d);
	if (ret)
		return ret;
	ret = kvi_device_load(d, &d->exact);
	kvi_device_leave(d);
	model->m.layers = ret ? NULL
	                      : kvi_calloc(&d->alloc, model->m.n_layers, sizeof *model->m.layers);
	return ret || model->m.layers ? ret : kvi_fail_alloc(d->error, &d->alloc);
}

/* A model of a device; *bytes: of its weights. */
static kvarc_ret add_model(kvarc_device_model **out, struct kvarc_device *device,
                           const struct kvi_located_model *of, uint64_t *bytes)
{
	struct kvarc_device_model *m = kvi_calloc(&device->alloc, 1, sizeof *m);
	if (!m)
		return kvi_fail_alloc(device->error, &device->alloc);
	m->d = device;
	kvarc_ret ret = open_model(m, of);
	*bytes = m->bytes;
	*out = m;
	if (ret)
		kvarc_device_model_close(out);
	return ret;
}

/* Checks the arguments of both calls that open a model, and sets the outputs to 0. */
static kvarc_ret check_open(const char *call, kvarc_device_model **out, struct kvarc_device *device,
                            const void *of, uint64_t *bytes)
{
	if (!out || !device || !of || !bytes)
		return kvi_fail(device ? device->error : NULL, KVARC_PROG,
		                "%s: an argument is NULL", call);
	*out = NULL;
	*bytes = 0;
	return KVARC_OK;
}

kvarc_ret kvarc_device_model_open(kvarc_device_model **out, kvarc_device *device, kvarc_reader *r,
                                  uint64_t *bytes)
{
	struct kvi_located_model of;
	kvarc_ret ret = check_open("kvarc_device_model_open", out, device, r, bytes);
	if (!ret)
		ret = kvi_reader_model(r, &of, device->error);
	if (ret == KVARC_END)
		return kvi_fail(device->error, KVARC_OPTIONS,
		                "the archive was not made with a model that kernels compute");
	return ret ? ret : add_model(out, device, &of, bytes);
}

kvarc_ret kvarc_device_model_open_writer(kvarc_device_model **out, kvarc_device *device,
                                         kvarc_writer *w, uint64_t *bytes)
{
	static const char call[] = "kvarc_device_model_open_writer";
	struct kvi_located_model of;
	kvarc_ret ret = check_open(call, out, device, w, bytes);
	if (!ret && !kvi_writer_geometry(w))
		return kvi_fail(device->error, KVARC_PROG,
		                "%s: call kvarc_writer_set_geometry first", call);
	if (!ret)
		ret = kvi_writer_model(w, &of);
	if (ret == KVARC_END)
		return kvi_fail(device->error, KVARC_OPTIONS,
		                "the writer has no model, or none with which kernels can encode");
	return ret ? ret : add_model(out, device, &of, bytes);
}

void kvarc_device_model_close(kvarc_device_model **m)
{
	if (!m || !*m)
		return;
	struct kvarc_device *d = (*m)->d;
	kvi_free(&d->alloc, (*m)->m.layers);
	kvi_free(&d->alloc, *m);
	*m = NULL;
}

/* ----- weights ------------------------------------------------ */

/* Copies a table in fp32 to *at, which then is behind it; *to: where it is. */
static kvarc_ret load_table(const struct kvarc_device_model *model, const struct kvi_matrix *matrix,
                            uint64_t *at, uint64_t *to, float *rows, void *stream)
{
	const size_t row = (size_t)matrix->columns * sizeof *rows;
	kvarc_ret ret = KVARC_OK;
	if (!matrix->data)
		return KVARC_OK;
	*to = *at;
	for (uint64_t first = 0; first < matrix->rows && !ret; first += TABLE_ROWS) {
		const uint64_t left = matrix->rows - first,
			       n = left < TABLE_ROWS ? left : TABLE_ROWS;
		for (uint64_t i = 0; i < n; i++)
			if (!kvi_matrix_row(matrix, first + i, rows + i * matrix->columns))
				return kvi_fail(model->d->error, KVARC_OPTIONS,
				                "the embedding of the model has numbers that are "
				                "not finite: leave it to the host");
		ret = kvi_device_copy(model->d, *to + first * row, rows, (size_t)n * row, stream);
	}
	*at += table_bytes(matrix);
	return ret;
}

static kvarc_ret load_tables(struct kvarc_device_model *model, uint64_t *at, void *stream)
{
	const struct kvi_model_file *file = kvi_engine_model(model->engine);
	float *rows = kvi_array(&model->d->alloc, (size_t)TABLE_ROWS * file->width, sizeof *rows);
	if (!rows)
		return kvi_fail_alloc(model->d->error, &model->d->alloc);
	kvarc_ret ret = load_table(model, &file->embedding, at, &model->m.embedding, rows, stream);
	if (!ret)
		ret = load_table(model, &file->positions, at, &model->m.positions, rows, stream);
	kvi_free(&model->d->alloc, rows);
	return ret;
}

static kvarc_ret load_layer(struct kvarc_device_model *model, size_t l, uint64_t *at, void *stream)
{
	const uint64_t bytes = kvi_gpu_exact_layer_bytes(model->engine, l);
	uint8_t *memory = bytes > SIZE_MAX ? NULL : kvi_malloc(&model->d->alloc, (size_t)bytes);
	if (!memory)
		return kvi_fail_alloc(model->d->error, &model->d->alloc);
	kvi_gpu_exact_layer_fill(&model->m.layers[l], model->engine, l, memory, *at);
	kvarc_ret ret = kvi_device_copy(model->d, *at, memory, (size_t)bytes, stream);
	kvi_free(&model->d->alloc, memory);
	*at += part_bytes(bytes);
	return ret;
}

kvarc_ret kvarc_device_model_load(kvarc_device_model *m, uint64_t memory, void *stream)
{
	if (!m || !memory || memory % MODEL_PART || m->loaded)
		return kvi_fail(m ? m->d->error : NULL, KVARC_PROG,
		                "kvarc_device_model_load: memory is not an address that is aligned "
		                "to %d bytes, or the model was loaded before",
		                (int)MODEL_PART);
	const uint64_t check = memory + m->weights_bytes;
	kvarc_ret ret = kvi_device_enter(m->d);
	if (ret)
		return ret;
	ret = load_tables(m, &memory, stream);
	for (size_t l = 0; l < m->m.n_layers && !ret; l++)
		ret = load_layer(m, l, &memory, stream);
	if (!ret)
		ret = kvi_model_check(m, check, stream);
	kvi_device_leave(m->d);
	m->loaded = !ret;
	return ret;
}
