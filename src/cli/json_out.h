/* SPDX-License-Identifier: BSD-3-Clause */
/* json_out.h - JSON strings, with escaping */
#ifndef KVARC_CLI_JSON_OUT_H
#define KVARC_CLI_JSON_OUT_H

#include <stdio.h>

/* Writes text as a JSON string to file; bytes that are not UTF-8 become U+FFFD. */
void json_quote(FILE *file, const char *text);

#endif
