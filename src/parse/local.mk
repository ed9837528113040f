# SPDX-License-Identifier: BSD-3-Clause
libkvi_la_SOURCES += \
	src/parse/gguf_scan.c src/parse/gguf_scan.h \
	src/parse/json_text.c src/parse/json_text.h \
	src/parse/members.h \
	src/parse/scan.c src/parse/scan.h \
	src/parse/st_header.c src/parse/st_header.h \
	src/parse/tar_scan.c \
	src/parse/zip_scan.c
