/* SPDX-License-Identifier: BSD-3-Clause */
/* device_copy.c - copies to a device through pinned buffers, which take turns */
#include "config.h"

#include "device_state.h"

#include <string.h>

#include "util/error.h"

static kvarc_ret fail_copy(const struct kvarc_device *device, int result)
{
	return result ? kvi_driver_fail(&device->driver, device->error, KVARC_IO, result,
	                                "copying to the device")
	              : KVARC_OK;
}

/* ----- buffers ------------------------------------------------ */

/* The buffer whose turn it is, once the copy from it is done. */
static kvarc_ret take(const struct kvarc_device *device, const struct kvi_copies *copies,
                      uint8_t **buffer)
{
	*buffer = copies->memory + copies->next * copies->bytes;
	return fail_copy(device, device->driver.event_wait(copies->done[copies->next]));
}

/* Copies bytes of that buffer, and makes it the turn of the next one. */
static kvarc_ret send(const struct kvarc_device *device, struct kvi_copies *copies, uint64_t to,
                      size_t bytes, void *stream)
{
	const struct kvi_driver *v = &device->driver;
	const unsigned i = copies->next;
	int result = v->copy_to_device(to, copies->memory + i * copies->bytes, bytes, stream);
	if (!result)
		result = v->event_record(copies->done[i], stream);
	copies->next = (i + 1) % copies->n;
	return fail_copy(device, result);
}

static kvarc_ret put(const struct kvarc_device *device, struct kvi_copies *copies, uint64_t to,
                     const void *from, size_t bytes, void *stream)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t at = 0, n; at < bytes && !ret; at += n) {
		uint8_t *buffer;
		n = bytes - at < copies->bytes ? bytes - at : copies->bytes;
		ret = take(device, copies, &buffer);
		if (ret)
			return ret;
		memcpy(buffer, (const uint8_t *)from + at, n);
		ret = send(device, copies, to + at, n, stream);
	}
	return ret;
}

/* ----- copies ------------------------------------------------ */

kvarc_ret kvi_device_copy(struct kvarc_device *device, uint64_t to, const void *from, size_t bytes,
                          void *stream)
{
	return put(device, stream == device->stream ? &device->staging : &device->ordered, to, from,
	           bytes, stream);
}

kvarc_ret kvi_staging_take(struct kvarc_device *device, uint8_t **buffer)
{
	return take(device, &device->staging, buffer);
}

kvarc_ret kvi_staging_send(struct kvarc_device *device, uint64_t to, size_t bytes)
{
	return send(device, &device->staging, to, bytes, device->stream);
}
