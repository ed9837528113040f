/* SPDX-License-Identifier: BSD-3-Clause */
/* workspace_tar.c - what packing and extracting a workspace share, and attachments of imports */
#include "config.h"

#include "workspace_tar.h"

#include <string.h>

#include "import_internal.h"
#include "util/arguments.h"
#include "util/libarchive.h"

kvarc_ret kvi_workspace_begin(struct kvi_workspace *w, const char *call,
                              const kvarc_workspace_options *options,
                              kvarc_workspace_result *result)
{
	static const kvarc_workspace_options defaults = KVARC_WORKSPACE_OPTIONS_INIT;
	w->options = options ? *options : defaults;
	w->error = w->options.common.error;
	w->result = result ? result : &w->unused;
	memset(w->result, 0, sizeof *w->result);
	kvi_alloc_init(&w->alloc, w->options.common.allocator, w->options.common.memlimit);
	kvarc_ret ret = kvi_check_common(&w->options.common);
	if (!ret)
		ret = KVI_CHECK_RESERVED(w->error, call, "kvarc_workspace_options", &w->options);
	if (!ret && w->options.n_exclude && !w->options.exclude)
		ret = kvi_fail(w->error, KVARC_PROG, "%s: exclude is NULL", call);
	if (!ret && !kvi_libarchive(w->error))
		ret = KVARC_OPTIONS;
	return ret;
}

kvarc_ret kvi_workspace_without(const kvarc_workspace_options *options)
{
	(void)kvi_libarchive(options ? options->common.error : NULL);
	return KVARC_OPTIONS;
}

/* A component of a path, n bytes. */
static bool is_safe(const char *p, size_t n)
{
	if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
			return false;
	return true;
}

bool kvi_workspace_name_safe(const char *name)
{
	const size_t bytes = strlen(name);
	size_t depth = 0;
	if (bytes >= KVI_WORKSPACE_PATH)
		return false;
	while (depth++ <= KVI_WORKSPACE_DEPTH) {
		const size_t n = strcspn(name, "/");
		if (!is_safe(name, n))
			return false;
		if (!name[n])
			return true;
		name += n + 1;
	}
	return false;
}

kvarc_ret kvarc_import_attach(kvarc_import *im, const kvarc_source *source, unsigned kind,
                              const char *name)
{
	static const char call[] = "kvarc_import_attach";
	if (!im)
		return KVARC_PROG;
	kvarc_ret ret = kvi_check_source(im->error, call, source, false);
	if (ret)
		return ret;
	if (source->size == KVARC_UNKNOWN || !name || kind < KVARC_ITEM_CONTEXT ||
	    kind > KVARC_ITEM_WORKSPACE)
		return kvi_fail(im->error, KVARC_PROG,
		                "%s: give a source of known size, a kind and a name", call);
	if (im->n_items >= KVI_IMPORT_ITEMS_MAX)
		return kvi_fail(im->error, KVARC_OPTIONS, "%s: the import has too many items",
		                call);
	struct kvi_imp_item *item = kvi_import_add_item(im, name);
	if (!item)
		return kvi_fail_alloc(im->error, &im->alloc);
	item->src = *source;
	item->kind = (uint16_t)kind;
	return KVARC_OK;
}
