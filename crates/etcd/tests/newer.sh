#!/usr/bin/env bash
# Runs this crate's tests against a newer etcd than the distribution has.
#
# `crates/etcd/tests/newer.sh [SUITE [ARGUMENTS OF cargo test…]]`: the server's package of another Debian suite, forky
# unless named, is unpacked into target/ without being installed, and run by its own loader. Needs Debian and its
# package mmdebstrap. Another build is tested by `FENCELOCK_ETCD=/path/to/etcd cargo test -p fencelock-etcd --all-features`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

suite=forky
if (($# > 0)); then
    suite=$1
    shift
fi
folder=$PWD/target/etcd-$suite
if [[ ! -x $folder/etcd ]]; then
    if ! command -v mmdebstrap >/dev/null; then
        echo "missing: apt-get install -y --no-install-recommends mmdebstrap" >&2
        exit 1
    fi
    rm -rf "$folder"
    # A testing suite's release file may be older than it says it should be; signatures are checked all the same.
    mmdebstrap --variant=extract --include=etcd-server --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$folder"
    system=$folder/usr/lib/x86_64-linux-gnu
    printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' \
        "$folder/usr/lib64/ld-linux-x86-64.so.2" "$system" "$folder/usr/bin/etcd" >"$folder/etcd"
    chmod +x "$folder/etcd"
fi
FENCELOCK_ETCD=$folder/etcd
export FENCELOCK_ETCD
"$FENCELOCK_ETCD" --version
if (($# == 0)); then set -- --no-fail-fast; fi
exec cargo test -p fencelock-etcd --all-features "$@"
