/* SPDX-License-Identifier: BSD-3-Clause */
/* store_state.h - the inside of a store, for its own sources */
#ifndef KVI_STORE_STATE_H
#define KVI_STORE_STATE_H

#include "kvarc/store.h"
#include "backend.h"
#include "util/alloc.h"

/* A store. One thread uses it at a time. */
struct kvarc_store {
	struct kvi_alloc alloc;
	struct kvi_backend *backend;
};

#endif
