# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/import/assembly.c src/import/assembly.h \
	src/import/container.c \
	src/import/counted.c src/import/counted.h \
	src/import/cut.c \
	src/import/export.c \
	src/import/ggml_types.c src/import/ggml_types.h \
	src/import/gguf.c src/import/gguf.h \
	src/import/gguf_scan.c src/import/gguf_scan.h \
	src/import/import.c src/import/import_internal.h \
	src/import/import_build.c \
	src/import/llama_kv.c \
	src/import/llama_parse.c src/import/llama_parse.h \
	src/import/locked.c src/import/locked.h \
	src/import/named.c src/import/named.h \
	src/import/npy.c \
	src/import/pack.c \
	src/import/plan.c src/import/plan.h \
	src/import/range.c src/import/range.h \
	src/import/rope_find.c \
	src/import/safetensors.c \
	src/import/scan.c src/import/scan.h \
	src/import/st_header.c src/import/st_header.h \
	src/import/strided.c src/import/strided.h \
	src/import/unpack.c
