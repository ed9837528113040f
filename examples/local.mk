# SPDX-License-Identifier: BSD-3-Clause
# Small complete programs on the public header; `make check' runs them.
kv_examples = examples/01_pack_buffer examples/02_read_range \
	examples/03_append_commit examples/04_pack_file \
	examples/05_read_pipe examples/06_allocator \
	examples/07_external_predictor examples/08_slow_source \
	examples/09_threads
examplesdir = $(docdir)
nobase_dist_examples_DATA = $(kv_examples:=.c) examples/example.h examples/text_ids.py
check_PROGRAMS += $(kv_examples)
TESTS += $(kv_examples)

examples_01_pack_buffer_SOURCES = examples/01_pack_buffer.c examples/example.h
examples_01_pack_buffer_LDADD = libkvarc.la
examples_02_read_range_SOURCES = examples/02_read_range.c
examples_02_read_range_LDADD = libkvarc.la
examples_03_append_commit_SOURCES = examples/03_append_commit.c
examples_03_append_commit_LDADD = libkvarc.la
examples_04_pack_file_SOURCES = examples/04_pack_file.c
examples_04_pack_file_LDADD = libkvarc.la
examples_05_read_pipe_SOURCES = examples/05_read_pipe.c
examples_05_read_pipe_LDADD = libkvarc.la
examples_06_allocator_SOURCES = examples/06_allocator.c
examples_06_allocator_LDADD = libkvarc.la
examples_07_external_predictor_SOURCES = examples/07_external_predictor.c \
	examples/example.h
examples_07_external_predictor_LDADD = libkvarc.la
examples_08_slow_source_SOURCES = examples/08_slow_source.c examples/example.h
examples_08_slow_source_LDADD = libkvarc.la
examples_09_threads_SOURCES = examples/09_threads.c examples/example.h
examples_09_threads_LDADD = libkvarc.la
