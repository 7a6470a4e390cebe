# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Shared by the scripts in tools/ and by .ci/run: packages, configuring and building, with a word on
# what is being done. Sourced.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${VKFORMER_BUILD:-$root/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac

# What compiles and runs the library, its samples and its tests. The names are the same in Debian
# 12, 13 and Ubuntu 24.04.
build_packages=(g++ cmake ninja-build libvulkan-dev libvulkan-volk-dev glslang-tools nlohmann-json3-dev libcli11-dev
    doctest-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev libstb-dev libvulkan1 mesa-vulkan-drivers)

say() { printf '\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# The comment at the head of the script is its help.
show_help() { sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# names_option HELP OPTION: true where a program's help names the option, and not only one that
# begins with it.
names_option() { grep -oE -- '--[[:alnum:]][[:alnum:]-]*' <<<"$1" | grep -xFe "$2" >/dev/null; }

# The manifest of Mesa's lavapipe.
lavapipe_manifest() {
    find /usr/local/share/vulkan/icd.d /usr/share/vulkan/icd.d -name "lvp_icd*.json" 2>/dev/null | head -n 1
}

# with_progress LABEL COMMAND...: runs the command with its output in a log, and a line that tells
# the seconds gone by. The log's end is shown if the command fails.
with_progress() {
    local label=$1 log start=$SECONDS pid status=0 said=0
    shift
    mkdir -p "$build"
    log=$(mktemp "$build/log.XXXXXX")
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        if [ -t 1 ]; then
            printf '\r%s ... %d s ' "$label" $((SECONDS - start))
        elif [ $((SECONDS - start)) -ge $((said + 15)) ]; then
            said=$((SECONDS - start))
            printf '%s ... %d s\n' "$label" "$said"
        fi
    done
    wait "$pid" || status=$?
    if [ -t 1 ]; then printf '\r'; fi
    if [ "$status" = 0 ]; then
        printf '%s: done in %d s\n' "$label" $((SECONDS - start))
    else
        tail -n 40 "$log" >&2
    fi
    rm -f "$log"
    return "$status"
}

missing_packages() {
    local package
    for package in "$@"; do
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) in installed) ;; *) echo "$package" ;; esac
    done
}

# need_packages PACKAGE...: installs those that are missing, as root or through sudo; without
# either, says how and ends.
need_packages() {
    local missing=() as_root=()
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "Not a Debian or Ubuntu: packages are yours to install (there they are called: $*)"
        return
    fi
    read -ra missing <<<"$(missing_packages "$@" | tr '\n' ' ')"
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
            as_root=(sudo)
        else
            printf '%s\n' "Packages are missing, and installing them needs root. Run this, then try again:" \
                "    apt-get install --no-install-recommends ${missing[*]}" >&2
            exit 1
        fi
    fi
    say "Installing ${missing[*]}"
    # a password is asked for here, not behind the progress line
    if [ ${#as_root[@]} -gt 0 ]; then sudo -v || true; fi
    with_progress "Reading the package lists" "${as_root[@]}" apt-get update ||
        say "The package lists could not be read anew; trying with those that are here"
    with_progress "Installing ${#missing[@]} packages" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}" || fail "apt-get could not install ${missing[*]}"
}

# want_packages PACKAGE...: the same for what some tests only would use. What cannot be had is said,
# and not tried again in this build folder.
want_packages() {
    local missing
    command -v dpkg-query >/dev/null || return 0
    missing=$(missing_packages "$@" | tr '\n' ' ')
    if [ -n "$missing" ] && [ ! -e "$build/without" ]; then
        mkdir -p "$build"
        if [ "$(id -u)" != 0 ] || ! (need_packages "$@"); then
            echo "$missing" >"$build/without"
            say "Going on without ${missing% }: the tests that use them are not run"
        fi
    fi
}

# configure FOLDER CMAKE-ARGUMENT...
configure() {
    local folder=$1 log
    shift
    mkdir -p "$build"
    log=$(mktemp "$build/log.XXXXXX")
    [ -e "$folder/build.ninja" ] || say "Configuring $folder"
    if ! cmake -S "$root" -B "$folder" -G Ninja "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "cmake could not configure $folder"
    fi
    sed -n '/^-- vkformer: /s/^-- //p; /^CMake Warning/,/^$/p' "$log" >&2
    rm -f "$log"
}

# compile FOLDER TARGET...: ninja shows its own progress on a terminal; elsewhere every tenth part
# of it is a line. Messages of compilers are shown in both.
compile() {
    local folder=$1
    shift
    if [ -t 1 ]; then
        cmake --build "$folder" --target "$@"
    else
        cmake --build "$folder" --target "$@" | awk '
            /^\[[0-9]+\/[0-9]+\] Re-(checking|running)/ || /^ninja: no work to do/ || /^-- / { next }
            /^\[[0-9]+\/[0-9]+\]/ {
                split(substr($1, 2, length($1) - 2), part, "/")
                if (int(10 * part[1] / part[2]) != tenth) { tenth = int(10 * part[1] / part[2]); print; fflush() }
                next
            }
            { print; fflush() }'
    fi || fail "the build in $folder failed"
}
