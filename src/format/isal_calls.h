/* SPDX-License-Identifier: BSD-3-Clause */
/* isal_calls.h - the calls of ISA-L, linked or of the host's library, by their own names */
#ifndef KVI_ISAL_CALLS_H
#define KVI_ISAL_CALLS_H

#include <stdbool.h>

/* Whether the names below can be called, always the same answer; any thread. With
 * --with-isal=dlopen the first call opens the library. To be called before any other call. */
bool kvi_isal(void);

#ifdef HAVE_ISAL

#include <isa-l/erasure_code.h>

#ifdef ISAL_DLOPEN

/* Pointers to all that is used. */
struct kvi_isal_calls {
	__typeof__(&ec_encode_data_update) ec_encode_data_update;
	__typeof__(&ec_init_tables) ec_init_tables;
};
extern struct kvi_isal_calls kvi_isal_calls;

#ifndef KVI_LIBRARY_TABLE
#define ec_encode_data_update (kvi_isal_calls.ec_encode_data_update)
#define ec_init_tables (kvi_isal_calls.ec_init_tables)
#endif

#endif
#endif

#endif
