# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/files/append_files.c \
	src/files/unpack_files.c \
	src/files/rewrite.c src/files/rewrite.h \
	src/files/import_read.c \
	src/files/import.c src/files/import.h \
	src/files/counted.c src/files/counted.h \
	src/files/export_files.c \
	src/files/ggml_types.c src/files/ggml_types.h \
	src/files/gguf_import.c src/files/gguf_import.h \
	src/files/import_build.c \
	src/files/import_internal.h \
	src/files/input_hash.c src/files/input_hash.h \
	src/files/item_put.c src/files/item_put.h \
	src/files/kv_rules.c src/files/kv_rules.h \
	src/files/named_tensors.c src/files/named_tensors.h \
	src/files/literals.c src/files/literals.h \
	src/files/llama_read.c src/files/track_labels.h \
	src/files/llama_parse.c src/files/llama_parse.h \
	src/files/llama_describe.c src/files/llama_describe.h \
	src/files/llama_write.c \
	src/files/llama_convert.c src/files/llama_convert.h \
	src/files/llama_item.c src/files/llama_item.h \
	src/files/llama_shorten.c src/files/llama_shorten.h \
	src/files/locked.c src/files/locked.h \
	src/files/member_names.c src/files/member_names.h \
	src/files/oneshot.c \
	src/files/pack_files.c src/files/pack_files.h \
	src/files/pack_parts.h \
	src/files/plan.c src/files/plan.h \
	src/files/torch_pt.c \
	src/files/typed_tensors.c src/files/typed_tensors.h \
	src/files/repeated.c src/files/repeated.h \
	src/files/references.c src/files/references.h \
	src/files/prefixes.c src/files/prefixes.h \
	src/files/raw_pages.c \
	src/files/reader_bounds.c src/files/reader_bounds.h \
	src/files/parity_repair.c \
	src/files/rope_find.c \
	src/files/strided.c src/files/strided.h \
	src/files/unpack_elements.h \
	src/files/workspace_tar.c
