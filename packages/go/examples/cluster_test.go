package examples

import (
	"context"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

func TestAFailoverGrantsALockAgainOnlyIfItsMasterHasNotReplicatedIt(t *testing.T) {
	server := redlatchtest.Run(t, redlatchtest.Nodes(6), redlatchtest.Flags("--cluster-enabled", "yes", "--cluster-replicas", "1"))
	for _, replicates := range []bool{true, false} {
		orders := server.Namespace(t)
		take := func() error {
			first, err := redis.ParseURL(orders.URL())
			if err != nil {
				t.Fatal(err)
			}
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{first.Addr}, Password: first.Password})
			defer client.Close()
			mutex := redsync.New(goredis.NewPool(client)).NewMutex("a", redsync.WithExpiry(time.Minute), redsync.WithTries(1))
			return mutex.LockContext(context.Background())
		}

		orders.Clock().Freeze()
		orders.Nodes().Replication(3, replicates)
		if err := take(); err != nil { // the slot of a is on node 3
			t.Fatal(err)
		}
		orders.Nodes().Crash(3)
		orders.Clock().Advance(15*time.Second + time.Millisecond)
		if again := take(); (again == nil) == replicates {
			t.Fatal("the replica has heard of the first one", replicates, again)
		}
		if findings := orders.Check(); (len(findings) == 0) != replicates {
			t.Fatal(findings)
		}
	}
}
