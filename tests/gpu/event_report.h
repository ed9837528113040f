/* SPDX-License-Identifier: BSD-3-Clause */
/* event_report.h - prints what kernels have counted on the host, for gpu/cost_model.py */
#ifndef KVI_TEST_EVENT_REPORT_H
#define KVI_TEST_EVENT_REPORT_H

#include <stdint.h>

/* What kernels worked on: chunks, their elements, bytes of these and of payloads. */
struct event_totals {
	uint64_t chunks, elements, raw_bytes, payload_bytes;
};

/* Prints a line: a name, what was done ("decode", "encode"), pairs of words and numbers. events has
 * a number for each of KVI_GPU_EVENT_LIST. */
void event_report(const char *name, const char *done, const struct event_totals *totals,
                  const uint64_t *events);

#endif
