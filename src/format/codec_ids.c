/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_ids.c - numbers, names and properties of the codecs, as the format has them (spec 7) */
#include "codec_ids.h"

#include "kvarc.h"

enum {
	LOSSY = KVI_CODEC_IS_LOSSY,
	GUIDED = KVI_CODEC_IS_GUIDED,
	LINEAR = KVI_CODEC_IS_LINEAR,
	PARAMS = KVI_CODEC_HAS_PARAMS,
	STREAMS = KVI_CODEC_HAS_STREAMS,
	SOURCE = KVI_CODEC_IS_SOURCE
};

static const struct kvi_codec_id ids[KVI_N_CODECS] = {
	[KVI_CODEC_RAW] = { "raw", SOURCE },
	[KVI_CODEC_ZSTD] = { "zstd", SOURCE },
	[KVI_CODEC_CONSTANT] = { "constant", SOURCE },
	[KVI_CODEC_REPEAT] = { "repeat", 0 },
	[KVI_CODEC_LAYERS] = { "layers", STREAMS | SOURCE },
	[KVI_CODEC_GRID] = { "grid", PARAMS | STREAMS | SOURCE },
	[KVI_CODEC_BYTES] = { "bytes", PARAMS | STREAMS },
	[KVI_CODEC_LINEAR] = { "linear", LINEAR | STREAMS },
	[KVI_CODEC_MODEL] = { "model", LINEAR | GUIDED | STREAMS },
	[KVI_CODEC_PREDICTED] = { "predicted", LINEAR | GUIDED },
	[KVI_CODEC_NEAR] = { "near", LOSSY | PARAMS },
	[KVI_CODEC_TSC] = { "tsc", LOSSY },
	[KVI_CODEC_VQ] = { "vq", LOSSY | PARAMS },
	[KVI_CODEC_HAD] = { "had", LOSSY | PARAMS },
	[KVI_CODEC_KLT] = { "klt", LOSSY | LINEAR },
	[KVI_CODEC_STATE] = { "state", STREAMS | SOURCE },
	[KVI_CODEC_CELLS] = { "cells", PARAMS | STREAMS | SOURCE },
};

kvarc_ret kvarc_codec_info(unsigned number, kvarc_codec *codec)
{
	if (!codec)
		return KVARC_PROG;
	*codec = (kvarc_codec)KVARC_ZERO;
	if (!kvi_codec_name(number))
		return KVARC_END;
	codec->name = kvi_codec_name(number);
	codec->flags = (kvi_codec_predicts(number) ? KVARC_CODEC_PREDICTS : 0) |
	               (kvi_codec_lossy(number) ? KVARC_CODEC_LOSSY : 0);
	return KVARC_OK;
}

const struct kvi_codec_id *kvi_codec_id(unsigned codec)
{
	static const struct kvi_codec_id unknown;
	return codec < KVI_N_CODECS ? &ids[codec] : &unknown;
}
