# redis-cli: commands as arguments and from a pipe, and the modes that watch a server.
. ./checks.sh

same "one command" PONG "$(cli PING)"
same "acquire" OK "$(cli SET stock first NX PX 30000)"
same "contended acquire is refused" "" "$(cli SET stock second NX PX 30000)"
same "release by a non-owner is refused" 0 "$(cli EVAL "$RELEASE" 1 stock second)"
same "release" 1 "$(cli EVAL "$RELEASE" 1 stock first)"
same "RESP3 by -3" "$(printf 'OK\n1')" "$(printf 'SET stock first NX PX 30000\nEXISTS stock\n' | cli -3)"
same "another database by -n" 0 "$(cli -n 3 EXISTS stock)"
same "repeated by -r" "$(printf '1\n2\n3')" "$(cli -r 3 INCR fence)"
holds "an error has its exit code by -e" "$(cli -e NOSUCHCOMMAND 2>&1; echo "code $?")" '^code 1$'

piped=$(
    printf '%s\n' 'SET lease token NX PX 30000' 'PTTL lease' 'DEL lease' 'NOSUCHCOMMAND x' 'PING after' | cli
)
holds "piped: acquire" "$piped" '^OK$'
holds "piped: what is left" "$piped" '^(2[0-9]{4}|30000)$'
holds "piped: an unknown command" "$piped" \
    "^ERR unknown command 'NOSUCHCOMMAND', with args beginning with: 'x' ?$"
holds "piped: the connection lives on" "$piped" '^after$'

i=0
while [ "$i" -lt 25 ]; do
    echo "SET scanned:$i v PX 30000"
    i=$((i + 1))
done | cli >/dev/null
same "--scan finds every key" 25 "$(cli --scan --pattern 'scanned:*' | sort -u | wc -l | tr -d ' ')"
same "--scan finds one" scanned:7 "$(cli --scan --pattern 'scanned:7')"

# --stat has no limit of its own: timeout(1) ends it with 124 after a few lines, which stdbuf(1) saves.
stat=$(timeout 1 stdbuf -oL redis-cli -h "$HOST" -p "$PORT" --stat -i 0.1; echo "code $?")
holds "--stat: its heading" "$stat" '^keys +mem +clients +blocked +requests +connections'
holds "--stat: keys, memory, clients" "$stat" \
    '^[0-9]+ +[0-9.]+[KMG] +[0-9]+ +[0-9]+ +[0-9]+ \(\+[0-9]+\) +[0-9]+'
holds "--stat: until it is told to stop" "$stat" '^code 124$'

# Not on a terminal it measures for one interval and prints min, max, average and count.
latency=$(timeout 20 redis-cli -h "$HOST" -p "$PORT" -i 0.3 --latency)
holds "--latency: min, max, average, count" "$latency" '^[0-9]+ [0-9]+ [0-9]+\.[0-9]+ [1-9][0-9]*$'
history=$(timeout 1 stdbuf -oL redis-cli -h "$HOST" -p "$PORT" -i 0.3 --latency-history)
holds "--latency-history" "$history" '^[0-9]+ [0-9]+ [0-9.]+ [1-9]'
holds "--bigkeys" "$(cli --bigkeys)" '^[0-9]+ strings with [0-9]+ bytes'
echo done
