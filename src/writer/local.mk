# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/writer/repeat.c src/writer/repeat.h \
	src/writer/writer_append.c \
	src/writer/writer_coded.c src/writer/writer_coded.h \
	src/writer/writer_crypt.c \
	src/writer/writer_encode.c \
	src/writer/writer_errors.c \
	src/writer/writer_frames.c \
	src/writer/writer_internal.h \
	src/writer/writer_model.c \
	src/writer/writer_parity.c \
	src/writer/writer_open.c \
	src/writer/writer_profile.c \
	src/writer/writer_references.c \
	src/writer/writer_resume.c \
	src/writer/writer_rewind.c \
	src/writer/writer_segment.c \
	src/writer/writer_stored.c \
	src/writer/writer_state.h
