/* SPDX-License-Identifier: BSD-3-Clause */
/* option_values.h - takes the values of options; the table of options names these functions */
#ifndef KVARC_CLI_OPTION_VALUES_H
#define KVARC_CLI_OPTION_VALUES_H

#include "options.h"

/*
 * Takes a value of the command line by the type of the option; value is NULL for an option
 * without one, and must stay as long as o. Returns 0, or -1 after a message that says what the
 * option wants.
 */
int options_set(struct options *o, const struct option_row *r, const char *value);

/* Options of type OPTION_CALL, each as option_set_fn. A declaration stands for all of them. */
option_set_fn options_set_quiet, options_set_verbose, options_set_level, options_set_threads,
	options_set_memory, options_set_isa, options_set_layers, options_set_tokens,
	options_set_track, options_add_max_error, options_add_identity, options_set_predict,
	options_set_dtype, options_set_max_kl, options_set_first_token, options_set_repeat,
	options_set_parity, options_set_budget, options_set_grace, options_add_rule,
	options_add_rules, options_set_device;

/* Checks which options may stand together (option_rules.c), before any file is opened.
 * Returns 0, or -1 after a message. */
int options_check_rules(const struct options *o);
/* The same for the levels that options need; after a level was chosen. */
int options_check_levels(const struct options *o);

#endif
