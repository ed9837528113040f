/* SPDX-License-Identifier: BSD-3-Clause */
/* passphrase.h - a line from the terminal that is not shown */
#ifndef KVARC_CLI_PASSPHRASE_H
#define KVARC_CLI_PASSPHRASE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether there is a terminal to ask on, to which messages go, too. */
bool passphrase_can_ask(void);
/* Shows `what`, which ends with a blank, and reads a line without its end into a buffer. Echo comes
 * back also when a signal ends the command. Returns its bytes, 0 at the end of the input; it is
 * `size` when the line is longer than that. */
size_t passphrase_ask(const char *what, char *buf, size_t size);

#endif
