/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_store.c - the store of the vectors for the targets that read archives */
#include "fuzz_store.h"

int fuzz_store_read(void *opaque, const kvarc_stored *segment, const char *ns, int32_t *ids,
                    int32_t *positions, const kvarc_view *views)
{
	struct fuzz_store *s = opaque;
	const kvarc_geometry *g = s->vectors.geometry;
	uint64_t bytes = 0;
	FUZZ_CHECK(g && ns && segment->n >= 1 && segment->n <= 256);
	FUZZ_CHECK(segment->track < g->n_tracks);
	/* All that is to be filled can be. */
	memset(ids, 0x55, segment->n * sizeof *ids);
	memset(positions, 0x55, segment->n * sizeof *positions);
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		const size_t row = (size_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
		FUZZ_CHECK((t->track == segment->track) == (views[i].data != NULL));
		if (!views[i].data)
			continue;
		FUZZ_CHECK(views[i].token_stride == row);
		memset(views[i].data, 0x55, row * segment->n);
		bytes += (uint64_t)row * segment->n;
	}
	FUZZ_CHECK(bytes == segment->bytes);
	if (strchr(ns, '/'))
		return 1; /* no name of a file */
	return vector_store_read(&s->vectors, segment, ns, ids, positions, views);
}

void fuzz_store_use(struct fuzz_store *s, kvarc_reader_options *o)
{
	const char *srcdir = getenv("srcdir");
	*s = (struct fuzz_store){ .vectors.folder = s->folder };
	snprintf(s->folder, sizeof s->folder, "%s/spec/vectors", srcdir ? srcdir : ".");
	o->stored_read = fuzz_store_read;
	o->stored_opaque = s;
}
