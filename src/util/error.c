/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c - fills kvarc_error */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "alloc.h"

/* Arguments may point into *e. */
static void fill(kvarc_error *e, kvarc_ret code, uint64_t offset, uint64_t frame,
                 const char *format, va_list args)
{
	kvarc_error new = { .code = code,
		            .offset = offset,
		            .frame = frame,
		            .tokens = KVARC_UNKNOWN,
		            .track = UINT32_MAX,
		            .layer = UINT32_MAX };
	vsnprintf(new.text, sizeof new.text, format, args);
	*e = new;
}

kvarc_ret kvi_fail(kvarc_error *e, kvarc_ret code, const char *format, ...)
{
	va_list args;
	if (!e)
		return code;
	va_start(args, format);
	fill(e, code, KVARC_UNKNOWN, KVARC_UNKNOWN, format, args);
	va_end(args);
	return code;
}

kvarc_ret kvi_fail_at(kvarc_error *e, kvarc_ret code, uint64_t offset, uint64_t frame,
                      const char *format, ...)
{
	va_list args;
	if (!e)
		return code;
	va_start(args, format);
	fill(e, code, offset, frame, format, args);
	va_end(args);
	return code;
}

kvarc_ret kvi_vfail(kvarc_error *e, kvarc_ret code, const char *format, va_list args)
{
	if (e)
		fill(e, code, KVARC_UNKNOWN, KVARC_UNKNOWN, format, args);
	return code;
}

kvarc_ret kvi_reason(kvarc_error *e, kvarc_reason reason, kvarc_ret ret)
{
	if (e)
		e->reason = reason;
	return ret;
}

kvarc_ret kvi_fail_track(kvarc_error *e, uint32_t track, size_t n)
{
	kvi_fail(e, KVARC_GEOMETRY, "track %u does not exist: there are %zu", (unsigned)track, n);
	if (e)
		e->track = (uint32_t)n;
	return kvi_reason(e, KVARC_REASON_NO_TRACK, KVARC_GEOMETRY);
}

kvarc_ret kvi_fail_callback(kvarc_error *e, uint64_t offset, uint64_t frame, const char *format,
                            ...)
{
	const char *why = errno ? strerror(errno) : NULL;
	va_list args;
	if (!e)
		return KVARC_IO;
	va_start(args, format);
	fill(e, KVARC_IO, offset, frame, format, args);
	va_end(args);
	size_t n = strlen(e->text);
	if (why)
		snprintf(e->text + n, sizeof e->text - n, ": %s", why);
	return KVARC_IO;
}

kvarc_ret kvi_fail_alloc(kvarc_error *e, const struct kvi_alloc *alloc)
{
	kvarc_ret code = kvi_alloc_error(alloc);
	/* Rounded: the limit of an inner handle is the remainder of the outer one's. */
	uint64_t limit = alloc->limit + (1 << 19);
	bool mib = alloc->limit >= (uint64_t)1 << 19, kib = alloc->limit >= 1 << 10;
	if (code == KVARC_MEMLIMIT) {
		kvi_fail(e, code,
		         "more memory than the limit of %llu %s is needed: raise the limit",
		         (unsigned long long)(mib   ? limit >> 20
		                              : kib ? alloc->limit >> 10
		                                    : alloc->limit),
		         mib   ? "MiB"
		         : kib ? "KiB"
		               : "B");
		if (e)
			e->bytes_needed = atomic_load(&alloc->needed);
		return code;
	}
	return kvi_fail(e, code, "out of memory");
}

kvarc_ret kvi_fail_memory(kvarc_error *e, kvarc_ret ret, const struct kvi_alloc *alloc)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(e, alloc);
	return ret;
}
