/* SPDX-License-Identifier: BSD-3-Clause */
/* counted.c - a sink that counts, so that totals hold the closing frames too */
#include "counted.h"

enum { LAST_FRAMES = 2 }; /* INDEX and FOOTER, which only close writes */

static int counted_write(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct kvi_counted *c = opaque;
	c->bytes += bytes;
	c->end = offset + bytes > c->end ? offset + bytes : c->end;
	return c->to.write(c->to.opaque, buf, bytes, offset);
}

static int counted_flush(void *opaque)
{
	struct kvi_counted *c = opaque;
	return c->to.flush ? c->to.flush(c->to.opaque) : 0;
}

static int counted_truncate(void *opaque, uint64_t bytes)
{
	struct kvi_counted *c = opaque;
	return c->to.truncate(c->to.opaque, bytes);
}

kvarc_sink kvi_counted_sink(struct kvi_counted *counted)
{
	return (kvarc_sink){ .write = counted_write,
		             .flush = counted_flush,
		             .opaque = counted,
		             .truncate = counted->to.truncate ? counted_truncate : NULL };
}

kvarc_ret kvi_counted_close(struct kvi_counted *counted, kvarc_writer **w, kvarc_ret ret,
                            kvarc_writer_stats *stats)
{
	if (!ret)
		ret = kvarc_writer_commit(*w);
	if (ret) {
		kvarc_writer_abort(w);
		return ret;
	}
	if (stats)
		kvarc_writer_get_stats(*w, stats);
	ret = kvarc_writer_close(w);
	if (stats) {
		stats->frames += LAST_FRAMES;
		stats->file_bytes = counted->bytes;
	}
	return ret;
}
