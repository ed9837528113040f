/* SPDX-License-Identifier: BSD-3-Clause */
/* backend_open.c - the backend that a URL names */
#include "backend.h"

#include <string.h>

#include "url.h"
#include "util/error.h"

/* The rest of a URL behind its scheme; NULL: it has another one. */
static const char *behind(const char *url, const char *scheme)
{
	size_t n = strlen(scheme);
	return strncmp(url, scheme, n) == 0 ? url + n : NULL;
}

kvarc_ret kvi_backend_open(struct kvi_backend **backend, const char *url,
                           const struct kvi_backend_options *options, kvarc_error *error)
{
	const char *rest;
	char shown[81];
	size_t secret;
	*backend = NULL;
	if ((rest = behind(url, "s3://")))
		return kvi_backend_s3(backend, rest, options, error);
	if ((rest = behind(url, "redis://")))
		return kvi_backend_redis(backend, rest, options, error);
	if ((rest = behind(url, "file://")) || (rest = behind(url, "file:")))
		return kvi_backend_folder(backend, rest, options, error);
	/* a password that was given is no name of a folder */
	(void)kvi_url_secret(url, &secret);
	if (strstr(url, "://") || secret)
		return kvi_fail(error, KVARC_OPTIONS,
		                "store %s: this kind is not known; use a folder, s3:// or redis://",
		                kvi_url_shown(shown, sizeof shown, url));
	return kvi_backend_folder(backend, url, options, error);
}
