# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/util/alloc.c src/util/alloc.h \
	src/util/bytes.c src/util/bytes.h \
	src/util/ckd.h src/util/fpmode.h \
	src/util/hash.c src/util/hash.h \
	src/util/pool.c src/util/pool.h \
	src/util/unroll.h
