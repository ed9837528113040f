/* SPDX-License-Identifier: BSD-3-Clause */
/* device_trial.c - the device, the files and the reports of check_plans and check_outputs */
#include "device_trial.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

/* A file that the stand-in takes for kernels. */
#define KERNELS "Makefile"

struct device_trial trial;

void wrong(const char *text, ...)
{
	va_list args;
	va_start(args, text);
	fprintf(stderr, "%s: ", trial.file);
	vfprintf(stderr, text, args);
	fputc('\n', stderr);
	va_end(args);
	trial.wrong++;
}

uint32_t below(uint32_t n)
{
	return (uint32_t)(kvi_splitmix64(&trial.random) % n);
}

void *memory(uint64_t bytes)
{
	const size_t size = (size_t)(bytes / 256 + 1) * 256;
	void *p = aligned_alloc(256, size);
	if (!p)
		abort();
	memset(p, UNTOUCHED, size);
	return p;
}

uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void require(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, trial.error.text);
	exit(99);
}

static void open_profile(const char *name)
{
	const kvarc_common common = { .error = &trial.error };
	kvarc_source source;
	require(kvarc_source_open_path(&source, name, &common), name);
	require(kvarc_profile_open(&trial.profile, &source, &common), name);
	kvarc_source_close(&source);
}

/* A file that the environment names, or another one. */
static const char *given(const char *name, const char *other)
{
	const char *file = getenv(name);
	return file ? file : other;
}

void trial_open(const char *profile, int encodes)
{
	kvarc_device_options o = KVARC_DEVICE_OPTIONS_INIT;
	if (profile)
		open_profile(profile);
	o.common.error = &trial.error;
	o.driver = given("DRIVER", DRIVER);
	o.kernels = given("KVARC_KERNELS", KERNELS);
	o.encoders = encodes ? given("KVARC_ENCODERS", KERNELS) : NULL;
	o.exact = given("KVARC_EXACT", KERNELS);
	require(kvarc_device_open(&trial.d, &o), "the device");
}

void settle(void)
{
	uint32_t word;
	uint8_t *at = memory(sizeof word);
	require(kvarc_device_fetch(trial.d, &word, address(at), sizeof word, NULL), "waiting");
	free(at);
}

void trial_open_model(const char *path)
{
	const kvarc_common common = { .error = &trial.error, .threads = 1 };
	require(kvarc_predictor_open_model(&trial.predictor, path, &common), path);
}

static void check_file(const char *name, void (*check)(kvarc_reader *r, uint32_t track))
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	const kvarc_profile *profiles[1] = { trial.profile };
	kvarc_source source;
	kvarc_reader *r;
	trial.file = name;
	o.common.error = &trial.error;
	o.common.threads = 1;
	o.flags = trial.reader_flags;
	o.profiles = profiles;
	o.n_profiles = trial.profile != NULL;
	o.predictor = trial.predictor;
	if (kvarc_source_open_path(&source, name, &o.common)) {
		wrong("%s", trial.error.text);
		return;
	}
	const kvarc_ret ret = kvarc_reader_open(&r, &source, &o);
	for (uint32_t i = 0; !ret && i < kvarc_reader_geometry(r)->n_tracks; i++)
		check(r, i);
	kvarc_reader_close(&r);
	kvarc_source_close(&source);
}

void trial_files(char *const names[], size_t n, void (*check)(kvarc_reader *r, uint32_t track))
{
	for (size_t i = 0; i < n; i++)
		check_file(names[i], check);
}

int trial_close(void)
{
	kvarc_device_close(&trial.d);
	kvarc_profile_close(&trial.profile);
	kvarc_predictor_close(&trial.predictor);
	return trial.wrong != 0;
}
