# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/kernels/cells.h \
	src/kernels/cells_parts.h \
	src/kernels/cells_scalar.c \
	src/kernels/context.c \
	src/kernels/escapes.h \
	src/kernels/feed.h \
	src/kernels/fits.h \
	src/kernels/fits_body.h \
	src/kernels/fits_scalar.c \
	src/kernels/grid_numbers.h \
	src/kernels/grid_scalar.c \
	src/kernels/kernel_sets.c \
	src/kernels/layers.h \
	src/kernels/layers_codes.h \
	src/kernels/layers_scalar.c \
	src/kernels/linear_formulas.h \
	src/kernels/range_coder.c src/kernels/range_coder.h \
	src/kernels/rans.h \
	src/kernels/rans_scalar.c \
	src/kernels/rans_tables.c \
	src/kernels/scalar.h \
	src/kernels/slots.h \
	src/kernels/slots_scalar.c

# Vector kernels: the flags of a set go to its files alone.
kernel_bodies = \
	src/kernels/context_body.h \
	src/kernels/escapes_body.h \
	src/kernels/grid_body.h \
	src/kernels/grid_spans_body.h \
	src/kernels/grid_price_body.h \
	src/kernels/layers_body.h \
	src/kernels/layers_shuffles.h \
	src/kernels/ops.h \
	src/kernels/rotated_tokens_body.h \
	src/kernels/rotation_body.h \
	src/kernels/slots_body.h \
	src/kernels/slot_formulas_body.h \
	src/kernels/slot_integers_body.h \
	src/kernels/slot_contexts_body.h \
	src/kernels/slot_pairs_body.h \
	src/kernels/slot_reading_body.h \
	src/kernels/step_body.h \
	src/kernels/sym_body.h
if SIMD_AVX2
noinst_LTLIBRARIES += libkvi_avx2.la
libkvi_avx2_la_SOURCES = $(kernel_bodies) \
	src/kernels/cells_avx2.c \
	src/kernels/cells_rotation_avx2.c \
	src/kernels/fits_avx2.c \
	src/kernels/kernels_avx2.c \
	src/kernels/layers_avx2.c \
	src/kernels/moves_avx2.c \
	src/kernels/ops_avx2.h \
	src/kernels/shuffles_avx2.h \
	src/kernels/word_shuffles.h \
	src/kernels/words_avx2.h
libkvi_avx2_la_CFLAGS = $(AM_CFLAGS) $(AVX2_CFLAGS)
libkvi_la_LIBADD += libkvi_avx2.la
endif
if SIMD_AVX512
noinst_LTLIBRARIES += libkvi_avx512.la
libkvi_avx512_la_SOURCES = $(kernel_bodies) \
	src/kernels/cells_rotation_avx512.c \
	src/kernels/cells_vbmi.c \
	src/kernels/grid_avx512_body.h \
	src/kernels/grid_pairs_body.h \
	src/kernels/grid_words_body.h \
	src/kernels/kernels_avx512.c \
	src/kernels/lanes_vbmi.h \
	src/kernels/layers_vbmi.c \
	src/kernels/ops_avx512.h
libkvi_avx512_la_CFLAGS = $(AM_CFLAGS) $(AVX512_CFLAGS)
libkvi_la_LIBADD += libkvi_avx512.la
endif
if SIMD_NEON
libkvi_la_SOURCES += $(kernel_bodies) \
	src/kernels/cells_neon.c \
	src/kernels/cells_rotation_neon.c \
	src/kernels/kernels_neon.c \
	src/kernels/lanes_neon.h \
	src/kernels/layers_neon.c \
	src/kernels/ops_neon.h \
	src/kernels/word_shuffles.h
endif
