# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/kernels/context.c \
	src/kernels/escapes.h \
	src/kernels/feed.h \
	src/kernels/grid_numbers.h \
	src/kernels/grid_scalar.c \
	src/kernels/kernel_sets.c \
	src/kernels/range_coder.c src/kernels/range_coder.h \
	src/kernels/rans.h \
	src/kernels/rans_scalar.c \
	src/kernels/rans_tables.c \
	src/kernels/scalar.h \
	src/kernels/slots.h \
	src/kernels/slots_scalar.c

# Vector kernels: the flags of a set go to its files alone.
if SIMD_AVX2
noinst_LTLIBRARIES += libkvi_avx2.la
libkvi_avx2_la_SOURCES = \
	src/kernels/avx2.h \
	src/kernels/context_avx2.c src/kernels/context_avx2.h \
	src/kernels/grid_avx2.c src/kernels/grid_avx2.h \
	src/kernels/moves_avx2.c \
	src/kernels/rans_avx2.c \
	src/kernels/slots_avx2.c \
	src/kernels/slots_vector.h
libkvi_avx2_la_CFLAGS = $(AM_CFLAGS) $(AVX2_CFLAGS)
libkvi_la_LIBADD += libkvi_avx2.la
endif
if SIMD_AVX512
noinst_LTLIBRARIES += libkvi_avx512.la
libkvi_avx512_la_SOURCES = \
	src/kernels/avx512.h \
	src/kernels/context_avx512.c src/kernels/context_avx512.h \
	src/kernels/exp_avx512.c \
	src/kernels/grid_avx512.c src/kernels/grid_avx512.h \
	src/kernels/rans_avx512.c \
	src/kernels/slots_avx512.c \
	src/kernels/slots_vector.h
libkvi_avx512_la_CFLAGS = $(AM_CFLAGS) $(AVX512_CFLAGS)
libkvi_la_LIBADD += libkvi_avx512.la
endif
if SIMD_NEON
libkvi_la_SOURCES += \
	src/kernels/grid_neon.c src/kernels/grid_neon.h \
	src/kernels/neon.h \
	src/kernels/rans_neon.c \
	src/kernels/slots_neon.c \
	src/kernels/slots_vector.h
endif
