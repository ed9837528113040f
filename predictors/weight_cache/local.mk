# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/weight_cache/weight_cache.c predictors/weight_cache/weight_cache.h
