# SPDX-License-Identifier: BSD-3-Clause
# Tests. A unit test is one file and one line; it looks inside (libkvi.la).

AM_TESTS_ENVIRONMENT = \
	CC='$(CC)'; CFLAGS='$(CFLAGS)'; LDFLAGS='$(LDFLAGS)'; NM='$(NM)'; \
	PKG_CONFIG='$(PKG_CONFIG)'; PYTHON3='$(PYTHON3)'; MAKE='$(MAKE)'; \
	export CC CFLAGS LDFLAGS NM PKG_CONFIG PYTHON3 MAKE;

# Faults that the tests must see (.ci/long).
EXTRA_DIST += tests/mutants/run.py tests/mutants/list.txt
# The last lines of make check: skips, also those inside of tests.
EXTRA_DIST += tests/skips.sh
check-local: check-TESTS
	@$(srcdir)/tests/skips.sh $(TEST_LOGS)

# Whole library: round trips and damage.
check_PROGRAMS += tests/roundtrip tests/flips tests/flips_vectors
TESTS += tests/roundtrip tests/flips tests/flips_vectors
tests_roundtrip_SOURCES = tests/roundtrip.c tests/synth.c tests/synth.h
tests_roundtrip_LDADD = libkvitools.la libkvi.la
tests_flips_SOURCES = tests/flips.c tests/synth.c tests/synth.h tests/workers.c tests/workers.h
tests_flips_LDADD = libkvitools.la libkvi.la
tests_flips_vectors_SOURCES = tests/flips_vectors.c tests/synth.c tests/synth.h \
	tests/workers.c tests/workers.h
tests_flips_vectors_LDADD = libkvitools.la libkvi.la

# Encrypted archives that somebody has changed.
check_PROGRAMS += tests/tamper
TESTS += tests/tamper
tests_tamper_SOURCES = tests/tamper.c tests/synth.c tests/synth.h
tests_tamper_LDADD = libkvitools.la libkvi.la
# Folders beside caches.
TESTS += tests/attach.sh
EXTRA_DIST += tests/attach.sh
# Libraries that are opened at their first use.
TESTS += tests/optional_libraries.sh
EXTRA_DIST += tests/optional_libraries.sh
# Stores: several processes and threads in one, damage, crashes.
if HAVE_SQLITE3
check_PROGRAMS += tests/store_processes tests/store_damages tests/store_race
TESTS += tests/store_processes.sh tests/store_damages tests/store_race tests/store_laws.sh \
	tests/store_suite.sh tests/store_export.sh tests/passwords.sh
endif
# A store without its index, by the reference decoder.
if HAVE_SQLITE3
TESTS += tests/reference/store_folder.sh
endif
EXTRA_DIST += tests/reference/store_folder.sh
# The numbers, commands and links of README; the command blocks of all docs.
if HAVE_SQLITE3
TESTS += tests/readme.sh tests/docs.sh
endif
EXTRA_DIST += tests/readme.sh tests/docs.sh tests/docs.py
EXTRA_DIST += tests/store_processes.sh tests/s3_faults.py tests/store_laws.sh \
	tests/store_suite.sh tests/store_export.sh tests/passwords.sh
stores_made = tests/slots_made.c tests/slots_made.h tests/stores_made.c tests/stores_made.h
store_calls = tests/store_calls.c tests/store_calls.h
tests_store_processes_SOURCES = tests/store_processes.c tests/store_ledger.c \
	tests/store_ledger.h $(stores_made) $(store_calls)
tests_store_processes_LDADD = libkvistore.la libkvi.la
tests_store_race_SOURCES = tests/store_race.c $(stores_made) $(store_calls)
tests_store_race_LDADD = libkvistore.la libkvi.la
tests_store_damages_SOURCES = tests/store_damages.c $(stores_made)
tests_store_damages_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE3_CFLAGS)
tests_store_damages_LDADD = libkvistore.la libkvi.la $(SQLITE3_LINK)

# What others see: headers, symbols, the installed library; and the tree itself.
tests_api_scripts = tests/api/headers.sh tests/api/symbols.sh \
	tests/api/consumer.sh tests/api/tree.sh \
	tests/api/layers.sh tests/api/names.sh tests/api/contracts.sh tests/api/versions.sh
TESTS += $(tests_api_scripts)
# The dumps are of one compiler and of the default configuration: .ci/run runs check-abi.
.PHONY: check-abi update-abi
check-abi: libkvarc.la libkvarc-tools.la libkvarc-store.la libkvarc-device.la
	srcdir=$(srcdir) $(srcdir)/tests/api/abi.sh
update-abi: libkvarc.la libkvarc-tools.la libkvarc-store.la libkvarc-device.la
	srcdir=$(srcdir) $(srcdir)/tests/api/abi.sh --accept
EXTRA_DIST += tests/store_services.sh tests/moto_server.py
EXTRA_DIST += tests/growth.sh tests/api/abi.sh tests/api/abi.suppr tests/api/libkvarc.abi tests/api/libkvarc-tools.abi tests/api/libkvarc-store.abi tests/api/libkvarc-device.abi
EXTRA_DIST += tests/libraries_lock.sh
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
EXTRA_DIST += tests/data/make_import_data.py tests/data/engine_writers.py \
	tests/data/make_torch_data.py \
	tests/data/make_engine_data.py tests/data/engine_models.py \
	tests/data/import tests/data/models tests/data/pre_release
# What releases wrote, which later ones read.
EXTRA_DIST += tests/compat

# Real engine (installs one, needs the network once): not part of `make check`.
EXTRA_DIST += tests/engines/check_engines.sh tests/engines/engine.py \
	tests/engines/turns.py tests/engines/architectures.py tests/engines/salvaged.py \
	tests/engines/session.py tests/engines/watch.py tests/engines/canary.py \
	tests/engines/serve.py
check-engines: $(bin_PROGRAMS) $(driver_stand_in)
	KVARC=$(abs_builddir)/kvarc$(EXEEXT) \
		$(srcdir)/tests/engines/check_engines.sh $(abs_builddir)/engines
.PHONY: check-engines

# The command: exact output of every verb, damage, full disks, signals.
check_PROGRAMS += tests/cli/make_named tests/cli/make_session tests/cli/map_while
tests_cli_map_while_SOURCES = tests/cli/map_while.c
tests_cli_make_named_SOURCES = tests/cli/make_named.c
tests_cli_make_named_LDADD = libkvarc.la
tests_cli_make_session_SOURCES = tests/cli/make_session.c
tests_cli_make_session_LDADD = libkvarc.la
# The command, with three calls of the library that show what they are asked for.
check_PROGRAMS += tests/cli/see_verify
tests_cli_see_verify_SOURCES = tests/cli/see_verify.c
tests_cli_see_verify_LDFLAGS = -Wl,--wrap=kvarc_pack -Wl,--wrap=kvarc_append_import \
	-Wl,--wrap=kvarc_store_save
tests_cli_see_verify_LDADD = $(kvarc_OBJECTS) $(kvarc_LDADD)
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

# Vector kernels against scalar C.
check_PROGRAMS += tests/check_kernels
TESTS += tests/check_kernels
tests_check_kernels_SOURCES = tests/check_kernels.c tests/guarded.h tests/rans_cases.h \
	tests/check_cells.c tests/check_cells.h tests/check_layers.c tests/check_layers.h \
	tests/check_slots.c tests/check_slots.h
tests_check_kernels_LDADD = libkvitools.la libkvi.la

# The specification: vectors, and random files, against the reference decoder.
check_PROGRAMS += tests/reference/digest tests/reference/generate tests/reference/refer
tests_reference_digest_SOURCES = tests/reference/digest.c \
	tests/reference/vector_store.c tests/reference/vector_store.h
tests_reference_digest_CFLAGS = $(AM_CFLAGS) # objects of its own
tests_reference_digest_LDFLAGS = -static # without the script of libtool, which takes longer than a run
tests_reference_digest_LDADD = libkvarc.la
tests_reference_generate_SOURCES = tests/reference/generate.c
tests_reference_generate_LDADD = libkvarc.la -lm
tests_reference_refer_SOURCES = tests/reference/refer.c
tests_reference_refer_LDADD = libkvarc.la
TESTS += tests/vectors.sh tests/reference/random_files.sh tests/reference/misreadings.sh \
	tests/reference/core.sh tests/reference/frozen.sh
EXTRA_DIST += tests/vectors.sh tests/reference/random_files.sh \
	tests/reference/random_files.py tests/reference/ref_all.py \
	tests/reference/area_bytes.py \
	tests/reference/misreadings.sh tests/reference/misreadings.py tests/reference/misreadings.txt \
	tests/reference/core.sh tests/reference/core_vectors.py \
	tests/reference/frozen.sh

# Peaks of memory on hostile files.
TESTS += tests/hostile_memory.sh
EXTRA_DIST += tests/hostile_memory.sh tests/hostile_memory.py
# What a server writes where it says that a slot is.
TESTS += tests/hostile_server.sh
EXTRA_DIST += tests/hostile_server.sh tests/hostile_server.py

# Crashes: what a disk may hold, calls that fail, processes that are killed.
check_PROGRAMS += tests/crash/crash_states
tests_crash_crash_states_SOURCES = tests/crash/crash_states.c
tests_crash_crash_states_LDADD = libkvarc.la
if HAVE_SQLITE3
check_PROGRAMS += tests/crash/store_states
endif
tests_crash_store_states_SOURCES = tests/crash/store_states.c $(stores_made) $(store_calls)
tests_crash_store_states_LDADD = libkvistore.la libkvi.la
if ENABLE_SHARED
check_LTLIBRARIES += tests/crash/file_calls.la
endif
tests_crash_file_calls_la_SOURCES = tests/crash/file_calls.c
tests_crash_file_calls_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
tests_crash_file_calls_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_crash_file_calls_la_LIBADD = -ldl
TESTS += tests/crash/states.sh tests/crash/faults.sh tests/crash/kills.sh
EXTRA_DIST += tests/crash/states.sh tests/crash/faults.sh tests/crash/kills.sh \
	tests/crash/kills.py

# The static tables are what their script makes.
TESTS += tests/tables.sh
EXTRA_DIST += tests/tables.sh

if HAVE_CMOCKA
# Unit tests: each is one file of its own name, and what several share is a library.
check_LIBRARIES = tests/unit/libunit.a
tests_unit_libunit_a_SOURCES = tests/unit/random.h \
	tests/unit/append_util.c tests/unit/append_util.h \
	tests/unit/coders_util.c tests/unit/coders_util.h \
	tests/unit/import_files.c tests/unit/import_files.h \
	tests/unit/layers_util.c tests/unit/layers_util.h \
	tests/unit/made_caches.c tests/unit/made_caches.h \
	tests/unit/model_world.c tests/unit/model_world.h \
	tests/unit/models_util.c tests/unit/models_util.h \
	tests/unit/prediction_util.c tests/unit/prediction_util.h \
	tests/unit/profile_util.c tests/unit/profile_util.h \
	tests/unit/slots_util.c tests/unit/slots_util.h \
	tests/unit/small_model.c tests/unit/small_model.h \
	tests/unit/stored_util.c tests/unit/stored_util.h \
	tests/unit/stream_util.c tests/unit/stream_util.h
LDADD = tests/unit/libunit.a libkvistore.la libkvitools.la libkvi.la $(CMOCKA_LIBS) $(ZSTD_LIBS) -lm
unit_tests = \
	tests/unit/test_append \
	tests/unit/test_append_import \
	tests/unit/test_architectures \
	tests/unit/test_areas \
	tests/unit/test_attention \
	tests/unit/test_backends \
	tests/unit/test_codecs \
	tests/unit/test_compact \
	tests/unit/test_container \
	tests/unit/test_copy \
	tests/unit/test_crypt \
	tests/unit/test_diverge \
	tests/unit/test_divergence \
	tests/unit/test_dropped \
	tests/unit/test_engine \
	tests/unit/test_engine_files \
	tests/unit/test_eval \
	tests/unit/test_expect \
	tests/unit/test_external \
	tests/unit/test_files \
	tests/unit/test_float8 \
	tests/unit/test_fma \
	tests/unit/test_fork \
	tests/unit/test_formats \
	tests/unit/test_gate \
	tests/unit/test_head \
	tests/unit/test_import \
	tests/unit/test_large_files \
	tests/unit/test_import_model \
	tests/unit/test_kv_rules \
	tests/unit/test_klt \
	tests/unit/test_klt_below \
	tests/unit/test_linear \
	tests/unit/test_lossy \
	tests/unit/test_lists \
	tests/unit/test_lists_hostile \
	tests/unit/test_llama_convert \
	tests/unit/test_llama_export \
	tests/unit/test_llama_memories \
	tests/unit/test_matmul \
	tests/unit/test_metadata \
	tests/unit/test_model_codec \
	tests/unit/test_near \
	tests/unit/test_oracle \
	tests/unit/test_pickle_links \
	tests/unit/test_predict \
	tests/unit/test_predicted \
	tests/unit/test_prediction \
	tests/unit/test_prefixes \
	tests/unit/test_profile \
	tests/unit/test_profile_corrects \
	tests/unit/test_profile_file \
	tests/unit/test_profile_merge \
	tests/unit/test_rans \
	tests/unit/test_rates \
	tests/unit/test_repair \
	tests/unit/test_requests \
	tests/unit/test_rope \
	tests/unit/test_salvage \
	tests/unit/test_salvage_slot \
	tests/unit/test_scores \
	tests/unit/test_seal \
	tests/unit/test_self_test \
	tests/unit/test_session \
	tests/unit/test_small \
	tests/unit/test_sources \
	tests/unit/test_state \
	tests/unit/test_state_archive \
	tests/unit/test_stored \
	tests/unit/test_stored_files \
	tests/unit/test_stored_model \
	tests/unit/test_stream \
	tests/unit/test_stream_failures \
	tests/unit/test_stream_items \
	tests/unit/test_stream_parts \
	tests/unit/test_token_blind \
	tests/unit/test_token_ids \
	tests/unit/test_track_forks \
	tests/unit/test_train \
	tests/unit/test_train_fit \
	tests/unit/test_train_kernels \
	tests/unit/test_train_klt \
	tests/unit/test_train_model \
	tests/unit/test_transform \
	tests/unit/test_tsc \
	tests/unit/test_typed_tensors \
	tests/unit/test_vq \
	tests/unit/test_weigh \
	tests/unit/test_weight_cache \
	tests/unit/test_weights \
	tests/unit/test_weights_bad \
	tests/unit/test_workspace
tests_unit_test_seal_LDADD = fuzz/libfuzzing.la $(LDADD)
tests_unit_test_stored_model_LDADD = fuzz/libfuzzing.la $(LDADD)
if HAVE_SQLITE3
tests_unit_libunit_a_SOURCES += tests/slots_made.c tests/slots_made.h \
	tests/unit/store_util.c tests/unit/store_util.h \
	tests/unit/http_stand_in.c tests/unit/http_stand_in.h
unit_tests += tests/unit/test_blocks tests/unit/test_canary tests/unit/test_s3 \
	tests/unit/test_server tests/unit/test_download tests/unit/test_store \
	tests/unit/test_store_damage \
	tests/unit/test_store_keys tests/unit/test_store_laws tests/unit/test_store_races \
	tests/unit/test_store_repack
# It looks into the index by itself.
tests_unit_test_store_laws_LDADD = $(LDADD) $(SQLITE3_LINK)
endif
# With a stand-in of NVIDIA's driver, which runs the kernels on the host (gpu/local.mk).
EXTRA_DIST += tests/device/command.sh
if ENABLE_SHARED
if GPU_TESTS
unit_tests += tests/unit/test_device tests/unit/test_device_encode tests/unit/test_device_damage \
	tests/unit/test_device_order tests/unit/test_device_predicted
TESTS += tests/device/command.sh
endif
endif
device_util = tests/unit/device_util.c tests/unit/device_util.h tests/synth.c tests/synth.h
tests_unit_test_device_SOURCES = tests/unit/test_device.c $(device_util)
tests_unit_test_device_LDADD = libkvidevice.la $(LDADD) $(DL_LIBS)
tests_unit_test_device_encode_SOURCES = tests/unit/test_device_encode.c $(device_util)
tests_unit_test_device_encode_LDADD = libkvidevice.la $(LDADD) $(DL_LIBS)
tests_unit_test_device_order_SOURCES = tests/unit/test_device_order.c $(device_util)
tests_unit_test_device_order_LDADD = libkvidevice.la $(LDADD) $(DL_LIBS)
tests_unit_test_device_order_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
tests_unit_test_device_predicted_SOURCES = tests/unit/test_device_predicted.c $(device_util)
tests_unit_test_device_predicted_LDADD = libkvidevice.la $(LDADD) $(DL_LIBS)
tests_unit_test_device_damage_SOURCES = tests/unit/test_device_damage.c $(device_util) \
	tests/gpu/archive_chunks.c tests/gpu/archive_chunks.h
tests_unit_test_device_damage_LDADD = libkvidevice.la $(LDADD) $(DL_LIBS)
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
endif
