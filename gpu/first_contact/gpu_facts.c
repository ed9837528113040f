/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_facts.c - what a GPU says of itself and of the kernels, and how it computes
 *
 * gpu_facts query FATBIN...           the device; whether its driver loads the files, and what each
 *                                     kernel takes
 * gpu_facts primitives FATBIN         what kernels are made of, against the same on the host
 * gpu_facts model [MODEL ARCHIVE]...  predictions of the exact engine, against the library's
 * gpu_facts products FATBIN TOKENS [N]   times of its products and attention at the sizes of an 8B
 *                                     model; N: sizes are this much smaller
 *
 * Prints an object of JSON; exit status 1: something is wrong. KVARC_KERNELS, KVARC_EXACT: files of
 * kernels for `model`.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvarc/device.h>

#include "contact.h"
#include "exact_job.h"
#include "primitives.h"

enum { WARP = 32, SHARED_ALWAYS = 48 << 10, SHARED_MOST = 99 << 10 };

static void *file_bytes(const char *name)
{
	FILE *f = fopen(name, "rb");
	if (!f || fseek(f, 0, SEEK_END))
		contact_fail(name, 0, "cannot be read");
	const size_t n = (size_t)ftell(f);
	char *p = contact_memory(n + 1, 1);
	rewind(f);
	if (fread(p, 1, n, f) != n)
		contact_fail(name, 0, "cannot be read");
	fclose(f);
	return p;
}

static void *kernels_of(const char *name)
{
	void *module;
	contact_need(cu.load(&module, file_bytes(name)), name);
	return module;
}

static uint64_t device_memory(size_t bytes)
{
	uint64_t at = 0;
	contact_need(cu.alloc(&at, bytes), "memory of the device");
	return at;
}

/* ----- query ------------------------------------------------ */

/* Attributes of functions (cuda.h). */
enum { MOST_THREADS = 0, LOCAL_BYTES = 3, REGISTERS = 4, BINARY = 6 };

/* Kernels with memory of their own in DRAM, which the compiler did not report, are named. */
static bool query_functions(void *module)
{
	unsigned n = 0;
	int binary = 0, registers = 0, x = 0;
	bool bad = false;
	if (!cu.count || !cu.functions || cu.count(&n, module))
		return false; /* a driver older than CUDA 12.4, or the stand-in */
	void **f = contact_memory(n, sizeof *f);
	bad |= cu.functions(f, n, module) != 0;
	printf(", \"kernels\": %u, \"with_local_memory\": [", n);
	for (unsigned i = 0, named = 0; i < n && !bad; i++) {
		const char *name = "?";
		bad |= cu.function_attribute(&x, LOCAL_BYTES, f[i]) != 0;
		if (x && cu.function_name && !cu.function_name(&name, f[i]))
			printf("%s\"%s: %d\"", named++ ? ", " : "", name, x);
		bad |= cu.function_attribute(&x, BINARY, f[i]) != 0;
		binary = x > binary ? x : binary;
		bad |= cu.function_attribute(&x, REGISTERS, f[i]) != 0;
		registers = x > registers ? x : registers;
	}
	printf("], \"binary\": %d, \"registers\": %d", binary, registers);
	free(f);
	return bad;
}

static bool query(int n, char **files)
{
	static const struct {
		const char *name;
		int number;
	} attributes[] = {
		{ "multiprocessors", 16 },    { "major", 75 },      { "minor", 76 },
		{ "clock_khz", 13 },          { "memory_khz", 36 }, { "bus_bits", 37 },
		{ "l2_bytes", 38 },           { "ecc", 32 },        { "shared_most", 97 },
		{ "unified_addressing", 41 },
	};
	char name[256] = "";
	int device = 0, x = 0;
	bool bad = false;
	contact_need(cu.get_device(&device, 0), "the device");
	contact_need(cu.name(name, sizeof name, device), "its name");
	contact_need(cu.version(&x), "the version of the driver");
	printf("\"gpu\": \"%s\", \"driver_cuda\": %d, ", name, x);
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
		contact_need(cu.attribute(&x, attributes[i].number, device), attributes[i].name);
		contact_number(attributes[i].name, x);
	}
	void **images = contact_memory((size_t)n, sizeof *images);
	for (int i = 0; i < n; i++)
		images[i] = file_bytes(files[i]);
	printf("\"files\": [");
	for (int i = 0; i < n; i++) {
		const char *last = strrchr(files[i], '/');
		void *module;
		const double begun = contact_now();
		const int result = cu.load(&module, images[i]);
		printf("%s{\"file\": \"%s\", \"result\": %d, \"load_ms\": %.2f", i ? ", " : "",
		       last ? last + 1 : files[i], result, (contact_now() - begun) * 1e3);
		bad |= result || query_functions(module);
		printf("}");
		free(images[i]);
	}
	printf("], ");
	free(images);
	return bad;
}

/* ----- primitives ------------------------------------------------ */

static uint64_t random_state = 20261130;
static uint64_t next_random(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* A number, and often one with few bits or all of them; a subnormal one or a zero. */
static uint32_t input(bool is_float)
{
	const uint64_t r = next_random(), kind = r >> 60;
	uint32_t x = (uint32_t)r;
	if (kind == 0)
		x = r >> 59 & 1 ? 0 : ~0u;
	else if (kind < 6)
		x &= (uint32_t)(r >> 28) & (uint32_t)next_random();
	if (is_float && kind > 12)
		x &= 0x80ffffff;
	return is_float && (x & 0x7f800000) == 0x7f800000 ? 0x3f800000 : x;
}

static bool primitives(const char *file)
{
	enum { TRIALS = 20000, IN = PRIMITIVE_INPUTS * WARP, OUT = PRIMITIVE_RESULTS * WARP };
	uint32_t n = 5000, trials = TRIALS;
	uint32_t *in = contact_memory(TRIALS, IN * 4), *out = contact_memory(TRIALS, OUT * 4);
	uint32_t *expected = contact_memory(1, OUT * 4);
	uint64_t *bytes = contact_memory(n / 8 + 1, 8);
	const char *names[PRIMITIVE_RESULTS];
	unsigned long wrong[PRIMITIVE_RESULTS] = { 0 }, all = 0;
	void *f;
	for (size_t i = 0; i < (size_t)TRIALS * IN; i++)
		in[i] = input(i / WARP % PRIMITIVE_INPUTS >= PRIMITIVE_FLOATS);
	for (uint32_t i = 0; i <= n / 8; i++)
		bytes[i] = next_random();
	uint64_t at = device_memory((size_t)TRIALS * IN * 4), bytes_at = device_memory(n);
	uint64_t to = device_memory((size_t)TRIALS * OUT * 4);
	contact_need(cu.to_device(at, in, (size_t)TRIALS * IN * 4, cu.stream), "a copy");
	contact_need(cu.to_device(bytes_at, bytes, n, cu.stream), "a copy");
	contact_need(cu.function(&f, kernels_of(file), "kvi_contact_primitives"), "the kernel");
	void *arguments[] = { &at, &to, &bytes_at, &n, &trials };
	contact_need(cu.launch(f, TRIALS / 4, 1, 1, 128, 1, 1, 0, cu.stream, arguments, NULL),
	             "a launch");
	contact_need(cu.wait(cu.stream), "the kernel");
	contact_need(cu.to_host(out, to, (size_t)TRIALS * OUT * 4, cu.stream), "a copy");
	contact_need(cu.wait(cu.stream), "a copy");
	for (size_t i = 0; i < TRIALS; i++) {
		primitives_host(in + i * IN, expected, (const uint8_t *)bytes, n, names);
		for (uint32_t k = 0; k < OUT; k++)
			wrong[k / WARP] += expected[k] != out[i * OUT + k];
	}
	printf("\"trials\": %d, \"differences\": {", TRIALS);
	for (uint32_t i = 0; i < PRIMITIVE_RESULTS; i++)
		if (wrong[i])
			printf("%s\"%s (%u)\": %lu", all ? ", " : "", names[i], i, wrong[i]),
				all += wrong[i];
	printf("}, ");
	return all != 0;
}

/* ----- the exact engine ------------------------------------------------ */

static kvarc_error error;
static void need(kvarc_ret ret, const char *what)
{
	if (ret)
		contact_fail(what, (int)ret, error.text);
}

/* Loading a model compares what kernels predict of 16 tokens with the library's engine. */
static void load_model(kvarc_device *d, const char *file, const char *archive)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source;
	kvarc_predictor *predictor;
	kvarc_reader *r;
	kvarc_device_model *m;
	uint64_t bytes, at;
	o.common.error = &error;
	need(kvarc_predictor_open_model(&predictor, file, &o.common), file);
	o.predictor = predictor;
	need(kvarc_source_open_path(&source, archive, &o.common), archive);
	need(kvarc_reader_open(&r, &source, &o), archive);
	need(kvarc_device_model_open(&m, d, r, &bytes), archive);
	need(kvarc_device_alloc(d, bytes, &at), archive);
	need(kvarc_device_model_load(m, at, NULL), archive);
	kvarc_device_model_close(&m);
	kvarc_device_free(d, at);
	kvarc_reader_close(&r);
	kvarc_source_close(&source);
	kvarc_predictor_close(&predictor);
}

static bool models(int n, char **files)
{
	kvarc_device_options o = KVARC_DEVICE_OPTIONS_INIT;
	kvarc_device *d;
	o.common.error = &error;
	o.kernels = getenv("KVARC_KERNELS");
	o.exact = getenv("KVARC_EXACT");
	need(kvarc_device_open(&d, &o), "the device");
	for (int i = 0; i + 1 < n; i += 2)
		load_model(d, files[i], files[i + 1]);
	contact_number("models", n / 2);
	kvarc_device_close(&d);
	return false;
}

/* A launch that is timed. */
struct timed_launch {
	void *function, *job;
	uint32_t x, y, threads, shared;
};
static void launch(const void *opaque)
{
	const struct timed_launch *t = opaque;
	void *arguments[] = { t->job };
	contact_need(cu.launch(t->function, t->x, t->y, 1, t->threads, 1, 1, t->shared, cu.stream,
	                       arguments, NULL),
	             "a launch");
}
static double seconds_of(struct timed_launch *t, void *module, const char *name)
{
	contact_need(cu.function(&t->function, module, name), name);
	if (t->shared > SHARED_ALWAYS)
		contact_need(cu.set_attribute(t->function, 8, (int)t->shared), name);
	return contact_timed(launch, t, 5);
}

static uint32_t divided(uint32_t n, uint32_t by)
{
	return (n + by - 1) / by;
}

/* Operands of products and of attention: any integers, scales near 0.5. */
struct exact_operands {
	uint64_t a[2], w[2], scales, y;
};

/* Memory of the device with a pattern; floats: all numbers are between 0.5 and 1. */
static uint64_t filled(size_t bytes, bool floats)
{
	enum { PIECE = 1 << 20 };
	const uint64_t at = device_memory(bytes);
	uint32_t *p = contact_memory(PIECE, 4);
	for (uint32_t i = 0; i < PIECE; i++)
		p[i] = floats ? 0x3f000000 | (i * 2654435761u >> 9) : i * 2654435761u;
	for (size_t done = 0; done < bytes; done += PIECE * 4)
		contact_need(cu.to_device(at + done, p,
		                          bytes - done < PIECE * 4 ? bytes - done : PIECE * 4,
		                          cu.stream),
		             "a copy");
	contact_need(cu.wait(cu.stream), "a copy");
	free(p);
	return at;
}

static void time_products(void *module, const struct exact_operands *x, uint32_t tokens,
                          uint32_t smaller)
{
	static const struct {
		const char *kernel;
		uint32_t limbs, planes;
	} kernels[] = { { "kvi_gpu_product_w8a8", 1, 1 },
		        { "kvi_gpu_product_w8a15", 2, 1 },
		        { "kvi_gpu_product_w15a15", 2, 2 } };
	/* outputs and columns of a layer */
	static const uint32_t sizes[][2] = {
		{ 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 }, { 4096, 14336 }
	};
	for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
		const bool planes = kernels[k].planes == 2;
		const uint32_t group = planes ? 128 : 64, outputs = planes ? 64 : 128;
		double sum = 0, operations = 0;
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			const uint32_t n = sizes[i][0] / smaller, columns = sizes[i][1] / smaller;
			struct kvi_gpu_product p = { .a = { x->a[0],
				                            kernels[k].limbs == 2 ? x->a[1] : 0 },
				                     .w = { x->w[0], planes ? x->w[1] : 0 },
				                     .a_scale = x->scales,
				                     .w_scale = x->scales,
				                     .y = x->y,
				                     .rows = tokens,
				                     .outputs = n,
				                     .group = group,
				                     .groups = columns / group,
				                     .stride = columns,
				                     .y_stride = n };
			struct timed_launch t = {
				NULL, &p, divided(tokens, 128), divided(n, outputs), 256, 0
			};
			sum += seconds_of(&t, module, kernels[k].kernel);
			operations += 2.0 * tokens * n * columns * kernels[k].limbs *
			              kernels[k].planes;
		}
		printf("\"%s\": {\"int8_tops\": %.4g, \"us_a_token_32_layers\": %.4g}, ",
		       kernels[k].kernel, operations / sum / 1e12, sum * 32e6 / tokens);
	}
}

/* 32 heads of 128 channels over 8 heads of keys. */
static void time_attention(void *module, const struct exact_operands *x, uint32_t tokens)
{
	static const char *const kernels[] = { "kvi_gpu_attention_8", "kvi_gpu_attention_12",
		                               "kvi_gpu_attention_15" };
	const uint32_t bytes = kvi_gpu_attention_numbers(128) * WARP * 4;
	uint32_t warps = 4;
	while (warps > 1 && warps * bytes > SHARED_MOST)
		warps /= 2;
	for (uint32_t k = 0; k < 3; k++) {
		struct kvi_gpu_attention p = { .q = { x->a[0], k ? x->a[1] : 0 },
			                       .k = { x->w[0], k ? x->w[1] : 0 },
			                       .v = { x->w[0], k == 2 ? x->w[1] : 0 },
			                       .q_scale = x->scales,
			                       .k_scale = x->scales,
			                       .v_scale = x->scales,
			                       .o = x->y,
			                       .tokens = tokens,
			                       .heads = 32,
			                       .kv_heads = 8,
			                       .channels = 128,
			                       .stride = 128,
			                       .q_rows = divided(tokens, 32) * 32,
			                       .k_rows = divided(tokens, 256) * 256,
			                       .v_rows = 128,
			                       .o_stride = 4096,
			                       .twelve = k == 1,
			                       .largest = k ? 16256 : 127,
			                       .scale = 0.001F };
		struct timed_launch t = {
			NULL, &p,           divided(divided(tokens, KVI_GPU_QUERY_ROWS), warps),
			32,   warps * WARP, warps * bytes
		};
		const double seconds = seconds_of(&t, module, kernels[k]);
		printf("\"%s\": {\"us_a_token_32_layers\": %.4g}, ", kernels[k],
		       seconds * 32e6 / tokens);
	}
}

static bool products(const char *file, uint32_t tokens, uint32_t smaller)
{
	const size_t rows = divided(tokens, 256) * 256, columns = 14336;
	const size_t weights = 28672 * (size_t)4096, keys = rows * 1024;
	const size_t w = weights / smaller / smaller > keys ? weights / smaller / smaller : keys;
	const size_t scales = (rows > 28672 ? rows : 28672) * columns / 64;
	void *module = kernels_of(file);
	const struct exact_operands x = { { filled(rows * columns, false),
		                            filled(rows * columns, false) },
		                          { filled(w, false), filled(w, false) },
		                          filled(scales * 4, true),
		                          device_memory(rows * 28672 * 4) };
	contact_number("tokens", tokens);
	time_products(module, &x, tokens, smaller);
	time_attention(module, &x, tokens);
	return false;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	bool bad;
	printf("{");
	contact_open();
	if (!strcmp(what, "query"))
		bad = query(argc - 2, argv + 2);
	else if (!strcmp(what, "primitives"))
		bad = primitives(argv[2]);
	else if (!strcmp(what, "model"))
		bad = models(argc - 2, argv + 2);
	else if (!strcmp(what, "products") && argc > 3)
		bad = products(argv[2], (uint32_t)strtoul(argv[3], NULL, 10),
		               argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1);
	else
		return 2;
	printf("\"ok\": %s}\n", bad ? "false" : "true");
	return bad;
}
