/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_transfer.c - a version of a session from one store to another, through a pipe
 *
 * The stream is a pax tar: archives under their keys, those that are named before those that name
 * them, and the manifest of the version, "session", at its end. A receiver has each archive as soon
 * as it has passed; so what a broken connection has brought need not be sent again.
 */
#include <string.h>

#include "tar_stream.h"
#include "transfer_steps.h"

#define MANIFEST_NAME "session"

/* ----- send ------------------------------------------------ */

/* The archives that the receiver lacks, then the manifest. */
static kvarc_ret send_all(struct kvi_tar_out *x, const struct kvi_leaving *v, kvarc_has_fn has,
                          void *opaque, kvarc_sent *sent)
{
	char text[KVI_MANIFEST_MAX];
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < v->ids.n && !ret; i++) {
		const uint8_t *id = kvi_leaving_id(v, i);
		if (has && has(opaque, id))
			sent->left_out++;
		else
			ret = kvi_tar_put_pack(x, id, &sent->archives, &sent->archive_bytes);
	}
	return ret ? ret
	           : kvi_tar_put_text(x, MANIFEST_NAME, text, kvi_manifest_write(text, &v->m));
}

kvarc_ret kvarc_store_send(kvarc_store *s, const char *session, uint64_t number,
                           const kvarc_sink *sink, kvarc_has_fn has, void *opaque, kvarc_sent *sent)
{
	kvarc_sent unused;
	struct kvi_leaving v;
	struct kvi_tar_out x;
	if (!s || !sink || !sink->write)
		return KVARC_PROG;
	sent = sent ? sent : &unused;
	memset(sent, 0, sizeof *sent);
	kvarc_ret ret = kvi_leaving_find(&v, s, session, number);
	if (!ret) {
		ret = kvi_tar_out_open(&x, s, sink);
		if (!ret)
			ret = send_all(&x, &v, has, opaque, sent);
		ret = kvi_tar_out_close(&x, ret);
		sent->bytes = x.offset;
	}
	kvi_leaving_free(&v, s);
	return ret;
}

/* ----- receive ------------------------------------------------ */

static kvarc_ret receive_all(struct kvi_tar_in *x, const char *session, kvarc_received *n)
{
	char text[KVI_MANIFEST_MAX];
	const char *name;
	uint64_t bytes;
	kvarc_ret ret = KVARC_OK;
	while (!ret) {
		ret = kvi_tar_next(x, &name, &bytes);
		if (ret == KVARC_END)
			return kvi_fail(x->s->error, KVARC_DATA,
			                "store: the stream ends before its version; what has come "
			                "stays: send the rest with --have");
		if (ret)
			return ret;
		if (strcmp(name, MANIFEST_NAME) == 0) {
			ret = kvi_tar_text(x, bytes, text, sizeof text);
			return ret ? ret
			           : kvi_arrive_version(x->s, session, text, (size_t)bytes, n);
		}
		ret = kvi_tar_take_pack(x, name, bytes, n);
	}
	return ret;
}

kvarc_ret kvarc_store_receive(kvarc_store *s, const char *session, const kvarc_source *source,
                              kvarc_received *received)
{
	kvarc_received unused;
	struct kvi_tar_in x;
	if (!s || !source || !source->read)
		return KVARC_PROG;
	received = received ? received : &unused;
	memset(received, 0, sizeof *received);
	kvarc_ret ret = kvi_session_check(s, session);
	if (ret)
		return ret;
	ret = kvi_tar_in_open(&x, s, source);
	if (!ret)
		ret = receive_all(&x, session, received);
	kvi_tar_in_close(&x);
	return ret;
}

/* ----- what is here ------------------------------------------------ */

struct having {
	struct kvarc_store *s;
	kvarc_has_fn fn;
	void *opaque;
	struct kvi_list doubted; /* ids of archives of which something is known to be damaged */
};

static kvarc_ret add_doubted(struct having *h, const uint8_t id[16])
{
	if (kvi_protocol_has(&h->doubted, id))
		return KVARC_OK;
	uint8_t *to = kvi_list_add(&h->doubted, &h->s->alloc, 16);
	if (!to)
		return kvi_fail_alloc(h->s->error, &h->s->alloc);
	memcpy(to, id, 16);
	return KVARC_OK;
}

static kvarc_ret doubt_pack(void *opaque, const struct kvi_index_pack *p)
{
	return p->broken ? add_doubted(opaque, p->id) : KVARC_OK;
}

static kvarc_ret doubt_row(void *opaque, const struct kvi_index_row *row)
{
	return add_doubted(opaque, row->id);
}

static int have_object(void *opaque, const struct kvi_object *object)
{
	struct having *h = opaque;
	uint8_t id[16];
	return kvi_pack_key_parse(id, object->key) && !kvi_protocol_has(&h->doubted, id)
	               ? h->fn(h->opaque, id)
	               : 0;
}

kvarc_ret kvarc_store_have(kvarc_store *s, kvarc_has_fn fn, void *opaque)
{
	struct having h = { .s = s, .fn = fn, .opaque = opaque };
	if (!s || !fn)
		return KVARC_PROG;
	kvarc_ret ret = kvi_index_packs(s->index, false, doubt_pack, &h);
	if (!ret)
		ret = kvi_index_doubts(s->index, doubt_row, &h);
	if (!ret)
		ret = s->backend->calls->list(s->backend, KVI_PACKS, have_object, &h, s->error);
	kvi_free(&s->alloc, h.doubted.p);
	return ret;
}
