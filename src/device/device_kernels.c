/* SPDX-License-Identifier: BSD-3-Clause */
/* device_kernels.c - reads the file of the kernels, and loads it into a device */
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

kvarc_ret kvi_device_load_kernels(struct kvarc_device *d, const char *file)
{
	const char *path = file ? file : KVARC_KERNELS_FILE;
	void *image = NULL;
	kvarc_ret ret = read_file(d, path, &image);
	if (!ret) {
		const int result = d->driver.module_load(&d->module, image);
		if (result) {
			d->module = NULL;
			ret = fail_module(d, path, result);
		}
	}
	kvi_free(&d->alloc, image);
	return ret;
}
