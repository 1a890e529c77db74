# redis-rb: a lock by hand, as its users write one: SET NX PX, scripts by digest, and by WATCH and MULTI; a queue to
# wait in, and a channel to be told on.

require_relative "checks"

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
EXTEND = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"

def script(redis, text, key, *arguments)
  @digests ||= {}
  digest = @digests[text] ||= Digest::SHA1.hexdigest(text)
  redis.evalsha(digest, keys: [key], argv: arguments)
rescue Redis::CommandError => error
  raise unless error.message.start_with?("NOSCRIPT")
  redis.eval(text, keys: [key], argv: arguments)
end

def acquire(redis, key, token, lease_ms)
  redis.set(key, token, nx: true, px: lease_ms)
end

def acquire_patiently(redis, key, token, lease_ms)
  sleep 0.005 until acquire(redis, key, token, lease_ms)
end

# As suo has it: look, and let EXEC fail if somebody else was here in between.
def release_watched(redis, key, token)
  redis.watch(key) do
    if redis.get(key) == token
      redis.multi { |transaction| transaction.del(key) }
    else
      redis.unwatch
      nil
    end
  end
end

first = connect
second = connect
check "connected", first.ping == "PONG" && second.echo("hello") == "hello"

check "acquire", acquire(first, "stock", "first", 10_000) && first.get("stock") == "first"
check "contended acquire is refused", !acquire(second, "stock", "second", 10_000)
check "release by a non-owner is refused", script(second, RELEASE, "stock", "second") == 0
check "extend by a non-owner is refused", script(second, EXTEND, "stock", "second", 60_000) == 0
check "the owner still holds it", first.get("stock") == "first" && first.pttl("stock") <= 10_000
check "extend", script(first, EXTEND, "stock", "first", 20_000) == 1
check "extend takes the lease anew", first.pttl("stock").between?(19_000, 20_000), first.pttl("stock")

waiting = Thread.new { acquire_patiently(second, "stock", "second", 10_000) }
sleep 0.05
check "contended acquire waits", waiting.alive?
check "release", script(first, RELEASE, "stock", "first") == 1
waiting.join(5)
check "and is served by the release", first.get("stock") == "second"
check "a second release is refused", script(first, RELEASE, "stock", "first") == 0

check "a watched release by a non-owner is refused", release_watched(first, "stock", "first").nil?
check "a watched release", release_watched(second, "stock", "second") == [1] && !first.exists?("stock")
acquire(first, "stock", "first", 10_000)
lost = first.watch("stock") do
  second.set("stock", "robbed")
  first.multi { |transaction| transaction.del("stock") }
end
check "a watched release notices a robber", lost.nil? && first.get("stock") == "robbed"
piped = first.pipelined do |pipeline|
  pipeline.del("stock")
  pipeline.setnx("stock", "again")
  pipeline.getset("stock", "and again")
end
check "a pipeline", piped == [1, true, "again"], piped

begin
  first.eval("return redis.call('incr', KEYS[1])", keys: ["stock"])
  check "an error of a script is one", false
rescue Redis::CommandError => error
  check "an error of a script is one", error.message.include?("not an integer"), error.message
end

# redis-semaphore of Ruby: tokens in a list, and who finds none waits there.
check "an empty queue", first.blpop("tokens", timeout: 1).nil?
waiting = Thread.new { second.blpop("tokens", timeout: 10) }
sleep 0.05
first.multi do |transaction|
  transaction.hset("grabbed", "0", "1")
  transaction.lpush("tokens", "0")
end
check "a waiter gets the token", waiting.value == ["tokens", "0"]
check "the hash says who has it", first.hgetall("grabbed") == { "0" => "1" } && first.hexists("grabbed", "0")

told = Queue.new
listener = Thread.new do
  connect.subscribe("released") do |on|
    on.subscribe { told << :listening }
    on.message do |_, message|
      told << message
      Thread.current.exit
    end
  end
end
told.pop
check "a message for who listens", first.publish("released", "stock") == 1 && told.pop == "stock"
listener.join(5)

start = now_ms
acquire(first, "lease", "lapsed", LEASE_MS)
acquire_patiently(second, "lease", "heir", 10_000)
check "expiry hands over, not before the lease ended", now_ms - start >= LEASE_MS, now_ms - start
check "the lapsed holder cannot release", script(first, RELEASE, "lease", "lapsed") == 0
check "the heir still holds it", second.get("lease") == "heir"

race do
  redis = connect
  token = redis.object_id.to_s
  lambda do |critical|
    acquire_patiently(redis, "race", token, 10_000)
    critical.call
    script(redis, RELEASE, "race", token)
  end
end
puts "done"
