#!/bin/bash
# Builds and tests this tree on Debian 13 (trixie) inside a chroot, as root, on any Debian-like machine.
#
#     test_in_debian13.sh [DIRECTORY]
#
# DIRECTORY holds the Debian 13 system and is kept, so a second run starts at the build; without it a temporary one is
# made and removed. MIRROR in the environment names another archive.
set -euo pipefail
cd "$(dirname "$0")/.."

mirror=${MIRROR:-http://deb.debian.org/debian}
if [ "$(id -u)" -ne 0 ]; then
  echo "test_in_debian13.sh: chroot needs root" >&2
  exit 1
fi

system=${1:-}
keep=yes
if [ -z "$system" ]; then
  system=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-debian13.XXXXXX")
  keep=no
fi

# Innermost first; a mount point that was never mounted does not matter.
clean_up() {
  local point
  for point in dev/shm dev/pts dev sys proc; do
    if mountpoint -q "$system/$point"; then umount "$system/$point"; fi
  done
  # Never delete through a directory that is still mounted.
  if [ "$keep" = no ] && ! grep -q " $system/" /proc/mounts; then rm -rf "$system"; fi
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

if [ ! -e "$system/etc/debian_version" ]; then
  command -v debootstrap >/dev/null || apt-get -o DPkg::Lock::Timeout=600 install -y -q debootstrap </dev/null
  debootstrap --variant=minbase --include=ca-certificates trixie "$system" "$mirror"
fi

mountpoint -q "$system/proc" || mount -t proc proc "$system/proc"
mountpoint -q "$system/sys" || mount -t sysfs -o ro sysfs "$system/sys"
mountpoint -q "$system/dev" || mount --bind /dev "$system/dev"
mountpoint -q "$system/dev/pts" || mount --bind /dev/pts "$system/dev/pts"
mountpoint -q "$system/dev/shm" || mount -t tmpfs -o mode=1777 tmpfs "$system/dev/shm"
cp /etc/resolv.conf "$system/etc/resolv.conf"

# Copies the sources without build trees and runs; earlier builds there are kept.
mkdir -p "$system/lockstep"
find "$system/lockstep" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
tar --exclude=./.git --exclude='./build*' --exclude=./runs --exclude='__pycache__' -cf - . | tar -xf - -C "$system/lockstep"

chroot "$system" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lockstep/scripts/test.sh
