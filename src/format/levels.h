/* SPDX-License-Identifier: BSD-3-Clause */
/* levels.h - names of the compression levels and of the levels of a profile's models (spec 4) */
#ifndef KVI_LEVELS_H
#define KVI_LEVELS_H

/* Levels of archives (spec 4) and of the models of a profile (spec profile). */
enum {
	KVI_LEVEL_LAYERS = 0,  /* the codec of that name, nothing to fit */
	KVI_LEVEL_CELLS = 1,   /* codecs cells and grid, fitted to the chunk */
	KVI_LEVEL_PROFILE = 2, /* linear models within a layer; from here on a profile is needed */
	KVI_LEVEL_LOWER = 3,   /* linear models with sources in lower layers */
	KVI_LEVEL_MODEL = 4,   /* from here on a transformer predicts first */
	KVI_LEVEL_LAST = 7,    /* last level with models of its own in a profile */
	KVI_LEVEL_PREDICTED = 8, /* uses the models of KVI_LEVEL_LAST */
	KVI_LEVEL_BASIS = 9      /* a profile's level alone: transforms of codec klt, no
	                          * predictions */
};

#endif
