# SPDX-License-Identifier: BSD-3-Clause
libkvitools_la_SOURCES += \
	src/eval/gate_pack.c src/eval/gate_pack.h \
	src/eval/eval_summary.c src/eval/eval_summary.h \
	src/eval/eval_archive.c \
	src/eval/eval_open.c \
	src/eval/teacher_forced.c src/eval/teacher_forced.h \
	src/eval/eval_state.h \
	src/eval/sensitivity.c src/eval/sensitivity.h \
	src/eval/scores_file.c src/eval/scores_file.h
