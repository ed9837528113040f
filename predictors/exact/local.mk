# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/exact/matmul.h predictors/exact/matmul.c \
	predictors/exact/matmul_scalar.c predictors/exact/operand.c \
	predictors/exact/quantise.h
