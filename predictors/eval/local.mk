# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/eval/eval.h predictors/eval/forced.h \
	predictors/eval/forced.c predictors/eval/rows.c \
	predictors/eval/divergence.c predictors/eval/divergence.h \
	predictors/eval/statistics.c predictors/eval/statistics.h \
	predictors/eval/summary.c \
	predictors/eval/scores.c predictors/eval/scores.h \
	predictors/eval/harm.c predictors/eval/harm.h \
	predictors/eval/gate.c predictors/eval/proxy.c predictors/eval/proxy.h \
	predictors/eval/archive.c predictors/eval/handle.c
