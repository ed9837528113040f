/* SPDX-License-Identifier: BSD-3-Clause */
/* ranges.c - --layers, --tokens and --track as a range of an archive */
#include "config.h"

#include "ranges.h"

#include <inttypes.h>

#include "message.h"

/* Whether first .. first + n - 1 lies in 0 .. have - 1; an open end does. */
static bool fits(const char *file, const char *what, uint64_t first, uint64_t n, uint64_t have)
{
	if (first < have && (n == UINT64_MAX || n <= have - first))
		return true;
	msg_error(file, "has %s 0 to %" PRIu64 "; the range goes beyond that", what,
	          have ? have - 1 : 0);
	return false;
}

bool ranges_from_options(const struct extract_options *extract, const char *file, kvarc_reader *r,
                         kvarc_range *range)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	uint64_t layers = 0, tokens;

	if (!g->n_tensors) {
		msg_error(file, "holds no tensors: its files are kept whole, and 'kvarc unpack' "
		                "gives them back; 'kvarc pack --as-cache' keeps tensors");
		return false;
	}
	if (extract->track >= g->n_tracks) {
		msg_error(file, "has %zu track%s; there is no track %" PRIu64, g->n_tracks,
		          g->n_tracks == 1 ? "" : "s", extract->track);
		return false;
	}
	for (size_t i = 0; i < g->n_tensors; i++) {
		if (g->tensors[i].layer >= layers)
			layers = (uint64_t)g->tensors[i].layer + 1;
	}
	tokens = kvarc_reader_tokens(r, (uint32_t)extract->track);
	if (extract->n_layers != UINT64_MAX || extract->layer0) {
		if (!fits(file, "layers", extract->layer0, extract->n_layers, layers))
			return false;
	}
	if (extract->n_tokens != UINT64_MAX || extract->token0) {
		if (!fits(file, "tokens", extract->token0, extract->n_tokens, tokens))
			return false;
	}
	*range = (kvarc_range)KVARC_ZERO;
	range->track = (uint32_t)extract->track;
	range->layer0 = (uint32_t)extract->layer0;
	range->n_layers = extract->n_layers == UINT64_MAX ? UINT32_MAX
	                                                  : (uint32_t)extract->n_layers;
	range->t0 = extract->token0;
	range->n = extract->n_tokens;
	return true;
}
