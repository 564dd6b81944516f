# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# What the scripts in tools/ share.  To be sourced, after `top` is set to the
# absolute path of the source tree.

die()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Installs the packages that are missing.  With all of them there, apt is not
# run at all, so that this works without a network.
need_packages()
{
	if ! command -v dpkg-query >/dev/null; then
		printf 'Not a Debian system; this needs what these packages have: %s\n' "$*"
		return 0
	fi
	missing=
	for package; do
		status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || :
		[ "$status" = installed ] || missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	printf 'Installing%s\n' "$missing"
	as_root=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || die "install these packages first:$missing"
		as_root=sudo
	fi
	# shellcheck disable=SC2086 # lists of words
	{
		$as_root apt-get update
		$as_root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y --no-install-recommends $missing
	}
}

# Configure and make refuse or mistake names with spaces and the like.
name_is_plain()
{
	case $1 in
	*[!A-Za-z0-9_./+@-]*) return 1 ;;
	esac
}

# A new directory with a plain name.
new_directory()
{
	if name_is_plain "${TMPDIR:-/tmp}"; then
		mktemp -d "${TMPDIR:-/tmp}/libdhisparse.XXXXXX"
	else
		mktemp -d /tmp/libdhisparse.XXXXXX
	fi
}

# Copies the source tree to the directory $1, without what builds left behind:
# git knows what that is; an unpacked tarball is taken as it is.
copy_tree()
{
	# shellcheck disable=SC2154 # the caller sets it
	if [ -e "$top/.git" ] && command -v git >/dev/null; then
		(cd "$top" && git -c safe.directory="*" ls-files -z --cached --others --exclude-standard) |
			tar -C "$top" --null --files-from=- --ignore-failed-read -cf - | tar -C "$1" -xf -
	else
		tar -C "$top" --exclude=./build -cf - . | tar -C "$1" -xf -
	fi
	[ -f "$1/configure.ac" ] || die "cannot copy $top"
	if [ -e "$1/config.status" ]; then
		(cd "$1" && ./config.status --quiet && make -s distclean)
	fi
}
