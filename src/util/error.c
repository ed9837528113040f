/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c - fills kvarc_error */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "alloc.h"

/* Arguments may point into *error. */
static void fill(kvarc_error *error, kvarc_ret code, uint64_t offset, uint64_t frame,
                 const char *format, va_list args)
{
	kvarc_error new = { .code = code,
		            .offset = offset,
		            .frame = frame,
		            .tokens = KVARC_UNKNOWN,
		            .track = UINT32_MAX,
		            .layer = UINT32_MAX };
	vsnprintf(new.text, sizeof new.text, format, args);
	*error = new;
}

kvarc_ret kvi_fail(kvarc_error *error, kvarc_ret code, const char *format, ...)
{
	va_list args;
	if (!error)
		return code;
	va_start(args, format);
	fill(error, code, KVARC_UNKNOWN, KVARC_UNKNOWN, format, args);
	va_end(args);
	return code;
}

kvarc_ret kvi_fail_at(kvarc_error *error, kvarc_ret code, uint64_t offset, uint64_t frame,
                      const char *format, ...)
{
	va_list args;
	if (!error)
		return code;
	va_start(args, format);
	fill(error, code, offset, frame, format, args);
	va_end(args);
	return code;
}

kvarc_ret kvi_vfail(kvarc_error *error, kvarc_ret code, const char *format, va_list args)
{
	if (error)
		fill(error, code, KVARC_UNKNOWN, KVARC_UNKNOWN, format, args);
	return code;
}

kvarc_ret kvi_reason(kvarc_error *error, kvarc_reason reason, kvarc_ret ret)
{
	if (error)
		error->reason = reason;
	return ret;
}

kvarc_ret kvi_fail_track(kvarc_error *error, uint32_t track, size_t n)
{
	kvi_fail(error, KVARC_GEOMETRY, "track %u does not exist: there are %zu", (unsigned)track,
	         n);
	if (error)
		error->track = (uint32_t)n;
	return kvi_reason(error, KVARC_REASON_NO_TRACK, KVARC_GEOMETRY);
}

kvarc_ret kvi_fail_callback(kvarc_error *error, uint64_t offset, uint64_t frame, const char *format,
                            ...)
{
	const char *why = errno ? strerror(errno) : NULL;
	va_list args;
	if (!error)
		return KVARC_IO;
	va_start(args, format);
	fill(error, KVARC_IO, offset, frame, format, args);
	va_end(args);
	size_t n = strlen(error->text);
	if (why)
		snprintf(error->text + n, sizeof error->text - n, ": %s", why);
	return KVARC_IO;
}

kvarc_ret kvi_fail_alloc(kvarc_error *error, const struct kvi_alloc *alloc)
{
	kvarc_ret code = kvi_alloc_error(alloc);
	/* Rounded: the limit of an inner handle is the remainder of the outer one's. */
	uint64_t limit = alloc->limit + (1 << 19), needed = atomic_load(&alloc->needed);
	uint64_t least = needed >> 20;
	bool mib = alloc->limit >= (uint64_t)1 << 19, kib = alloc->limit >= 1 << 10;
	if (code == KVARC_MEMLIMIT) {
		least = least > limit >> 20 ? least : limit >> 20;
		kvi_fail(error, code,
		         "more memory than the limit of %llu %s is needed, %llu MiB or more: raise "
		         "the limit",
		         (unsigned long long)(mib   ? limit >> 20
		                              : kib ? alloc->limit >> 10
		                                    : alloc->limit),
		         mib   ? "MiB"
		         : kib ? "KiB"
		               : "B",
		         (unsigned long long)least + 1);
		if (error)
			error->bytes_needed = needed;
		return code;
	}
	return kvi_fail(error, code, "out of memory");
}

kvarc_ret kvi_fail_memory(kvarc_error *error, kvarc_ret ret, const struct kvi_alloc *alloc)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(error, alloc);
	return ret;
}
