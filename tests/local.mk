# SPDX-License-Identifier: BSD-3-Clause
# Tests. Unit tests look inside (libkvi.la); owners add theirs at the end.

AM_TESTS_ENVIRONMENT = \
	CC='$(CC)'; CFLAGS='$(CFLAGS)'; LDFLAGS='$(LDFLAGS)'; NM='$(NM)'; \
	PKG_CONFIG='$(PKG_CONFIG)'; PYTHON3='$(PYTHON3)'; MAKE='$(MAKE)'; \
	export CC CFLAGS LDFLAGS NM PKG_CONFIG PYTHON3 MAKE;

# Whole library: round trips and damage.
check_PROGRAMS += tests/roundtrip tests/flips
TESTS += tests/roundtrip tests/flips
tests_roundtrip_SOURCES = tests/roundtrip.c tests/synth.c tests/synth.h
tests_roundtrip_LDADD = libkvi.la
tests_flips_SOURCES = tests/flips.c tests/synth.c tests/synth.h
tests_flips_LDADD = libkvi.la

# What others see: headers, symbols, the installed library; and the tree itself.
tests_api_scripts = tests/api/headers.sh tests/api/symbols.sh \
	tests/api/consumer.sh tests/api/tree.sh \
	tests/api/layers.sh tests/api/names.sh tests/api/contracts.sh
TESTS += $(tests_api_scripts)
EXTRA_DIST += $(tests_api_scripts) tests/api/layers.txt tests/api/common.sh tests/api/consumer.c

# The words of documents (tests/api/words.txt).
TESTS += tests/api/words.sh
EXTRA_DIST += tests/api/words.sh tests/api/words.txt

# The sample cache, also of `quickstart demo`.
EXTRA_DIST += tests/data/sample/README.md tests/data/sample/make_sample.py \
	tests/data/sample/smollm2-135m-bf16-160.safetensors \
	tests/data/sample/smollm2-135m-f16-160.slot \
	tests/data/sample/smollm2-135m-level2.kvp

# Files in and out.
EXTRA_DIST += tests/data/make_import_data.py \
	tests/data/make_engine_data.py tests/data/engine_models.py \
	tests/data/import tests/data/models

# Real engine (installs one, needs the network once): not part of `make check`.
EXTRA_DIST += tests/engines/check_engines.sh tests/engines/engine.py \
	tests/engines/architectures.py tests/engines/salvaged.py
check-engines: $(bin_PROGRAMS)
	KVARC=$(abs_builddir)/kvarc$(EXEEXT) \
		$(srcdir)/tests/engines/check_engines.sh $(abs_builddir)/engines
.PHONY: check-engines

# The command: exact output of every verb, damage, full disks, signals.
check_PROGRAMS += tests/cli/make_named
tests_cli_make_named_SOURCES = tests/cli/make_named.c
tests_cli_make_named_LDADD = libkvarc.la
# Preloaded into the command: a source that changes while it is packed.
check_LTLIBRARIES =
if ENABLE_SHARED
check_LTLIBRARIES += tests/cli/change_source.la
endif
tests_cli_change_source_la_SOURCES = tests/cli/change_source.c
tests_cli_change_source_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
tests_cli_change_source_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_cli_change_source_la_LIBADD = -ldl
TESTS += tests/cli/run.sh
EXTRA_DIST += tests/cli/run.sh tests/cli/lib.sh tests/cli/cases

# Vector kernels against scalar C; with "bench": their speeds.
check_PROGRAMS += tests/check_kernels
TESTS += tests/check_kernels
tests_check_kernels_SOURCES = tests/check_kernels.c tests/rans_cases.h \
	tests/check_slots.c tests/check_slots.h
tests_check_kernels_LDADD = libkvi.la

# The specification: vectors, and random files, against the reference decoder.
check_PROGRAMS += tests/reference/digest tests/reference/generate
tests_reference_digest_SOURCES = tests/reference/digest.c
tests_reference_digest_LDADD = libkvarc.la
tests_reference_generate_SOURCES = tests/reference/generate.c
tests_reference_generate_LDADD = libkvarc.la -lm
TESTS += tests/vectors.sh tests/reference/random_files.sh
EXTRA_DIST += tests/vectors.sh tests/reference/random_files.sh \
	tests/reference/random_files.py tests/reference/ref_all.py

# Peaks of memory on hostile files.
TESTS += tests/hostile_memory.sh
EXTRA_DIST += tests/hostile_memory.sh tests/hostile_memory.py

# The static tables are what their script makes.
TESTS += tests/tables.sh
EXTRA_DIST += tests/tables.sh

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_rans
TESTS += tests/unit/test_rans
tests_unit_test_rans_SOURCES = tests/unit/test_rans.c tests/rans_cases.h
tests_unit_test_rans_LDADD = libkvi.la $(CMOCKA_LIBS)


# Codecs and model.
check_PROGRAMS += tests/unit/test_codecs tests/unit/test_rope
TESTS += tests/unit/test_codecs tests/unit/test_rope
check_PROGRAMS += tests/unit/test_tsc
TESTS += tests/unit/test_tsc
tests_unit_test_tsc_SOURCES = tests/unit/test_tsc.c \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h tests/unit/random.h
tests_unit_test_tsc_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_vq
TESTS += tests/unit/test_vq
tests_unit_test_vq_SOURCES = tests/unit/test_vq.c \
	tests/unit/coders_util.c tests/unit/coders_util.h tests/unit/random.h
tests_unit_test_vq_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_linear
TESTS += tests/unit/test_linear
tests_unit_test_linear_SOURCES = tests/unit/test_linear.c \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/random.h
tests_unit_test_linear_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_model_codec tests/unit/test_expect
TESTS += tests/unit/test_model_codec tests/unit/test_expect
tests_unit_test_model_codec_SOURCES = tests/unit/test_model_codec.c \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/random.h
tests_unit_test_model_codec_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_expect_SOURCES = tests/unit/test_expect.c \
	tests/unit/random.h
tests_unit_test_expect_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_codecs_SOURCES = tests/unit/test_codecs.c \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/random.h
tests_unit_test_codecs_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_near
TESTS += tests/unit/test_near
tests_unit_test_near_SOURCES = tests/unit/test_near.c \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/random.h
tests_unit_test_near_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_rope_SOURCES = tests/unit/test_rope.c
tests_unit_test_rope_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_import tests/unit/test_files
TESTS += tests/unit/test_import tests/unit/test_files
tests_unit_test_import_SOURCES = tests/unit/test_import.c \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_import_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_salvage_slot
TESTS += tests/unit/test_salvage_slot
tests_unit_test_salvage_slot_SOURCES = tests/unit/test_salvage_slot.c \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_salvage_slot_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_files_SOURCES = tests/unit/test_files.c \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_files_LDADD = libkvi.la $(CMOCKA_LIBS)

# Lossy chunks.
check_PROGRAMS += tests/unit/test_transform tests/unit/test_lossy \
	tests/unit/test_rates tests/unit/test_klt
TESTS += tests/unit/test_transform tests/unit/test_lossy \
	tests/unit/test_rates tests/unit/test_klt
tests_unit_test_klt_SOURCES = tests/unit/test_klt.c \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/random.h
tests_unit_test_klt_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
tests_unit_test_rates_SOURCES = tests/unit/test_rates.c \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/random.h
tests_unit_test_rates_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
tests_unit_test_lossy_SOURCES = tests/unit/test_lossy.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_lossy_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_dropped
TESTS += tests/unit/test_dropped
tests_unit_test_dropped_SOURCES = tests/unit/test_dropped.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_dropped_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_transform_SOURCES = tests/unit/test_transform.c \
	tests/unit/random.h
tests_unit_test_transform_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_copy
TESTS += tests/unit/test_copy
tests_unit_test_copy_SOURCES = tests/unit/test_copy.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_copy_LDADD = libkvi.la $(CMOCKA_LIBS)

# Profiles.
check_PROGRAMS += tests/unit/test_profile tests/unit/test_profile_file \
	tests/unit/test_profile_merge tests/unit/test_profile_corrects
TESTS += tests/unit/test_profile tests/unit/test_profile_file \
	tests/unit/test_profile_merge tests/unit/test_profile_corrects
tests_unit_test_profile_SOURCES = tests/unit/test_profile.c \
	tests/unit/profile_util.c tests/unit/profile_util.h
tests_unit_test_profile_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_profile_file_SOURCES = tests/unit/test_profile_file.c \
	tests/unit/profile_util.c tests/unit/profile_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_profile_file_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_profile_merge_SOURCES = tests/unit/test_profile_merge.c \
	tests/unit/profile_util.c tests/unit/profile_util.h
tests_unit_test_profile_merge_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_profile_corrects_SOURCES = tests/unit/test_profile_corrects.c
tests_unit_test_profile_corrects_LDADD = libkvi.la $(CMOCKA_LIBS)

# Container, writer and reader.
check_PROGRAMS += tests/unit/test_container tests/unit/test_stream \
	tests/unit/test_stream_items \
	tests/unit/test_salvage
TESTS += tests/unit/test_container tests/unit/test_stream \
	tests/unit/test_stream_items \
	tests/unit/test_salvage
tests_unit_test_container_SOURCES = tests/unit/test_container.c
tests_unit_test_container_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_stream_SOURCES = tests/unit/test_stream.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_stream_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_stream_items_SOURCES = tests/unit/test_stream_items.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_stream_items_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_areas
TESTS += tests/unit/test_areas
tests_unit_test_areas_SOURCES = tests/unit/test_areas.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_areas_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_salvage_SOURCES = tests/unit/test_salvage.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_salvage_LDADD = libkvi.la $(CMOCKA_LIBS)

# Profiles through writer and reader.
check_PROGRAMS += tests/unit/test_predict
TESTS += tests/unit/test_predict
tests_unit_test_predict_SOURCES = tests/unit/test_predict.c \
	tests/unit/layers_util.c tests/unit/layers_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_predict_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_klt_below
TESTS += tests/unit/test_klt_below
tests_unit_test_klt_below_SOURCES = tests/unit/test_klt_below.c \
	tests/unit/layers_util.c tests/unit/layers_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_klt_below_LDADD = libkvi.la $(CMOCKA_LIBS)

# Profiles that are fitted.
check_PROGRAMS += tests/unit/test_train
TESTS += tests/unit/test_train
tests_unit_test_train_SOURCES = tests/unit/test_train.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_train_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_train_model
TESTS += tests/unit/test_train_model
tests_unit_test_train_model_SOURCES = tests/unit/test_train_model.c \
	tests/unit/small_model.c tests/unit/small_model.h \
	tests/unit/import_files.c tests/unit/import_files.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_train_model_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
# Converted weights in a folder.
check_PROGRAMS += tests/unit/test_weight_cache
TESTS += tests/unit/test_weight_cache
tests_unit_test_weight_cache_SOURCES = tests/unit/test_weight_cache.c \
	tests/unit/small_model.c tests/unit/small_model.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_weight_cache_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_engine tests/unit/test_prediction
TESTS += tests/unit/test_engine tests/unit/test_prediction
tests_unit_test_prediction_SOURCES = tests/unit/test_prediction.c \
	tests/unit/prediction_util.c tests/unit/prediction_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_prediction_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_engine_SOURCES = tests/unit/test_engine.c
tests_unit_test_engine_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_diverge
TESTS += tests/unit/test_diverge
tests_unit_test_diverge_SOURCES = tests/unit/test_diverge.c \
	tests/unit/prediction_util.c tests/unit/prediction_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_diverge_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_predicted
TESTS += tests/unit/test_predicted
tests_unit_test_predicted_SOURCES = tests/unit/test_predicted.c \
	tests/unit/prediction_util.c tests/unit/prediction_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_predicted_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_token_ids
TESTS += tests/unit/test_token_ids
tests_unit_test_token_ids_SOURCES = tests/unit/test_token_ids.c \
	tests/unit/random.h \
	tests/unit/prediction_util.c tests/unit/prediction_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_token_ids_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_external
TESTS += tests/unit/test_external
tests_unit_test_external_SOURCES = tests/unit/test_external.c \
	tests/unit/prediction_util.c tests/unit/prediction_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_external_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_token_blind
TESTS += tests/unit/test_token_blind
tests_unit_test_token_blind_SOURCES = tests/unit/test_token_blind.c \
	tests/unit/small_model.c tests/unit/small_model.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_token_blind_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_eval tests/unit/test_divergence
TESTS += tests/unit/test_eval tests/unit/test_divergence
tests_unit_test_eval_SOURCES = tests/unit/test_eval.c \
	tests/unit/small_model.c tests/unit/small_model.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_eval_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_gate
TESTS += tests/unit/test_gate
tests_unit_test_gate_SOURCES = tests/unit/test_gate.c \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_gate_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_weigh
TESTS += tests/unit/test_weigh
tests_unit_test_weigh_SOURCES = tests/unit/test_weigh.c \
	tests/unit/small_model.c tests/unit/small_model.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_weigh_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_scores
TESTS += tests/unit/test_scores
tests_unit_test_scores_SOURCES = tests/unit/test_scores.c \
	tests/unit/small_model.c tests/unit/small_model.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_scores_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
tests_unit_test_divergence_SOURCES = tests/unit/test_divergence.c \
	tests/unit/random.h
tests_unit_test_divergence_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_self_test
TESTS += tests/unit/test_self_test
tests_unit_test_self_test_SOURCES = tests/unit/test_self_test.c
tests_unit_test_self_test_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_oracle
TESTS += tests/unit/test_oracle
tests_unit_test_oracle_SOURCES = tests/unit/test_oracle.c tests/unit/random.h
tests_unit_test_oracle_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_train_fit
TESTS += tests/unit/test_train_fit
tests_unit_test_train_fit_SOURCES = tests/unit/test_train_fit.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_train_fit_LDADD = libkvi.la $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/test_train_klt
TESTS += tests/unit/test_train_klt
tests_unit_test_train_klt_SOURCES = tests/unit/test_train_klt.c \
	tests/unit/stream_util.c tests/unit/stream_util.h
tests_unit_test_train_klt_LDADD = libkvi.la $(CMOCKA_LIBS) -lm

# Models.
check_PROGRAMS += tests/unit/test_weights tests/unit/test_weights_bad
TESTS += tests/unit/test_weights tests/unit/test_weights_bad
tests_unit_test_weights_bad_SOURCES = tests/unit/test_weights_bad.c \
	tests/unit/models_util.c tests/unit/models_util.h \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_weights_bad_LDADD = libkvi.la $(CMOCKA_LIBS)
tests_unit_test_weights_SOURCES = tests/unit/test_weights.c \
	tests/unit/models_util.c tests/unit/models_util.h \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_weights_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_head
TESTS += tests/unit/test_head
tests_unit_test_head_SOURCES = tests/unit/test_head.c tests/unit/random.h \
	tests/unit/models_util.c tests/unit/models_util.h \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_head_LDADD = libkvi.la $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_architectures
TESTS += tests/unit/test_architectures
tests_unit_test_architectures_SOURCES = tests/unit/test_architectures.c \
	tests/unit/made_caches.c tests/unit/made_caches.h \
	tests/unit/models_util.c tests/unit/models_util.h \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_architectures_LDADD = libkvi.la $(CMOCKA_LIBS) $(ZSTD_LIBS) -lm
check_PROGRAMS += tests/unit/test_import_model
TESTS += tests/unit/test_import_model
tests_unit_test_import_model_SOURCES = tests/unit/test_import_model.c \
	tests/unit/made_caches.c tests/unit/made_caches.h \
	tests/unit/stream_util.c tests/unit/stream_util.h \
	tests/unit/import_files.c tests/unit/import_files.h
tests_unit_test_import_model_LDADD = libkvi.la $(CMOCKA_LIBS) $(ZSTD_LIBS)

# Exact products of model predictors.
check_PROGRAMS += tests/unit/test_matmul
TESTS += tests/unit/test_matmul
tests_unit_test_matmul_SOURCES = tests/unit/test_matmul.c \
	tests/unit/random.h
tests_unit_test_matmul_LDADD = libkvi.la $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_float8
TESTS += tests/unit/test_float8
tests_unit_test_float8_SOURCES = tests/unit/test_float8.c \
	tests/unit/random.h
tests_unit_test_float8_LDADD = libkvi.la $(CMOCKA_LIBS)
endif
