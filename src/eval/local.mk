# SPDX-License-Identifier: BSD-3-Clause
libkvitools_la_SOURCES += \
	src/eval/cache_proxy.c src/eval/cache_proxy.h \
	src/eval/divergence.c src/eval/divergence.h \
	src/eval/eval_archive.c \
	src/eval/eval_open.c \
	src/eval/eval_rows.c \
	src/eval/eval_state.h \
	src/eval/eval_summary.c \
	src/eval/teacher_forced.c src/eval/teacher_forced.h \
	src/eval/gate_pack.c \
	src/eval/sensitivity.c src/eval/sensitivity.h \
	src/eval/scores_file.c src/eval/scores_file.h \
	src/eval/statistics.c src/eval/statistics.h
