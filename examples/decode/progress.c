/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

/* Who has the pages of the pool while sessions come and go. */
#include "run.h"
#include "util.h"

#include <inttypes.h>
#include <stdio.h>

/* Without a wait for the device, which would hold the steps up: of the last steps some misses are
 * told by the next line. */
static void tell(struct run *run)
{
	const dhs_stats *told = &run->told;
	dhs_stats now;

	kv_stats_now(run->rows, &now);
	fprintf(stderr,
	        "step %d: %" PRIu32 " sessions, pages: %" PRIu32 " required, %" PRIu32
	        " resident, %" PRIu32 " coming, %" PRIu32 " elastic, %" PRIu32 " staging, %" PRIu32
	        " free; %" PRIu64 " misses more, %" PRIu64 " pages evicted, %" PRIu64 " refilled\n",
	        run->steps, now.sessions, now.pages_required, now.pages_resident - now.pages_coming,
	        now.pages_coming, now.pages_elastic, now.pages_staging,
	        now.pages_free + now.pages_draining, now.misses - told->misses,
	        now.evicted_pages - told->evicted_pages, now.refilled_pages - told->refilled_pages);
	run->told = now;
	run->told_at = seconds();
	run->told_steps = run->steps;
}

bool progress_wanted(const struct options *options)
{
	return options->progress > 0 || options->progress_steps;
}

static bool due(const struct run *run, bool last)
{
	const struct options *o = run->options;

	if (last)
		return run->told_steps != run->steps;
	return o->progress_steps ? run->steps % o->progress_steps == 0
	                         : seconds() - run->told_at >= o->progress;
}

void progress(struct run *run, bool last)
{
	if (progress_wanted(run->options) && due(run, last))
		tell(run);
}
