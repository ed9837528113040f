/* SPDX-License-Identifier: BSD-3-Clause */
/* driver.c - loads NVIDIA's driver and finds its calls */
#include "config.h"

#include "driver.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "util/error.h"
#include "util/shared_library.h"

/* The file's name is that of Linux, where libcuda.so is for linking alone. */
#define DRIVER_FILE "libcuda.so.1"

/* Entry of the table, with the name of the newest form that drivers since CUDA 11 have. */
#define CALL(name, member)                                \
	{                                                 \
		name, offsetof(struct kvi_driver, member) \
	}

static const struct kvi_library_call calls[] = {
	CALL("cuInit", init),
	CALL("cuDriverGetVersion", version),
	CALL("cuGetErrorName", error_name),
	CALL("cuGetErrorString", error_text),
	CALL("cuDeviceGetCount", device_count),
	CALL("cuDeviceGet", device_get),
	CALL("cuDeviceGetName", device_name),
	CALL("cuDeviceTotalMem_v2", device_memory),
	CALL("cuDeviceGetAttribute", device_attribute),
	CALL("cuDevicePrimaryCtxRetain", primary_retain),
	CALL("cuDevicePrimaryCtxRelease_v2", primary_release),
	CALL("cuCtxPushCurrent_v2", context_push),
	CALL("cuCtxPopCurrent_v2", context_pop),
	CALL("cuCtxGetDevice", context_device),
	CALL("cuModuleLoadData", module_load),
	CALL("cuModuleUnload", module_unload),
	CALL("cuModuleGetFunction", module_function),
	CALL("cuFuncSetAttribute", function_attribute),
	CALL("cuLaunchKernel", launch),
	CALL("cuMemcpyHtoDAsync_v2", copy_to_device),
	CALL("cuMemcpyDtoHAsync_v2", copy_to_host),
	CALL("cuStreamSynchronize", stream_wait),
	CALL("cuStreamCreate", stream_create),
	CALL("cuStreamDestroy_v2", stream_destroy),
	CALL("cuStreamWaitEvent", stream_wait_event),
	CALL("cuEventCreate", event_create),
	CALL("cuEventDestroy_v2", event_destroy),
	CALL("cuEventRecord", event_record),
	CALL("cuEventSynchronize", event_wait),
	CALL("cuMemHostAlloc", host_alloc),
	CALL("cuMemFreeHost", host_free),
	CALL("cuMemAlloc_v2", memory_alloc),
	CALL("cuMemFree_v2", memory_free),
};

/* Whether a result means that a kernel failed: all calls of its context then give it, for good. */
static bool is_for_good(int result)
{
	enum {
		ILLEGAL_ADDRESS = 700,
		TIMEOUT = 702,
		ASSERT = 710,
		STACK_ERROR = 714,
		FAILED = 719
	};
	return result == ILLEGAL_ADDRESS || result == TIMEOUT || result == ASSERT ||
	       (result >= STACK_ERROR && result <= FAILED);
}

kvarc_ret kvi_driver_fail(const struct kvi_driver *driver, kvarc_error *error, kvarc_ret code,
                          int result, const char *what)
{
	const char *name = NULL, *text = NULL;
	if (driver->error_name(result, &name) || !name)
		name = "an error that it does not name";
	if (driver->error_text(result, &text) || !text)
		text = "no text";
	return kvi_fail(error, result == KVI_CU_OUT_OF_MEMORY ? KVARC_MEM : code,
	                "%s: the NVIDIA driver says %s (%s)%s", what, name, text,
	                is_for_good(result)
	                        ? "; a kernel has failed: nothing works in this context any more"
	                        : "");
}

kvarc_ret kvi_driver_load(struct kvi_driver *driver, const char *file, kvarc_error *error)
{
	const char *missing;
	*driver = (struct kvi_driver){ 0 };
	if (!file)
		file = DRIVER_FILE;
	driver->library = kvi_library_open(file, calls, sizeof calls / sizeof *calls, driver,
	                                   &missing);
	if (!driver->library)
		return kvi_fail(error, KVARC_OPTIONS,
		                "no NVIDIA driver (%s); install one, or decode on the host",
		                dlerror());
	if (missing)
		return kvi_fail(error, KVARC_OPTIONS,
		                "the NVIDIA driver in %s has no %s; install a newer one", file,
		                missing);
	void *p = dlsym(driver->library, "cuFuncLoad");
	memcpy(&driver->function_load, &p, sizeof p);
	const int result = driver->init(0);
	if (result == KVI_CU_NO_DEVICE)
		return kvi_fail(error, KVARC_OPTIONS,
		                "the NVIDIA driver finds no GPU; decode on the host");
	return result ? kvi_driver_fail(driver, error, KVARC_IO, result, "cuInit") : KVARC_OK;
}

void kvi_driver_unload(struct kvi_driver *driver)
{
	if (driver->library)
		dlclose(driver->library);
	*driver = (struct kvi_driver){ 0 };
}
