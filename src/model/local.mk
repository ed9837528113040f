# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/model/formats.c src/model/formats.h \
	src/model/rotate.c src/model/rotate.h \
	src/model/rotate_tables.c \
	src/model/rope_search.c src/model/rope_search.h \
	src/model/rope_turns.c src/model/rope_turns.h \
	src/model/linear.c src/model/linear.h \
	src/model/expect.c src/model/expect.h \
	src/model/profile.c src/model/profile.h \
	src/model/profile_internal.h \
	src/model/profile_check.c src/model/profile_file.c \
	src/model/profile_io.c src/model/profile_layout.c src/model/profile_merge.c
