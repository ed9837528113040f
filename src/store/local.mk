# SPDX-License-Identifier: BSD-3-Clause
libkvistore_la_SOURCES += \
	src/store/backend.c src/store/backend.h \
	src/store/backend_open.c \
	src/store/backend_folder.c \
	src/store/write_file.c src/store/write_file.h \
	src/store/backend_s3.c src/store/backend_s3.h \
	src/store/backend_redis.c \
	src/store/blocks.c \
	src/store/canary.c \
	src/store/download.c \
	src/store/hiredis_calls.c src/store/hiredis_calls.h \
	src/store/libcurl.c src/store/libcurl.h \
	src/store/llama_server.c \
	src/store/url.c src/store/url.h \
	src/store/session_names.c src/store/session_names.h \
	src/store/manifest.c src/store/manifest.h

# The index is in SQLite: without it there are no stores.
if HAVE_SQLITE3
libkvistore_la_SOURCES += \
	src/store/store_open.c \
	src/store/store_state.h \
	src/store/service.c \
	src/store/store_index.c src/store/store_index.h \
	src/store/sqlite_calls.c src/store/sqlite_calls.h \
	src/store/index_fill.c \
	src/store/index_refresh.c \
	src/store/store_packs.c \
	src/store/store_rows.c \
	src/store/store_content.c \
	src/store/veil.c src/store/veil.h \
	src/store/store_keys.c \
	src/store/sessions.c \
	src/store/store_sessions.c \
	src/store/protocol.c \
	src/store/store_load.c \
	src/store/store_identity.c \
	src/store/store_save.c \
	src/store/new_archive.c src/store/new_archive.h \
	src/store/store_find.c \
	src/store/store_map.c src/store/store_map.h \
	src/store/store_stat.c \
	src/store/store_gc.c src/store/store_gc.h \
	src/store/store_verify.c \
	src/store/store_transfer.c src/store/store_transfer.h
else
libkvistore_la_SOURCES += src/store/store_without.c
endif
