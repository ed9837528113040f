/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - the kvarc command: parse, run a verb, end with its status */
#include "config.h"

#include "message.h"
#include "models.h"
#include "options.h"
#include "profiles.h"
#include "signals.h"
#include "weights.h"

int main(int argc, char **argv)
{
	struct options o;
	int ret = options_parse(&o, argc, argv);

	if (ret == 0) {
		msg_init(o.verbosity);
		signals_init();
		if (weights_init(&o) && profiles_open(&o) && models_open(&o))
			o.verb->run(&o);
	}
	models_close();
	profiles_close();
	options_free(&o);
	msg_finish();
	return msg_status();
}
