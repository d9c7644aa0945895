#!/usr/bin/env bash
# Makes the packages of Fleet in build/package: an archive that works in any folder, and two
# packages for Debian, fleet (launchers, tools) and libfleet-dev (headers, libraries, the CMake
# package).
#
# Usage: scripts/package.sh [--try] [--mirror URL]
#   --try         try each in a fresh Debian 12 of its own, which debootstrap makes in
#                 build/package/trial: install it, build an outside project against it, and train
#                 with two workers and one server, and with two ranks. Needs root, debootstrap and
#                 3 GB; takes several minutes
#   --mirror URL  where debootstrap and apt find Debian (default http://deb.debian.org/debian)
#
# Example: sudo scripts/package.sh --try

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

try=
mirror=http://deb.debian.org/debian
while [ $# -gt 0 ]; do
  case $1 in
    --try) try=yes ;;
    --mirror)
      mirror=${2:?--mirror needs an address}
      shift
      ;;
    -h | --help) help_if_asked "$0" "$1" ;;
    *) usage_error "$1" ;;
  esac
  shift
done

readonly out=$PWD/build/package
readonly trial=$out/trial

if [ -n "$try" ]; then
  [ "$(id -u)" -eq 0 ] || die "--try makes a system of its own, which only root can: use sudo."
  command -v debootstrap >/dev/null || die "--try needs debootstrap: apt-get install debootstrap"
fi

scripts/install_dependencies.sh build
say "Building what is packaged"
build_preset release fleet_installed
say "Packing"
rm -rf "$out"/*.tar.gz "$out"/*.deb
cpack --config build/release/CPackConfig.cmake -B "$out"
rm -rf "$out/_CPack_Packages"
(cd "$out" && ls -lh -- *.tar.gz *.deb)
[ -n "$try" ] || exit 0

# inside FOLDER COMMAND...: runs it in the system there, with mounts and processes of its own, which
# are gone when it ends.
inside() {
  local root=$1
  shift
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child bash -c '
    set -e
    root=$1
    shift
    mount --make-rprivate /
    mount --rbind /dev "$root/dev"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/tmp"
    exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive "$@"' inside "$root" "$@"
}

# make_system FOLDER: a fresh Debian 12; what debootstrap made is kept as bookworm.tar.
make_system() {
  mkdir -p "$trial"
  if [ ! -e "$trial/bookworm.tar" ]; then
    rm -rf "$trial/bookworm"
    debootstrap --variant=minbase bookworm "$trial/bookworm" "$mirror" >"$trial/debootstrap.log" ||
      die "debootstrap failed; see $trial/debootstrap.log"
    tar -C "$trial/bookworm" -cf "$trial/bookworm.tar.part" .
    mv "$trial/bookworm.tar.part" "$trial/bookworm.tar"
    rm -rf "$trial/bookworm"
  fi
  rm -rf "$1"
  mkdir -p "$1"
  tar -C "$1" -xf "$trial/bookworm.tar"
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  local proxy
  proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
  [ -z "$proxy" ] || echo "Acquire::http::Proxy \"$proxy\";" >"$1/etc/apt/apt.conf.d/proxy"
  mkdir -p "$1/trial"
  cp -r tests/consumer/project "$1/trial/project"
}

# try_package FOLDER PREFIX: what a user of the package does first.
try_package() {
  # shellcheck disable=SC2016
  inside "$1" bash -ec '
    prefix=$1
    "$prefix/bin/launch_ps" --help >/dev/null
    "$prefix/bin/fleet-explain" --version
    cmake -S /trial/project -B /trial/build -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build /trial/build
    cd /trial/build
    "$prefix/bin/launch_ps" --worker_num 2 --server_num 1 ./consumer
    "$prefix/bin/launch" --nproc_per_node 2 ./consumer' try "$2"
}

say "The packages for Debian, in a fresh Debian 12"
readonly debian=$trial/debian
make_system "$debian"
cp "$out"/*.deb "$debian/trial/"
inside "$debian" bash -ec 'apt-get update -qq
  apt-get install -qq -y --no-install-recommends cmake ninja-build g++ /trial/*.deb \
    >/trial/apt.log'
try_package "$debian" /usr

say "The archive under /opt, in a fresh Debian 12"
readonly archive=$trial/archive
make_system "$archive"
mkdir -p "$archive/opt/somewhere"
tar -C "$archive/opt/somewhere" --strip-components=1 -xzf "$out"/*.tar.gz
# The line that install_dependencies.sh prints for those who build.
needed=$(scripts/install_dependencies.sh --no-install build | tail -1)
inside "$archive" bash -ec "apt-get update -qq; ${needed#sudo } -qq >/trial/apt.log"
try_package "$archive" /opt/somewhere

rm -rf "$debian" "$archive"
say "Both packages install, build an outside project, and train."
