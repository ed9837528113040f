# SPDX-License-Identifier: BSD-3-Clause
libkvicommon_la_SOURCES += \
	src/format/chunk_header.c src/format/chunk_header.h \
	src/format/chunk_order.c src/format/chunk_order.h \
	src/format/geometry_check.c src/format/geometry_check.h \
	src/format/identity.c src/format/identity.h

libkvi_la_SOURCES += \
	src/format/chain_value.c src/format/chain_value.h \
	src/format/codec_ids.c src/format/codec_ids.h \
	src/format/commit.c src/format/commit.h \
	src/format/content_digest.c src/format/content_digest.h \
	src/format/crypt.c src/format/crypt.h \
	src/format/fork.c src/format/fork.h \
	src/format/frame.c src/format/frame.h \
	src/format/frame_content.c src/format/frame_content.h \
	src/format/frame_index.c src/format/frame_index.h \
	src/format/frame_input.c src/format/frame_input.h \
	src/format/frame_walk.c src/format/frame_walk.h \
	src/format/geometry_io.c \
	src/format/isal_calls.c src/format/isal_calls.h \
	src/format/levels.h \
	src/format/packed.c src/format/packed.h \
	src/format/parity.c src/format/parity.h \
	src/format/params_header.c src/format/params_header.h \
	src/format/predictor_frame.c src/format/predictor_frame.h \
	src/format/restore.c src/format/restore.h \
	src/format/read_ahead.c src/format/read_ahead.h \
	src/format/segment.c src/format/segment.h \
	src/format/segment_keys.c \
	src/format/storeref.c src/format/storeref.h \
	src/format/superblock.c src/format/superblock.h
