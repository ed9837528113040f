/* SPDX-License-Identifier: BSD-3-Clause */
/* event_report.c - prints what kernels have counted on the host */
#include "event_report.h"

#include <stdio.h>

#include "host_events.h"

void event_report(const char *name, const char *done, const struct event_totals *totals,
                  const uint64_t *events)
{
#define NAME(event) #event,
	static const char *const names[] = { KVI_GPU_EVENT_LIST(NAME) };
#undef NAME
	printf("%s %s chunks %llu elements %llu raw %llu payload %llu", name, done,
	       (unsigned long long)totals->chunks, (unsigned long long)totals->elements,
	       (unsigned long long)totals->raw_bytes, (unsigned long long)totals->payload_bytes);
	for (int i = 0; i < KVI_GPU_EVENTS; i++)
		printf(" %s %llu", names[i], (unsigned long long)events[i]);
	putchar('\n');
}
