/* SPDX-License-Identifier: BSD-3-Clause */
/* commands.h - one function a verb; the exit status is in msg_status */
#ifndef KVARC_CLI_COMMANDS_H
#define KVARC_CLI_COMMANDS_H

struct options;

void cmd_pack(const struct options *o);
void cmd_unpack(const struct options *o);
void cmd_test(const struct options *o);
void cmd_list(const struct options *o);
void cmd_info(const struct options *o);
void cmd_cut(const struct options *o);
void cmd_train(const struct options *o);
void cmd_bench(const struct options *o);
void cmd_eval(const struct options *o);
void cmd_help(const struct options *o);

#endif
