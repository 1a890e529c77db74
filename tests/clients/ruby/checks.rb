# What the Ruby programs share: where the servers are, how a check is told, and how threads race.

require "redis"

HOST = ENV.fetch("REDLATCH_HOST")
PORTS = ENV.fetch("REDLATCH_PORTS").split(",").map(&:to_i)
LEASE_MS = 200
WORKERS = 4
ROUNDS = 15

$stdout.sync = true

def connect(port = PORTS.first, **options)
  Redis.new(host: HOST, port: port, reconnect_attempts: 0, **options)
end

def check(name, truth, *seen)
  unless truth
    puts "FAILED #{name} #{seen.inspect}"
    exit 1
  end
  puts "ok #{name}"
end

def now_ms
  Process.clock_gettime(Process::CLOCK_MONOTONIC) * 1000
end

# A counter that loses updates unless its users exclude each other. The block makes, for each worker, what runs a
# critical section under the lock.
def race
  count = inside = overlaps = 0
  workers = Array.new(WORKERS) do
    Thread.new do
      round = yield
      ROUNDS.times do
        round.call(lambda do
          inside += 1
          overlaps += 1 if inside > 1
          seen = count
          sleep 0.001
          count = seen + 1
          inside -= 1
        end)
      end
    end
  end
  workers.each { |worker| worker.report_on_exception = false }.each(&:join)
  check "workers never overlap", overlaps.zero?, overlaps
  check "no update is lost", count == WORKERS * ROUNDS, count
end
