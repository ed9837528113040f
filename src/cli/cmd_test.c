/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_test.c - kvarc test: reads whole archives, and compares with a GPU */
#include "config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "damage_report.h"
#include "gpu.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "readers.h"
#include "report.h"
#include "units.h"
#include "watch.h"

/* ==== Test --device: decodes archives on a GPU, too ==== */

/* Work of a GPU. name: NULL, there is none. */
struct device_sum {
	const char *name;
	uint64_t chunks, host_chunks; /* decoded; of these by the host */
};

static struct gpu test_gpu;

/* The GPU of --device; true without one. false: a message was shown. */
static bool device_test_open(const struct options *options)
{
	return gpu_open(&test_gpu, &options->device, &options->work);
}

/* Closes it. */
static void device_test_close(void)
{
	gpu_close(&test_gpu);
}

/* Decodes all tracks of an archive on the GPU and compares the checks of their chunks. Without a
 * GPU it does nothing. error is that of r, and gets failures of the GPU, too. */
static kvarc_ret device_test_run(kvarc_reader *r, kvarc_error *error, struct device_sum *sum)
{
	kvarc_device_view *views; /* all zero: elements go nowhere */
	kvarc_device_plan_info info;
	kvarc_ret ret;

	*sum = (struct device_sum){ 0 };
	if (!test_gpu.d)
		return KVARC_OK;
	views = calloc(kvarc_reader_geometry(r)->n_tensors + 1, sizeof(*views));
	ret = views ? KVARC_OK : KVARC_MEM;
	sum->name = test_gpu.info.name;
	memset(error, 0, sizeof *error);
	for (uint32_t t = 0; t < kvarc_reader_geometry(r)->n_tracks && !ret; t++) {
		const uint64_t n = kvarc_reader_tokens(r, t);
		for (uint64_t at = 0, some; at < n && !ret; at += some) {
			some = n - at < GPU_TOKENS ? n - at : GPU_TOKENS;
			const kvarc_range range = {
				.track = t, .n_layers = UINT32_MAX, .t0 = at, .n = some
			};
			ret = gpu_read(&test_gpu, r, &range, views, &info);
			sum->chunks += info.chunks;
			sum->host_chunks += info.host_chunks;
		}
	}
	free(views);
	if (ret && test_gpu.error.code)
		*error = test_gpu.error;
	return ret;
}

/* ==== Kvarc test: decode everything, name what is damaged ==== */

/* Messages about what was found; a note if all is well. */
static void show(const struct report *test_report, struct input *in, kvarc_reader *r, kvarc_ret ret,
                 const kvarc_error *error, const kvarc_info *info, const struct damage_list *damage,
                 const struct device_sum *gpu)
{
	if (ret == KVARC_OK) {
		library_warn_state(in->name, info, library_tokens(r));
		if (info->state == KVARC_STATE_CLOSED && gpu->name)
			report_note(test_report, in->name,
			            "ok, {raw_bytes:B} in {chunks} chunks, {.rate:R}; also on "
			            "{device}, {host_chunks} of them by the host");
		else if (info->state == KVARC_STATE_CLOSED)
			report_note(test_report, in->name,
			            "ok, {raw_bytes:B} in {chunks} chunks, {.rate:R}");
	} else if (damage->n && !watch_input_changed(in, NULL, 0)) {
		damage_show(in->name, damage, kvarc_reader_geometry(r), true);
		damage_show_sum(in->name, damage, true,
		                library_has_parity(in)
		                        ? "'kvarc repair' may restore it: it has parity"
		                        : "'kvarc unpack --salvage' saves the rest");
	} else {
		library_error(in->name, ret, error, in, NULL);
	}
}

static void test_report(bool json, struct input *in, kvarc_reader *r, kvarc_ret ret,
                        const kvarc_error *error, double seconds, struct damage_list *damage,
                        const struct device_sum *gpu)
{
	static const kvarc_geometry none = { 0 };
	kvarc_info info = { .state = KVARC_STATE_UNKNOWN };
	const char *text = error->text[0] ? error->text : kvarc_strerror(ret);
	struct report x;
	uint64_t raw;

	if (r && kvarc_reader_get_info(r, &info) != KVARC_OK)
		info.state = KVARC_STATE_UNKNOWN;
	if (r && !damage_sum(damage, in->name, r))
		return;
	raw = info.raw_bytes + info.literal_bytes;
	report_start(&x, json);
	report_string(&x, "file", in->name);
	report_bool(&x, "ok", ret == KVARC_OK);
	report_string(&x, "state", library_state_name(info.state));
	report_string(&x, "error", ret == KVARC_OK ? NULL : text);
	report_u64(&x, "raw_bytes", raw);
	report_real(&x, ".rate", (double)raw / seconds, 0);
	report_u64(&x, "frames", info.frames);
	report_u64(&x, "chunks", info.chunks);
	report_u64(&x, "dropped_bytes", info.dropped_bytes);
	report_u64(&x, "tokens", damage->loss.tokens);
	if (gpu->name) {
		report_string(&x, "device", gpu->name);
		report_u64(&x, "device_chunks", gpu->chunks);
		report_u64(&x, "host_chunks", gpu->host_chunks);
	}
	damage_report(&x, damage, r ? kvarc_reader_geometry(r) : &none);
	report_end(&x);
	show(&x, in, r, ret, error, &info, damage, gpu);
}

/* The damage in a file that does not open may still be found. */
static kvarc_reader *open_any(const struct options *options, struct input *in, kvarc_error *error,
                              kvarc_ret *ret)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = input_source(in);
	kvarc_reader *r;

	library_common(&options->work, &ro.common, error);
	ro.checkpoint = options->reading.checkpoint;
	*ret = readers_open_with(in, &ro, &r);
	if (*ret == KVARC_DATA) {
		/* The first error alone is shown. */
		ro.common.error = NULL;
		ro.flags = KVARC_READ_SALVAGE;
		if (kvarc_reader_open(&r, &source, &ro) != KVARC_OK)
			return NULL;
	}
	return r;
}

static void test_one(const struct options *options, const char *file)
{
	struct damage_list damage = { 0 };
	struct device_sum gpu = { 0 };
	struct input in;
	kvarc_error error;
	kvarc_reader *r;
	kvarc_ret ret, verified = KVARC_OK;
	double start = units_now();

	if (!input_open(&in, file, true))
		return;
	progress_start(file, KVARC_UNKNOWN);
	r = open_any(options, &in, &error, &ret);
	if (r) {
		const uint64_t tokens = models_tokens(r, NULL);

		progress_tokens(tokens);
		progress_phase(tokens ? "running the model, testing" : "testing");
		verified = kvarc_reader_verify(r, damage_collect, &damage);
	}
	progress_stop();
	const double seconds = units_now() - start;
	if (ret == KVARC_OK)
		ret = verified;
	if (ret == KVARC_OK)
		ret = device_test_run(r, &error, &gpu);
	test_report(options->json, &in, r, ret, &error, seconds, &damage, &gpu);
	kvarc_reader_close(&r);
	damage_free(&damage);
	input_close(&in);
}

void cmd_test(const struct options *options)
{
	if (!paths_check_reading(options) || !device_test_open(options))
		return;
	for (size_t i = 0; i < options->n_files; i++)
		test_one(options, options->files[i]);
	device_test_close();
}
