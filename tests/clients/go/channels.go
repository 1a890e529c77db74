package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// useChannels publishes to channels, which all nodes of a cluster carry. They are those of one process.
func useChannels() {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address()}})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const channels = 10
	for number := range channels {
		channel := fmt.Sprintf("channel %d", number)
		subscription := client.Subscribe(ctx, channel)
		_, err := subscription.Receive(ctx)
		must(err)
		must(client.Publish(ctx, channel, "freed").Err())
		message, err := subscription.ReceiveMessage(ctx)
		check("a channel is heard", err == nil && message.Channel == channel && message.Payload == "freed", channel, err)
		must(subscription.Close())
	}
	fmt.Println("done")
}
