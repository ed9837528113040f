/* SPDX-License-Identifier: BSD-3-Clause */
/* device_kernels.c - reads files of kernels, loads them into a device, and launches kernels */
#include "config.h"

#include "device_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "util/error.h"

/* A fatbin of all architectures has some megabytes. */
enum { KERNELS_MOST = 1 << 28 };

/* The whole file, which the caller frees; its size must be known and not 0. */
static kvarc_ret read_file(struct kvarc_device *device, const char *path, void **image)
{
	struct stat st;
	kvarc_ret ret = KVARC_OK;
	FILE *f = fopen(path, "rb");
	if (!f)
		return kvi_fail(device->error, KVARC_OPTIONS, "no kernels for GPUs: %s: %s", path,
		                strerror(errno));
	if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || st.st_size < 1 ||
	    st.st_size > KERNELS_MOST)
		ret = kvi_fail(device->error, KVARC_OPTIONS, "%s: not a file of kernels", path);
	if (!ret) {
		/* the driver looks for a zero behind PTX */
		*image = kvi_malloc(&device->alloc, (size_t)st.st_size + 1);
		if (!*image)
			ret = kvi_fail_alloc(device->error, &device->alloc);
	}
	if (!ret && fread(*image, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
		ret = kvi_fail(device->error, KVARC_IO, "%s: not read to its end", path);
	if (!ret)
		((char *)*image)[st.st_size] = 0;
	fclose(f);
	return ret;
}

static kvarc_ret fail_module(const struct kvarc_device *device, const char *path, int result)
{
	const kvarc_device_info *i = &device->info;
	/* drivers say any of these to kernels of a newer toolkit */
	if (result != KVI_CU_NO_BINARY && result != KVI_CU_UNSUPPORTED_PTX &&
	    result != KVI_CU_INVALID_IMAGE)
		return kvi_driver_fail(&device->driver, device->error, KVARC_IO, result, path);
	return kvi_fail(device->error, KVARC_OPTIONS,
	                "%s has no kernels for %s (compute capability %u.%u) that the NVIDIA "
	                "driver, of CUDA %u.%u, can load (error %d); this library's are of CUDA "
	                "%s: install a newer driver, or compile them with an older toolkit",
	                path, i->name, i->major, i->minor, i->driver_version / 1000,
	                i->driver_version % 1000 / 10, result, KVARC_CUDA_VERSION);
}

/* ----- the kernels of each file ------------------------------------------------ */

static const struct kvi_kernel_name decoders[] = {
	{ "kvi_gpu_decode", true },
};
static const struct kvi_kernel_name encoders[] = {
	{ "kvi_gpu_encode_chunks", true },
	{ "kvi_gpu_collect", false },
};
static const struct kvi_kernel_name exact[] = {
	{ "kvi_gpu_quantise", false },
	{ "kvi_gpu_values", false },
	{ "kvi_gpu_product_w8a8", false },
	{ "kvi_gpu_product_w8a15", false },
	{ "kvi_gpu_product_w15a15", false },
	{ "kvi_gpu_product_groups_a8", false },
	{ "kvi_gpu_product_groups_a15", false },
	{ "kvi_gpu_product_minima_a8", false },
	{ "kvi_gpu_product_minima_a15", false },
	{ "kvi_gpu_embed", false },
	{ "kvi_gpu_norm", false },
	{ "kvi_gpu_rotate", false },
	{ "kvi_gpu_silu", false },
	{ "kvi_gpu_gelu", false },
	{ "kvi_gpu_add", false },
	{ "kvi_gpu_attention_8", true },
	{ "kvi_gpu_attention_12", true },
	{ "kvi_gpu_attention_12_15", true },
	{ "kvi_gpu_attention_15", true },
};

/* Finds a kernel, and does all that a launch inside a capture may not do. */
static kvarc_ret find(const struct kvarc_device *device, const struct kvi_module *kernels,
                      const struct kvi_kernel_name *name, void **function)
{
	const struct kvi_driver *v = &device->driver;
	int result = v->module_function(function, kernels->module, name->name);
	if (!result && name->shares)
		result = v->function_attribute(*function, KVI_CU_MAX_SHARED, KVI_SHARED_MOST);
	if (!result && v->function_load)
		result = v->function_load(*function);
	return result ? kvi_driver_fail(v, device->error, KVARC_IO, result, name->name) : KVARC_OK;
}

static kvarc_ret find_all(struct kvarc_device *device, struct kvi_module *kernels)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < kernels->n && !ret; i++)
		ret = find(device, kernels, &kernels->names[i], &kernels->functions[i]);
	return ret;
}

static kvarc_ret load_module(struct kvarc_device *device, const char *path, void **module)
{
	void *image = NULL;
	kvarc_ret ret = read_file(device, path, &image);
	if (!ret) {
		const int result = device->driver.module_load(module, image);
		ret = result ? fail_module(device, path, result) : KVARC_OK;
	}
	kvi_free(&device->alloc, image);
	return ret;
}

/* Loads the kernels of a file, unless *out has them already. */
static kvarc_ret load(struct kvarc_device *device, const char *path,
                      const struct kvi_kernel_name *names, size_t n, struct kvi_module **out)
{
	if (*out)
		return KVARC_OK;
	struct kvi_module *k = kvi_calloc(&device->alloc, 1, sizeof *k + n * sizeof(void *));
	if (!k)
		return kvi_fail_alloc(device->error, &device->alloc);
	k->names = names;
	k->n = n;
	kvarc_ret ret = load_module(device, path, &k->module);
	if (ret) {
		kvi_free(&device->alloc, k);
		return ret;
	}
	ret = find_all(device, k);
	if (ret)
		kvi_device_unload(device, k);
	else
		*out = k;
	return ret;
}
#define LOAD(device, file, installed, names, out) \
	load(device, (file) ? (file) : (installed), names, sizeof names / sizeof *names, out)

void kvi_device_unload(struct kvarc_device *device, struct kvi_module *kernels)
{
	if (kernels)
		device->driver.module_unload(kernels->module);
	kvi_free(&device->alloc, kernels);
}

kvarc_ret kvi_device_load(struct kvarc_device *device, struct kvi_module **out)
{
	if (out == &device->module)
		return LOAD(device, device->kernels_file, KVARC_KERNELS_FILE, decoders, out);
	if (out == &device->encoders)
		return LOAD(device, device->encoders_file, KVARC_ENCODERS_FILE, encoders, out);
	return LOAD(device, device->exact_file, KVARC_EXACT_FILE, exact, out);
}

/* ----- launches ------------------------------------------------ */

kvarc_ret kvi_device_launch(const struct kvarc_device *device, const struct kvi_module *kernels,
                            const struct kvi_launch *launch, void **arguments, void *stream)
{
	const struct kvi_driver *v = &device->driver;
	size_t i = 0;
	while (i < kernels->n && strcmp(kernels->names[i].name, launch->name))
		i++;
	if (i == kernels->n)
		return kvi_fail(device->error, KVARC_IO, "%s is not in the list of its module",
		                launch->name);
	const int result = v->launch(kernels->functions[i], launch->grid_x, launch->grid_y,
	                             launch->grid_z, launch->threads, 1, 1, launch->shared_bytes,
	                             stream, arguments, NULL);
	return result ? kvi_driver_fail(v, device->error, KVARC_IO, result, launch->name)
	              : KVARC_OK;
}
