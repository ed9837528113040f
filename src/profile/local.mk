# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/profile/expect.c src/profile/expect.h \
	src/profile/linear_model.c src/profile/linear_model.h \
	src/profile/linear_plan.c src/profile/linear_plan.h \
	src/profile/profile_io.c src/profile/profile_io.h \
	src/profile/profile_handle.c src/profile/profile_handle.h \
	src/profile/profile_merge.c \
	src/profile/profile_sizes.c
