# redis-cli and redis-benchmark through TLS, on a server that asks for certificates.
. ./checks.sh

TLS_PORT=${REDLATCH_TLS_PORT:?}
FILES=${REDLATCH_TLS_FILES:?}

# tls ARGUMENTS...: with whom to believe and who to be.
tls() {
    timeout 20 redis-cli -h "$HOST" -p "$TLS_PORT" --tls --cacert "$FILES/authority.crt" \
        --cert "$FILES/client.crt" --key "$FILES/client.key" "$@"
}

# refused NAME ARGUMENTS...: with these, nobody gets a PONG.
refused() {
    name=$1
    shift
    seen=$(timeout 20 redis-cli -h "$HOST" -p "$TLS_PORT" "$@" PING 2>&1)
    case $seen in *PONG*) fail "$name" "$seen" ;; esac
    echo "ok $name"
}

same "one command" PONG "$(tls PING)"
refused "without a certificate" --tls --cacert "$FILES/authority.crt"
refused "another authority is believed" --tls --cacert "$FILES/stranger.crt" \
    --cert "$FILES/client.crt" --key "$FILES/client.key"
refused "plain words"
same "acquire" OK "$(tls SET stock first NX PX 30000)"
same "contended acquire is refused" "" "$(tls SET stock second NX PX 30000)"
same "release by a non-owner is refused" 0 "$(tls EVAL "$RELEASE" 1 stock second)"
same "release" 1 "$(tls EVAL "$RELEASE" 1 stock first)"
same "RESP3 by -3" "$(printf 'OK\n1')" "$(printf 'SET stock first NX PX 30000\nEXISTS stock\n' | tls -3)"

large=$(head -c 1500000 /dev/zero | tr '\0' 'x')
same "a large value goes" OK "$(printf '%s' "$large" | tls -x SET large)"
same "and comes" "$large" "$(tls GET large)"

i=0
while [ "$i" -lt 5000 ]; do
    echo "INCR fence"
    i=$((i + 1))
done | tls >/dev/null
same "from a pipe" 5000 "$(tls GET fence)"

for pipeline in 1 16; do
    seen=$(timeout 60 redis-benchmark -h "$HOST" -p "$TLS_PORT" --tls --cacert "$FILES/authority.crt" \
        --cert "$FILES/client.crt" --key "$FILES/client.key" -n 8000 -c 20 -P "$pipeline" -q -t set,get 2>&1) ||
        fail "benchmark -P $pipeline" "$seen"
    holds "benchmark -P $pipeline" "$seen" 'GET: [0-9.]+ requests per second'
done
echo done
