# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/codecs/codec.c src/codecs/codec.h \
	src/codecs/coder.c src/codecs/coder.h \
	src/codecs/elements.c src/codecs/encode.c \
	src/codecs/lanes.c src/codecs/lanes.h \
	src/codecs/mask.c src/codecs/mask.h \
	src/codecs/params.c \
	src/codecs/planes.c src/codecs/planes.h \
	src/codecs/sample.c \
	src/codecs/stream.c \
	src/codecs/tables_fit.c src/codecs/tables_fit.h \
	src/codecs/zstd/zstd.c \
	src/codecs/exponent/exponent.c src/codecs/exponent/exponent.h \
	src/codecs/exponent/split.c src/codecs/exponent/fit.c \
	src/codecs/grid/grid.c src/codecs/grid/grid.h \
	src/codecs/grid/contexts.c src/codecs/grid/fit.c \
	src/codecs/grid/sets.c src/codecs/grid/sets.h \
	src/codecs/bytes/bytes.c src/codecs/bytes/bytes.h \
	src/codecs/bytes/fit.c \
	src/codecs/linear/linear.c \
	src/codecs/lossy/codes.c src/codecs/lossy/codes.h \
	src/codecs/lossy/code_freq.c \
	src/codecs/lossy/encode.c \
	src/codecs/lossy/lossy.c src/codecs/lossy/lossy.h \
	src/codecs/lossy/parts.c src/codecs/lossy/parts.h \
	src/codecs/lossy/quantiser.c src/codecs/lossy/quantiser.h \
	src/codecs/lossy/rates.c \
	src/codecs/lossy/scales.c src/codecs/lossy/scales.h \
	src/codecs/lossy/scored.c src/codecs/lossy/tier.c src/codecs/tsc/tsc.c \
	src/codecs/vq/fit.c src/codecs/vq/search.c \
	src/codecs/vq/vq.c src/codecs/vq/vq.h \
	src/codecs/had/had.c src/codecs/had/had.h \
	src/codecs/had/fit.c src/codecs/had/tiles.c \
	src/codecs/klt/klt.c \
	src/codecs/klt/predict.c src/codecs/klt/predict.h \
	src/codecs/had/transform.c src/codecs/had/transform.h \
	src/codecs/had/transform_body.h \
	src/codecs/near/near.c src/codecs/near/near.h \
	src/codecs/near/lattice.c \
	src/codecs/predicted/predicted.c

if SIMD_AVX2
libkvi_avx2_la_SOURCES += src/codecs/had/transform_avx2.c
endif
if SIMD_AVX512
libkvi_avx512_la_SOURCES += src/codecs/had/transform_avx512.c
endif
