/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_errors.c - failures of a writer that stay, and what it refuses */
#include "config.h"

#include <unistd.h>

#include "writer_errors.h"
#include "writer_state.h"

kvarc_ret kvi_writer_set_error(kvarc_writer *w, kvarc_ret ret)
{
	if (ret && !w->sticky)
		w->sticky = ret;
	return ret;
}

bool kvi_writer_refuses(kvarc_writer *w)
{
	if (w->process != getpid()) /* the parent process continues to write */
		w->sticky = kvi_fail(w->error, KVARC_PROG,
		                     "the writer belongs to the process that this one was forked "
		                     "from: open another one, on another file");
	return w->sticky != KVARC_OK;
}

const struct kvi_alloc *kvi_writer_alloc(const kvarc_writer *w)
{
	return &w->alloc;
}
