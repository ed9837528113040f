/* SPDX-License-Identifier: BSD-3-Clause */
/* store_access.c - the store that the command line or the environment names */
#include "config.h"

#include "store_access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "library.h"
#include "message.h"
#include "paths.h"
#include "profiles.h"
#include "secrets.h"

/* paths_of_user for a store or its index; NULL: a message was shown. */
static char *path_of_user(const char *variable, const char *below_home, const char *name)
{
	char *path = paths_of_user(variable, below_home, name);

	if (!path)
		msg_error(NULL, "no store: give one with --store URL or KVARC_STORE");
	return path;
}

static char *find_url(const char *store, bool create)
{
	const char *given = store ? store : getenv("KVARC_STORE");
	char *url;

	if (given && *given)
		return strdup(given);
	url = path_of_user("XDG_DATA_HOME", ".local/share", "kvarc/store");
	if (url && create && !paths_make_above(url, 0700)) {
		free(url);
		return NULL;
	}
	return url;
}

/* The index that --index names, or, of a store that is no folder, in the user's cache, by the
 * URL. */
static bool find_index(struct store_access *access, const char *index)
{
	const char *scheme = strstr(access->given, "://");
	char name[64];

	if (index)
		return (access->index = strdup(index)) != NULL;
	if (!scheme || scheme > strchr(access->given, '/'))
		return true;
	snprintf(name, sizeof(name), "kvarc/%016llx/index.sqlite",
	         (unsigned long long)XXH3_64bits(access->given, strlen(access->given)));
	access->index = path_of_user("XDG_CACHE_HOME", ".cache", name);
	return access->index && paths_make_above(access->index, 0700);
}

static void show_note(void *opaque, const char *text)
{
	(void)opaque;
	msg_note(NULL, "%s", text);
}

/* Whether a store in a folder has no folder. */
static bool is_missing(const char *url)
{
	const bool is_file = strncmp(url, "file:", 5) == 0;
	struct stat st;

	if (!is_file && strstr(url, "://"))
		return false;
	return stat(is_file ? url + 5 : url, &st) != 0 && errno == ENOENT;
}

char *store_access_shown(const char *url)
{
	const size_t n = strlen(url) + 1;
	char *text = malloc(n);

	if (!text)
		msg_error(NULL, "out of memory");
	else
		kvarc_store_shown(url, text, n);
	return text;
}

bool store_access_open(struct store_access *access, const struct store_options *store,
                       const struct key_options *keys, const struct work_options *work, bool create)
{
	kvarc_store_options so = KVARC_STORE_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_ret ret;

	memset(access, 0, sizeof(*access));
	access->given = find_url(store->url, create);
	access->url = access->given ? store_access_shown(access->given) : NULL;
	/* --encrypt without a file asks for a passphrase. */
	if (!access->url || !find_index(access, store->index) ||
	    !keys_writer(keys, false, &so.keys))
		return false;
	so.keys = keys_given();
	library_common(work, &so.common, &access->error);
	so.common.progress = NULL;
	profiles_reader(&ro);
	so.profiles = ro.profiles;
	so.n_profiles = ro.n_profiles;
	so.find_profile = ro.find_profile;
	so.find_opaque = ro.find_opaque;
	so.flags = create ? KVARC_STORE_CREATE : 0;
	so.flags |= store->accept_weak ? KVARC_STORE_ACCEPT_WEAK : 0;
	so.name_space = store->name_space;
	so.index = access->index;
	so.temp_dir = paths_temporary_folder();
	so.note = show_note;
	so.access_key = getenv("AWS_ACCESS_KEY_ID");
	so.secret_key = getenv("AWS_SECRET_ACCESS_KEY");
	so.session_token = getenv("AWS_SESSION_TOKEN");
	so.region = getenv("AWS_REGION");
	so.endpoint = getenv("AWS_ENDPOINT_URL");
	const bool is_new = create && is_missing(access->given);
	ret = kvarc_store_open(&access->s, access->given, &so);
	if (ret == KVARC_OK && is_new)
		msg_note(access->url, "is a new store");
	if (ret == KVARC_OPTIONS && !create && is_missing(access->given))
		msg_error(NULL,
		          "there is no store at %s yet: 'kvarc session save' makes it; --store or "
		          "KVARC_STORE names another one",
		          access->url);
	else if (ret != KVARC_OK)
		store_access_error(access, access->url, ret);
	return ret == KVARC_OK;
}

const char *store_access_folder(const struct store_access *access)
{
	const size_t skip = strncmp(access->given, "file://", 7) == 0 ? 7
	                    : strncmp(access->given, "file:", 5) == 0 ? 5
	                                                              : 0;

	return access->given + skip;
}

void store_access_close(struct store_access *access)
{
	kvarc_store_close(&access->s);
	free(access->given);
	free(access->url);
	free(access->index);
}

void store_access_error(const struct store_access *access, const char *what, kvarc_ret ret)
{
	library_error(what, ret, &access->error, NULL, NULL);
}
