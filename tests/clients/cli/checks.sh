# What both tools' scripts share. To be sourced by a POSIX shell.
set -u

HOST=${REDLATCH_HOST:?}
PORT=${REDLATCH_PORT:?}

RELEASE='if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end'

# fail NAME SEEN: ends the script with what was seen.
fail() {
    printf 'FAILED %s: %s\n' "$1" "$2" >&2
    exit 1
}

# same NAME EXPECTED SEEN
same() {
    [ "$2" = "$3" ] || fail "$1" "expected <$2>, saw <$3>"
    echo "ok $1"
}

# holds NAME TEXT PATTERN: TEXT has a line that matches the extended regular expression.
holds() {
    printf '%s\n' "$2" | grep -Eq -- "$3" || fail "$1" "no line like <$3> in <$2>"
    echo "ok $1"
}

cli() {
    timeout 20 redis-cli -h "$HOST" -p "$PORT" "$@"
}
