/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "machine.h"

#include <hwloc.h>

/* Only memory nodes are asked for, which keeps loading a topology cheap. */
static int load(hwloc_topology_t *topology)
{
	if (hwloc_topology_init(topology))
		return -1;
	hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
	if (hwloc_topology_load(*topology) == 0)
		return 0;
	hwloc_topology_destroy(*topology);
	return -1;
}

uint64_t dhs_machine_memory(void)
{
	hwloc_topology_t topology;
	hwloc_obj_t node = NULL;
	uint64_t bytes = 0;

	if (load(&topology))
		return 0;
	while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
		bytes += node->attr->numanode.local_memory;
	hwloc_topology_destroy(topology);
	return bytes;
}
