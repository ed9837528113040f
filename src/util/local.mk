# SPDX-License-Identifier: BSD-3-Clause
libkvicommon_la_SOURCES += \
	src/util/alloc.c src/util/alloc.h \
	src/util/arguments.c src/util/arguments.h \
	src/util/bytes.c src/util/bytes.h \
	src/util/ckd.h \
	src/util/error.c src/util/error.h \
	src/util/intervals.c src/util/intervals.h \
	src/util/list.c src/util/list.h \
	src/util/parallel.c src/util/parallel.h \
	src/util/pool.c src/util/pool.h \
	src/util/shared_library.c src/util/shared_library.h \
	src/util/source.c src/util/source.h \
	src/util/string_field.c src/util/string_field.h \
	src/util/unroll.h \
	src/util/view.c src/util/view.h

libkvi_la_SOURCES += \
	src/util/aead.c src/util/aead.h \
	src/util/dtype_names.c \
	src/util/fpmode.h \
	src/util/hash.c src/util/hash.h \
	src/util/libarchive.c src/util/libarchive.h \
	src/util/jansson_calls.c src/util/jansson_calls.h \
	src/util/key_hash.c src/util/key_hash.h \
	src/util/shared.h \
	src/util/version.c
