/* SPDX-License-Identifier: BSD-3-Clause */
/* libarchive.h - the calls of libarchive, linked or of the host's library, by their own names */
#ifndef KVI_LIBARCHIVE_H
#define KVI_LIBARCHIVE_H

#include "kvarc.h"
#include "shared.h"

struct kvi_libarchive;
/*
 * What the names below call, the same for good; any thread. With --with-libarchive=dlopen the
 * library is opened by the first call that finds it. To be asked before any other call. NULL: there
 * is none, and *e, which may be NULL, says what to do (OPTIONS).
 */
KVI_SHARED const struct kvi_libarchive *kvi_libarchive(kvarc_error *e);

#ifdef HAVE_LIBARCHIVE

#include <archive.h>
#include <archive_entry.h>

#ifdef LIBARCHIVE_DLOPEN

/* All that is used, without "archive_". */
#define KVI_LIBARCHIVE_CALLS(X)             \
	X(read_new)                         \
	X(read_free)                        \
	X(read_support_format_tar)          \
	X(read_support_format_zip_seekable) \
	X(read_set_callback_data)           \
	X(read_set_read_callback)           \
	X(read_set_skip_callback)           \
	X(read_set_seek_callback)           \
	X(read_open)                        \
	X(read_open1)                       \
	X(read_next_header)                 \
	X(read_data)                        \
	X(read_data_skip)                   \
	X(write_new)                        \
	X(write_free)                       \
	X(write_set_format_pax)             \
	X(write_set_format_pax_restricted)  \
	X(write_set_format_option)          \
	X(write_set_bytes_per_block)        \
	X(write_set_bytes_in_last_block)    \
	X(write_open)                       \
	X(write_header)                     \
	X(write_data)                       \
	X(write_close)                      \
	X(errno)                            \
	X(error_string)                     \
	X(set_error)                        \
	X(format_name)                      \
	X(entry_new)                        \
	X(entry_free)                       \
	X(entry_pathname)                   \
	X(entry_hardlink)                   \
	X(entry_symlink)                    \
	X(entry_filetype)                   \
	X(entry_perm)                       \
	X(entry_size)                       \
	X(entry_size_is_set)                \
	X(entry_mtime)                      \
	X(entry_mtime_nsec)                 \
	X(entry_sparse_count)               \
	X(entry_set_pathname)               \
	X(entry_set_symlink)                \
	X(entry_set_filetype)               \
	X(entry_set_perm)                   \
	X(entry_set_size)                   \
	X(entry_set_mtime)

/* A pointer to each. */
struct kvi_libarchive {
#define KVI_POINTER(name) __typeof__(&archive_##name) la_##name;
	KVI_LIBARCHIVE_CALLS(KVI_POINTER)
#undef KVI_POINTER
};

#define KVI_LIBARCHIVE (kvi_libarchive(NULL))
#define archive_read_new KVI_LIBARCHIVE->la_read_new
#define archive_read_free KVI_LIBARCHIVE->la_read_free
#define archive_read_support_format_tar KVI_LIBARCHIVE->la_read_support_format_tar
#define archive_read_support_format_zip_seekable KVI_LIBARCHIVE->la_read_support_format_zip_seekable
#define archive_read_set_callback_data KVI_LIBARCHIVE->la_read_set_callback_data
#define archive_read_set_read_callback KVI_LIBARCHIVE->la_read_set_read_callback
#define archive_read_set_skip_callback KVI_LIBARCHIVE->la_read_set_skip_callback
#define archive_read_set_seek_callback KVI_LIBARCHIVE->la_read_set_seek_callback
#define archive_read_open KVI_LIBARCHIVE->la_read_open
#define archive_read_open1 KVI_LIBARCHIVE->la_read_open1
#define archive_read_next_header KVI_LIBARCHIVE->la_read_next_header
#define archive_read_data KVI_LIBARCHIVE->la_read_data
#define archive_read_data_skip KVI_LIBARCHIVE->la_read_data_skip
#define archive_write_new KVI_LIBARCHIVE->la_write_new
#define archive_write_free KVI_LIBARCHIVE->la_write_free
#define archive_write_set_format_pax KVI_LIBARCHIVE->la_write_set_format_pax
#define archive_write_set_format_pax_restricted KVI_LIBARCHIVE->la_write_set_format_pax_restricted
#define archive_write_set_format_option KVI_LIBARCHIVE->la_write_set_format_option
#define archive_write_set_bytes_per_block KVI_LIBARCHIVE->la_write_set_bytes_per_block
#define archive_write_set_bytes_in_last_block KVI_LIBARCHIVE->la_write_set_bytes_in_last_block
#define archive_write_open KVI_LIBARCHIVE->la_write_open
#define archive_write_header KVI_LIBARCHIVE->la_write_header
#define archive_write_data KVI_LIBARCHIVE->la_write_data
#define archive_write_close KVI_LIBARCHIVE->la_write_close
#define archive_errno KVI_LIBARCHIVE->la_errno
#define archive_error_string KVI_LIBARCHIVE->la_error_string
#define archive_set_error KVI_LIBARCHIVE->la_set_error
#define archive_format_name KVI_LIBARCHIVE->la_format_name
#define archive_entry_new KVI_LIBARCHIVE->la_entry_new
#define archive_entry_free KVI_LIBARCHIVE->la_entry_free
#define archive_entry_pathname KVI_LIBARCHIVE->la_entry_pathname
#define archive_entry_hardlink KVI_LIBARCHIVE->la_entry_hardlink
#define archive_entry_symlink KVI_LIBARCHIVE->la_entry_symlink
#define archive_entry_filetype KVI_LIBARCHIVE->la_entry_filetype
#define archive_entry_perm KVI_LIBARCHIVE->la_entry_perm
#define archive_entry_size KVI_LIBARCHIVE->la_entry_size
#define archive_entry_size_is_set KVI_LIBARCHIVE->la_entry_size_is_set
#define archive_entry_mtime KVI_LIBARCHIVE->la_entry_mtime
#define archive_entry_mtime_nsec KVI_LIBARCHIVE->la_entry_mtime_nsec
#define archive_entry_sparse_count KVI_LIBARCHIVE->la_entry_sparse_count
#define archive_entry_set_pathname KVI_LIBARCHIVE->la_entry_set_pathname
#define archive_entry_set_symlink KVI_LIBARCHIVE->la_entry_set_symlink
#define archive_entry_set_filetype KVI_LIBARCHIVE->la_entry_set_filetype
#define archive_entry_set_perm KVI_LIBARCHIVE->la_entry_set_perm
#define archive_entry_set_size KVI_LIBARCHIVE->la_entry_set_size
#define archive_entry_set_mtime KVI_LIBARCHIVE->la_entry_set_mtime

#else

/* The names are those of the linker. */
struct kvi_libarchive {
	char linked;
};

#endif
#endif

#endif
