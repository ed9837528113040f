# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/stream/base.c \
	src/stream/copy.c src/stream/copy.h \
	src/stream/error.c src/stream/error.h \
	src/stream/feature_table.c src/stream/feature_table.h \
	src/stream/guide.c src/stream/guide.h \
	src/stream/guide_engine.c src/stream/guide_engine.h \
	src/stream/guide_open.c src/stream/guide_predicted.c \
	src/stream/guide_state.h \
	src/stream/input.c src/stream/input.h \
	src/stream/linear_plan.c src/stream/linear_plan.h \
	src/stream/oneshot.c \
	src/stream/params_store.c src/stream/params_store.h \
	src/stream/profile.c src/stream/profile_handle.h \
	src/stream/profile_sizes.c \
	src/stream/reader.c src/stream/reader_internal.h \
	src/stream/reader_state.h \
	src/stream/reader_decode.c src/stream/reader_decode.h \
	src/stream/reader_frames.c \
	src/stream/reader_jobs.c \
	src/stream/reader_profile.c \
	src/stream/reader_index.c \
	src/stream/reader_meta.c \
	src/stream/reader_range.c \
	src/stream/reader_repeat.c \
	src/stream/reader_seq.c \
	src/stream/reader_ids.c \
	src/stream/repeat.c src/stream/repeat.h \
	src/stream/salvage.c \
	src/stream/salvage_scan.c \
	src/stream/token_coder.c src/stream/token_coder.h \
	src/stream/verify.c \
	src/stream/view.c src/stream/view.h \
	src/stream/walk.c src/stream/walk.h \
	src/stream/writer.c src/stream/writer_internal.h \
	src/stream/writer_state.h \
	src/stream/writer_append.c \
	src/stream/writer_frames.c \
	src/stream/writer_profile.c \
	src/stream/writer_segment.c
