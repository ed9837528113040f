# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += predictors/weights/model_file.h
