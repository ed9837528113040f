/* SPDX-License-Identifier: BSD-3-Clause */
/* svg.c - what pictures have in common */
#include "svg.h"

#include <stdlib.h>

#include "message.h"
#include "outfile.h"

void svg_text(FILE *f, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '&')
			fputs("&amp;", f);
		else if (c == '<')
			fputs("&lt;", f);
		else if (c == '>')
			fputs("&gt;", f);
		else if (c >= 0x20 && c != 0x7f)
			putc(c, f);
	}
}

static void save(const struct options *o, const char *text, size_t bytes)
{
	struct output out;
	kvarc_sink sink;

	if (!output_open(&out, o->plot, o->force ? OUTPUT_FORCE : 0, 0))
		return;
	sink = output_sink(&out);
	if (sink.write(sink.opaque, text, bytes, 0) != 0) {
		output_report(&out);
		output_abort(&out);
	} else {
		output_commit(&out);
	}
}

void svg_write(const struct options *o, void (*fn)(FILE *f, const void *opaque), const void *opaque)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);

	if (f)
		fn(f, opaque);
	if (!f || ferror(f) || fclose(f) != 0)
		msg_error(NULL, "out of memory");
	else
		save(o, text, bytes);
	free(text);
}
