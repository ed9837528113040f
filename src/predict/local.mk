# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/predict/feature_table.c src/predict/feature_table.h \
	src/predict/prediction.c src/predict/prediction.h \
	src/predict/prediction_open.c src/predict/prediction_open.h \
	src/predict/prediction_state.h \
	src/predict/token_coder.c src/predict/token_coder.h
