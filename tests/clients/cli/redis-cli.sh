# redis-cli: commands as arguments, from a pipe and at a terminal's prompt, and the modes that watch a server.
. ./checks.sh

RELEASE='if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end'

same "one command" PONG "$(cli PING)"
same "acquire" OK "$(cli SET stock first NX PX 30000)"
same "contended acquire is refused" "" "$(cli SET stock second NX PX 30000)"
same "release by a non-owner is refused" 0 "$(cli EVAL "$RELEASE" 1 stock second)"
same "release" 1 "$(cli EVAL "$RELEASE" 1 stock first)"
same "RESP3 by -3" "$(printf 'OK\n1')" "$(printf 'SET stock first NX PX 30000\nEXISTS stock\n' | cli -3)"
same "another database by -n" 0 "$(cli -n 3 EXISTS stock)"
same "repeated by -r" "$(printf '1\n2\n3')" "$(cli -r 3 INCR fence)"
holds "an error has its text and its exit code by -e" "$(cli -e NOSUCHCOMMAND 2>&1; echo "code $?")" '^code 1$'

piped=$(printf 'SET lease token NX PX 30000\nPTTL lease\nSET lease other NX\nDEL lease\nNOSUCHCOMMAND x\nPING after\n' | cli)
holds "piped: acquire" "$piped" '^OK$'
holds "piped: what is left" "$piped" '^(2[0-9]{4}|30000)$'
holds "piped: an unknown command" "$piped" "^ERR unknown command 'NOSUCHCOMMAND', with args beginning with: 'x' ?$"
holds "piped: the connection lives on" "$piped" '^after$'

# A real terminal, made by script(1): prompt, hints (for which redis-cli asks COMMAND DOCS), HELP, SELECT, MULTI, QUIT.
typed=$(
    printf 'SET lease token NX PX 30000\rSELECT 2\rMULTI\rINCR fence\rEXEC\rHELP SET\rINFO server\rQUIT\r' |
        timeout 20 script -qec "redis-cli -h $HOST -p $PORT" /dev/null | tr -d '\r'
)
holds "prompt: acquire" "$typed" '^OK'
holds "prompt: shows the database" "$typed" "$HOST:$PORT\\[2\\]> "
holds "prompt: a transaction" "$typed" "$HOST:$PORT\\[2\\]\\(TX\\)> "
holds "prompt: EXEC's reply" "$typed" '^1\) \(integer\) 1'
holds "prompt: help" "$typed" 'summary: '
holds "prompt: INFO" "$typed" '^redis_version:[0-9]+\.'
same "what was typed was done" 1 "$(cli -n 2 GET fence)"

i=0
while [ "$i" -lt 25 ]; do
    echo "SET scanned:$i v PX 30000"
    i=$((i + 1))
done | cli >/dev/null
same "--scan finds every key" 25 "$(cli --scan --pattern 'scanned:*' | sort -u | wc -l | tr -d ' ')"
same "--scan finds one" scanned:7 "$(cli --scan --pattern 'scanned:7')"

# --stat has no limit of its own: timeout(1) ends it with 124 after a few lines.
stat=$(timeout 1 redis-cli -h "$HOST" -p "$PORT" --stat -i 0.1; echo "code $?")
holds "--stat: its heading" "$stat" '^keys +mem +clients +blocked +requests +connections'
holds "--stat: keys, memory, clients" "$stat" '^[0-9]+ +[0-9.]+[KMG] +[0-9]+ +[0-9]+ +[0-9]+ \(\+[0-9]+\) +[0-9]+'
holds "--stat: until it is told to stop" "$stat" '^code 124$'

# Not on a terminal it measures for one interval and prints min, max, average and count.
latency=$(timeout 20 redis-cli -h "$HOST" -p "$PORT" -i 0.3 --latency)
holds "--latency: min, max, average, count" "$latency" '^[0-9]+ [0-9]+ [0-9]+\.[0-9]+ [1-9][0-9]*$'
holds "--latency-history" "$(timeout 1 redis-cli -h "$HOST" -p "$PORT" -i 0.3 --latency-history)" '^[0-9]+ [0-9]+ [0-9.]+ [1-9]'
holds "--bigkeys" "$(cli --bigkeys)" '^[0-9]+ strings with [0-9]+ bytes'
echo done
