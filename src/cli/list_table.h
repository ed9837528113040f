/* SPDX-License-Identifier: BSD-3-Clause */
/* list_table.h - several archives as a table, a line for each one and a line of sums */
#ifndef KVARC_CLI_LIST_TABLE_H
#define KVARC_CLI_LIST_TABLE_H

#include "infile.h"
#include "kvarc.h"
#include "shape.h"

/* Prints the line of an archive, the first time below a heading. */
void list_table_add(const struct input *in, const struct shape *shape, kvarc_reader *r);
/* Prints the sums of all lines, if there are several. */
void list_table_end(void);

#endif
