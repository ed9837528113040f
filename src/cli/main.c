/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - the kvarc command: parse, run a verb, end with its status */
#include "config.h"

#include "secrets.h"
#include "message.h"
#include "models.h"
#include "options.h"
#include "profiles.h"
#include "signals.h"
#include "walk.h"
#include "weights.h"

/* Prepares the state that verbs share, before they run. false: a message was shown. */
static bool prepare(struct options *options)
{
	if ((options->verb->bit & VERB_WALKS) && !walk_folders(options))
		return false;
	return !options->nothing_left && keys_open(&options->keys) &&
	       weights_init(options->coding.model, options->verb) &&
	       profiles_open(&options->coding, &options->work) && models_open(options);
}

int main(int argc, char **argv)
{
	struct options o;
	int ret = options_parse(&o, argc, argv);

	if (ret == 0) {
		msg_init(o.verbosity);
		signals_init();
		if (prepare(&o))
			o.verb->run(&o);
	}
	models_close();
	profiles_close();
	keys_close();
	options_free(&o);
	msg_finish();
	return msg_status();
}
