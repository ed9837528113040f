/* SPDX-License-Identifier: BSD-3-Clause */
/* download.c - a file of an https server into a sink, by libcurl */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "libcurl.h"
#include "url.h"
#include "kvarc/exchange.h"
#include "util/arguments.h"
#include "util/error.h"

#ifdef HAVE_LIBCURL

enum { URL_MAX = 2048, CONNECT_SECONDS = 10, STALL_SECONDS = 60, REDIRECTS_MOST = 5 };

/* A file on its way. */
struct download {
	const kvarc_sink *sink;
	const kvarc_common *common;
	uint64_t done, most;
	CURL *curl;
	bool too_long, stopped, sink_failed;
	int sink_errno; /* that of the write that failed; cleaning up changes errno */
};

static uint64_t total_of(const struct download *download)
{
	curl_off_t total = -1;
	curl_easy_getinfo(download->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &total);
	return total < 0 ? KVARC_UNKNOWN : (uint64_t)total;
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *opaque)
{
	struct download *d = opaque;
	n *= size;
	errno = 0;
	d->too_long = n > d->most - d->done;
	d->sink_failed = !d->too_long && d->sink->write(d->sink->opaque, bytes, n, d->done);
	d->sink_errno = errno;
	if (d->too_long || d->sink_failed)
		return CURL_WRITEFUNC_ERROR;
	d->done += n;
	d->stopped = d->common->progress &&
	             d->common->progress(d->common->progress_opaque, d->done, total_of(d));
	return d->stopped ? CURL_WRITEFUNC_ERROR : n;
}

/* Whether the URL is of this host by http: nobody is between. */
static bool is_loopback(const char *url)
{
	static const char *const hosts[] = { "http://127.0.0.1", "http://localhost",
		                             "http://[::1]" };
	for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
		const size_t n = strlen(hosts[i]);
		if (strncmp(url, hosts[i], n) == 0 && (url[n] == ':' || url[n] == '/'))
			return true;
	}
	return false;
}

static CURLcode perform(const char *url, struct download *download, char why[CURL_ERROR_SIZE])
{
	CURL *curl = download->curl;
	why[0] = 0;
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, is_loopback(url) ? "http" : "https");
	curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "https");
	curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
	curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MOST);
	curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, download);
	return curl_easy_perform(curl);
}

static kvarc_ret download_file(const char *url, struct download *download)
{
	kvarc_error *error = download->common->error;
	char shown[URL_MAX], why[CURL_ERROR_SIZE];
	if (strlen(url) >= URL_MAX || (strncmp(url, "https://", 8) != 0 && !is_loopback(url)))
		return kvi_fail(error, KVARC_OPTIONS,
		                "download: write https://HOST/FILE (http:// is for this host)");
	if (!kvi_url_secret_is_plain(url))
		return kvi_fail(error, KVARC_OPTIONS, "download: %s", KVI_URL_NOT_PLAIN);
	if (!kvi_libcurl(error))
		return KVARC_OPTIONS;
	kvi_url_shown(shown, sizeof shown, url);
	download->curl = curl_easy_init();
	if (!download->curl)
		return kvi_fail(error, KVARC_MEM, "download: libcurl cannot be started");
	const CURLcode code = perform(url, download, why);
	curl_easy_cleanup(download->curl);
	if (download->too_long)
		return kvi_fail(error, KVARC_IO, "download of %.200s: it is longer than %llu bytes",
		                shown, (unsigned long long)download->most);
	if (download->sink_failed) {
		errno = download->sink_errno;
		return kvi_fail_callback(error, download->done, KVARC_UNKNOWN,
		                         "download of %.200s: writing it failed", shown);
	}
	if (download->stopped)
		return kvi_fail(error, KVARC_IO, "download of %.200s: stopped", shown);
	if (code != CURLE_OK)
		return kvi_fail(error, KVARC_IO, "download of %.200s: %s", shown,
		                why[0] ? why : curl_easy_strerror(code));
	return KVARC_OK;
}

#endif

kvarc_ret kvarc_download(const char *url, uint64_t most, const kvarc_sink *sink,
                         const kvarc_common *common)
{
	const kvarc_common none = KVARC_ZERO;
	common = common ? common : &none;
	kvarc_ret ret = kvi_check_common(common);
	if (!ret)
		ret = kvi_check_sink(common->error, "kvarc_download", sink);
	if (!ret && !url)
		ret = kvi_fail(common->error, KVARC_PROG, "kvarc_download: url is NULL");
	if (ret)
		return ret;
#ifdef HAVE_LIBCURL
	struct download download = { .sink = sink, .common = common, .most = most };
	return download_file(url, &download);
#else
	(void)most;
	(void)kvi_libcurl(common->error);
	return KVARC_OPTIONS;
#endif
}
