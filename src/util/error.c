/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c - fills kvarc_error */
#include "error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "alloc.h"

static void fill(kvarc_error *e, kvarc_ret code, uint64_t offset, uint64_t frame,
                 const char *format, va_list args)
{
	e->code = code;
	e->offset = offset;
	e->frame = frame;
	vsnprintf(e->text, sizeof e->text, format, args);
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

kvarc_ret kvi_fail_alloc(kvarc_error *e, const struct kvi_alloc *alloc)
{
	kvarc_ret code = kvi_alloc_error(alloc);
	/* Rounded: the limit of an inner handle is the remainder of the outer one's. */
	uint64_t limit = alloc->limit + (1 << 19);
	bool mib = alloc->limit >= (uint64_t)1 << 19;
	if (code == KVARC_MEMLIMIT)
		return kvi_fail(e, code,
		                "more memory than the limit of %llu %s is needed: raise the limit",
		                (unsigned long long)(mib ? limit >> 20 : alloc->limit >> 10),
		                mib ? "MiB" : "KiB");
	return kvi_fail(e, code, "out of memory");
}

kvarc_ret kvi_fail_memory(kvarc_error *e, kvarc_ret ret, const struct kvi_alloc *alloc)
{
	if (ret == KVARC_MEM || ret == KVARC_MEMLIMIT)
		return kvi_fail_alloc(e, alloc);
	return ret;
}
