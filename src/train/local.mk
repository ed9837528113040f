# SPDX-License-Identifier: BSD-3-Clause
libkvitools_la_SOURCES += \
	src/train/basis.c src/train/basis.h \
	src/train/dense.c src/train/dense.h \
	src/train/price_layers.c \
	src/train/price_tokens.c \
	src/train/train_context.c \
	src/train/trainer.c src/train/trainer.h \
	src/train/train_predict.c src/train/train_predict.h \
	src/train/train_correct.c \
	src/train/train_expected.c \
	src/train/train_fit.c src/train/train_fit.h \
	src/train/train_run.c src/train/train_run.h \
	src/train/train_kernels.c src/train/train_kernels.h \
	src/train/train_kernels_body.h \
	src/train/train_layer.c src/train/train_layer.h \
	src/train/train_measure.c \
	src/train/train_rows.c src/train/train_rows.h \
	src/train/train_sample.c src/train/train_sample.h \
	src/train/train_scales.c \
	src/train/train_steps.c \
	src/train/train_table.c src/train/train_table.h

if SIMD_AVX2
noinst_LTLIBRARIES += libkvitools_avx2.la
libkvitools_avx2_la_SOURCES = \
	src/train/train_kernels_avx2.c
libkvitools_avx2_la_CFLAGS = $(AM_CFLAGS) $(AVX2_CFLAGS)
libkvitools_la_LIBADD += libkvitools_avx2.la
endif
if SIMD_AVX512
noinst_LTLIBRARIES += libkvitools_avx512.la
libkvitools_avx512_la_SOURCES = \
	src/train/train_kernels_avx512.c
libkvitools_avx512_la_CFLAGS = $(AM_CFLAGS) $(AVX512_CFLAGS)
libkvitools_la_LIBADD += libkvitools_avx512.la
endif
