/* SPDX-License-Identifier: BSD-3-Clause */
/* device_window.c - payloads that the caller has in the memory of the device already */
#include "config.h"

#include "plan_state.h"

#include "util/error.h"

kvarc_ret kvarc_device_plan_payloads(const kvarc_device_plan *p, kvarc_device_payload *payloads,
                                     size_t n)
{
	static const char call[] = "kvarc_device_plan_payloads";
	kvarc_ret ret = kvi_plan_check_use(p, call, false);
	if (ret)
		return ret;
	if (n != p->chunks.n || (n && !payloads))
		return kvi_fail(p->d->error, KVARC_PROG, "%s: payloads are not those of %zu chunks",
		                call, p->chunks.n);
	for (size_t i = 0; i < n; i++) {
		const struct kvi_planned_chunk *c = KVI_LIST(struct kvi_planned_chunk, p->chunks,
		                                             i);
		payloads[i] = (kvarc_device_payload){ c->file_offset, c->file_bytes, c->layer };
	}
	return KVARC_OK;
}

/* Whether kernels can read a chunk where it is among `bytes` bytes from an offset on: as in staging
 * memory, a part that is aligned belongs to it alone. */
static bool is_in(const struct kvi_planned_chunk *chunk, uint64_t offset, uint64_t bytes)
{
	return !chunk->host && !chunk->given && chunk->file_offset >= offset &&
	       chunk->file_offset % KVI_PART_ALIGN == 0 && chunk->file_offset - offset <= bytes &&
	       kvi_part_aligned(chunk->file_bytes) <= bytes - (chunk->file_offset - offset);
}

kvarc_ret kvarc_device_plan_use(kvarc_device_plan *p, uint64_t offset, uint64_t bytes,
                                uint64_t address)
{
	static const char call[] = "kvarc_device_plan_use";
	kvarc_ret ret = kvi_plan_check_use(p, call, false);
	if (ret)
		return ret;
	if (!address || (address - offset) % KVI_PART_ALIGN)
		return kvi_fail(p->d->error, KVARC_PROG,
		                "%s: offset and address are not at the same place of %d bytes",
		                call, (int)KVI_PART_ALIGN);
	struct kvi_planned_chunk *c = p->chunks.p;
	for (size_t i = 0; i < p->chunks.n; i++)
		if (is_in(&c[i], offset, bytes)) {
			c[i].given = address + (c[i].file_offset - offset);
			p->info.file_bytes -= c[i].file_bytes;
		}
	p->staging = p->work = 0;
	kvi_plan_lay_out_staging(p);
	return KVARC_OK;
}
