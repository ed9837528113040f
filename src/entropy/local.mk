# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/entropy/rans.h src/entropy/scalar.h src/entropy/feed.h \
	src/entropy/escapes.h src/entropy/grid_numbers.h \
	src/entropy/slots.h src/entropy/range.h src/entropy/range.c \
	src/entropy/tables.c src/entropy/context.c \
	src/entropy/rans_scalar.c src/entropy/grid_scalar.c \
	src/entropy/slots_scalar.c \
	src/entropy/kernels.c

# Vector kernels: the flags of a set go to its files alone.
if SIMD_AVX2
noinst_LTLIBRARIES += libkvi_avx2.la
libkvi_avx2_la_SOURCES = src/entropy/rans_avx2.c \
	src/entropy/grid_avx2.c src/entropy/context_avx2.c \
	src/entropy/moves_avx2.c src/entropy/slots_avx2.c \
	src/entropy/avx2.h src/entropy/grid_avx2.h \
	src/entropy/context_avx2.h src/entropy/slots_vector.h
libkvi_avx2_la_CFLAGS = $(AM_CFLAGS) $(AVX2_CFLAGS)
libkvi_la_LIBADD += libkvi_avx2.la
endif
if SIMD_AVX512
noinst_LTLIBRARIES += libkvi_avx512.la
libkvi_avx512_la_SOURCES = src/entropy/rans_avx512.c src/entropy/exp_avx512.c \
	src/entropy/grid_avx512.c src/entropy/context_avx512.c \
	src/entropy/slots_avx512.c src/entropy/slots_vector.h \
	src/entropy/avx512.h src/entropy/grid_avx512.h \
	src/entropy/context_avx512.h
libkvi_avx512_la_CFLAGS = $(AM_CFLAGS) $(AVX512_CFLAGS)
libkvi_la_LIBADD += libkvi_avx512.la
endif
if SIMD_NEON
libkvi_la_SOURCES += src/entropy/rans_neon.c src/entropy/grid_neon.c \
	src/entropy/slots_neon.c src/entropy/neon.h src/entropy/grid_neon.h \
	src/entropy/slots_vector.h
endif
