# SPDX-License-Identifier: BSD-3-Clause
# The Python package. It is built by its own tools, with what this Makefile has built.
EXTRA_DIST += python/README.md python/pyproject.toml python/setup.py python/native_build.py \
	python/native_cdef.py python/native_library.py python/build_library.sh python/build_static.sh \
	python/build_wheel.sh python/check_wheel.sh python/check_install.sh python/check_command.sh \
	python/check.sh python/check_models.sh python/check_serving.sh python/bench/overhead.py \
	python/bench/blocks.py \
	python/bench/replay.py python/bench/make_states.py python/bench/states.py \
	python/bench/mlx_states.py python/bench/slot_states.py
EXTRA_DIST += python/src/kvarc/__init__.py python/src/kvarc/__main__.py \
	python/src/kvarc/_adapters.py python/src/kvarc/_arrays.py python/src/kvarc/_batches.py \
	python/src/kvarc/_block_objects.py python/src/kvarc/_import.py \
	python/src/kvarc/_io.py python/src/kvarc/_layout.py python/src/kvarc/_options.py \
	python/src/kvarc/_coding.py python/src/kvarc/_model_config.py \
	python/src/kvarc/_prefixes.py python/src/kvarc/_profiles.py \
	python/src/kvarc/_ranges.py python/src/kvarc/_served.py \
	python/src/kvarc/_restore.py python/src/kvarc/_safetensors.py \
	python/src/kvarc/_types.py python/src/kvarc/_native.pyi \
	python/src/kvarc/_dlpack.py python/src/kvarc/_device_memory.py \
	python/src/kvarc/_device_cache.py python/src/kvarc/device.py \
	python/src/kvarc/archive.py python/src/kvarc/blocks.py python/src/kvarc/canary.py \
	python/src/kvarc/cache.py python/src/kvarc/errors.py \
	python/src/kvarc/geometry.py python/src/kvarc/measure.py python/src/kvarc/models.py \
	python/src/kvarc/py.typed python/src/kvarc/reader.py python/src/kvarc/session.py \
	python/src/kvarc/lmcache.py python/src/kvarc/sglang.py python/src/kvarc/vllm.py \
	python/src/kvarc/vllm_connector.py \
	python/src/kvarc/mlx.py python/src/kvarc/replay.py python/src/kvarc/replay_external.py \
	python/src/kvarc/store.py python/src/kvarc/training.py python/src/kvarc/transformers.py \
	python/src/kvarc/transformers_canary.py \
	python/src/kvarc/transformers_layers.py python/src/kvarc/transformers_model.py \
	python/src/kvarc/writer.py
EXTRA_DIST += python/tests/greedy.py python/tests/services.py python/tests/test_block_services.py \
	python/tests/test_serving_services.py python/tests/vllm_swapped.py \
	python/tests/sglang_swapped.py \
	python/tests/test_mlx.py python/tests/test_replay.py \
	python/tests/test_transformers.py
EXTRA_DIST += python/tests/conftest.py python/tests/test_archives.py \
	python/tests/test_blocks.py python/tests/test_canary.py python/tests/test_device.py \
	python/tests/test_serving_names.py python/tests/test_serving_options.py \
	python/tests/test_serving.py python/tests/test_arguments.py python/tests/test_profiles.py \
	python/tests/test_conveniences.py \
	python/tests/test_types.py python/tests/typed_good.py python/tests/typed_bad.py \
	python/tests/test_files.py python/tests/test_handles.py python/tests/test_hostile.py \
	python/tests/test_save_load.py python/tests/test_sessions.py

# Tests of the package, in a virtual environment (network once): not part of `make check`.
check-python: all $(driver_stand_in)
	KVARC_BUILD=$(abs_builddir) $(srcdir)/python/check.sh $(abs_builddir)/python-check
# A wheel in python-wheel/dist.
wheel:
	$(srcdir)/python/build_wheel.sh $(abs_builddir)/python-wheel
# The wheel on a bare Debian 12 (as root).
check-wheel:
	$(srcdir)/python/check_wheel.sh $(abs_builddir)/python-wheel
# `pip install ./python` of a tree of sources, on Debian 12 (network).
check-install: all
	$(MAKE) $(AM_MAKEFLAGS) distdir
	KVARC_BUILD=$(abs_builddir) $(srcdir)/python/check_install.sh $(abs_builddir)/python-install \
		$(abs_builddir)/$(distdir)
	rm -rf $(distdir)
.PHONY: check-python wheel check-wheel check-install

# The C side of python/bench/overhead.py.
EXTRA_PROGRAMS += python/bench/one_cache
python_bench_one_cache_SOURCES = python/bench/one_cache.c
python_bench_one_cache_LDADD = libkvarc.la
