# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/geometry/geometry.c src/geometry/geometry.h \
	src/geometry/geometry_io.c \
	src/geometry/names.c \
	src/geometry/order.c src/geometry/order.h
