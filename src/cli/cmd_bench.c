/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_bench.c - kvarc bench: speed and size by level, kernels and threads */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "bench_cache.h"
#include "bench_device.h"
#include "bench_link.h"
#include "commands.h"
#include "message.h"
#include "paths.h"
#include "models.h"
#include "profiles.h"
#include "report.h"
#include "shape.h"
#include "units.h"

static void report(const struct options *o, const char *file, const struct bench_cache *c,
                   const struct bench_run *run)
{
	double raw = (double)c->raw_bytes;
	struct report r;

	report_start(&r, o->json);
	report_string(&r, "file", file);
	if (run->tier)
		report_string(&r, "tier", run->tier->name);
	else
		report_u64(&r, "level", (uint64_t)run->level);
	report_string(&r, "isa", run->device ? run->device : kvarc_isa_name(run->isa_mask));
	report_u64(&r, "threads", run->threads);
	report_real(&r, "encode_bytes_per_second", raw / run->encode_seconds, 0);
	report_real(&r, "decode_bytes_per_second", raw / run->decode_seconds, 0);
	report_real(&r, "bits_per_element", shape_bits(c->archive_bytes, c->elements), 4);
	report_real(&r, ".ratio", raw / (double)c->archive_bytes, 0);
	report_u64(&r, "memory_bytes", run->memory_bytes);
	report_u64(&r, "raw_bytes", c->raw_bytes);
	report_u64(&r, "file_bytes", c->archive_bytes);
	report_u64(&r, "elements", c->elements);
	if (run->device) {
		report_u64(&r, "device_chunks", run->chunks);
		report_u64(&r, "host_chunks", run->host_chunks);
	}
	report_u64(&r, "repeat", o->repeat);
	report_print(&r, run->tier ? "{tier:-12}" : "{level:5}");
	report_print(&r, "  {isa:-7} {threads:7}  {encode_bytes_per_second:11R}  "
	                 "{decode_bytes_per_second:11R}  {bits_per_element:8.3f}  {.ratio:7.3fx}  "
	                 "{memory_bytes:9B}\n");
	if (run->device && run->host_chunks)
		report_print(&r,
		             "       of {device_chunks} chunks the host encoded {host_chunks}\n");
	report_end(&r);
}

static bool run_one(const struct options *o, const char *file, struct bench_cache *c,
                    struct bench_run run)
{
	for (unsigned i = 0; i < o->repeat; i++) {
		if (!bench_cache_run(c, o, file, &run))
			return false;
	}
	report(o, file, c, &run);
	msg_flush();
	return true;
}

static bool run_threads(const struct options *o, const char *file, struct bench_cache *c,
                        struct bench_run run)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	run.threads = o->threads_given ? o->threads : 1;
	if (!run_one(o, file, c, run))
		return false;
	run.threads = (unsigned)cores;
	return o->threads_given || cores < 2 || run_one(o, file, c, run);
}

static bool run_sets(const struct options *o, const char *file, struct bench_cache *c,
                     struct bench_run run)
{
	static const uint32_t sets[] = { KVARC_ISA_AVX512, KVARC_ISA_AVX2, KVARC_ISA_NEON,
		                         KVARC_ISA_SCALAR };
	uint32_t wanted = kvarc_isa_available();

	if (o->isa_mask)
		wanted &= o->isa_mask;
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		run.isa_mask = sets[i];
		if ((wanted & sets[i]) && !run_threads(o, file, c, run))
			return false;
	}
	return true;
}

/* Whether the level is measured, and then with which profile. */
static bool is_measured(const struct options *o, const struct bench_cache *c, int level,
                        struct bench_run *run)
{
	*run = (struct bench_run){ .level = level };
	if (level > 1)
		run->profile = profiles_fitting(level, c->geometry);
	if (o->level_given)
		return level == o->level;
	return level != LEVEL_PREDICTED && /* as the one below, a little slower */
	       (level <= 1 || run->profile) && (level < LEVEL_MODEL || models_given());
}

static bool run_levels(const struct options *o, const char *file, struct bench_cache *c)
{
	struct bench_run run;

	for (int level = 0; level <= KVARC_LEVEL_MAX; level++) {
		if (is_measured(o, c, level, &run) && !run_sets(o, file, c, run))
			return false;
	}
	return true;
}

/* All levels; those with a model are encoded by the host. */
static bool run_device(const struct options *o, const char *file, struct bench_cache *c,
                       struct gpu *gpu)
{
	char name[32];

	snprintf(name, sizeof(name), "cuda:%" PRIu64, o->device);
	for (int level = 0; level <= KVARC_LEVEL_MAX; level++) {
		struct bench_run run;

		if (!is_measured(o, c, level, &run))
			continue;
		run.device = name;
		run.threads = o->threads;
		for (unsigned i = 0; i < o->repeat; i++)
			if (!bench_device_run(c, o, file, gpu, &run))
				return false;
		report(o, file, c, &run);
		msg_flush();
	}
	return true;
}

/* As unpack does it: all kernels, the threads of the command line. */
static bool run_link(const struct options *o, const char *file, struct bench_cache *c,
                     struct bench_link *link)
{
	struct bench_run run;

	for (int level = 0; level <= KVARC_LEVEL_MAX; level++) {
		if (!is_measured(o, c, level, &run))
			continue;
		run.isa_mask = o->isa_mask;
		run.threads = o->threads;
		for (unsigned i = 0; i < o->repeat; i++) {
			if (!bench_cache_run(c, o, file, &run))
				return false;
		}
		bench_link_add(link, c, &run);
	}
	bench_link_report(link, o, file, c);
	return true;
}

static bool run_tiers(const struct options *o, const char *file, struct bench_cache *c,
                      const struct tiers *tiers)
{
	for (size_t i = 0; i < tiers->n; i++) {
		const struct tier *t = &tiers->list[i];
		struct bench_run run = { .level = t->writer.level < 0 ? 0 : t->writer.level,
			                 .profile = t->writer.profile,
			                 .tier = t };
		if (!run_sets(o, file, c, run))
			return false;
	}
	return true;
}

static void print_title(const char *file, const struct bench_cache *c, const struct options *o)
{
	char size[32];

	units_bytes(size, sizeof(size), c->raw_bytes);
	msg_put_safe(stdout, msg_name(file));
	printf(": %s of tensors, in memory, fastest of %u\n", size, o->repeat);
	printf("%*s  %-7s %7s  %11s  %11s  %8s  %7s  %9s\n", o->tiers.n ? -12 : 5,
	       o->tiers.n ? "tier" : "level", "kernels", "threads", "encode", "decode", "bits/el.",
	       "ratio", "memory");
}

void cmd_bench(const struct options *o)
{
	struct tiers tiers = { 0 };
	struct bench_link link;
	struct gpu gpu;

	if (!paths_check_reading(o) || !profiles_check_level(o, false))
		return;
	if (!bench_link_open(&link, o))
		return;
	if (!tiers_parse(&tiers, o) || !gpu_open(&gpu, o)) {
		tiers_free(&tiers);
		return;
	}
	for (size_t i = 0; i < o->n_files; i++) {
		struct bench_cache c;

		if (!bench_cache_load(&c, o, o->files[i]))
			continue;
		if (!o->json && !o->link)
			print_title(o->files[i], &c, o);
		if (o->link)
			run_link(o, o->files[i], &c, &link);
		else if (tiers.n)
			run_tiers(o, o->files[i], &c, &tiers);
		else if (run_levels(o, o->files[i], &c) && gpu.d)
			run_device(o, o->files[i], &c, &gpu);
		bench_cache_free(&c);
	}
	gpu_close(&gpu);
	tiers_free(&tiers);
}
