# SPDX-License-Identifier: BSD-3-Clause
libkvidevice_la_SOURCES += \
	src/device/driver.c src/device/driver.h \
	src/device/device_open.c src/device/device_state.h \
	src/device/device_kernels.c src/device/device_memory.c src/device/device_copy.c \
	src/device/device_plan.c src/device/plan_state.h \
	src/device/device_stage.c src/device/device_place.c \
	src/device/device_launch.c src/device/device_answer.c \
	src/device/device_model.c src/device/device_model.h src/device/model_check.c \
	src/device/exact_launch.c src/device/exact_launch.h \
	src/device/output_plan.c src/device/device_append.c \
	gpu/chunk_plan.c gpu/chunk_plan.h gpu/device_job.h gpu/encode_job.h \
	gpu/exact_plan.c gpu/exact_plan.h gpu/exact_job.h gpu/exact_model.c gpu/exact_model.h \
	gpu/exact_run.c gpu/exact_run.h
