/* SPDX-License-Identifier: BSD-3-Clause */
/* commands.h - one function a verb; the exit status is in msg_status */
#ifndef KVARC_CLI_COMMANDS_H
#define KVARC_CLI_COMMANDS_H

struct options;

/* Runs a verb on o->files: prints its report, shows messages, sets the exit status (message.h). */
typedef void verb_fn(const struct options *o);
verb_fn cmd_pack, cmd_unpack, cmd_test, cmd_list, cmd_info, cmd_cut, cmd_train, cmd_bench;
verb_fn cmd_append, cmd_log, cmd_compact, cmd_keygen, cmd_repair;
verb_fn cmd_eval, cmd_profiles, cmd_weights;
verb_fn cmd_session, cmd_store, cmd_watch;
/* Runs unpack with --to: writes tensors of options->files in another format. */
void cmd_unpack_to(const struct options *options);

#endif
