# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/predictor_handle.c predictors/predictor_handle.h
