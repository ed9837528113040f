# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/codecs/bytes/bytes_codec.c \
	src/codecs/chunk_encode.c \
	src/codecs/chunk_sample.c \
	src/codecs/cells/cells_codec.c \
	src/codecs/codec.c src/codecs/codec.h \
	src/codecs/codec_params.c \
	src/codecs/coder.c src/codecs/coder.h \
	src/codecs/codes_payload.c src/codecs/codes_payload.h \
	src/codecs/elements.c \
	src/codecs/grid/contexts.c \
	src/codecs/grid/grid.c src/codecs/grid/grid.h \
	src/codecs/grid/grid_fit.c \
	src/codecs/grid/grid_sets.c src/codecs/grid/grid_sets.h \
	src/codecs/had/had.c src/codecs/had/had.h \
	src/codecs/had/numbers_body.h \
	src/codecs/had/transform.c src/codecs/had/transform.h \
	src/codecs/had/transform_body.h \
	src/codecs/lanes.c src/codecs/lanes.h \
	src/codecs/layers/layers_codec.c \
	src/codecs/layers/layers_tops.c src/codecs/layers/layers_tops.h \
	src/codecs/linear/linear_codec.c \
	src/codecs/lossy/codes.c src/codecs/lossy/codes.h \
	src/codecs/lossy/lossy_codec.c src/codecs/lossy/lossy_codec.h \
	src/codecs/lossy/lossy_encode.c \
	src/codecs/lossy/payload_parts.c src/codecs/lossy/payload_parts.h \
	src/codecs/lossy/quantiser_scales.c src/codecs/lossy/quantiser_scales.h \
	src/codecs/lossy/rates.c \
	src/codecs/lossy/tier.c \
	src/codecs/mask.c src/codecs/mask.h \
	src/codecs/near/near.c src/codecs/near/near.h \
	src/codecs/planes.c src/codecs/planes.h \
	src/codecs/predicted/predicted.c \
	src/codecs/state/state.c \
	src/codecs/stream.c \
	src/codecs/stream_work.c src/codecs/stream_work.h \
	src/codecs/streams.c src/codecs/streams.h \
	src/codecs/symbols.c src/codecs/symbols.h \
	src/codecs/tables_fit.c src/codecs/tables_fit.h \
	src/codecs/tsc/tsc.c \
	src/codecs/vq/vq.c \
	src/codecs/zstd/zstd.c

if SIMD_AVX2
libkvi_avx2_la_SOURCES += \
	src/codecs/had/transform_avx2.c
endif
if SIMD_AVX512
libkvi_avx512_la_SOURCES += \
	src/codecs/had/transform_avx512.c
endif
