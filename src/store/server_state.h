/* SPDX-License-Identifier: BSD-3-Clause */
/* server_state.h - the inside of a kvarc_server, for its own sources */
#ifndef KVI_SERVER_STATE_H
#define KVI_SERVER_STATE_H

#include "kvarc/server.h"
#include "server_http.h"
#include "util/alloc.h"

/* A server. One thread uses it at a time. */
struct kvarc_server {
	struct kvi_alloc alloc;
	kvarc_error *error;
	struct kvi_http *http;
	char model[256], quantization[64], build[128];
	kvarc_server_info info;
};

/* A slot as the server lists it. */
struct kvi_server_slot {
	uint64_t context;
	int busy;
};
/* Asks for one. Returns OK, OPTIONS (there is none, or the server lists no slots), IO, MEM. */
kvarc_ret kvi_server_slot(kvarc_server *s, unsigned slot, struct kvi_server_slot *state);

#endif
