/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_work.c - work memory for streams of a chunk that are coded at the same time */
#include "stream_work.h"

enum { ALIGN = 16 };

bool kvi_stream_work_open(struct kvi_stream_work *work, struct kvi_coder *coder, unsigned streams,
                          size_t each)
{
	work->each = each + (-each & (ALIGN - 1));
	work->memory = kvi_scratch(coder, KVI_SCRATCH_WORK, streams * work->each);
	atomic_init(&work->busy, 0);
	return work->memory;
}

unsigned kvi_stream_work_take(struct kvi_stream_work *work, uint8_t **memory)
{
	unsigned busy = atomic_load(&work->busy), free;
	do
		free = (unsigned)__builtin_ctz(~busy);
	while (!atomic_compare_exchange_weak(&work->busy, &busy, busy | 1u << free));
	*memory = work->memory + free * work->each;
	return free;
}

void kvi_stream_work_give_back(struct kvi_stream_work *work, unsigned number)
{
	atomic_fetch_and(&work->busy, ~(1u << number));
}
