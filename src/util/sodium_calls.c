/* SPDX-License-Identifier: BSD-3-Clause */
/* sodium_calls.c - libsodium: linked, opened on the host at the first use, or left out */
#include "config.h"

#ifdef SODIUM_DLOPEN
#define KVI_LIBRARY_TABLE struct kvi_sodium
#endif
#include "sodium_calls.h"

#include "error.h"

#if !defined HAVE_SODIUM

const struct kvi_sodium *kvi_sodium(kvarc_error *error)
{
	(void)kvi_fail(error, KVARC_OPTIONS, "encrypted archives need " SODIUM_MISSING);
	return NULL;
}

#elif !defined SODIUM_DLOPEN

const struct kvi_sodium *kvi_sodium(kvarc_error *error)
{
	static const struct kvi_sodium linked = { 1 };
	if (sodium_init() >= 0)
		return &linked;
	(void)kvi_fail(error, KVARC_OPTIONS, "libsodium cannot be used on this host");
	return NULL;
}

#else

static struct kvi_sodium table;
static const struct kvi_library_call calls[] = { KVI_SODIUM_CALLS(KVI_LIBRARY_ENTRY) };

static bool begin(kvarc_error *error)
{
	if (table.sodium_init() >= 0)
		return true;
	(void)kvi_fail(error, KVARC_OPTIONS, "libsodium cannot be used on this host");
	return false;
}

const struct kvi_sodium *kvi_sodium(kvarc_error *error)
{
	static struct kvi_library library = {
		.file = SODIUM_FILE,
		.missing = SODIUM_MISSING,
		.oldest = "libsodium 1.0.18",
		.calls = calls,
		.n = sizeof calls / sizeof *calls,
		.table = &table,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	return kvi_library_ready(&library, begin, error) ? &table : NULL;
}

#endif
