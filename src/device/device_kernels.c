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
static kvarc_ret read_file(struct kvarc_device *d, const char *path, void **image)
{
	struct stat st;
	kvarc_ret ret = KVARC_OK;
	FILE *f = fopen(path, "rb");
	if (!f)
		return kvi_fail(d->error, KVARC_OPTIONS, "no kernels for GPUs: %s: %s", path,
		                strerror(errno));
	if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || st.st_size < 1 ||
	    st.st_size > KERNELS_MOST)
		ret = kvi_fail(d->error, KVARC_OPTIONS, "%s: not a file of kernels", path);
	if (!ret) {
		/* the driver looks for a zero behind PTX */
		*image = kvi_malloc(&d->alloc, (size_t)st.st_size + 1);
		if (!*image)
			ret = kvi_fail_alloc(d->error, &d->alloc);
	}
	if (!ret && fread(*image, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
		ret = kvi_fail(d->error, KVARC_IO, "%s: not read to its end", path);
	if (!ret)
		((char *)*image)[st.st_size] = 0;
	fclose(f);
	return ret;
}

static kvarc_ret fail_module(const struct kvarc_device *d, const char *path, int result)
{
	switch (result) {
	case KVI_CU_NO_BINARY:
	case KVI_CU_UNSUPPORTED_PTX:
		return kvi_fail(d->error, KVARC_OPTIONS,
		                "%s has no kernels for %s (compute capability %u.%u)", path,
		                d->info.name, d->info.major, d->info.minor);
	case KVI_CU_INVALID_IMAGE:
		return kvi_fail(d->error, KVARC_OPTIONS, "%s: not a file of kernels", path);
	default:
		return kvi_driver_fail(&d->driver, d->error, KVARC_IO, result, path);
	}
}

static kvarc_ret load(struct kvarc_device *d, const char *path, void **module)
{
	void *image = NULL;
	kvarc_ret ret = read_file(d, path, &image);
	if (!ret) {
		const int result = d->driver.module_load(module, image);
		if (result) {
			*module = NULL;
			ret = fail_module(d, path, result);
		}
	}
	kvi_free(&d->alloc, image);
	return ret;
}

kvarc_ret kvi_device_load_kernels(struct kvarc_device *d, const char *file)
{
	return load(d, file ? file : KVARC_KERNELS_FILE, &d->module);
}

kvarc_ret kvi_device_load_encoders(struct kvarc_device *d)
{
	if (d->encoders)
		return KVARC_OK;
	return load(d, d->encoders_file ? d->encoders_file : KVARC_ENCODERS_FILE, &d->encoders);
}

kvarc_ret kvi_device_load_exact(struct kvarc_device *d)
{
	if (d->exact)
		return KVARC_OK;
	return load(d, d->exact_file ? d->exact_file : KVARC_EXACT_FILE, &d->exact);
}

kvarc_ret kvi_device_launch(const struct kvarc_device *d, void *module, const struct kvi_launch *k,
                            void **arguments, void *stream)
{
	const struct kvi_driver *v = &d->driver;
	void *function;
	int result = v->module_function(&function, module, k->name);
	if (!result && k->shared_bytes > KVI_CU_SHARED_ALWAYS)
		result = v->function_attribute(function, KVI_CU_MAX_SHARED, (int)k->shared_bytes);
	if (!result)
		result = v->launch(function, k->grid_x, k->grid_y, k->grid_z, k->threads, 1, 1,
		                   k->shared_bytes, stream, arguments, NULL);
	return result ? kvi_driver_fail(v, d->error, KVARC_IO, result, k->name) : KVARC_OK;
}
