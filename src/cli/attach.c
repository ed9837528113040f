/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.c - --attach: a folder beside a cache, into an archive and out of it */
#include "config.h"

#include "attach.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "infile.h"
#include "library.h"
#include "message.h"

#define ITEM_NAME "workspace.tar"

static void show_note(void *opaque, const char *text)
{
	const struct options *o = opaque;

	msg_note(o->archive.attach, "%s", text);
}

static void set_options(kvarc_workspace_options *w, const struct options *options,
                        kvarc_error *error)
{
	library_common(&options->work, &w->common, error);
	w->common.progress = NULL;
	w->note = show_note;
	w->note_opaque = (void *)options;
	w->replace = options->force;
}

/* ----- a temporary file ------------------------------------------------ */

static bool open_file(struct workspace *w, const struct options *options)
{
	kvarc_common common;

	library_common(&options->work, &common, &w->error);
	common.progress = NULL;
	w->fd = input_temporary();
	if (w->fd < 0) {
		msg_error(options->archive.attach, "no temporary file for it: %s", strerror(errno));
		return false;
	}
	w->open = true;
	if (kvarc_sink_fd(&w->sink, w->fd, &common) == KVARC_OK) {
		w->sink.flush = NULL; /* nobody needs it after a crash */
		return true;
	}
	library_error(options->archive.attach, KVARC_IO, &w->error, NULL, NULL);
	return false;
}

/* Ends the sink and opens what was written as the source. */
static bool reopen(struct workspace *w, const struct options *options)
{
	kvarc_common common;
	kvarc_ret ret;

	library_common(&options->work, &common, &w->error);
	common.progress = NULL;
	ret = kvarc_sink_close(&w->sink, &w->error);
	if (ret == KVARC_OK)
		ret = kvarc_source_fd(&w->source, w->fd, &common);
	if (ret != KVARC_OK)
		library_error(options->archive.attach, ret, &w->error, NULL, NULL);
	return ret == KVARC_OK;
}

void workspace_close(struct workspace *w)
{
	if (!w->open)
		return;
	kvarc_source_close(&w->source);
	/* The sink is closed, whatever the call returns. */
	w->open = kvarc_sink_close(&w->sink, NULL) != KVARC_OK;
	close(w->fd);
	w->open = false;
}

/* ----- in ------------------------------------------------ */

bool workspace_attach(struct workspace *w, const struct options *options, kvarc_import *im,
                      const char *const *exclude, size_t n)
{
	kvarc_workspace_options wo = KVARC_WORKSPACE_OPTIONS_INIT;
	kvarc_workspace_result result;
	kvarc_ret ret;

	if (!options->archive.attach)
		return true;
	if (!open_file(w, options))
		return false;
	set_options(&wo, options, &w->error);
	wo.exclude = exclude;
	wo.n_exclude = n;
	ret = kvarc_workspace_pack(options->archive.attach, &w->sink, &wo, &result);
	if (ret != KVARC_OK) {
		library_error(options->archive.attach, ret, &w->error, NULL, NULL);
		return false;
	}
	if (!reopen(w, options))
		return false;
	ret = kvarc_import_attach(im, &w->source, KVARC_ITEM_WORKSPACE, ITEM_NAME);
	if (ret != KVARC_OK)
		library_error(options->archive.attach, ret, NULL, NULL, NULL);
	return ret == KVARC_OK;
}

/* ----- out ------------------------------------------------ */

bool workspace_check(const struct options *options)
{
	DIR *dir = options->archive.attach ? opendir(options->archive.attach) : NULL;
	size_t n = 0;

	if (options->archive.attach && !dir && errno != ENOENT) {
		msg_error(options->archive.attach, "cannot be extracted to: %s", strerror(errno));
		return false;
	}
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	if (n > 2 && !options->force)
		msg_error(options->archive.attach,
		          "is not empty; use -f to extract into it all the same");
	return n <= 2 || options->force;
}

int workspace_item(struct workspace *w, const struct options *options, const char *archive,
                   kvarc_sink *sink)
{
	if (!options->archive.attach) {
		msg_note(archive, "its workspace is left out; --attach DIR extracts it");
		return 1;
	}
	if (w->open) {
		msg_error(archive, "holds more than one workspace");
		return -1;
	}
	if (!open_file(w, options))
		return -1;
	*sink = w->sink;
	return 0;
}

bool workspace_extract(struct workspace *w, const struct options *options, const char *archive)
{
	kvarc_workspace_options wo = KVARC_WORKSPACE_OPTIONS_INIT;
	kvarc_workspace_result n;
	kvarc_ret ret;

	if (!options->archive.attach)
		return true;
	if (!w->open) {
		msg_warning(archive, "has no workspace: nothing was extracted to %s",
		            options->archive.attach);
		return true;
	}
	if (!reopen(w, options))
		return false;
	set_options(&wo, options, &w->error);
	ret = kvarc_workspace_extract(&w->source, options->archive.attach, &wo, &n);
	if (ret != KVARC_OK)
		library_error(archive, ret, &w->error, NULL, NULL);
	else
		msg_note(archive, "its workspace: %llu file%s -> %s", (unsigned long long)n.files,
		         n.files == 1 ? "" : "s", options->archive.attach);
	return ret == KVARC_OK;
}
