/* SPDX-License-Identifier: BSD-3-Clause */
/* host_events.h - what kernels count when they run on a host, for cost_model.py */
#ifndef KVI_GPU_HOST_EVENTS_H
#define KVI_GPU_HOST_EVENTS_H

/*
 * Events of a warp: a step of a stream (32 elements); a refill of its window of words; a further
 * step of the search for a symbol; a step with escapes; 32 entries of a table that a block makes
 * for itself; a block of four panels of features of a source, added to the sums of a panel; one of
 * earlier slots of the tensor itself; a slot to which those of its own panel are added; 32 bytes of
 * a payload, copied.
 */
#define KVI_GPU_EVENT_LIST(X) \
	X(step)               \
	X(refill)             \
	X(search)             \
	X(escape)             \
	X(table)              \
	X(source)             \
	X(own)                \
	X(near)               \
	X(copy)

/* Their numbers, in the order of the list, and how many there are. */
enum kvi_gpu_event {
#define KVI_GPU_EVENT(name) KVI_GPU_EVENT_##name,
	KVI_GPU_EVENT_LIST(KVI_GPU_EVENT)
#undef KVI_GPU_EVENT
		KVI_GPU_EVENTS
};

#endif
