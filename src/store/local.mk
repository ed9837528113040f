# SPDX-License-Identifier: BSD-3-Clause
libkvistore_la_SOURCES += \
	src/store/store_open.c src/store/store_state.h \
	src/store/backend.c src/store/backend.h \
	src/store/backend_folder.c \
	src/store/backend_s3.c src/store/s3_request.c src/store/s3_request.h \
	src/store/s3_list.c src/store/s3_list.h \
	src/store/backend_redis.c \
	src/store/curl_begin.c src/store/curl_begin.h \
	src/store/server_http.c src/store/server_http.h \
	src/store/server.c src/store/server_check.c src/store/server_state.h
