# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/reader/envelope.c \
	src/reader/reader_chain.c src/reader/reader_chain.h \
	src/reader/reader_decode.c src/reader/reader_decode.h \
	src/reader/reader_errors.c src/reader/reader_errors.h \
	src/reader/reader_frames.c src/reader/reader_frames.h \
	src/reader/reader_ids.c src/reader/reader_ids.h \
	src/reader/reader_index.c src/reader/reader_index.h \
	src/reader/reader_jobs.c src/reader/reader_jobs.h \
	src/reader/reader_lists.c src/reader/reader_lists.h \
	src/reader/reader_load.c src/reader/reader_load.h \
	src/reader/reader_located.c src/reader/reader_located.h \
	src/reader/reader_losses.c src/reader/reader_losses.h \
	src/reader/reader_meta.c src/reader/reader_meta.h \
	src/reader/reader_open.c src/reader/reader_open.h \
	src/reader/reader_params.c src/reader/reader_params.h \
	src/reader/reader_prediction.c src/reader/reader_prediction.h \
	src/reader/reader_predictors.c src/reader/reader_predictors.h \
	src/reader/reader_range.c src/reader/reader_range.h \
	src/reader/reader_resume.c src/reader/reader_resume.h \
	src/reader/reader_salvage.c src/reader/reader_salvage.h \
	src/reader/reader_segments.c src/reader/reader_segments.h \
	src/reader/reader_seq.c src/reader/reader_seq.h \
	src/reader/verify.c \
	src/reader/reader_internal.h \
	src/reader/reader_state.h
