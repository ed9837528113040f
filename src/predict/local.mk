# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/predict/feature_table.c src/predict/feature_table.h \
	src/predict/guide.c src/predict/guide.h \
	src/predict/guide_engine.c src/predict/guide_engine.h \
	src/predict/guide_open.c \
	src/predict/guide_predicted.c \
	src/predict/guide_state.h \
	src/predict/token_coder.c src/predict/token_coder.h
