/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stand_in_calls.cc - stands for NVIDIA's driver in tests, where there is no GPU: a mock, in whose
 * "device" memory is the host's and kernels are the real ones, run on the host (gpu/warp.h)
 *
 * It is no kinder than a driver. Work of a stream waits until a call waits for it, and streams know
 * nothing of each other but events. A copy from pinned memory (cuMemHostAlloc) reads it when its
 * turn comes; one from other memory waits for the stream and reads it at once. Limits of launches
 * hold. A stream that is captured takes launches of kernels that are loaded, and nothing else.
 *
 * The environment variable KVARC_STAND_IN has what is to go wrong: "no-gpu", "no-binary",
 * "other-image" or "newer-ptx" (modules do not load), "no-pinned", "no-memory" (copies to the
 * device fail), "little-memory" (those of more than 1 MiB do), "other-products" (of the exact
 * engine, by a bit), "no-launch", "no-fetch" (copies from it fail), "one-payload" (only one copy of
 * more than 4 KiB from it does not fail).
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "exact_job.h"
#include "stand_in_grid.h"

/* Results of the driver (cuda.h). */
enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_IMAGE = 200,
	NO_BINARY = 209,
	UNSUPPORTED_PTX = 222,
	NOT_FOUND = 500,
	NOT_READY = 600,
	LAUNCH_FAILED = 719,
	CAPTURE_UNSUPPORTED = 900,
	CAPTURE_INVALIDATED = 901
};

/* With one, blocks hand work memory on. */
#ifdef KVI_GPU_RACES
enum { MULTIPROCESSORS = 1 };
#else
enum { MULTIPROCESSORS = 132 };
#endif

static bool wanted(const char *fault)
{
	const char *x = getenv("KVARC_STAND_IN");
	return x && !strcmp(x, fault);
}

/* ----- modules ------------------------------------------------ */

/* Bytes of the parameters of a kernel, whose name begins so. */
struct parameters {
	const char *name;
	size_t bytes[3];
};
static const parameters all_parameters[] = {
	{ "kvi_gpu_decode", { sizeof(kvi_gpu_batch) } },
	{ "kvi_gpu_encode_chunks", { sizeof(kvi_gpu_batch) } },
	{ "kvi_gpu_collect", { sizeof(kvi_gpu_chunk) } },
	{ "kvi_gpu_quantise", { sizeof(kvi_gpu_quantise) } },
	{ "kvi_gpu_values", { sizeof(kvi_gpu_values) } },
	{ "kvi_gpu_product_", { sizeof(kvi_gpu_product) } },
	{ "kvi_gpu_embed", { sizeof(kvi_gpu_embed) } },
	{ "kvi_gpu_norm", { sizeof(kvi_gpu_norm) } },
	{ "kvi_gpu_rotate", { sizeof(kvi_gpu_rotate) } },
	{ "kvi_gpu_silu", { sizeof(kvi_gpu_rows) } },
	{ "kvi_gpu_gelu", { sizeof(kvi_gpu_rows) } },
	{ "kvi_gpu_add", { sizeof(kvi_gpu_rows) } },
	{ "kvi_gpu_attention_", { sizeof(kvi_gpu_attention) } },
};

static const parameters *find_parameters(const char *name)
{
	for (const parameters &p : all_parameters)
		if (!strncmp(name, p.name, strlen(p.name)))
			return &p;
	return nullptr;
}

/* The module of a kernel: that of the one that decodes, of those from kvi_gpu_encode_chunks on, of
 * the engine. */
static int family_of(const kernel *k)
{
	if (exact_kernel(k->name) == k)
		return 3;
	return k < find_kernel("kvi_gpu_encode_chunks") ? 1 : 2;
}

/* What every block may share, and what one may with the attribute on the GPU that has least. */
enum { SHARED_ALWAYS = 48 << 10, SHARED_MOST = 99 << 10, MAX_SHARED = 8 };
struct function {
	const kernel *k;
	const parameters *p;
	size_t shared_most;
	bool loaded;
};
/* A module has the kernels of the family that the first one asked of it has. */
struct module_of {
	int family;
	std::map<const kernel *, function> functions;
};

/* ----- streams ------------------------------------------------ */

typedef std::function<void()> work;
typedef std::vector<work> graph;
struct stream {
	std::deque<work> queue;
	uint64_t queued, done;
	bool made;     /* by cuStreamCreate: not the caller's */
	graph *record; /* of the capture; NULL: there is none */
};
struct event {
	stream *of;
	uint64_t number; /* work of the stream up to here */
};
static std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> locked;
static std::map<void *, stream> streams; /* of callers, with any handle */
static std::map<const void *, size_t> pinned;
static stream *captured; /* the stream that is; NULL: none */
static bool spoiled;     /* the capture had a call that it cannot take */

/* Contexts: one of the caller, one that is primary. How many are on the stack, and retained. */
static int a_context, primary_context, modules;
static int pushed, retained;
static uint64_t launches;
static uint64_t copied, waits; /* bytes to the device; for streams */
static uint64_t blocked;       /* waits that found work in a caller's stream */
static uint64_t lookups;       /* of functions, and settings of attributes */

static stream &stream_of(void *handle)
{
	return streams[handle];
}
static void queue(stream &s, work w)
{
	s.queue.push_back(std::move(w));
	s.queued++;
}
/* Does the work of a stream up to a number. */
static void finish(stream &s, uint64_t number)
{
	blocked += !s.made && s.done < number;
	while (s.done < number && !s.queue.empty()) {
		work w = std::move(s.queue.front());
		s.queue.pop_front();
		w();
		s.done++;
	}
}
static void finish_all()
{
	for (auto &s : streams)
		finish(s.second, s.second.queued);
}
static bool is_pinned(const void *p)
{
	auto x = pinned.upper_bound(p);
	return x != pinned.begin() && (const char *)p < (const char *)(--x)->first + x->second;
}
static void copy_pinned(void *to, const void *from, size_t bytes, const void *host)
{
	if (!is_pinned(host)) {
		fputs("stand-in: pinned memory was freed before its copy\n", stderr);
		abort();
	}
	memcpy(to, from, bytes);
}
/* Whether a call that a capture does not take comes during one. */
static bool spoils()
{
	spoiled = spoiled || captured;
	return captured;
}
/* A launch with copies of its arguments. */
static work launch_of(const function *f, grid g, void **arguments)
{
	std::vector<std::vector<char>> values;
	for (int i = 0; i < 3 && f->p->bytes[i]; i++)
		values.emplace_back((char *)arguments[i], (char *)arguments[i] + f->p->bytes[i]);
	return [k = f->k, g, values]() mutable {
		void *own[3] = {};
		for (size_t i = 0; i < values.size(); i++)
			own[i] = values[i].data();
		g.arguments = own;
		k->run(g);
	};
}

/* ----- the driver ------------------------------------------------ */
extern "C" {

int cuInit(unsigned)
{
	return wanted("no-gpu") ? NO_DEVICE : SUCCESS;
}
int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return SUCCESS;
}
int cuGetErrorName(int result, const char **name)
{
	*name = result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_STAND_IN";
	return SUCCESS;
}
int cuGetErrorString(int, const char **text)
{
	*text = "as the test wanted";
	return SUCCESS;
}
int cuDeviceGetCount(int *n)
{
	*n = 1;
	return SUCCESS;
}
int cuDeviceGet(int *device, int ordinal)
{
	*device = 7;
	return ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int bytes, int)
{
	snprintf(name, (size_t)bytes, "stand-in of a GPU");
	return SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, int)
{
	*bytes = (size_t)1 << 30;
	return SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int)
{
	*value = attribute == 75 ? 9 : attribute == 76 ? 0 : MULTIPROCESSORS;
	return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int)
{
	*context = &primary_context;
	retained++;
	return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int)
{
	retained--;
	return SUCCESS;
}
int cuCtxPushCurrent_v2(void *context)
{
	if (context != &primary_context && context != &a_context)
		return INVALID_DEVICE;
	pushed++;
	return SUCCESS;
}
int cuCtxPopCurrent_v2(void **context)
{
	*context = &primary_context;
	pushed--;
	return SUCCESS;
}
int cuCtxGetDevice(int *device)
{
	*device = 7;
	return pushed ? SUCCESS : INVALID_DEVICE;
}
int cuModuleLoadData(void **module, const void *)
{
	if (!pushed || spoils() || wanted("no-binary"))
		return pushed ? NO_BINARY : INVALID_DEVICE;
	if (wanted("other-image") || wanted("newer-ptx"))
		return wanted("other-image") ? INVALID_IMAGE : UNSUPPORTED_PTX;
	*module = new module_of();
	modules++;
	return SUCCESS;
}
int cuModuleUnload(void *module)
{
	delete (module_of *)module;
	modules--;
	return pushed ? SUCCESS : INVALID_DEVICE;
}
int cuModuleGetFunction(void **out, void *module, const char *name)
{
	module_of *m = (module_of *)module;
	const kernel *k = find_kernel(name);
	const parameters *p = find_parameters(name);
	lookups++;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	if (!k || !p || (m->family && m->family != family_of(k)))
		return NOT_FOUND;
	m->family = family_of(k);
	*out = &m->functions.insert({ k, { k, p, SHARED_ALWAYS, false } }).first->second;
	return SUCCESS;
}
int cuFuncSetAttribute(void *x, int attribute, int value)
{
	lookups++;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	if (attribute != MAX_SHARED || value < 0 || value > SHARED_MOST)
		return INVALID_VALUE;
	((function *)x)->shared_most = (size_t)value;
	((function *)x)->loaded = true;
	return SUCCESS;
}
int cuFuncLoad(void *x)
{
	lookups++;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	((function *)x)->loaded = true;
	return SUCCESS;
}
int cuLaunchKernel(void *x, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *handle,
                   void **arguments, void **)
{
	const locked l(lock);
	function *f = (function *)x;
	stream &s = stream_of(handle);
	if (!pushed || wanted("no-launch"))
		return LAUNCH_FAILED;
	if (!grid_x || grid_x > INT32_MAX || !grid_y || grid_y > UINT16_MAX || !grid_z ||
	    grid_z > UINT16_MAX || !block_x || block_x % 32 || block_x > 1024 || block_y != 1 ||
	    block_z != 1 || shared_bytes > f->shared_most)
		return INVALID_VALUE;
	if (captured && !f->loaded && spoils())
		return CAPTURE_UNSUPPORTED;
	f->loaded = true;
	launches++;
	work w = launch_of(f, { grid_x, grid_y, grid_z, block_x / 32, shared_bytes, nullptr },
	                   arguments);
	if (s.record)
		s.record->push_back(std::move(w));
	else
		queue(s, std::move(w));
	return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uint64_t address, const void *from, size_t bytes, void *handle)
{
	const locked l(lock);
	stream &s = stream_of(handle);
	void *to = (void *)(uintptr_t)address;
	if (!pushed || wanted("no-memory"))
		return OUT_OF_MEMORY;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	copied += bytes;
	if (is_pinned(from)) {
		queue(s, [=] { copy_pinned(to, from, bytes, from); });
		return SUCCESS;
	}
	finish(s, s.queued);
	const std::vector<char> staged((const char *)from, (const char *)from + bytes);
	queue(s, [=] { memcpy(to, staged.data(), bytes); });
	return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t address, size_t bytes, void *handle)
{
	const locked l(lock);
	static int payloads;
	stream &s = stream_of(handle);
	const void *from = (const void *)(uintptr_t)address;
	payloads = wanted("one-payload") ? payloads + (bytes > 4096) : 0;
	if (!pushed || wanted("no-fetch") || payloads > 1)
		return INVALID_DEVICE;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	if (is_pinned(to)) {
		queue(s, [=] { copy_pinned(to, from, bytes, to); });
		return SUCCESS;
	}
	finish(s, s.queued);
	memcpy(to, from, bytes);
	return SUCCESS;
}
int cuStreamSynchronize(void *handle)
{
	const locked l(lock);
	stream &s = stream_of(handle);
	waits++;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	finish(s, s.queued);
	return SUCCESS;
}
int cuStreamCreate(void **handle, unsigned flags)
{
	const locked l(lock);
	char *own = new char;
	if (flags != 1) /* others wait for the default stream */
		return INVALID_VALUE;
	stream_of(own).made = true;
	*handle = own;
	retained++;
	return SUCCESS;
}
int cuStreamDestroy_v2(void *handle)
{
	const locked l(lock);
	stream &s = stream_of(handle);
	finish(s, s.queued);
	delete (char *)handle;
	retained--;
	return SUCCESS; /* the stream stays, as events have it */
}
int cuEventCreate(void **e, unsigned)
{
	*e = new event();
	retained++;
	return SUCCESS;
}
int cuEventDestroy_v2(void *e)
{
	delete (event *)e;
	retained--;
	return SUCCESS;
}
int cuEventRecord(void *e, void *handle)
{
	const locked l(lock);
	stream &s = stream_of(handle);
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	*(event *)e = { &s, s.queued };
	return SUCCESS;
}
int cuEventQuery(void *x)
{
	const locked l(lock);
	const event *e = (const event *)x;
	return e->of && e->of->done < e->number ? NOT_READY : SUCCESS;
}
int cuEventSynchronize(void *x)
{
	const locked l(lock);
	const event *e = (const event *)x;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	if (e->of)
		finish(*e->of, e->number);
	return SUCCESS;
}
int cuStreamWaitEvent(void *handle, void *x, unsigned)
{
	const locked l(lock);
	const event e = *(const event *)x;
	if (spoils())
		return CAPTURE_UNSUPPORTED;
	if (e.of)
		queue(stream_of(handle), [=] { finish(*e.of, e.number); });
	return SUCCESS;
}
int cuStreamBeginCapture_v2(void *handle, int)
{
	const locked l(lock);
	captured = &stream_of(handle);
	captured->record = new graph();
	spoiled = false;
	return SUCCESS;
}
int cuStreamEndCapture(void *handle, void **g)
{
	const locked l(lock);
	stream &s = stream_of(handle);
	*g = s.record;
	s.record = nullptr;
	captured = nullptr;
	return spoiled ? CAPTURE_INVALIDATED : SUCCESS;
}
/* A graph can be launched as it is: cuGraphInstantiate is left out. */
int cuGraphLaunch(void *g, void *handle)
{
	const locked l(lock);
	for (const work &w : *(graph *)g)
		queue(stream_of(handle), w);
	return SUCCESS;
}
int cuGraphDestroy(void *g)
{
	delete (graph *)g;
	return SUCCESS;
}
int cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
	const locked l(lock);
	*p = wanted("no-pinned") || spoils() ? nullptr
	                                     : aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!*p)
		return OUT_OF_MEMORY;
	pinned[*p] = bytes;
	retained++;
	return SUCCESS;
}
int cuMemFreeHost(void *p)
{
	const locked l(lock);
	pinned.erase(p);
	free(p);
	retained--;
	return SUCCESS;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
	const bool none = wanted("no-memory") || spoils() ||
	                  (wanted("little-memory") && bytes > 1 << 20);
	void *p = none ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
	if (!p)
		return OUT_OF_MEMORY;
	memset(p, 0xa5, bytes);
	*address = (uint64_t)(uintptr_t)p;
	retained++;
	return SUCCESS;
}
int cuMemFree_v2(uint64_t address)
{
	const locked l(lock);
	finish_all();
	free((void *)(uintptr_t)address);
	retained--;
	return SUCCESS;
}

/* For tests: a context of the caller; how much is still held; since the last call bytes that were
 * copied to the device, waits for streams, those that found work in a caller's stream, functions
 * that were looked up or set. stand_in_settle does the work of all streams. */
void *stand_in_context(void)
{
	return &a_context;
}
void *stand_in_left(void)
{
	return (void *)(intptr_t)(pushed + retained + modules);
}
void *stand_in_copied(void)
{
	const uint64_t n = copied;
	copied = 0;
	return (void *)(uintptr_t)n;
}
void *stand_in_waits(void)
{
	const uint64_t n = waits;
	waits = 0;
	return (void *)(uintptr_t)n;
}
void *stand_in_launches(void)
{
	const uint64_t n = launches;
	launches = 0;
	return (void *)(uintptr_t)n;
}
void *stand_in_settle(void)
{
	const locked l(lock);
	finish_all();
	return nullptr;
}
void *stand_in_blocked(void)
{
	const uint64_t n = blocked;
	blocked = 0;
	return (void *)(uintptr_t)n;
}
void *stand_in_lookups(void)
{
	const uint64_t n = lookups;
	lookups = 0;
	return (void *)(uintptr_t)n;
}
}
