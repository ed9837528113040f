/* SPDX-License-Identifier: BSD-3-Clause */
/* device_open.c - opening and closing a device */
#include "config.h"

#include "device_state.h"

#include <string.h>

#include "util/arguments.h"
#include "util/error.h"

/* ----- its context ------------------------------------------------ */

kvarc_ret kvi_device_enter(struct kvarc_device *device)
{
	const int result = device->driver.context_push(device->context);
	return result ? kvi_driver_fail(&device->driver, device->error, KVARC_IO, result,
	                                "the context of the device")
	              : KVARC_OK;
}

void kvi_device_leave(struct kvarc_device *device)
{
	void *popped;
	device->driver.context_pop(&popped);
}

/* The context of the caller, or the primary one of the GPU with the number that he gave. */
static kvarc_ret find_context(struct kvarc_device *device, const kvarc_device_options *options)
{
	const struct kvi_driver *v = &device->driver;
	int n = 0;
	if (options->context) {
		device->context = options->context;
		return KVARC_OK;
	}
	int result = v->device_count(&n);
	if (!result && options->ordinal >= (uint64_t)n)
		return kvi_fail(device->error, KVARC_OPTIONS,
		                "there is no GPU with the number %llu; the NVIDIA driver has %d",
		                (unsigned long long)options->ordinal, n);
	if (!result)
		result = v->device_get(&device->device, (int)options->ordinal);
	if (!result)
		result = v->primary_retain(&device->context, device->device);
	device->is_primary = !result;
	return result ? kvi_driver_fail(v, device->error, KVARC_IO, result, "opening the GPU")
	              : KVARC_OK;
}

/* ----- what it is ------------------------------------------------ */

/* The number of a device among those of the driver; 0 when it is none of them. */
static uint32_t ordinal_of(const struct kvi_driver *driver, int device)
{
	int n = 0, other;
	if (driver->device_count(&n))
		return 0;
	for (int i = 0; i < n; i++)
		if (!driver->device_get(&other, i) && other == device)
			return (uint32_t)i;
	return 0;
}

static void keep_printable(char *s)
{
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			*s = '?';
}

static kvarc_ret describe(struct kvarc_device *device)
{
	const struct kvi_driver *v = &device->driver;
	kvarc_device_info *info = &device->info;
	size_t memory = 0;
	int major = 0, minor = 0, multiprocessors = 0, version = 0;
	int result = v->context_device(&device->device);
	if (!result)
		result = v->device_name(info->name, (int)sizeof info->name, device->device);
	if (!result)
		result = v->device_memory(&memory, device->device);
	if (!result)
		result = v->device_attribute(&major, KVI_CU_MAJOR, device->device);
	if (!result)
		result = v->device_attribute(&minor, KVI_CU_MINOR, device->device);
	if (!result)
		result = v->device_attribute(&multiprocessors, KVI_CU_MULTIPROCESSORS,
		                             device->device);
	if (!result)
		result = v->version(&version);
	if (result)
		return kvi_driver_fail(v, device->error, KVARC_IO, result,
		                       "asking the GPU what it is");
	info->name[sizeof info->name - 1] = 0;
	keep_printable(info->name);
	info->memory = memory;
	info->ordinal = ordinal_of(v, device->device);
	info->major = (uint32_t)major;
	info->minor = (uint32_t)minor;
	info->multiprocessors = (uint32_t)multiprocessors;
	info->driver_version = (uint32_t)version;
	return KVARC_OK;
}

/* ----- buffers for copies ------------------------------------------------ */

static int open_buffers(const struct kvi_driver *driver, struct kvi_copies *copies, unsigned n,
                        size_t bytes)
{
	void *memory = NULL;
	int result = driver->host_alloc(&memory, n * bytes, 0);
	copies->memory = result ? NULL : memory;
	copies->bytes = bytes;
	for (; copies->n < n && !result; copies->n += !result)
		result = driver->event_create(&copies->done[copies->n], KVI_CU_EVENT_NO_TIMING);
	return result;
}

static void close_buffers(const struct kvi_driver *driver, struct kvi_copies *copies)
{
	while (copies->n)
		driver->event_destroy(copies->done[--copies->n]);
	if (copies->memory)
		driver->host_free(copies->memory);
}

/* Leaves what was opened to be closed, in any case. */
static kvarc_ret open_copies(struct kvarc_device *device)
{
	const struct kvi_driver *v = &device->driver;
	int result = open_buffers(v, &device->staging, KVI_STAGING_BUFFERS, KVI_STAGING_BYTES);
	if (!result)
		result = open_buffers(v, &device->ordered, KVI_ORDERED_BUFFERS, KVI_ORDERED_BYTES);
	if (!result)
		result = v->event_create(&device->staged, KVI_CU_EVENT_NO_TIMING);
	if (!result)
		result = v->stream_create(&device->stream, KVI_CU_STREAM_NON_BLOCKING);
	return result ? kvi_driver_fail(v, device->error, KVARC_IO, result,
	                                "pinned memory for copies to the device")
	              : KVARC_OK;
}

static void close_copies(struct kvarc_device *device)
{
	const struct kvi_driver *v = &device->driver;
	if (device->stream)
		v->stream_destroy(device->stream);
	if (device->staged)
		v->event_destroy(device->staged);
	close_buffers(v, &device->ordered);
	close_buffers(v, &device->staging);
}

/* ----- open and close ------------------------------------------------ */

static kvarc_ret start(struct kvarc_device *device, const kvarc_device_options *options)
{
	kvarc_ret ret = kvi_driver_load(&device->driver, options->driver, device->error);
	if (!ret)
		ret = find_context(device, options);
	if (!ret)
		ret = kvi_device_enter(device);
	if (ret)
		return ret;
	ret = describe(device);
	if (!ret)
		ret = kvi_device_load(device, &device->module);
	if (!ret)
		ret = open_copies(device);
	kvi_device_leave(device);
	return ret;
}

kvarc_ret kvarc_device_open(kvarc_device **d, const kvarc_device_options *options)
{
	static const kvarc_device_options defaults = KVARC_DEVICE_OPTIONS_INIT;
	const kvarc_device_options *o = options ? options : &defaults;
	if (!d)
		return kvi_fail(o->common.error, KVARC_PROG, "kvarc_device_open: d is NULL");
	*d = NULL;
	kvarc_ret ret = KVI_CHECK_RESERVED(o->common.error, "kvarc_device_open", "options", o);
	if (!ret)
		ret = kvi_handle_new(d, sizeof **d, offsetof(struct kvarc_device, alloc),
		                     &o->common, o->common.memlimit);
	if (ret)
		return ret;
	(*d)->common = o->common;
	(*d)->error = o->common.error;
	(*d)->kernels_file = o->kernels;
	(*d)->encoders_file = o->encoders;
	(*d)->exact_file = o->exact;
	ret = start(*d, o);
	if (ret)
		kvarc_device_close(d);
	return ret;
}

void kvarc_device_close(kvarc_device **d)
{
	if (!d || !*d)
		return;
	struct kvarc_device *x = *d;
	if (x->context && !kvi_device_enter(x)) {
		close_copies(x);
		kvi_device_unload(x, x->module);
		kvi_device_unload(x, x->encoders);
		kvi_device_unload(x, x->exact);
		kvi_device_leave(x);
	}
	if (x->is_primary)
		x->driver.primary_release(x->device);
	kvi_driver_unload(&x->driver);
	struct kvi_alloc alloc = x->alloc;
	kvi_free(&alloc, x);
	*d = NULL;
}

kvarc_ret kvarc_device_get_info(const kvarc_device *d, kvarc_device_info *info)
{
	if (!d || !info)
		return kvi_fail(d ? d->error : NULL, KVARC_PROG,
		                "kvarc_device_get_info: an argument is NULL");
	*info = d->info;
	return KVARC_OK;
}
