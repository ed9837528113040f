/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_errors.c - failures of a reader: those that stick, and those that are forgiven */
#include <stdarg.h>

#include "reader_errors.h"
#include "reader_state.h"

kvarc_ret kvi_reader_set_error(kvarc_reader *r, kvarc_ret ret)
{
	if (ret != KVARC_OK && ret != KVARC_END && ret != KVARC_MEMLIMIT && ret != KVARC_STORE &&
	    !r->sticky)
		r->sticky = ret;
	return ret;
}

void kvi_reader_forgive(kvarc_reader *r)
{
	if (r->sticky == KVARC_DATA)
		r->sticky = KVARC_OK;
	if (r->error)
		r->error->text[0] = '\0';
}

kvarc_ret kvi_reader_fail(kvarc_reader *r, kvarc_ret code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	kvi_vfail(r->error, code, format, args);
	va_end(args);
	return kvi_reader_set_error(r, code);
}
