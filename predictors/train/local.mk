# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/train/train.h \
	predictors/train/trainer.c predictors/train/add.c \
	predictors/train/layer.c predictors/train/layer.h \
	predictors/train/steps.c predictors/train/expected.c \
	predictors/train/predict.c predictors/train/predict.h \
	predictors/train/walk.c predictors/train/walk.h \
	predictors/train/blind.c predictors/train/identify.c \
	predictors/train/correct.c \
	predictors/train/made.c predictors/train/write.c \
	predictors/train/gram.c predictors/train/gram.h \
	predictors/train/dense.c predictors/train/dense.h \
	predictors/train/rows.c predictors/train/rows.h \
	predictors/train/basis.c predictors/train/basis.h \
	predictors/train/below.c predictors/train/below.h \
	predictors/train/weigh.c predictors/train/weigh.h \
	predictors/train/fit.c predictors/train/fit.h \
	predictors/train/table.c predictors/train/table.h \
	predictors/train/sample.c predictors/train/sample.h \
	predictors/train/price.c predictors/train/price_tokens.c \
	predictors/train/scales.c \
	predictors/train/run.c predictors/train/measure.c \
	predictors/train/in_file.c \
	predictors/train/kernels.c predictors/train/kernels.h \
	predictors/train/kernels_body.h

if SIMD_AVX2
libkvi_avx2_la_SOURCES += predictors/train/kernels_avx2.c
endif
if SIMD_AVX512
libkvi_avx512_la_SOURCES += predictors/train/kernels_avx512.c
endif
