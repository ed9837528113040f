# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/writer/writer_segment.c src/writer/writer_segment.h \
	src/writer/writer_append.c src/writer/writer_append.h \
	src/writer/writer_coded.c src/writer/writer_coded.h \
	src/writer/writer_frames.c src/writer/writer_frames.h \
	src/writer/writer_open.c \
	src/writer/writer_predictors.c src/writer/writer_predictors.h \
	src/writer/writer_internal.h \
	src/writer/writer_state.h
