# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/kept/kept.h predictors/kept/kept_file.c \
	predictors/kept/kept_folder.c predictors/kept/kept_room.c
