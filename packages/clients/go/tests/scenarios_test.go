package tests

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/locks"
	"redlatch.dev/redlatchtest"
)

// Every scenario of conformance.json, on every server and connection that it names.

// place is a server, as the client reaches it and as what the scenario does to it.
type place struct {
	client redis.UniversalClient
	beside redis.UniversalClient
	// Restarts the server.
	restart func()
}

// limits are settings of the user's client that a scenario may have.
type limits struct{ readTimeout time.Duration }

// on runs the scenarios of a server and a connection, each in a place of its own.
func on(t *testing.T, server, connection string, make func(t *testing.T, limits limits) place) {
	all, err := scenarios()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, scenario := range all {
		connections := scenario.Connections
		if connections == nil {
			connections = []string{"single"}
		}
		if !slices.Contains(scenario.Servers, server) || connection != "" && !slices.Contains(connections, connection) {
			continue
		}
		count++
		t.Run(scenario.Name, func(t *testing.T) {
			limits := limits{readTimeout: time.Duration(scenario.Client.ReplyTimeout * float64(time.Second))}
			runIn(t, make(t, limits), scenario)
		})
	}
	if count == 0 {
		t.Fatal("there is no scenario")
	}
}

func runIn(t *testing.T, place place, scenario scenario) {
	var settings []locks.Setting
	if scenario.Client.Budget != 0 {
		settings = append(settings, locks.Budget(secondsOf(scenario.Client.Budget)))
	}
	taken := locks.New(place.client, settings...)
	t.Cleanup(func() {
		taken.Close()
		_ = place.beside.Close()
		_ = place.client.Close()
	})
	beside := func(words ...any) *redis.Cmd { return place.beside.Do(context.Background(), words...) }
	made := &runner{t, taken, beside, place.restart, map[string]*locks.Held{}, map[string]*begun{}}
	made.run(scenario.Steps)
}

func TestEachScenarioIsRunSomewhere(t *testing.T) {
	all, err := scenarios()
	if err != nil || len(all) < 40 {
		t.Fatal(len(all), err)
	}
	known := []string{"hostile", "plain", "redlatch", "redlatch-cluster", "redlatch-replicated", "redlatch-with-journal"}
	names := map[string]bool{}
	for _, scenario := range all {
		if names[scenario.Name] || len(scenario.Steps) == 0 || len(scenario.Servers) == 0 {
			t.Error(scenario.Name)
		}
		names[scenario.Name] = true
		for _, server := range scenario.Servers {
			if !slices.Contains(known, server) {
				t.Error(scenario.Name, server)
			}
		}
		for _, connection := range scenario.Connections {
			if !slices.Contains([]string{"single", "cluster", "sentinel"}, connection) {
				t.Error(scenario.Name, connection)
			}
		}
	}
}

// TestHostile leaves go-redis its own tries and time limits: those of its user's client do not matter.
func TestHostile(t *testing.T) {
	all, err := scenarios()
	if err != nil {
		t.Fatal(err)
	}
	ports := startPeers(t)
	for _, scenario := range all {
		for _, peer := range scenario.Peers {
			t.Run(scenario.Name+"/"+peer, func(t *testing.T) {
				t.Parallel()
				options := &redis.Options{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[peer]))}
				client := redis.NewClient(options)
				runIn(t, place{client: client, beside: redis.NewClient(optionsOf(server.Namespace(t)))}, scenario)
			})
		}
	}
}

func optionsOf(namespace *redlatchtest.Namespace) *redis.Options {
	return &redis.Options{Addr: namespace.Addr(), Password: namespace.Password()}
}

func TestRedlatch(t *testing.T) {
	for name, protocol := range map[string]int{"resp2": 2, "resp3": 3} {
		t.Run(name, func(t *testing.T) {
			on(t, "redlatch", "single", func(t *testing.T, limits limits) place {
				namespace := server.Namespace(t)
				options := optionsOf(namespace)
				options.Protocol, options.ReadTimeout = protocol, limits.readTimeout
				return place{client: redis.NewClient(options), beside: redis.NewClient(optionsOf(namespace))}
			})
		})
	}
}

func TestPlain(t *testing.T) {
	for _, product := range []string{"redis", "valkey"} {
		t.Run(product, func(t *testing.T) {
			process := startPlain(t, product)
			on(t, "plain", "single", func(_ *testing.T, limits limits) place {
				options := process.options()
				options.ReadTimeout = limits.readTimeout
				return emptied(t, place{client: redis.NewClient(options), beside: redis.NewClient(process.options())})
			})
		})
	}
}

// emptied removes the keys of the scenario before.
func emptied(t *testing.T, place place) place {
	t.Helper()
	if err := place.beside.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	return place
}

func TestKilledAndStartedAgain(t *testing.T) {
	on(t, "redlatch-with-journal", "", func(t *testing.T, _ limits) place {
		words := []string{"--port", "0", "--unixsocket", "SOCKET", "--dir", ".", "--loglevel", "warning"}
		process := startProcess(t, append([]string{redlatchProgram(t)}, words...)...)
		return place{redis.NewClient(process.options()), redis.NewClient(process.options()), process.restart}
	})
}

func TestCluster(t *testing.T) {
	on(t, "redlatch", "cluster", func(t *testing.T, limits limits) place {
		namespace := cluster.Namespace(t)
		options := clusterOptionsOf(namespace)
		options.ReadTimeout = limits.readTimeout
		client := redis.NewClusterClient(options)
		// What the scenario does, it does to the node of its keys.
		beside := optionsOf(namespace)
		beside.Addr = masterOfK(t, client)
		return place{client: client, beside: redis.NewClient(beside)}
	})
}

func TestClusterWhoseMastersCrash(t *testing.T) {
	cluster, err := redlatchtest.Start(
		redlatchtest.Nodes(6), redlatchtest.Flags("--cluster-enabled", "yes", "--cluster-replicas", "1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	on(t, "redlatch-cluster", "", func(t *testing.T, _ limits) place {
		namespace := cluster.Namespace(t)
		options := clusterOptionsOf(namespace)
		beside := redis.NewClusterClient(options)
		crashMaster := func() {
			namespace.Nodes().Crash(slices.Index(options.Addrs, masterOfK(t, beside)) + 1)
			namespace.Clock().Advance(clusterNodeTimeout + time.Millisecond)
			beside.ReloadState(context.Background())
		}
		return place{redis.NewClusterClient(options), beside, crashMaster}
	})
}

// The default of cluster-node-timeout.
const clusterNodeTimeout = 15 * time.Second

func clusterOptionsOf(namespace *redlatchtest.Namespace) *redis.ClusterOptions {
	var addresses []string
	for _, url := range namespace.URLs() {
		addresses = append(addresses, url[strings.LastIndex(url, "@")+1:])
	}
	return &redis.ClusterOptions{Addrs: addresses, Password: namespace.Password()}
}

// masterOfK is the address of the node of the key k, which all scenarios of clusters use.
func masterOfK(t *testing.T, client *redis.ClusterClient) string {
	t.Helper()
	node, err := client.MasterForKey(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return node.Options().Addr
}

func TestSentinelOfRedis(t *testing.T) {
	port := freePort(t)
	redisProgram := program(t, "REDLATCH_REDIS_SERVER", "redis-server")
	watched := startProcess(t, redisProgram, "--port", port, "--unixsocket", "SOCKET", "--save", "", "--loglevel", "warning")
	sentinel := startSentinel(t, port)
	on(t, "plain", "sentinel", func(_ *testing.T, limits limits) place {
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "locks", SentinelAddrs: []string{sentinel}, ReadTimeout: limits.readTimeout,
		})
		return emptied(t, place{client: client, beside: redis.NewClient(watched.options())})
	})
}

func TestNodes(t *testing.T) {
	nodes := startNodes(t)
	through := func(port string) *redis.Client {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: []string{net.JoinHostPort("127.0.0.1", port)},
		})
	}
	make := func(_ *testing.T, _ limits) place {
		return emptied(t, place{through(nodes.ports[1]), through(nodes.ports[0]), nodes.killLeader})
	}
	t.Run("sentinel", func(t *testing.T) { on(t, "redlatch", "sentinel", make) })
	t.Run("replicated", func(t *testing.T) { on(t, "redlatch-replicated", "", make) })
}
