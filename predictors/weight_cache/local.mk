# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/weight_cache/weight_cache.h \
	predictors/weight_cache/weight_cache_file.c \
	predictors/weight_cache/weight_cache_folder.c \
	predictors/weight_cache/weight_cache_space.c
