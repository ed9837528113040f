/* SPDX-License-Identifier: BSD-3-Clause */
/* contact.c - the driver, times and JSON (contact.h) */
#include "contact.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct contact cu;

void contact_fail(const char *what, int code, const char *text)
{
	printf("\"failed\": \"%s: %d %s\"}\n", what, code, text);
	exit(3);
}

void contact_need(int result, const char *what)
{
	if (result)
		contact_fail(what, result, "of the driver");
}

/* A call of the driver; NULL: it has none. */
static void find(void *library, const char *name, void *member)
{
	void *p = dlsym(library, name);
	memcpy(member, &p, sizeof p);
}

void contact_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int (*init)(unsigned), (*retain)(void **, int), (*push)(void *),
		(*stream)(void **, unsigned);
	const struct {
		const char *name;
		void *member;
	} calls[] = {
		{ "cuInit", &init },
		{ "cuDevicePrimaryCtxRetain", &retain },
		{ "cuCtxPushCurrent_v2", &push },
		{ "cuStreamCreate", &stream },
		{ "cuStreamSynchronize", &cu.wait },
		{ "cuDeviceGet", &cu.get_device },
		{ "cuDeviceGetAttribute", &cu.attribute },
		{ "cuDeviceGetName", &cu.name },
		{ "cuDriverGetVersion", &cu.version },
		{ "cuModuleLoadData", &cu.load },
		{ "cuModuleGetFunction", &cu.function },
		{ "cuFuncSetAttribute", &cu.set_attribute },
		{ "cuLaunchKernel", &cu.launch },
		{ "cuMemAlloc_v2", &cu.alloc },
		{ "cuMemHostAlloc", &cu.host_alloc },
		{ "cuMemcpyHtoDAsync_v2", &cu.to_device },
		{ "cuMemcpyDtoHAsync_v2", &cu.to_host },
		{ "cuStreamBeginCapture_v2", &cu.capture_begin },
		{ "cuStreamEndCapture", &cu.capture_end },
		{ "cuGraphLaunch", &cu.graph_launch },
		{ "cuGraphInstantiateWithFlags", &cu.instantiate },
		{ "cuMemcpyDtoDAsync_v2", &cu.in_device },
		{ "cuModuleGetFunctionCount", &cu.count },
		{ "cuModuleEnumerateFunctions", &cu.functions },
		{ "cuFuncGetAttribute", &cu.function_attribute },
		{ "cuFuncGetName", &cu.function_name },
	};
	int device;
	if (!library)
		contact_fail("libcuda.so.1", 0, "is not there");
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		find(library, calls[i].name, calls[i].member);
	contact_need(init(0), "cuInit");
	contact_need(cu.get_device(&device, 0), "cuDeviceGet");
	contact_need(retain(&context, device), "cuDevicePrimaryCtxRetain");
	contact_need(push(context), "cuCtxPushCurrent");
	contact_need(stream(&cu.stream, 1), "cuStreamCreate");
}

void contact_number(const char *name, double x)
{
	printf("\"%s\": %.6g, ", name, x);
	fflush(stdout);
}

void *contact_memory(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);
	if (!p)
		contact_fail("memory", 0, "is too small");
	return p;
}

double contact_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *x, const void *y)
{
	const double a = *(const double *)x, b = *(const double *)y;
	return (a > b) - (a < b);
}

double contact_timed(void (*call)(const void *), const void *opaque, uint32_t n)
{
	double seconds[99];
	for (uint32_t i = 0; i < n; i++) {
		contact_need(cu.wait(cu.stream), "waiting");
		const double begun = contact_now();
		call(opaque);
		contact_need(cu.wait(cu.stream), "waiting");
		seconds[i] = contact_now() - begun;
	}
	qsort(seconds, n, sizeof *seconds, compare);
	return seconds[n / 2];
}
