# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/files/append_compare.c src/files/append_compare.h \
	src/files/whole_chunks.c src/files/whole_chunks.h src/files/unpack_state.c \
	src/files/append_import.c \
	src/files/append_items.c src/files/append_items.h \
	src/files/append_match.c src/files/append_match.h \
	src/files/archive_copy.c src/files/archive_copy.h \
	src/files/archive_copy_find.c src/files/archive_copy_state.h \
	src/files/assembly.c src/files/assembly.h \
	src/files/compact.c \
	src/files/container.h \
	src/files/container_import.c \
	src/files/container_members.c \
	src/files/counted.c src/files/counted.h \
	src/files/cut_archive.c \
	src/files/export_files.c \
	src/files/ggml_types.c src/files/ggml_types.h \
	src/files/gguf_import.c src/files/gguf_import.h \
	src/files/import.c \
	src/files/import_build.c \
	src/files/import_internal.h \
	src/files/input_hash.c src/files/input_hash.h \
	src/files/item_put.c src/files/item_put.h \
	src/files/keep_segments.c src/files/keep_segments.h \
	src/files/kv_rules.c src/files/kv_rules.h \
	src/files/kvc_import.c \
	src/files/literal_find.c src/files/literal_find.h \
	src/files/literals.c src/files/literals.h \
	src/files/llama_checkpoints.c \
	src/files/llama_describe.c src/files/llama_describe.h \
	src/files/llama_export.c \
	src/files/llama_item.c src/files/llama_item.h \
	src/files/llama_kv.c \
	src/files/llama_map.c src/files/llama_map.h \
	src/files/llama_memory.c src/files/llama_memory.h \
	src/files/llama_parse.c src/files/llama_parse.h \
	src/files/llama_rebuild.c src/files/llama_rebuild.h \
	src/files/llama_share.c src/files/llama_share.h \
	src/files/llama_shorten.c src/files/llama_shorten.h \
	src/files/llama_window.c \
	src/files/locked.c src/files/locked.h \
	src/files/member_names.c src/files/member_names.h \
	src/files/named.c src/files/named.h \
	src/files/named_axes.c src/files/named_axes.h \
	src/files/npy_import.c \
	src/files/oneshot.c \
	src/files/import_adopt.c src/files/import_adopt.h \
	src/files/import_compare.c src/files/import_compare.h \
	src/files/pack_files.c src/files/pack_files.h src/files/pack_parts.h \
	src/files/plan.c src/files/plan.h \
	src/files/pt_import.c \
	src/files/pickle_tree.c src/files/pickle_tree.h \
	src/files/references.c src/files/references.h \
	src/files/raw_import.c src/files/raw_layout.c \
	src/files/raw_pages.h src/files/raw_text.c \
	src/files/reader_bounds.c src/files/reader_bounds.h \
	src/files/repair.c \
	src/files/repair_groups.c src/files/repair_groups.h \
	src/files/repair_view.c src/files/repair_view.h \
	src/files/rope_find.c \
	src/files/rule_test.c src/files/rule_test.h \
	src/files/salvage_slot.c \
	src/files/st_import.c \
	src/files/strided.c src/files/strided.h \
	src/files/transfer.c src/files/transfer.h \
	src/files/unpack_elements.h \
	src/files/unpack_files.c src/files/reader_item.c \
	src/files/workspace_extract.c src/files/workspace_pack.c \
	src/files/workspace_tar.c src/files/workspace_tar.h
