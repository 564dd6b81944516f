#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# usage: planted_gpu.sh FOLDER BUILD [NAME...]
#
# Builds the library with each fault of planted_gpu.faults, one at a time, and puts it into
# FOLDER/planted, where tools/check-gpu looks for it.  BUILD is a build directory with
# CUDA, from which all else is taken.  NVCC and PLANTED_ARCH, the GPU's, may be set.

set -u
unset CDPATH
[ $# -ge 2 ] || { sed -n 's/^# usage: //p' "$0" >&2; exit 2; }
top=$(cd "$(dirname "$0")/.." && pwd) || exit
faults=$top/tests/planted_gpu.faults
folder=$1
build=$(cd "$2" && pwd) || exit
shift 2
: "${NVCC:=/usr/local/cuda/bin/nvcc}" "${PLANTED_ARCH:=90}" "${CC:=cc}"
cuda=$(dirname "$(dirname "$NVCC")")
work=$(mktemp -d) || exit
trap 'rm -rf "$work"' EXIT

# Prints the file $2 with fault $1 in it.
plant()
{
	awk -v name="$1" -f "$top/tests/plant.awk" "$faults" "$2"
}

# compile SOURCE: to the name that the build has for its object.
compile()
{
	name_of=$(basename "$1")
	case $name_of in
	*.c)
		"$CC" -std=c17 -D_DEFAULT_SOURCE -DHAVE_CUDA -O2 -fPIC -fvisibility=hidden \
			-I "$top/include" -isystem "$cuda/include" \
			-c -o "$work/objects/libdhisparse_all_la-${name_of%.c}.o" "$1"
		return
		;;
	esac
	"$NVCC" -std=c++17 -O3 -arch="sm_$PLANTED_ARCH" -I "$top/include" \
		--compiler-options=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
		-c -o "$work/objects/${name_of%.cu}.o" "$1"
}

# The library, from the build's objects but for those that the fault changes.
link()
{
	objects=
	for object in "$build"/lib/.libs/*.o "$build"/lib/host/.libs/*.o "$build"/cuda/.libs/*.o; do
		changed=$work/objects/${object##*/}
		case $object in
		"$build"/cuda/*) [ -f "$changed" ] && object=$changed ;;
		esac
		objects="$objects $object"
	done
	# shellcheck disable=SC2086 # a list
	"$CC" -shared -s -o "$1" $objects -Wl,-soname,libdhisparse.so.0 \
		-Wl,--version-script="$top/lib/libdhisparse.map" -lhwloc \
		-L "$cuda/lib64" -L "$cuda/targets/x86_64-linux/lib" -lcudart_static -lrt -ldl -lpthread
}

# A fault in a header changes all kernels.
build_fault()
{
	file=$(sed -n "s/^fault $1 //p" "$faults")
	rm -rf "$work/tree" "$work/objects"
	mkdir "$work/tree" "$work/objects"
	cp -r "$top/cuda" "$top/lib" "$work/tree/"
	plant "$1" "$top/$file" >"$work/tree/$file" || { echo "$1: not in $file once" >&2; return 1; }
	case $file in
	*.cu | *.c) set -- "$1" "$work/tree/$file" ;;
	*) set -- "$1" "$work"/tree/cuda/*.cu ;;
	esac
	name=$1
	shift
	for source; do
		case $file in
		*victim.cuh) grep -q victim.cuh "$source" || continue ;;
		esac
		compile "$source" || return 1
	done
	link "$work/$name.so" && gzip -9 -c "$work/$name.so" >"$folder/planted/$name.so.gz"
}

mkdir -p "$folder/planted" || exit
sh "$top/tools/gpu-hash" "$top" >"$folder/planted/sources" || exit
# shellcheck disable=SC2046 # names
[ $# -gt 0 ] || set -- $(sed -n 's/^fault \([^ ]*\) .*/\1/p' "$faults")
bad=0
for fault; do
	build_fault "$fault" || bad=$((bad + 1))
done
exit $bad
