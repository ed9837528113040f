# SPDX-License-Identifier: BSD-3-Clause
libkvicommon_la_SOURCES += \
	predictors/exact/level.c \
	predictors/exact/round.c predictors/exact/round.h

libkvi_la_SOURCES += \
	predictors/exact/attention.c predictors/exact/attention_rows.h \
	predictors/exact/elementwise.c predictors/exact/elementwise.h \
	predictors/exact/elementwise_body.h \
	predictors/exact/engine.c predictors/exact/engine.h \
	predictors/exact/engine_internal.h \
	predictors/exact/float8.c predictors/exact/float8.h \
	predictors/exact/float8_body.h \
	predictors/exact/fma.h \
	predictors/exact/head.c predictors/exact/head.h \
	predictors/exact/matmul.h \
	predictors/exact/matmul_body.h \
	predictors/exact/matmul_scalar.c \
	predictors/exact/matmul_sets.c \
	predictors/exact/matmul_tile.h \
	predictors/exact/matmul_x86.h \
	predictors/exact/operand.c \
	predictors/exact/product.c \
	predictors/exact/quantise.h \
	predictors/exact/quantise_body.h \
	predictors/exact/run_begin.c \
	predictors/exact/run_cache.c \
	predictors/exact/run_layers.c \
	predictors/exact/run_through.c \
	predictors/exact/run_state.h \
	predictors/exact/self_test.c predictors/exact/self_test.h \
	predictors/exact/shapes.c \
	predictors/exact/tensor_parts.c predictors/exact/tensor_parts.h \
	predictors/exact/words.c predictors/exact/words.h

if SIMD_AVX2
libkvi_avx2_la_SOURCES += \
	predictors/exact/elementwise_avx2.c \
	predictors/exact/matmul_avx2.c
endif
if SIMD_AVX512
libkvi_avx512_la_SOURCES += \
	predictors/exact/attention_avx512vnni.c \
	predictors/exact/elementwise_avx512.c \
	predictors/exact/matmul_avx512.c predictors/exact/matmul_avx512.h \
	predictors/exact/matmul_avx512vnni.c
endif
if SIMD_NEON
libkvi_la_SOURCES += \
	predictors/exact/matmul_neon.c predictors/exact/matmul_neon.h
endif
if SIMD_NEONDOT
noinst_LTLIBRARIES += libkvi_neondot.la
libkvi_neondot_la_SOURCES = \
	predictors/exact/matmul_neondot.c
libkvi_neondot_la_CFLAGS = $(AM_CFLAGS) $(NEONDOT_CFLAGS)
libkvi_la_LIBADD += libkvi_neondot.la
endif
