# redis-benchmark: its default commands for locks and the commands of a lock, one at a time and pipelined.
. ./checks.sh

REQUESTS=20000

# bench NAME ARGUMENTS...: it ends with 0 and prints a rate; an error reply would end it with 1.
bench() {
    name=$1
    shift
    seen=$(timeout 60 redis-benchmark -h "$HOST" -p "$PORT" -n "$REQUESTS" -c 20 -q "$@" 2>&1) ||
        fail "$name" "$seen"
    printf '%s\n' "$seen" | tr '\r' '\n' | grep -Eq '[0-9.]+ requests per second' || fail "$name" "$seen"
    # Without CONFIG GET it goes on, but says so.
    case $seen in *WARNING*) fail "$name" "$seen" ;; esac
    echo "ok $name"
}

sha=$(cli SCRIPT LOAD "$RELEASE")
same "the release script is loaded" 1 "$(cli SCRIPT EXISTS "$sha")"

for depth in 1 16; do
    bench "ping, set, get, incr with -P $depth" -t ping,set,get,incr -P "$depth"
    bench "SET NX PX with -P $depth" -P "$depth" SET k v NX PX 30000
    bench "SET NX PX of many keys with -P $depth" -P "$depth" -r 100000 SET k:__rand_int__ v NX PX 30000
    bench "EVALSHA with -P $depth" -P "$depth" EVALSHA "$sha" 1 k not-the-holder
    bench "RESP3 with -P $depth" -3 -t ping,set,get -P "$depth"
done

same "the counter counted every INCR" "$((2 * REQUESTS))" "$(cli GET counter:__rand_int__)"
same "the lock was granted once and never released" v "$(cli GET k)"
same "and its lease is running" 1 "$([ "$(cli PTTL k)" -gt 0 ] && echo 1)"
holds "--csv has its columns" "$(timeout 60 redis-benchmark -h "$HOST" -p "$PORT" -n 1000 -t set --csv)" \
    '^"test","rps","avg_latency_ms"'
echo done
