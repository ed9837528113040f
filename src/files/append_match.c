/* SPDX-License-Identifier: BSD-3-Clause */
/* append_match.c - whether an import continues an archive: the same model, cache and layout */
#include "append_match.h"

#include <string.h>

#include "format/geometry_check.h"
#include "import_internal.h"
#include "reader/reader_internal.h"
#include "util/error.h"

static kvarc_ret other(kvarc_reader *r, const char *what, uint64_t file, uint64_t archive)
{
	return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
	                "it cannot be appended: it has %llu %s, and the archive has %llu: give "
	                "another archive, or another file",
	                (unsigned long long)file, what, (unsigned long long)archive);
}

/* Heads and channels are a matter of how an import was made: their product is not. */
static bool same_tensor(const kvarc_tensor *a, const kvarc_tensor *b)
{
	return a->layer == b->layer && a->kind == b->kind && a->role == b->role &&
	       a->track == b->track && a->source_type == b->source_type &&
	       kvi_tensor_width(a) == kvi_tensor_width(b);
}

static kvarc_ret match_tensor(kvarc_reader *r, const kvarc_tensor *file,
                              const kvarc_tensor *archive)
{
	if (file->dtype != archive->dtype)
		return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
		                "it cannot be appended: its layer %u has elements of type %s, that "
		                "of the archive %s: give another archive, or another file",
		                (unsigned)file->layer, kvarc_dtype_name(file->dtype),
		                kvarc_dtype_name(archive->dtype));
	if (!same_tensor(file, archive))
		return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
		                "it cannot be appended: the tensors of its layer %u are not those "
		                "of the archive: give another archive, or another file",
		                (unsigned)file->layer);
	return KVARC_OK;
}

static kvarc_ret match_geometry(kvarc_reader *r, const kvarc_geometry *file)
{
	const kvarc_geometry *archive = kvarc_reader_geometry(r);
	kvarc_ret ret = KVARC_OK;
	if (file->n_tracks != archive->n_tracks)
		return other(r, "tracks", file->n_tracks, archive->n_tracks);
	if (file->n_tensors != archive->n_tensors)
		return other(r, "tensors", file->n_tensors, archive->n_tensors);
	for (size_t i = 0; i < file->n_tracks; i++)
		if (file->tracks[i].kind != archive->tracks[i].kind)
			return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
			                "it cannot be appended: its track %zu is of another kind "
			                "than that of the archive: give another archive",
			                i);
	for (size_t i = 0; i < file->n_tensors && !ret; i++)
		ret = match_tensor(r, &file->tensors[i], &archive->tensors[i]);
	return ret;
}

/* A pair that only one of them has says nothing. */
static kvarc_ret match_pair(kvarc_reader *r, const char *key, const char *file)
{
	const char *archive = kvarc_reader_identity(r, key);
	if (!file || !*file || !archive || !*archive || !strcmp(file, archive))
		return KVARC_OK;
	return kvi_fail(kvi_reader_error(r), KVARC_GEOMETRY,
	                "it cannot be appended: its %.30s is '%.50s', that of the archive '%.50s': "
	                "give another archive",
	                key, file, archive);
}

static kvarc_ret match_identity(kvarc_reader *r, const kvarc_import *im)
{
	static const char *const keys[] = { "engine", "layout", "model" };
	const char *own[] = { im->engine, im->layout, kvarc_import_model(im) };
	const struct kvi_identity *given = &im->identity;
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < sizeof keys / sizeof *keys && !ret; i++)
		if (!kvi_identity_get(given, keys[i]))
			ret = match_pair(r, keys[i], own[i]);
	for (size_t i = 0; i < given->n && !ret; i++)
		if (strcmp(given->pairs[i].key, "time"))
			ret = match_pair(r, given->pairs[i].key, given->pairs[i].value);
	return ret;
}

kvarc_ret kvi_append_match(kvarc_reader *r, kvarc_import *im)
{
	const kvarc_geometry *archive = kvarc_reader_geometry(r);
	if (kvarc_reader_identity(r, "lossy"))
		return kvi_fail(kvi_reader_error(r), KVARC_LOSSY,
		                "a lossy tier has changed the tokens of the archive, so no file "
		                "continues it: give another archive");
	kvarc_ret ret = match_geometry(r, &im->geometry);
	if (!ret)
		ret = match_identity(r, im);
	for (size_t i = 0; i < archive->n_tensors && !ret; i++) {
		im->pub_tensors[i].heads = im->tensors[i].pub.heads = archive->tensors[i].heads;
		im->pub_tensors[i].channels = im->tensors[i].pub.channels =
			archive->tensors[i].channels;
	}
	return ret;
}
