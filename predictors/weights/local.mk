# SPDX-License-Identifier: BSD-3-Clause
libkvicommon_la_SOURCES += \
	predictors/weights/model_geometry.c predictors/weights/model_geometry.h

libkvi_la_SOURCES += \
	predictors/weights/arch.c \
	predictors/weights/config_json.c \
	predictors/weights/gguf_model.c \
	predictors/weights/model_file.c predictors/weights/model_file.h \
	predictors/weights/model_internal.h \
	predictors/weights/model_map.c \
	predictors/weights/model_numbers.c \
	predictors/weights/model_tensors.c \
	predictors/weights/rope_scaling.c \
	predictors/weights/safetensors_model.c
