/* SPDX-License-Identifier: BSD-3-Clause */
/* json_out.c - JSON strings, with escaping */
#include "config.h"

#include "json_out.h"

/* Length of the UTF-8 sequence at p, 0 if it is none (RFC 3629). */
static unsigned utf8_length(const unsigned char *p)
{
	unsigned n = p[0] < 0x80   ? 1
	             : p[0] < 0xc2 ? 0
	             : p[0] < 0xe0 ? 2
	             : p[0] < 0xf0 ? 3
	             : p[0] < 0xf5 ? 4
	                           : 0;

	for (unsigned i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

void json_quote(FILE *file, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	putc('"', file);
	while (*p) {
		unsigned n = utf8_length(p);
		if (n == 0) {
			fputs("\\ufffd", file);
			n = 1;
		} else if (*p == '"' || *p == '\\') {
			fprintf(file, "\\%c", *p);
		} else if (*p < 0x20 || *p == 0x7f) {
			fprintf(file, "\\u%04x", *p);
		} else {
			fwrite(p, 1, n, file);
		}
		p += n;
	}
	putc('"', file);
}
