# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/io/file_io.c src/io/file_io.h \
	src/io/memory_io.c
