/* SPDX-License-Identifier: BSD-3-Clause */
/* readers.c - archives and imports opened with the keys, profiles and models of the command line */
#include "config.h"

#include "readers.h"

#include <string.h>

#include "library.h"
#include "models.h"
#include "paths.h"
#include "profiles.h"
#include "secrets.h"

/* Restricts the mode of files from an encrypted archive to its owner, whoever may read the
 * archive. */
static void keep_private(struct input *in, const kvarc_reader *r)
{
	kvarc_info info;

	if (kvarc_reader_get_info(r, &info) == KVARC_OK && info.encrypted)
		in->mode = in->mode & 0600 ? in->mode & 0600 : 0600;
}

kvarc_ret readers_open_with(struct input *in, kvarc_reader_options *ro, kvarc_reader **r)
{
	kvarc_source source = input_source(in);
	kvarc_ret ret;

	profiles_reader(ro);
	ro->predictor = models_given();
	ro->keys = keys_given();
	ret = kvarc_reader_open(r, &source, ro);
	if (ret == KVARC_AUTH && in->seekable && keys_ask(in->name)) {
		ro->keys = keys_given();
		ret = kvarc_reader_open(r, &source, ro);
	}
	if (ret == KVARC_OK && in->seekable && models_find(in->name, *r)) {
		kvarc_reader_close(r);
		ro->predictor = models_given();
		ret = kvarc_reader_open(r, &source, ro);
	}
	if (ret == KVARC_OK) {
		keys_note(in->name, *r);
		keep_private(in, *r);
	}
	return ret;
}

kvarc_reader *readers_open(const struct work_options *work, const struct reading_options *reading,
                           struct input *in, unsigned flags, kvarc_error *error)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r = NULL;
	kvarc_ret ret;

	library_common(work, &ro.common, error);
	ro.flags = flags | (reading->allow_lossy ? KVARC_READ_ALLOW_LOSSY : 0);
	ro.checkpoint = reading->checkpoint;
	ret = readers_open_with(in, &ro, &r);
	if (ret != KVARC_OK)
		library_error(in->name, ret, error, in, NULL);
	return r;
}

void readers_each(const struct options *options, bool seek, unsigned flags, readers_fn *fn)
{
	for (size_t i = 0; i < options->n_files; i++) {
		struct input in;
		kvarc_error error;
		kvarc_reader *r;

		if (!input_open(&in, options->files[i], seek))
			continue;
		r = readers_open(&options->work, &options->reading, &in, flags, &error);
		if (r)
			fn(options, &in, r, &error, i == 0);
		kvarc_reader_close(&r);
		input_close(&in);
	}
}

void readers_import_options(const struct work_options *work, const struct import_options *import,
                            kvarc_import_options *io, kvarc_error *error)
{
	library_common(work, &io->common, error);
	io->kv_rule = import->kv_rule;
	io->axes = import->axes;
	io->predictor = models_known();
	io->temp_dir = paths_temporary_folder();
}
