# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/model/formats.c src/model/formats.h \
	src/model/rotate.c src/model/rotate.h \
	src/model/rotate_tables.c \
	src/model/rope_search.c src/model/rope_search.h \
	src/model/profile.h src/model/linear.h
