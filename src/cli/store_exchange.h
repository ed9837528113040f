/* SPDX-License-Identifier: BSD-3-Clause */
/* store_exchange.h - kvarc store export and import: sessions as a tar */
#ifndef KVARC_CLI_STORE_EXCHANGE_H
#define KVARC_CLI_STORE_EXCHANGE_H

#include "store_access.h"

/* Whether the command line says where to; false: a message was shown. */
bool store_export_check(const struct options *o);
/* The same, where from. */
bool store_import_check(const struct options *o);
/* The versions behind "export", "NAME[@N]", or all sessions; shows a report or messages. */
void store_export(const struct options *o, struct store_access *a);
/* The sessions behind "import", or all; shows a line for each version, or messages. */
void store_import(const struct options *o, struct store_access *a);

#endif
