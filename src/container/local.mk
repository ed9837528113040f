# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/container/chunk_header.c src/container/chunk_header.h \
	src/container/commit.c src/container/commit.h \
	src/container/frame.c src/container/frame.h \
	src/container/identity.c src/container/identity.h \
	src/container/index.c src/container/index.h \
	src/container/packed.c src/container/packed.h \
	src/container/params_header.c src/container/params_header.h \
	src/container/predictor.c src/container/predictor.h \
	src/container/restore.c src/container/restore.h \
	src/container/segment.c src/container/segment.h \
	src/container/string.c src/container/string.h \
	src/container/superblock.c src/container/superblock.h
