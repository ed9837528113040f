# SPDX-License-Identifier: BSD-3-Clause
# Fuzz targets. Each is linked twice: fuzz/replay_X runs its corpus in `make
# check`; fuzz/fuzz_X is a libFuzzer program (--enable-fuzzers, fuzz/README.md).

check_LTLIBRARIES += fuzz/libfuzzing.la
fuzz_libfuzzing_la_SOURCES = fuzz/fuzz_common.c fuzz/fuzz_common.h \
	fuzz/fuzz_read.c fuzz/fuzz_import.c fuzz/fuzz_import.h \
	fuzz/fuzz_model.c fuzz/fuzz_model.h \
	fuzz/fuzz_store.c fuzz/fuzz_store.h \
	tests/reference/vector_store.c tests/reference/vector_store.h \
	fuzz/seal.c fuzz/seal.h fuzz/seal_content.c fuzz/seal_content.h
fuzz_libfuzzing_la_LIBADD = libkvistore.la libkvitools.la libkvi.la

fuzz_replays = \
	fuzz/replay_decode fuzz/replay_index fuzz/replay_range_read \
	fuzz/replay_salvage fuzz/replay_salvage_slot \
	fuzz/replay_unpack fuzz/replay_sealed fuzz/replay_encrypted fuzz/replay_repair \
	fuzz/replay_append fuzz/replay_turns \
	fuzz/replay_slot_import fuzz/replay_safetensors_import \
	fuzz/replay_gguf fuzz/replay_npy fuzz/replay_container \
	fuzz/replay_roundtrip fuzz/replay_params fuzz/replay_rans_tables \
	fuzz/replay_geometry fuzz/replay_profile \
	fuzz/replay_model_gguf fuzz/replay_model_safetensors \
	fuzz/replay_pickle fuzz/replay_raw fuzz/replay_kvc \
	fuzz/replay_kept fuzz/replay_lossy fuzz/replay_manifest fuzz/replay_s3_list
check_PROGRAMS += $(fuzz_replays)
TESTS += $(fuzz_replays)

fuzz_replay_decode_SOURCES = fuzz/target_decode.c fuzz/standalone.c
fuzz_replay_decode_LDADD = fuzz/libfuzzing.la
fuzz_replay_index_SOURCES = fuzz/target_index.c fuzz/standalone.c
fuzz_replay_index_LDADD = fuzz/libfuzzing.la
fuzz_replay_range_read_SOURCES = fuzz/target_range_read.c fuzz/standalone.c
fuzz_replay_range_read_LDADD = fuzz/libfuzzing.la
fuzz_replay_salvage_SOURCES = fuzz/target_salvage.c fuzz/standalone.c
fuzz_replay_salvage_LDADD = fuzz/libfuzzing.la
fuzz_replay_salvage_slot_SOURCES = fuzz/target_salvage_slot.c fuzz/standalone.c
fuzz_replay_salvage_slot_LDADD = fuzz/libfuzzing.la
fuzz_replay_unpack_SOURCES = fuzz/target_unpack.c fuzz/standalone.c
fuzz_replay_unpack_LDADD = fuzz/libfuzzing.la
fuzz_replay_append_SOURCES = fuzz/target_append.c fuzz/standalone.c
fuzz_replay_append_LDADD = fuzz/libfuzzing.la
fuzz_replay_turns_SOURCES = fuzz/target_turns.c fuzz/standalone.c
fuzz_replay_turns_LDADD = fuzz/libfuzzing.la
fuzz_replay_sealed_SOURCES = fuzz/target_sealed.c fuzz/standalone.c
fuzz_replay_sealed_LDADD = fuzz/libfuzzing.la
fuzz_replay_encrypted_SOURCES = fuzz/target_encrypted.c fuzz/standalone.c
fuzz_replay_encrypted_LDADD = fuzz/libfuzzing.la
fuzz_replay_repair_SOURCES = fuzz/target_repair.c fuzz/standalone.c
fuzz_replay_repair_LDADD = fuzz/libfuzzing.la
fuzz_replay_slot_import_SOURCES = fuzz/target_slot_import.c fuzz/standalone.c
fuzz_replay_slot_import_LDADD = fuzz/libfuzzing.la
fuzz_replay_safetensors_import_SOURCES = fuzz/target_safetensors_import.c fuzz/standalone.c
fuzz_replay_safetensors_import_LDADD = fuzz/libfuzzing.la
fuzz_replay_gguf_SOURCES = fuzz/target_gguf.c fuzz/standalone.c
fuzz_replay_gguf_LDADD = fuzz/libfuzzing.la
fuzz_replay_npy_SOURCES = fuzz/target_npy.c fuzz/standalone.c
fuzz_replay_npy_LDADD = fuzz/libfuzzing.la
fuzz_replay_container_SOURCES = fuzz/target_container.c fuzz/standalone.c
fuzz_replay_container_LDADD = fuzz/libfuzzing.la
fuzz_replay_roundtrip_SOURCES = fuzz/target_roundtrip.c fuzz/standalone.c
fuzz_replay_roundtrip_LDADD = fuzz/libfuzzing.la
fuzz_replay_params_SOURCES = fuzz/target_params.c fuzz/standalone.c
fuzz_replay_params_LDADD = fuzz/libfuzzing.la
fuzz_replay_rans_tables_SOURCES = fuzz/target_rans_tables.c fuzz/standalone.c
fuzz_replay_rans_tables_LDADD = fuzz/libfuzzing.la
fuzz_replay_geometry_SOURCES = fuzz/target_geometry.c fuzz/standalone.c
fuzz_replay_geometry_LDADD = fuzz/libfuzzing.la
fuzz_replay_profile_SOURCES = fuzz/target_profile.c fuzz/standalone.c
fuzz_replay_profile_LDADD = fuzz/libfuzzing.la
fuzz_replay_pickle_SOURCES = fuzz/target_pickle.c fuzz/standalone.c
fuzz_replay_pickle_LDADD = fuzz/libfuzzing.la
fuzz_replay_raw_SOURCES = fuzz/target_raw.c fuzz/standalone.c
fuzz_replay_raw_LDADD = fuzz/libfuzzing.la
fuzz_replay_kvc_SOURCES = fuzz/target_kvc.c fuzz/standalone.c
fuzz_replay_kvc_LDADD = fuzz/libfuzzing.la
fuzz_replay_model_gguf_SOURCES = fuzz/target_model_gguf.c fuzz/standalone.c
fuzz_replay_model_gguf_LDADD = fuzz/libfuzzing.la
fuzz_replay_model_safetensors_SOURCES = fuzz/target_model_safetensors.c fuzz/standalone.c
fuzz_replay_model_safetensors_LDADD = fuzz/libfuzzing.la
fuzz_replay_kept_SOURCES = fuzz/target_kept.c fuzz/standalone.c
fuzz_replay_kept_LDADD = fuzz/libfuzzing.la
fuzz_replay_manifest_SOURCES = fuzz/target_manifest.c fuzz/standalone.c
fuzz_replay_manifest_LDADD = fuzz/libfuzzing.la
fuzz_replay_s3_list_SOURCES = fuzz/target_s3_list.c fuzz/standalone.c
fuzz_replay_s3_list_LDADD = fuzz/libfuzzing.la
fuzz_replay_lossy_SOURCES = fuzz/target_lossy.c fuzz/standalone.c
fuzz_replay_lossy_LDADD = fuzz/libfuzzing.la

if FUZZERS
check_PROGRAMS += \
	fuzz/fuzz_decode fuzz/fuzz_index fuzz/fuzz_range_read \
	fuzz/fuzz_salvage fuzz/fuzz_salvage_slot \
	fuzz/fuzz_unpack fuzz/fuzz_sealed fuzz/fuzz_encrypted fuzz/fuzz_repair \
	fuzz/fuzz_append fuzz/fuzz_turns \
	fuzz/fuzz_slot_import fuzz/fuzz_safetensors_import fuzz/fuzz_gguf \
	fuzz/fuzz_npy fuzz/fuzz_container fuzz/fuzz_roundtrip \
	fuzz/fuzz_params fuzz/fuzz_rans_tables fuzz/fuzz_geometry \
	fuzz/fuzz_profile fuzz/fuzz_model_gguf fuzz/fuzz_model_safetensors \
	fuzz/fuzz_pickle fuzz/fuzz_raw fuzz/fuzz_kvc \
	fuzz/fuzz_kept fuzz/fuzz_lossy fuzz/fuzz_manifest fuzz/fuzz_s3_list
fuzz_fuzz_decode_SOURCES = fuzz/target_decode.c
fuzz_fuzz_decode_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_decode_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_index_SOURCES = fuzz/target_index.c
fuzz_fuzz_index_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_index_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_range_read_SOURCES = fuzz/target_range_read.c
fuzz_fuzz_range_read_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_range_read_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_salvage_SOURCES = fuzz/target_salvage.c
fuzz_fuzz_salvage_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_salvage_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_salvage_slot_SOURCES = fuzz/target_salvage_slot.c
fuzz_fuzz_salvage_slot_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_salvage_slot_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_unpack_SOURCES = fuzz/target_unpack.c
fuzz_fuzz_unpack_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_unpack_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_append_SOURCES = fuzz/target_append.c
fuzz_fuzz_append_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_append_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_turns_SOURCES = fuzz/target_turns.c
fuzz_fuzz_turns_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_turns_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_sealed_SOURCES = fuzz/target_sealed.c
fuzz_fuzz_sealed_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_sealed_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_encrypted_SOURCES = fuzz/target_encrypted.c
fuzz_fuzz_encrypted_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_encrypted_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_repair_SOURCES = fuzz/target_repair.c
fuzz_fuzz_repair_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_repair_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_slot_import_SOURCES = fuzz/target_slot_import.c
fuzz_fuzz_slot_import_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_slot_import_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_safetensors_import_SOURCES = fuzz/target_safetensors_import.c
fuzz_fuzz_safetensors_import_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_safetensors_import_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_gguf_SOURCES = fuzz/target_gguf.c
fuzz_fuzz_gguf_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_gguf_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_npy_SOURCES = fuzz/target_npy.c
fuzz_fuzz_npy_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_npy_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_container_SOURCES = fuzz/target_container.c
fuzz_fuzz_container_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_container_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_roundtrip_SOURCES = fuzz/target_roundtrip.c
fuzz_fuzz_roundtrip_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_roundtrip_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_params_SOURCES = fuzz/target_params.c
fuzz_fuzz_params_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_params_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_rans_tables_SOURCES = fuzz/target_rans_tables.c
fuzz_fuzz_rans_tables_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_rans_tables_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_geometry_SOURCES = fuzz/target_geometry.c
fuzz_fuzz_geometry_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_geometry_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_profile_SOURCES = fuzz/target_profile.c
fuzz_fuzz_profile_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_profile_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_pickle_SOURCES = fuzz/target_pickle.c
fuzz_fuzz_pickle_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_pickle_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_raw_SOURCES = fuzz/target_raw.c
fuzz_fuzz_raw_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_raw_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_kvc_SOURCES = fuzz/target_kvc.c
fuzz_fuzz_kvc_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_kvc_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_model_gguf_SOURCES = fuzz/target_model_gguf.c
fuzz_fuzz_model_gguf_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_model_gguf_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_model_safetensors_SOURCES = fuzz/target_model_safetensors.c
fuzz_fuzz_model_safetensors_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_model_safetensors_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_kept_SOURCES = fuzz/target_kept.c
fuzz_fuzz_kept_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_kept_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_manifest_SOURCES = fuzz/target_manifest.c
fuzz_fuzz_manifest_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_manifest_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_s3_list_SOURCES = fuzz/target_s3_list.c
fuzz_fuzz_s3_list_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_s3_list_LDFLAGS = -fsanitize=fuzzer
fuzz_fuzz_lossy_SOURCES = fuzz/target_lossy.c
fuzz_fuzz_lossy_LDADD = fuzz/libfuzzing.la
fuzz_fuzz_lossy_LDFLAGS = -fsanitize=fuzzer
endif

EXTRA_DIST += fuzz/README.md fuzz/run.sh fuzz/make_corpus.py fuzz/corpus
