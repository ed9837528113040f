# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += predictors/exact/matmul.h
