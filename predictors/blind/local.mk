# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/blind/blind.h predictors/blind/blind.c \
	predictors/blind/guess.h predictors/blind/guess.c
