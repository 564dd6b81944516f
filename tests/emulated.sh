#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# On an emulated GPU the CUDA backend does what the host backend does: the random driver plays
# the same calls on both.  Speaks TAP.  TEST_LESS times fewer calls, if it is set.

driver=${top_builddir:-.}/tests/emulated/random_driver

if ! [ -x "$driver" ]; then
	echo "1..0 # SKIP no C++17 compiler for x86-64 was found"
	exit 0
fi
exec "$driver" --backend both --calls $((100000 / ${TEST_LESS:-1}))
