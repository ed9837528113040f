/* SPDX-License-Identifier: BSD-3-Clause */
/* damage_report.c - the damaged places that verify and salvage tell */
#include "damage_report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "message.h"

/* A hostile file must not fill memory with its complaints. */
enum { KEEP = 10000, SHOW = 20 };

void damage_collect(void *opaque, const kvarc_damage *damage)
{
	struct damage_list *list = opaque;

	list->n++;
	if (list->kept == KEEP)
		return;
	if ((list->kept & (list->kept - 1)) == 0) {
		size_t cap = list->kept ? 2 * list->kept : 1;
		kvarc_damage *p = realloc(list->items, cap * sizeof(*p));
		if (!p)
			return;
		list->items = p;
	}
	list->items[list->kept++] = *damage;
}

static void show_one(const char *file, const kvarc_damage *d,
                     const kvarc_geometry *g, bool is_error)
{
	char tensor[48] = "", tokens[64] = "", place[32] = "";

	if (d->tensor < g->n_tensors) {
		const kvarc_tensor *t = &g->tensors[d->tensor];
		const char *kind = kvarc_kind_name(t->kind);
		snprintf(tensor, sizeof(tensor), ", layer %" PRIu32 " %s", t->layer,
		         kind ? kind : "tensor");
	}
	if (d->n)
		snprintf(tokens, sizeof(tokens),
		         ", tokens %" PRIu64 " to %" PRIu64 " are lost", d->t0,
		         d->t0 + d->n - 1);
	if (d->offset != KVARC_UNKNOWN)
		snprintf(place, sizeof(place), "byte %" PRIu64 ": ", d->offset);
	(is_error ? msg_error : msg_warning)(file, "%s%s%s%s", place, d->what, tensor,
	                                     tokens);
}

void damage_show(const char *file, const struct damage_list *list,
                 const kvarc_geometry *geometry, bool errors)
{
	size_t n = list->kept;

	if (msg_level() < 1 && n > SHOW)
		n = SHOW;
	for (size_t i = 0; i < n; i++)
		show_one(file, &list->items[i], geometry, errors);
	if (n < list->n)
		(errors ? msg_error : msg_warning)(file, "... and %zu more places%s",
			list->n - n, n < list->kept ? "; -v shows them" : "");
}

void damage_json(struct json *j, const char *key,
                 const struct damage_list *list)
{
	json_array(j, key);
	for (size_t i = 0; i < list->kept; i++) {
		const kvarc_damage *d = &list->items[i];
		json_object(j, NULL);
		json_string(j, "what", d->what);
		json_u64(j, "offset", d->offset);
		json_u64(j, "bytes", d->bytes);
		if (d->tensor != UINT32_MAX)
			json_u64(j, "tensor", d->tensor);
		if (d->track != UINT32_MAX)
			json_u64(j, "track", d->track);
		json_u64(j, "first_token", d->t0);
		json_u64(j, "tokens", d->n);
		json_end_object(j);
	}
	json_end_array(j);
}

void damage_free(struct damage_list *list)
{
	free(list->items);
	list->items = NULL;
}
