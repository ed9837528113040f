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
	switch (result) {
	case KVI_CU_NO_BINARY:
	case KVI_CU_UNSUPPORTED_PTX:
		return kvi_fail(device->error, KVARC_OPTIONS,
		                "%s has no kernels for %s (compute capability %u.%u)", path,
		                device->info.name, device->info.major, device->info.minor);
	case KVI_CU_INVALID_IMAGE:
		return kvi_fail(device->error, KVARC_OPTIONS, "%s: not a file of kernels", path);
	default:
		return kvi_driver_fail(&device->driver, device->error, KVARC_IO, result, path);
	}
}

static kvarc_ret load(struct kvarc_device *device, const char *path, void **module)
{
	void *image = NULL;
	kvarc_ret ret = read_file(device, path, &image);
	if (!ret) {
		const int result = device->driver.module_load(module, image);
		if (result) {
			*module = NULL;
			ret = fail_module(device, path, result);
		}
	}
	kvi_free(&device->alloc, image);
	return ret;
}

kvarc_ret kvi_device_load_kernels(struct kvarc_device *device, const char *file)
{
	return load(device, file ? file : KVARC_KERNELS_FILE, &device->module);
}

kvarc_ret kvi_device_load_encoders(struct kvarc_device *device)
{
	if (device->encoders)
		return KVARC_OK;
	return load(device, device->encoders_file ? device->encoders_file : KVARC_ENCODERS_FILE,
	            &device->encoders);
}

kvarc_ret kvi_device_load_exact(struct kvarc_device *device)
{
	if (device->exact)
		return KVARC_OK;
	return load(device, device->exact_file ? device->exact_file : KVARC_EXACT_FILE,
	            &device->exact);
}

kvarc_ret kvi_device_launch(const struct kvarc_device *device, void *module,
                            const struct kvi_launch *launch, void **arguments, void *stream)
{
	const struct kvi_driver *v = &device->driver;
	void *function;
	int result = v->module_function(&function, module, launch->name);
	if (!result && launch->shared_bytes > KVI_CU_SHARED_ALWAYS)
		result = v->function_attribute(function, KVI_CU_MAX_SHARED,
		                               (int)launch->shared_bytes);
	if (!result)
		result = v->launch(function, launch->grid_x, launch->grid_y, launch->grid_z,
		                   launch->threads, 1, 1, launch->shared_bytes, stream, arguments,
		                   NULL);
	return result ? kvi_driver_fail(v, device->error, KVARC_IO, result, launch->name)
	              : KVARC_OK;
}
