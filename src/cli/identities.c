/* SPDX-License-Identifier: BSD-3-Clause */
/* identities.c - what pack records about a file, and the time that unpack restores */
#include "config.h"

#include "identities.h"

#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "message.h"
#include "times.h"

static bool record(const struct input *in, kvarc_import *im, const kvarc_error *error,
                   const char *key, const char *value)
{
	kvarc_ret ret = kvarc_import_identity(im, key, value);

	if (ret != KVARC_OK)
		library_error(in->name, ret, error, in, NULL);
	return ret == KVARC_OK;
}

bool identities_record(const struct option_list *identity, const struct input *in, kvarc_import *im,
                       const kvarc_error *error)
{
	struct timespec t = in->mtime;
	char time[TIMES_BYTES];
	bool set, ok = true;

	if (!times_of_environment(&t, &set))
		return false;
	if ((set || in->has_mtime) && times_write(time, t))
		ok = record(in, im, error, "time", time);
	for (size_t i = 0; i < identity->n && ok; i++) {
		const char *equal = strchr(identity->p[i], '=');
		char *key = strndup(identity->p[i], (size_t)(equal - identity->p[i]));

		if (!key)
			msg_error(NULL, "out of memory");
		ok = key && record(in, im, error, key, equal + 1);
		free(key);
	}
	return ok;
}

struct timespec identities_time(const struct input *in, kvarc_reader *r)
{
	const char *recorded = kvarc_reader_identity(r, "time");
	struct timespec t = in->mtime;
	kvarc_checkpoint c;

	if (recorded)
		(void)times_read(recorded, &t);
	for (size_t i = 0; kvarc_reader_checkpoint(r, i, &c) == KVARC_OK; i++) {
		if (c.time)
			t = (struct timespec){ .tv_sec = (time_t)(c.time / 1000),
				               .tv_nsec = (long)(c.time % 1000) * 1000000 };
	}
	return t;
}
