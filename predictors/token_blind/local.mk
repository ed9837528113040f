# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	predictors/token_blind/token_blind.c predictors/token_blind/token_blind.h
