/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/workspace.h - files beside a cache: attachments, and folders as tars */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_WORKSPACE_H
#define KVARC_WORKSPACE_H

/* Kinds of items that stand beside a cache (spec 10). */
#define KVARC_ITEM_CONTEXT 6   /* a context checkpoint of an engine */
#define KVARC_ITEM_MEDIA 7     /* an image, audio, ... */
#define KVARC_ITEM_WORKSPACE 8 /* a tar of files */

/*
 * Adds a file to an import as one more item of its archive: kvarc_pack and kvarc_append_import
 * store its bytes as they are, an append those alone that are new since the last checkpoint, and
 * kvarc_unpack gives it back. kind: one of the above; name: a relative path. The source has a known
 * size and stays until the import is closed.
 * Returns OK, OPTIONS (4096 items are there), MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_import_attach(kvarc_import *im,
                                                         const kvarc_source *source, unsigned kind,
                                                         const char *name);

/* How a folder becomes a tar, and a tar a folder; set unused members to 0. */
typedef struct kvarc_workspace_options {
	kvarc_common common;
	/* files and folders that a tar leaves out, wherever they are; those that do not exist are
	 * no fault */
	const char *const *exclude;
	size_t n_exclude;
	/* NULL, or called with one line about each thing that is left out for what it is: a socket,
	 * a pipe, a device */
	void (*note)(void *opaque, const char *text);
	void *note_opaque;
	int replace; /* extract: into a folder that is not empty; files of the same name go */
	uint64_t reserved[4]; /* zero */
} kvarc_workspace_options;
#define KVARC_WORKSPACE_OPTIONS_INIT KVARC_ZERO

/* Account of the files that were written. */
typedef struct kvarc_workspace_result {
	uint64_t files, folders, links;
	uint64_t file_bytes; /* of the files */
	uint64_t left_out;   /* sockets, pipes, devices */
	uint64_t reserved[4];
} kvarc_workspace_result;

/*
 * Writes a folder as a pax tar. The same files give the same tar: names are in ascending byte order
 * of each folder, files have mode and time of last change (folders have no time), nothing has an
 * owner. Links are kept as links and not followed; several names of one file are several files.
 * Extended attributes are not kept, and setuid, setgid and sticky bits neither. The sink takes
 * writes in order. result may be NULL.
 * Returns OK; OPTIONS (no such folder; no libarchive; more than 64 folders deep); IO (a
 * file cannot be read, or changed meanwhile); MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_workspace_pack(const char *folder,
                                                          const kvarc_sink *sink,
                                                          const kvarc_workspace_options *options,
                                                          kvarc_workspace_result *result);

/*
 * Extracts such a tar into a folder, which is made when it is not there, and which must be empty
 * unless options->replace. All entries are looked at before the first one is written: names are
 * relative paths without ".." (spec 10.1), types are files, folders and symbolic links, and the
 * bytes of all files together are no more than the tar has. Nothing is written through a link, so
 * nothing outside of the folder. Folders get at least mode 0700. The source can seek. result may be
 * NULL.
 * Returns OK; DATA (damaged, or it has what must not be extracted: nothing was written); OPTIONS
 * (the folder is not empty; no libarchive); IO, MEM, MEMLIMIT, PROG.
 */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_workspace_extract(const kvarc_source *source,
                                                             const char *folder,
                                                             const kvarc_workspace_options *options,
                                                             kvarc_workspace_result *result);

#endif
