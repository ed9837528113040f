/* SPDX-License-Identifier: BSD-3-Clause */
/* isal_calls.c - ISA-L: linked, opened on the host at the first use, or left out */
#include "config.h"

#ifdef ISAL_DLOPEN
#define KVI_LIBRARY_TABLE struct kvi_isal_calls
#endif
#include "isal_calls.h"

#ifdef ISAL_DLOPEN

#include "util/shared_library.h"

struct kvi_isal_calls kvi_isal_calls;
static bool is_there;

static void open_it(void)
{
	static const struct kvi_library_call calls[] = { KVI_LIBRARY_ENTRY(
		ec_encode_data_update) KVI_LIBRARY_ENTRY(ec_init_tables) };
	const char *missing;
	is_there = kvi_library_open(ISAL_FILE, calls, 2, &kvi_isal_calls, &missing) && !missing;
}

/* Parity works without it, so one attempt is enough. */
bool kvi_isal(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_it);
	return is_there;
}

#else

bool kvi_isal(void)
{
#ifdef HAVE_ISAL
	return true;
#else
	return false;
#endif
}

#endif
