# The Redlock algorithm on redis-rb over three servers, with scripts that do what those of the gem `redlock` do: take
# or take anew, release, and tell what is left.

require "securerandom"
require_relative "checks"

class Redlock
  TAKE = <<~LUA
    local holder = redis.call("get", KEYS[1])
    if (not holder and ARGV[3] == "yes") or holder == ARGV[1] then
      return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
    end
  LUA
  RELEASE = <<~LUA
    if redis.call("get", KEYS[1]) == ARGV[1] then
      return redis.call("del", KEYS[1])
    end
    return 0
  LUA
  LEFT = 'return { redis.call("get", KEYS[1]), redis.call("pttl", KEYS[1]) }'

  Lock = Struct.new(:resource, :token, :validity)

  def initialize(servers)
    @servers = servers
    @majority = servers.length / 2 + 1
    @digests = {}
  end

  def lock(resource, lease_ms, extend: nil, wait_ms: 0)
    give_up = now_ms + wait_ms
    token = extend ? extend.token : SecureRandom.uuid
    loop do
      start = now_ms
      taken = count { |server| run(server, TAKE, resource, token, lease_ms, extend ? "no" : "yes") == "OK" }
      validity = lease_ms - (now_ms - start) - lease_ms / 100 - 2
      return Lock.new(resource, token, validity) if taken >= @majority && validity.positive?
      count { |server| run(server, RELEASE, resource, token) == 1 }
      return nil if extend || now_ms >= give_up
      sleep rand(0.002..0.02)
    end
  end

  def unlock(lock)
    count { |server| run(server, RELEASE, lock.resource, lock.token) == 1 } >= @majority
  end

  # What is left on the server that has least of it, of those that know the lock.
  def left(lock)
    replies = @servers.map { |server| run(server, LEFT, lock.resource) }
    replies.select { |holder, _| holder == lock.token }.map(&:last).min
  end

  private

  def count(&does)
    @servers.count do |server|
      does.call(server)
    rescue Redis::CannotConnectError, Redis::ConnectionError
      false
    end
  end

  def run(server, text, key, *arguments)
    server.evalsha(@digests[text] ||= Digest::SHA1.hexdigest(text), keys: [key], argv: arguments)
  rescue Redis::CommandError => error
    raise unless error.message.start_with?("NOSCRIPT")
    [TAKE, RELEASE, LEFT].each { |each| server.script(:load, each) }
    retry
  end
end

check "three servers", PORTS.length == 3
servers = PORTS.map { |port| connect(port) }
mine = Redlock.new(servers)
theirs = Redlock.new(PORTS.map { |port| connect(port) })

first = mine.lock("stock", 10_000)
check "acquire", first && servers.all? { |server| server.get("stock") == first.token }
check "what is left", mine.left(first).between?(9_000, 10_000), mine.left(first)
check "contended acquire is refused", theirs.lock("stock", 10_000).nil?
stranger = Redlock::Lock.new("stock", "somebody else", 0)
check "release by a non-owner is refused", !theirs.unlock(stranger)
check "extend by a non-owner is refused", theirs.lock("stock", 60_000, extend: stranger).nil?
check "extend", mine.lock("stock", 20_000, extend: first) && mine.left(first) > 19_000

waiting = Thread.new { theirs.lock("stock", 10_000, wait_ms: 10_000) }
sleep 0.05
check "contended acquire waits", waiting.alive?
check "release", mine.unlock(first)
second = waiting.value
check "and is served by the release", second && theirs.left(second)
check "a second release is refused", !mine.unlock(first)

# The one that waited may have a majority only. This one has all three, and keeps a majority when one is gone.
theirs.unlock(second)
second = theirs.lock("stock", 10_000)
servers.last.shutdown
check "the lock outlives one server", mine.lock("stock", 10_000).nil?
check "and can be released", theirs.unlock(second)
start = now_ms
lapsed = mine.lock("lease", LEASE_MS)
heir = theirs.lock("lease", 10_000, wait_ms: 10_000)
check "expiry hands over", lapsed && heir
check "not before the lease ended", now_ms - start >= LEASE_MS, now_ms - start
check "the lapsed holder cannot release", !mine.unlock(lapsed)
check "nor extend", mine.lock("lease", 10_000, extend: lapsed).nil?
check "the heir releases", theirs.unlock(heir)

race do
  redlock = Redlock.new(PORTS.first(2).map { |port| connect(port) })
  lambda do |critical|
    lock = redlock.lock("race", 10_000, wait_ms: 30_000)
    critical.call
    redlock.unlock(lock)
  end
end
puts "done"
