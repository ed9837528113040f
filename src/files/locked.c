/* SPDX-License-Identifier: BSD-3-Clause */
/* locked.c - a sink that several worker threads may write to */
#include "locked.h"

static int locked_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct kvi_locked *l = opaque;
	pthread_mutex_lock(l->lock);
	int ret = l->to->write(l->to->opaque, buf, bytes, offset);
	pthread_mutex_unlock(l->lock);
	return ret;
}

kvarc_sink kvi_locked_sink(struct kvi_locked *locked)
{
	return (kvarc_sink){ .write = locked_write, .opaque = locked };
}
