#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# compile.sh NVCC ARGUMENT...: nvcc with what libtool adds for a host compiler put
# into nvcc's form.
nvcc=$1
shift
for argument; do
	shift
	case $argument in
	-fPIC | -fpic) set -- "$@" "--compiler-options=$argument" ;;
	*) set -- "$@" "$argument" ;;
	esac
done
exec "$nvcc" "$@"
