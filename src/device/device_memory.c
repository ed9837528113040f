/* SPDX-License-Identifier: BSD-3-Clause */
/* device_memory.c - memory of a device, and copying to and from it */
#include "config.h"

#include "device_state.h"

#include "util/error.h"

static kvarc_ret misused(const struct kvarc_device *device, const char *call)
{
	return kvi_fail(device ? device->error : NULL, KVARC_PROG, "%s: an argument is NULL, or 0",
	                call);
}

kvarc_ret kvarc_device_alloc(kvarc_device *d, uint64_t bytes, uint64_t *address)
{
	if (!d || !address || !bytes || bytes > SIZE_MAX)
		return misused(d, "kvarc_device_alloc");
	*address = 0;
	kvarc_ret ret = kvi_device_enter(d);
	if (ret)
		return ret;
	const int result = d->driver.memory_alloc(address, (size_t)bytes);
	if (result) {
		*address = 0;
		ret = kvi_driver_fail(&d->driver, d->error, KVARC_IO, result,
		                      "memory of the device");
	}
	kvi_device_leave(d);
	return ret;
}

void kvarc_device_free(kvarc_device *d, uint64_t address)
{
	if (!d || !address || kvi_device_enter(d))
		return;
	d->driver.memory_free(address);
	kvi_device_leave(d);
}

kvarc_ret kvarc_device_send(kvarc_device *d, uint64_t to, const void *from, uint64_t bytes,
                            void *stream)
{
	if (!d || !to || !from || bytes > SIZE_MAX)
		return misused(d, "kvarc_device_send");
	kvarc_ret ret = kvi_device_enter(d);
	if (ret)
		return ret;
	ret = kvi_device_copy(d, to, from, (size_t)bytes, stream);
	kvi_device_leave(d);
	return ret;
}

kvarc_ret kvarc_device_fetch(kvarc_device *d, void *to, uint64_t from, uint64_t bytes, void *stream)
{
	if (!d || !to || !from || bytes > SIZE_MAX)
		return misused(d, "kvarc_device_fetch");
	kvarc_ret ret = kvi_device_enter(d);
	if (ret)
		return ret;
	int result = d->driver.copy_to_host(to, from, (size_t)bytes, stream);
	if (!result)
		result = d->driver.stream_wait(stream);
	if (result)
		ret = kvi_driver_fail(&d->driver, d->error, KVARC_IO, result,
		                      "copying from the device");
	kvi_device_leave(d);
	return ret;
}
