# SPDX-License-Identifier: BSD-3-Clause
# The command sees the public header and two helpers of src/util that know
# nothing of the library; it is compiled and linked like any other user.
bin_PROGRAMS += kvarc
kvarc_SOURCES = \
	src/cli/main.c \
	src/cli/commands.h \
	src/cli/cmd_test.c \
	src/cli/gpu.c src/cli/gpu.h \
	src/cli/options.c src/cli/options.h \
	src/cli/option_table.c src/cli/option_table.h \
	src/cli/completions.c \
	src/cli/message.c src/cli/message.h \
	src/cli/models.c src/cli/models.h \
	src/cli/cmd_profiles.c \
	src/cli/cmd_weights.c \
	src/cli/cmd_session.c \
	src/cli/cmd_store.c \
	src/cli/server_slots.c src/cli/server_slots.h \
	src/cli/slot_version.c src/cli/slot_version.h \
	src/cli/session_files.c src/cli/session_files.h \
	src/cli/store_access.c src/cli/store_access.h \
	src/cli/weights.c src/cli/weights.h \
	src/cli/attach.c src/cli/attach.h \
	src/cli/units.c src/cli/units.h \
	src/cli/report.c src/cli/report.h \
	src/cli/signals.c src/cli/signals.h \
	src/cli/identities.c src/cli/identities.h \
	src/cli/infile.c src/cli/infile.h \
	src/cli/watch.c src/cli/watch.h \
	src/cli/cmd_watch.c \
	src/cli/walk.c src/cli/walk.h \
	src/cli/times.c src/cli/times.h \
	src/cli/ids.c src/cli/ids.h \
	src/cli/outfile.c src/cli/outfile.h \
	src/cli/paths.c src/cli/paths.h \
	src/cli/cmd_unpack.c \
	src/cli/library.c src/cli/library.h \
	src/cli/readers.c src/cli/readers.h \
	src/cli/profiles.c src/cli/profiles.h \
	src/cli/installed.c src/cli/installed.h \
	src/cli/ranges.c src/cli/ranges.h \
	src/cli/score_files.c src/cli/score_files.h \
	src/cli/damage_report.c src/cli/damage_report.h \
	src/cli/shape.c src/cli/shape.h \
	src/cli/describe.c src/cli/describe.h \
	src/cli/checkpoint_fields.c src/cli/checkpoint_fields.h \
	src/cli/plot.c src/cli/plot.h \
	src/cli/plot_stages.c \
	src/cli/chart.c src/cli/chart.h \
	src/cli/stages.c src/cli/stages.h \
	src/cli/cmd_pack.c \
	src/cli/cmd_list.c \
	src/cli/cmd_info.c \
	src/cli/cmd_cut.c \
	src/cli/cmd_append.c \
	src/cli/cmd_log.c \
	src/cli/cmd_compact.c \
	src/cli/lock.c src/cli/lock.h \
	src/cli/cmd_keygen.c \
	src/cli/cmd_repair.c \
	src/cli/secrets.c src/cli/secrets.h \
	src/cli/cmd_train.c \
	src/cli/cmd_bench.c \
	src/cli/engine_files.c src/cli/engine_files.h \
	src/cli/cmd_eval.c \
	src/cli/tiers.c src/cli/tiers.h \
	src/cli/checked.h
# Its own flags give its objects their own names.
kvarc_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src/cli \
	-DKVARC_PROFILE_DIR='"$(pkgdatadir)/profiles"'
# The libraries are in it: none of them has to be found, and it starts at once.
kvarc_LDADD = libkvidevice.la libkvistore.la libkvitools.la libkvi.la -lm
