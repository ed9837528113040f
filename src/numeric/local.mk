# SPDX-License-Identifier: BSD-3-Clause
libkvicommon_la_SOURCES += \
	src/numeric/formats.c src/numeric/formats.h \
	src/numeric/rope_angles.c src/numeric/rope_angles.h

libkvi_la_SOURCES += \
	src/numeric/rope_search.c src/numeric/rope_search.h \
	src/numeric/rope_rotations.c src/numeric/rope_rotations.h \
	src/numeric/rotate.c src/numeric/rotate.h
