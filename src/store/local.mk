# SPDX-License-Identifier: BSD-3-Clause
libkvistore_la_SOURCES += \
	src/store/backend.c src/store/backend.h \
	src/store/backend_folder.c src/store/write_file.c src/store/write_file.h \
	src/store/backend_s3.c src/store/s3_request.c src/store/s3_request.h \
	src/store/s3_list.c src/store/s3_list.h src/store/s3_parts.c src/store/s3_parts.h \
	src/store/backend_redis.c src/store/redis_command.c src/store/redis_command.h \
	src/store/blocks.c \
	src/store/hiredis_calls.c src/store/hiredis_calls.h \
	src/store/libcurl.c src/store/libcurl.h \
	src/store/server_http.c src/store/server_http.h \
	src/store/server.c src/store/server_check.c src/store/server_state.h \
	src/store/url.c src/store/url.h \
	src/store/session_names.c src/store/session_names.h \
	src/store/manifest.c src/store/manifest.h

# The index is in SQLite: without it there are no stores.
if HAVE_SQLITE3
libkvistore_la_SOURCES += \
	src/store/store_open.c src/store/store_state.h src/store/service.c \
	src/store/store_index.c src/store/store_index.h src/store/index_state.h \
	src/store/index_copy.c src/store/sqlite_calls.c src/store/sqlite_calls.h \
	src/store/index_changes.c src/store/index_queries.c \
	src/store/index_fill.c src/store/index_refresh.c \
	src/store/store_packs.c src/store/store_content.c \
	src/store/veil.c src/store/veil.h src/store/store_keys.c \
	src/store/sessions.c src/store/store_sessions.c \
	src/store/protocol.c src/store/store_load.c src/store/store_identity.c \
	src/store/save_plan.c src/store/save_plan.h src/store/save_partial.c \
	src/store/save_check.c src/store/save_check.h \
	src/store/new_archive.c src/store/new_archive.h \
	src/store/save_archive.c src/store/save_archive.h \
	src/store/save_encryption.c src/store/save_encryption.h \
	src/store/store_save.c src/store/store_find.c \
	src/store/store_map.c src/store/store_map.h src/store/store_stat.c \
	src/store/store_gc.c src/store/gc_steps.c src/store/gc_steps.h \
	src/store/repack.c src/store/repack.h \
	src/store/repack_plan.c src/store/repack_plan.h \
	src/store/store_verify.c src/store/store_transfer.c \
	src/store/transfer_steps.c src/store/transfer_steps.h \
	src/store/tar_stream.c src/store/tar_stream.h \
	src/store/store_names.c src/store/store_names.h \
	src/store/store_tar.c
else
libkvistore_la_SOURCES += src/store/store_without.c
endif
