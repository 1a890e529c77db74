# redis-benchmark: its default run, and the commands of a lock, one at a time and pipelined.
. ./checks.sh

# A multiple of 16, or a pipeline of 16 sends more.
REQUESTS=8000

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

# everything NAME ARGUMENTS...: the run without -t, in which every test of its list must print its rate.
everything() {
    name=$1
    shift
    seen=$(timeout 100 redis-benchmark -h "$HOST" -p "$PORT" -n 500 -c 20 --csv "$@" 2>&1) ||
        fail "$name" "$seen"
    tests=$(printf '%s\n' "$seen" | sed -n 's/^"\([A-Z][A-Z_]*[0-9]*\).*/\1/p' | sort -u | tr '\n' ' ')
    same "$name" "$DEFAULT_TESTS" "$tests"
    case $seen in *WARNING* | *ERR*) fail "$name" "$seen" ;; esac
}

# There is no test of streams among them, though redis-benchmark is said to have one.
DEFAULT_TESTS="GET HSET INCR LPOP LPUSH LRANGE_100 LRANGE_300 LRANGE_500 LRANGE_600 MSET PING_INLINE PING_MBULK \
RPOP RPUSH SADD SET SPOP ZADD ZPOPMIN "

everything "the default run"
everything "the default run, pipelined" -P 16
everything "the default run, over RESP3" -3
everything "the default run, on many keys, with two threads" -r 10000 --threads 2
cli FLUSHALL >/dev/null

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
