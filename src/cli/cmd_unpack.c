/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_unpack.c - kvarc unpack: the packed files, or tensors, out of archives */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "damage_report.h"
#include "gpu_files.h"
#include "identities.h"
#include "items.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "progress.h"
#include "ranges.h"
#include "report.h"
#include "units.h"
#include "watch.h"

/* A value of --salvage-tokens, and one of --to. */
enum { SALVAGE_ZERO = 2, TO_LLAMA = 2 };
#define ZEROS "what was lost is zero in the output"
#define WHOLE_TOKENS "only the first whole tokens of a slot are written"

static void report(const struct options *o, const char *archive, const char *target, uint64_t bytes,
                   double seconds, const struct damage_list *damage, const kvarc_geometry *geometry,
                   const struct item *item)
{
	struct report r;

	report_start(&r, o->json);
	report_string(&r, "file", archive);
	report_string(&r, "output", target);
	report_string(&r, ".output", strcmp(target, "-") == 0 ? "(stdout)" : target);
	report_u64(&r, "bytes", bytes);
	report_real(&r, ".rate", (double)bytes / seconds, 0);
	report_u64(&r, "tokens", damage->loss.tokens);
	damage_report(&r, damage, geometry);
	if (item && item->tokens)
		report_u64(&r, "slot_tokens", item->whole_tokens);
	report_real(&r, "seconds", seconds, 4);
	report_note(&r, archive, "{bytes:B} -> {.output}, {.rate:R}");
	report_end(&r);
}

/* Salvage takes a file that becomes another one for a damaged one. */
static bool is_changed(const struct options *o, const struct input *in)
{
	return o->salvage && watch_input_changed(in, (char[96]){ 0 }, 96);
}

/* Says what salvage could not read, and what becomes of it, else how the archive ends. False: out
 * of memory. */
static bool show_losses(const struct options *o, const char *archive, kvarc_reader *r,
                        struct damage_list *list, const char *rest)
{
	kvarc_info info;

	if (o->salvage)
		kvarc_reader_damage(r, damage_collect, list);
	if (!damage_sum(list, archive, r))
		return false;
	if (list->n) {
		damage_show(archive, list, kvarc_reader_geometry(r), false);
		damage_show_sum(archive, list, false, rest);
	} else if (kvarc_reader_get_info(r, &info) == KVARC_OK) {
		library_warn_state(archive, &info, library_tokens(r));
	}
	return true;
}

/* What becomes of items that have lost something. */
static const char *after_salvage(const struct options *o, const struct items *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (!s->list[i]->slot || o->salvage_tokens == SALVAGE_ZERO)
			return ZEROS;
	return WHOLE_TOKENS;
}

/* Ways out of an archive that holds no file. */
static void show_formats(struct input *in, kvarc_reader *r)
{
	const kvarc_range all = KVARC_RANGE_ALL(0);
	bool llama = kvarc_export_llama(r, &all, NULL, NULL, NULL) == KVARC_OK;
	kvarc_info info;

	if (kvarc_reader_get_info(r, &info) == KVARC_OK && info.state == KVARC_STATE_CUT) {
		msg_error(in->name,
		          "was cut: it ends before its files; what it holds of their "
		          "tokens comes with --to %ssafetensors",
		          llama ? "llama or --to " : "");
		return;
	}
	msg_error(in->name, "holds tensors but no file; use --to %ssafetensors",
	          llama ? "llama or --to " : "");
}

/* The GPU of --device; d NULL: there is none. */
static struct gpu gpu;

static void unpack_items(const struct options *o, struct input *in, kvarc_reader *r,
                         kvarc_error *error)
{
	struct items s = { .o = o, .archive = in->name, .mode = in->mode };
	struct damage_list damage = { 0 };
	struct gpu_files on_gpu = { .gpu = &gpu, .geometry = kvarc_reader_geometry(r) };
	double start = units_now();
	uint64_t tokens;
	kvarc_ret ret;

	kvarc_item first;

	if (kvarc_reader_item(r, 0, &first) == KVARC_END) {
		show_formats(in, r);
		return;
	}
	if (!items_check(&s, r))
		return;
	/* What may differ from the file that was packed is as new as it is. */
	if (!o->salvage && !o->allow_lossy)
		s.mtime = identities_time(in, r);
	progress_start(in->name, KVARC_UNKNOWN);
	tokens = models_tokens(r, NULL);
	progress_tokens(tokens);
	progress_phase(tokens ? "running the model, unpacking" : "unpacking");
	ret = gpu.d ? gpu_load_model(&gpu, r) : KVARC_OK;
	if (!ret)
		ret = gpu.d ? kvarc_unpack_by(r, items_open, &s, gpu_files_read, &on_gpu)
		            : kvarc_unpack(r, items_open, &s);
	progress_stop();
	if (is_changed(o, in))
		ret = KVARC_IO;
	if (ret == KVARC_OK && gpu.d)
		gpu_files_note(&on_gpu, in->name);
	gpu_files_error(&on_gpu, error);
	gpu_files_free(&on_gpu);
	if (ret != KVARC_OK) {
		if (!s.failed && gpu.d && ret == KVARC_PROG)
			msg_error(in->name, "is no file that can seek, which --device needs");
		else if (!s.failed)
			library_error(in->name, ret, error, in, items_failed_output(&s));
	} else {
		const char *rest = after_salvage(o, &s);
		uint64_t bytes = 0;
		bool ok = show_losses(o, in->name, r, &damage, rest);
		if (ok && damage.n && o->salvage_tokens != SALVAGE_ZERO)
			ok = items_shorten(&s, r);
		for (size_t i = 0; i < s.n; i++)
			bytes += s.list[i]->bytes;
		if (ok && damage.n && s.workspace.open) {
			msg_error(in->name, "is damaged: its workspace is not extracted");
			workspace_close(&s.workspace);
		} else if (ok) {
			ok = workspace_extract(&s.workspace, o, in->name);
		}
		if (ok && items_commit(&s))
			report(o, in->name, s.n == 1 ? s.list[0]->path : o->output, bytes,
			       units_now() - start, &damage, kvarc_reader_geometry(r),
			       s.n == 1 ? s.list[0] : NULL);
	}
	damage_free(&damage);
	items_free(&s);
}

/* Where the tensors go. */
static char *export_target(const struct options *o, const char *archive)
{
	char *name, *folder, *path;

	if (paths_to_stdout(o))
		return strdup("-");
	if (o->output && !paths_is_folder(o->output))
		return strdup(o->output);
	name = paths_stem(archive, o->to == TO_LLAMA ? ".llama" : ".safetensors");
	folder = o->output ? strdup(o->output) : paths_folder(archive);
	path = name && folder ? paths_join(folder, name) : NULL;
	free(name);
	free(folder);
	return path;
}

/* What an engine does with a slot that is shorter than the range. */
static void show_shorter(const char *target, const kvarc_slot_prefix *prefix)
{
	if (prefix->whole_tokens < prefix->tokens)
		msg_warning(target,
		            "an engine can go on from %" PRIu64 " of these %" PRIu64
		            " tokens; the file has them, and the engine computes the others",
		            prefix->whole_tokens, prefix->tokens);
}

static void export_tensors(const struct options *o, struct input *in, kvarc_reader *r,
                           kvarc_error *error, bool first)
{
	char *target = export_target(o, in->name);
	struct damage_list damage = { 0 };
	kvarc_slot_prefix prefix = { 0 };
	struct item slot = { 0 };
	double start = units_now();
	struct output out;
	kvarc_range range;
	kvarc_sink sink;
	kvarc_ret ret;

	(void)first;
	if (!target) {
		msg_error(NULL, "out of memory");
		return;
	}
	if (ranges_from_options(o, in->name, r, &range) && paths_make_folder(o) &&
	    output_open(&out, target, OUTPUT_RANDOM | paths_output_flags(o), in->mode)) {
		sink = output_sink(&out);
		progress_start(in->name, KVARC_UNKNOWN);
		ret = o->to == TO_LLAMA ? kvarc_export_llama(r, &range, &sink, NULL, &prefix)
		                        : kvarc_export_safetensors(r, &range, &sink);
		progress_stop();
		if (is_changed(o, in))
			ret = KVARC_IO;
		slot.tokens = prefix.tokens;
		slot.whole_tokens = prefix.whole_tokens;
		if (ret != KVARC_OK) {
			library_error(in->name, ret, error, in, &out);
			output_abort(&out);
		} else {
			uint64_t bytes = out.size;
			const char *rest = o->to == TO_LLAMA ? WHOLE_TOKENS : ZEROS;
			if (show_losses(o, in->name, r, &damage, rest) && output_commit(&out)) {
				show_shorter(target, &prefix);
				report(o, in->name, target, bytes, units_now() - start, &damage,
				       kvarc_reader_geometry(r), &slot);
			}
		}
	}
	damage_free(&damage);
	free(target);
}

/* The last checkpoint of an archive whose last state has no file: an append behind it did not end.
 * 0: there is none, or no reason to look for it. */
static uint64_t last_checkpoint(const struct options *o, kvarc_reader *r)
{
	kvarc_checkpoint c;
	kvarc_item item;
	uint64_t last = 0;

	if (o->checkpoint || kvarc_reader_item(r, 0, &item) == KVARC_OK)
		return 0;
	for (size_t i = 0; kvarc_reader_checkpoint(r, i, &c) == KVARC_OK; i++)
		last = c.number;
	return last;
}

static void unpack_one(const struct options *o, struct input *in, kvarc_reader *r,
                       kvarc_error *error, bool first)
{
	struct options at = *o;

	(void)first;
	at.checkpoint = last_checkpoint(o, r);
	if (!at.checkpoint) {
		unpack_items(o, in, r, error);
		return;
	}
	msg_warning(in->name,
	            "an append did not end; its last checkpoint, %" PRIu64 ", is unpacked",
	            at.checkpoint);
	r = library_open(&at, in, o->salvage ? KVARC_READ_SALVAGE : 0, error);
	if (r)
		unpack_items(&at, in, r, error);
	kvarc_reader_close(&r);
}

static void each(const struct options *o, library_fn *fn)
{
	if (paths_check_operands(o))
		library_each(o, o->salvage || o->to, o->salvage ? KVARC_READ_SALVAGE : 0, fn);
}

void cmd_unpack_to(const struct options *o)
{
	each(o, export_tensors);
}

void cmd_unpack(const struct options *o)
{
	if (!gpu_open(&gpu, o))
		return;
	each(o, o->to ? export_tensors : unpack_one);
	gpu_close(&gpu);
}
