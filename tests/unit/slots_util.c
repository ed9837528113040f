/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_util.c - llama.cpp slots that are packed, and shorter ones that are compared with them */
#include "slots_util.h"

enum { SEGMENT = 32 };

struct blob slot_pack(struct blob *slot)
{
	struct blob archive = { NULL, 0, 0, -1 };
	kvarc_source src = blob_source(slot);
	kvarc_sink sink = blob_sink(&archive);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_import *im;
	o.segment_tokens = SEGMENT;
	assert_int_equal(kvarc_import_open(&im, &src, "slot", NULL), KVARC_OK);
	assert_int_equal(kvarc_pack(im, &sink, &o, NULL), KVARC_OK);
	kvarc_import_close(&im);
	return archive;
}

kvarc_import *slot_open(struct blob *b)
{
	kvarc_source src = blob_source(b);
	kvarc_import *im;
	assert_int_equal(kvarc_import_open(&im, &src, "slot", NULL), KVARC_OK);
	if (kvarc_import_note(im))
		fail_msg("%s", kvarc_import_note(im));
	return im;
}

/* The token of a track that has a position; the track's count: none. */
static uint64_t token_at(const kvarc_import *im, uint32_t track, int32_t position)
{
	uint64_t n = kvarc_import_tokens(im, track), i;
	int32_t p = -1;
	for (i = 0; i < n; i++) {
		assert_int_equal(kvarc_import_read_tokens(im, track, i, 1, NULL, &p), KVARC_OK);
		if (p == position)
			break;
	}
	return i;
}

static void same_elements(kvarc_import *a, kvarc_import *b, uint32_t tensor, uint64_t ta,
                          uint64_t tb)
{
	const kvarc_tensor *t = &kvarc_import_geometry(a)->tensors[tensor];
	uint8_t x[4096], y[4096];
	size_t bytes = t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
	assert_true(bytes <= sizeof x);
	assert_int_equal(kvarc_import_fetch(a, tensor, 0, t->heads, ta, 1, x), 0);
	assert_int_equal(kvarc_import_fetch(b, tensor, 0, t->heads, tb, 1, y), 0);
	assert_memory_equal(x, y, bytes);
}

void slot_check_prefix(struct blob *slot, struct blob *shorter, uint64_t tokens)
{
	kvarc_import *a = slot_open(slot), *b = slot_open(shorter);
	const kvarc_geometry *g = kvarc_import_geometry(b);
	int32_t ids[2][64];
	assert_true(g->n_tensors <= kvarc_import_geometry(a)->n_tensors);
	assert_int_equal(kvarc_import_tokens(b, 0), tokens);
	/* where positions are not in order a track has no ids */
	if (kvarc_import_read_tokens(a, 0, 0, tokens, ids[0], NULL) == KVARC_OK) {
		assert_int_equal(kvarc_import_read_tokens(b, 0, 0, tokens, ids[1], NULL), 0);
		assert_memory_equal(ids[0], ids[1], tokens * sizeof **ids);
	}
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		uint32_t track = g->tensors[i].track;
		if (g->tracks[track].kind == KVARC_TRACK_STATE)
			continue;
		for (int32_t p = 0; p < (int32_t)tokens; p++) {
			uint64_t ta = token_at(a, track, p), tb = token_at(b, track, p);
			assert_true(track || tb < tokens);
			if (tb < kvarc_import_tokens(b, track) &&
			    ta < kvarc_import_tokens(a, track))
				same_elements(a, b, i, ta, tb);
		}
	}
	kvarc_import_close(&a);
	kvarc_import_close(&b);
}
