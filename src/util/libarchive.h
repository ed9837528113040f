/* SPDX-License-Identifier: BSD-3-Clause */
/* libarchive.h - the calls of libarchive, linked or of the host's library, by their own names */
#ifndef KVI_LIBARCHIVE_H
#define KVI_LIBARCHIVE_H

#include "kvarc.h"
#include "util/shared.h"

struct kvi_libarchive;
/*
 * The library behind the names below, always the same one; any thread. With
 * --with-libarchive=dlopen the first call that finds the library opens it. To be called before any
 * other call. NULL: there is no library, and *error, which may be NULL, says what to do (OPTIONS).
 */
KVI_SHARED const struct kvi_libarchive *kvi_libarchive(kvarc_error *error);

#ifdef HAVE_LIBARCHIVE

#include <archive.h>
#include <archive_entry.h>

#ifdef LIBARCHIVE_DLOPEN

#include "util/shared_library.h"

/* The calls that are used. */
#define KVI_LIBARCHIVE_CALLS(X)                     \
	X(archive_read_new)                         \
	X(archive_read_free)                        \
	X(archive_read_support_format_tar)          \
	X(archive_read_support_format_zip_seekable) \
	X(archive_read_set_callback_data)           \
	X(archive_read_set_read_callback)           \
	X(archive_read_set_skip_callback)           \
	X(archive_read_set_seek_callback)           \
	X(archive_read_open)                        \
	X(archive_read_open1)                       \
	X(archive_read_next_header)                 \
	X(archive_read_data)                        \
	X(archive_read_data_skip)                   \
	X(archive_write_new)                        \
	X(archive_write_free)                       \
	X(archive_write_set_format_pax)             \
	X(archive_write_set_format_pax_restricted)  \
	X(archive_write_set_format_option)          \
	X(archive_write_set_bytes_per_block)        \
	X(archive_write_set_bytes_in_last_block)    \
	X(archive_write_open)                       \
	X(archive_write_header)                     \
	X(archive_write_data)                       \
	X(archive_write_close)                      \
	X(archive_errno)                            \
	X(archive_error_string)                     \
	X(archive_set_error)                        \
	X(archive_format_name)                      \
	X(archive_entry_new)                        \
	X(archive_entry_free)                       \
	X(archive_entry_pathname)                   \
	X(archive_entry_hardlink)                   \
	X(archive_entry_symlink)                    \
	X(archive_entry_filetype)                   \
	X(archive_entry_perm)                       \
	X(archive_entry_size)                       \
	X(archive_entry_size_is_set)                \
	X(archive_entry_mtime)                      \
	X(archive_entry_mtime_nsec)                 \
	X(archive_entry_sparse_count)               \
	X(archive_entry_set_pathname)               \
	X(archive_entry_set_symlink)                \
	X(archive_entry_set_filetype)               \
	X(archive_entry_set_perm)                   \
	X(archive_entry_set_size)                   \
	X(archive_entry_set_mtime)

/* Pointers to the calls. */
struct kvi_libarchive {
	KVI_LIBARCHIVE_CALLS(KVI_LIBRARY_POINTER)
};

#ifndef KVI_LIBRARY_TABLE
#define archive_read_new (kvi_libarchive(NULL)->archive_read_new)
#define archive_read_free (kvi_libarchive(NULL)->archive_read_free)
#define archive_read_support_format_tar (kvi_libarchive(NULL)->archive_read_support_format_tar)
#define archive_read_support_format_zip_seekable \
	(kvi_libarchive(NULL)->archive_read_support_format_zip_seekable)
#define archive_read_set_callback_data (kvi_libarchive(NULL)->archive_read_set_callback_data)
#define archive_read_set_read_callback (kvi_libarchive(NULL)->archive_read_set_read_callback)
#define archive_read_set_skip_callback (kvi_libarchive(NULL)->archive_read_set_skip_callback)
#define archive_read_set_seek_callback (kvi_libarchive(NULL)->archive_read_set_seek_callback)
#define archive_read_open (kvi_libarchive(NULL)->archive_read_open)
#define archive_read_open1 (kvi_libarchive(NULL)->archive_read_open1)
#define archive_read_next_header (kvi_libarchive(NULL)->archive_read_next_header)
#define archive_read_data (kvi_libarchive(NULL)->archive_read_data)
#define archive_read_data_skip (kvi_libarchive(NULL)->archive_read_data_skip)
#define archive_write_new (kvi_libarchive(NULL)->archive_write_new)
#define archive_write_free (kvi_libarchive(NULL)->archive_write_free)
#define archive_write_set_format_pax (kvi_libarchive(NULL)->archive_write_set_format_pax)
#define archive_write_set_format_pax_restricted \
	(kvi_libarchive(NULL)->archive_write_set_format_pax_restricted)
#define archive_write_set_format_option (kvi_libarchive(NULL)->archive_write_set_format_option)
#define archive_write_set_bytes_per_block (kvi_libarchive(NULL)->archive_write_set_bytes_per_block)
#define archive_write_set_bytes_in_last_block \
	(kvi_libarchive(NULL)->archive_write_set_bytes_in_last_block)
#define archive_write_open (kvi_libarchive(NULL)->archive_write_open)
#define archive_write_header (kvi_libarchive(NULL)->archive_write_header)
#define archive_write_data (kvi_libarchive(NULL)->archive_write_data)
#define archive_write_close (kvi_libarchive(NULL)->archive_write_close)
#define archive_errno (kvi_libarchive(NULL)->archive_errno)
#define archive_error_string (kvi_libarchive(NULL)->archive_error_string)
#define archive_set_error (kvi_libarchive(NULL)->archive_set_error)
#define archive_format_name (kvi_libarchive(NULL)->archive_format_name)
#define archive_entry_new (kvi_libarchive(NULL)->archive_entry_new)
#define archive_entry_free (kvi_libarchive(NULL)->archive_entry_free)
#define archive_entry_pathname (kvi_libarchive(NULL)->archive_entry_pathname)
#define archive_entry_hardlink (kvi_libarchive(NULL)->archive_entry_hardlink)
#define archive_entry_symlink (kvi_libarchive(NULL)->archive_entry_symlink)
#define archive_entry_filetype (kvi_libarchive(NULL)->archive_entry_filetype)
#define archive_entry_perm (kvi_libarchive(NULL)->archive_entry_perm)
#define archive_entry_size (kvi_libarchive(NULL)->archive_entry_size)
#define archive_entry_size_is_set (kvi_libarchive(NULL)->archive_entry_size_is_set)
#define archive_entry_mtime (kvi_libarchive(NULL)->archive_entry_mtime)
#define archive_entry_mtime_nsec (kvi_libarchive(NULL)->archive_entry_mtime_nsec)
#define archive_entry_sparse_count (kvi_libarchive(NULL)->archive_entry_sparse_count)
#define archive_entry_set_pathname (kvi_libarchive(NULL)->archive_entry_set_pathname)
#define archive_entry_set_symlink (kvi_libarchive(NULL)->archive_entry_set_symlink)
#define archive_entry_set_filetype (kvi_libarchive(NULL)->archive_entry_set_filetype)
#define archive_entry_set_perm (kvi_libarchive(NULL)->archive_entry_set_perm)
#define archive_entry_set_size (kvi_libarchive(NULL)->archive_entry_set_size)
#define archive_entry_set_mtime (kvi_libarchive(NULL)->archive_entry_set_mtime)
#endif

#else

/* The names are those of the linker. */
struct kvi_libarchive {
	char linked;
};

#endif
#endif

#endif
