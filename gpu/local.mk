# SPDX-License-Identifier: BSD-3-Clause
# Kernels for GPUs. Nothing else in the tree needs them: `make check` runs them on the host;
# `make gpu-kernels` and `make check-gpu` need CUDA.

gpu_sources = gpu/device_job.h gpu/warp.h gpu/warp_device_body.h gpu/warp_host_body.h \
	gpu/stream_words_body.h gpu/layers_decode_body.h gpu/view_rows_body.h gpu/hash_body.h \
	gpu/grid_contexts_body.h gpu/grid_decode_body.h gpu/cells_decode_body.h \
	gpu/encode_job.h gpu/stream_encode_body.h gpu/chunk_encode_body.h \
	gpu/payload_encode_body.h gpu/layers_encode_body.h gpu/cells_encode_body.h \
	gpu/output_run_body.h \
	gpu/chunk_open_body.h gpu/chunk_finish_body.h gpu/wide_copy_body.h gpu/batch_run_body.h \
	gpu/warp_float.h gpu/warp_float_device_body.h gpu/warp_float_host_body.h \
	gpu/exact_job.h gpu/exact_product_body.h gpu/exact_quantise_body.h \
	gpu/exact_rows_body.h gpu/exact_attention_body.h gpu/host_race.h
gpu_kernels = gpu/decode_kernels.cu gpu/encode_kernels.cu gpu/exact_kernels.cu
EXTRA_DIST += $(gpu_sources) $(gpu_kernels) gpu/README.md gpu/check_gpu.sh gpu/sass_report.py \
	gpu/sass_code.py gpu/ptx_scan.py gpu/sass.txt m4/kv_gpu.m4 tests/gpu/chunks.sh \
	tests/gpu/plans.sh tests/gpu/outputs.sh tests/gpu/races.sh tests/gpu/runs.sh tests/gpu/engine.sh \
	tests/gpu/narrow_sample.py tests/gpu/first_contact.sh
# A kit for the first GPU (README.md).
EXTRA_DIST += gpu/first_contact/first_contact.sh gpu/first_contact/make_kit.sh gpu/first_contact/peers.py \
	gpu/first_contact/driver_bridge.c gpu/first_contact/primitives.cu gpu/first_contact/primitives_body.h
contact_programs = gpu/first_contact/gpu_facts gpu/first_contact/gpu_speed
EXTRA_PROGRAMS = $(contact_programs)
CLEANFILES += $(contact_programs)
gpu_first_contact_gpu_facts_SOURCES = gpu/first_contact/gpu_facts.c gpu/first_contact/contact.c \
	gpu/first_contact/contact.h gpu/first_contact/primitives_host.cc gpu/first_contact/primitives.h \
	gpu/host_fault.cc gpu/host_fault.h
gpu_first_contact_gpu_facts_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
gpu_first_contact_gpu_facts_CXXFLAGS = $(KV_CXXFLAGS) $(KV_CXXWARN)
gpu_first_contact_gpu_facts_LDADD = libkvidevice.la libkvi.la $(DL_LIBS) -lm
gpu_first_contact_gpu_facts_LINK = $(LINK)
gpu_first_contact_gpu_speed_SOURCES = gpu/first_contact/gpu_speed.c gpu/first_contact/contact.c \
	gpu/first_contact/contact.h
gpu_first_contact_gpu_speed_LDADD = libkvidevice.la libkvi.la $(DL_LIBS) -lm
.PHONY: gpu-first-contact first-contact-programs
first-contact-programs: kvarc $(contact_programs) tests/gpu/check_plans tests/gpu/check_outputs
gpu-first-contact: gpu-kernels gpu/kvarc-primitives.fatbin first-contact-programs
	srcdir=$(srcdir) CC='$(CC)' $(srcdir)/gpu/first_contact/make_kit.sh gpu/kvarc-gpu-kit

if GPU_TESTS
check_PROGRAMS += tests/gpu/check_chunks tests/gpu/check_products
TESTS += tests/gpu/chunks.sh tests/gpu/check_products
check_PROGRAMS += tests/gpu/check_engine
TESTS += tests/gpu/engine.sh
if ENABLE_SHARED
driver_stand_in = tests/device/driver_stand_in.la
check_LTLIBRARIES += $(driver_stand_in)
check_PROGRAMS += tests/gpu/check_plans tests/gpu/check_outputs
TESTS += tests/gpu/plans.sh tests/gpu/outputs.sh
if GPU_RACES
driver_races = tests/device/driver_races.la
check_LTLIBRARIES += $(driver_races)
check_PROGRAMS += tests/gpu/check_races tests/gpu/check_engine_races
TESTS += tests/gpu/races.sh
endif
endif
endif
# A stand-in of NVIDIA's driver, which runs the kernels on the host.
tests_device_driver_stand_in_la_SOURCES = tests/device/driver_stand_in.cc \
	tests/device/stand_in_calls.cc \
	tests/device/stand_in_exact.cc tests/device/stand_in_grid.h \
	gpu/host_fault.cc gpu/host_fault.h
tests_device_driver_stand_in_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
tests_device_driver_stand_in_la_CXXFLAGS = $(KV_CXXFLAGS) $(KV_CXXWARN) -fvisibility=default
tests_device_driver_stand_in_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
tests_gpu_check_plans_SOURCES = tests/gpu/check_plans.c \
	tests/gpu/device_trial.c tests/gpu/device_trial.h
tests_gpu_check_plans_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
tests_gpu_check_plans_LDADD = libkvidevice.la libkvi.la $(DL_LIBS)
tests_gpu_check_outputs_SOURCES = tests/gpu/check_outputs.c \
	tests/gpu/device_trial.c tests/gpu/device_trial.h tests/synth.c tests/synth.h
tests_gpu_check_outputs_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
tests_gpu_check_outputs_LDADD = libkvidevice.la libkvi.la $(DL_LIBS) -lm
tests_gpu_check_chunks_SOURCES = tests/gpu/check_chunks.c \
	tests/gpu/archive_chunks.c tests/gpu/archive_chunks.h \
	tests/gpu/encode_trial.c tests/gpu/encode_trial.h \
	gpu/chunk_plan.c gpu/chunk_plan.h gpu/host_run.cc gpu/host_run.h gpu/host_fault.cc gpu/host_fault.h
tests_gpu_check_chunks_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
tests_gpu_check_chunks_CXXFLAGS = $(KV_CXXFLAGS) $(KV_CXXWARN)
tests_gpu_check_chunks_LDADD = libkvi.la -lstdc++
# Nothing of the C++ library is used, but by sanitizers, whose flags C has.
tests_gpu_check_chunks_LINK = $(LINK)

tests_gpu_check_products_SOURCES = tests/gpu/check_products.cc gpu/host_fault.h
tests_gpu_check_products_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
tests_gpu_check_products_CXXFLAGS = $(KV_CXXFLAGS) $(KV_CXXWARN)

# The exact engine: its kernels on the host against the library.
tests_gpu_check_engine_SOURCES = tests/gpu/check_engine.c \
	tests/gpu/engine_trial.c tests/gpu/engine_trial.h \
	tests/gpu/made_model.c tests/gpu/made_model.h \
	gpu/exact_plan.c gpu/exact_plan.h gpu/exact_model.c gpu/exact_model.h \
	gpu/exact_run.c gpu/exact_run.h \
	gpu/exact_host_run.cc gpu/exact_host_run.h gpu/host_fault.cc gpu/host_fault.h
tests_gpu_check_engine_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu
tests_gpu_check_engine_CXXFLAGS = $(KV_CXXFLAGS) $(KV_CXXWARN)
tests_gpu_check_engine_LDADD = libkvi.la -lm
tests_gpu_check_engine_LINK = $(LINK)

# The same with a shadow of memory (host_race.h). Compilers call gpu/host_race.c, and not the runtime
# of the sanitizer, which is left out when programs are linked.
races_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/gpu -DKVI_GPU_RACES
races_cxxflags = $(KV_CXXFLAGS) $(KV_CXXWARN) -fsanitize=thread
races_sources = gpu/host_race.c gpu/host_race.h
tests_gpu_check_races_SOURCES = $(tests_gpu_check_chunks_SOURCES) $(races_sources)
tests_gpu_check_races_CPPFLAGS = $(races_cppflags)
tests_gpu_check_races_CXXFLAGS = $(races_cxxflags)
tests_gpu_check_races_LDADD = $(tests_gpu_check_chunks_LDADD) $(DL_LIBS)
tests_gpu_check_races_LINK = $(LINK)
tests_gpu_check_engine_races_SOURCES = $(tests_gpu_check_engine_SOURCES) $(races_sources)
tests_gpu_check_engine_races_CPPFLAGS = $(races_cppflags)
tests_gpu_check_engine_races_CXXFLAGS = $(races_cxxflags)
tests_gpu_check_engine_races_LDADD = $(tests_gpu_check_engine_LDADD) $(DL_LIBS)
tests_gpu_check_engine_races_LINK = $(LINK)
tests_device_driver_races_la_SOURCES = $(tests_device_driver_stand_in_la_SOURCES) $(races_sources)
tests_device_driver_races_la_CPPFLAGS = $(races_cppflags)
tests_device_driver_races_la_CXXFLAGS = $(races_cxxflags) -fvisibility=default
tests_device_driver_races_la_LDFLAGS = $(tests_device_driver_stand_in_la_LDFLAGS)
tests_device_driver_races_la_LINK = $(CXXLINK) $(tests_device_driver_races_la_LDFLAGS)
tests_device_driver_races_la_LIBADD = $(DL_LIBS)

# All architectures, and PTX for later ones.
gpu_architectures = 80 86 89 90 100 120
.PHONY: gpu-kernels check-gpu
gpu-kernels: gpu/kvarc-kernels.fatbin gpu/kvarc-encoders.fatbin gpu/kvarc-exact.fatbin
gpu/kvarc-kernels.fatbin: gpu/decode_kernels.cu $(gpu_sources)
gpu/kvarc-encoders.fatbin: gpu/encode_kernels.cu $(gpu_sources)
gpu/kvarc-exact.fatbin: gpu/exact_kernels.cu $(gpu_sources)
gpu/kvarc-primitives.fatbin: gpu/first_contact/primitives.cu gpu/first_contact/primitives_body.h $(gpu_sources)
gpu/kvarc-kernels.fatbin gpu/kvarc-encoders.fatbin gpu/kvarc-exact.fatbin gpu/kvarc-primitives.fatbin:
	@test -n '$(NVCC)' || { echo 'gpu-kernels: configure found no nvcc (--with-cuda=DIR)'; exit 1; }
	@mkdir -p gpu
	$(AM_V_GEN)codes=; source=decode_kernels.cu; \
	case $@ in *encoders*) source=encode_kernels.cu ;; *exact*) source=exact_kernels.cu ;; \
	*primitives*) source=first_contact/primitives.cu ;; esac; \
	for a in $(gpu_architectures); do codes="$$codes -gencode arch=compute_$$a,code=sm_$$a"; done; \
	$(NVCC) -std=c++17 -O3 -fmad=false -fatbin -o $@ -I$(top_srcdir)/gpu $$codes \
		-gencode arch=compute_80,code=compute_80 $(top_srcdir)/gpu/$$source
CLEANFILES += gpu/kvarc-kernels.fatbin gpu/kvarc-encoders.fatbin gpu/kvarc-exact.fatbin \
	gpu/kvarc-primitives.fatbin gpu/kvarc-gpu-kit.tar.xz
# Where libkvarc-device looks for them; only where they were made.
install-exec-local:
	for f in gpu/kvarc-kernels.fatbin gpu/kvarc-encoders.fatbin gpu/kvarc-exact.fatbin; do \
		test ! -f $$f || { $(MKDIR_P) "$(DESTDIR)$(pkglibdir)" && \
			$(INSTALL_DATA) $$f "$(DESTDIR)$(pkglibdir)"; } || exit 1; \
	done
uninstall-local:
	rm -f "$(DESTDIR)$(pkglibdir)/kvarc-kernels.fatbin" \
		"$(DESTDIR)$(pkglibdir)/kvarc-encoders.fatbin" \
		"$(DESTDIR)$(pkglibdir)/kvarc-exact.fatbin"

# Instruction counts against gpu/sass.txt. ARCHITECTURES='90' takes these alone.
check-gpu:
	srcdir=$(srcdir) NVCC='$(NVCC)' CUOBJDUMP='$(CUOBJDUMP)' PYTHON3='$(PYTHON3)' \
		$(srcdir)/gpu/check_gpu.sh $${ARCHITECTURES:-$(gpu_architectures)}
