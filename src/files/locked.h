/* SPDX-License-Identifier: BSD-3-Clause */
/* locked.h - a sink that several worker threads may write to */
#ifndef KVI_LOCKED_H
#define KVI_LOCKED_H

#include <pthread.h>

#include "kvarc.h"

/* Writes to `to` while it holds the lock, one thread at a time. */
struct kvi_locked {
	pthread_mutex_t *lock;
	const kvarc_sink *to;
};

/* A sink without flush that writes under the lock; locked must outlive it. */
kvarc_sink kvi_locked_sink(struct kvi_locked *locked);

#endif
