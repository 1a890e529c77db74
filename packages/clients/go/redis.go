package locks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The transport over go-redis. Short requests use the pool of the user's client. A request that waits, and a session,
// has a line: a connection of its own, which a context can end. The pool has none that could be ended from outside.

// connections are those of a user's client.
type connections struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient
	guard   sync.Mutex
	// The nodes by their address. One, if it is no cluster.
	nodes    map[string]*node
	isClosed bool
}

// node is a server, and its connections.
type node struct {
	// The user's client of this node.
	client *redis.Client
	// The same with our time limit, without repetitions: what is repeated is repeated by us.
	quick *redis.Client
	guard sync.Mutex
	idle  []*line
	isOld bool
}

func newConnections(client redis.UniversalClient) *connections {
	made := &connections{client: client, nodes: map[string]*node{}}
	switch client := client.(type) {
	case *redis.Client:
		made.nodes[""] = newNode(client)
	case *redis.ClusterClient:
		made.cluster = client
	default:
		panic(fmt.Sprintf("locks: %T is no *redis.Client and no *redis.ClusterClient", client))
	}
	return made
}

func newNode(client *redis.Client) *node {
	// What the context has left is a limit, too.
	limit := client.Options().ReadTimeout
	if limit <= 0 || limit > answerMax {
		limit = answerMax
	}
	quick := client.WithTimeout(limit)
	// These are options of the copy.
	quick.Options().MaxRetries = 0
	quick.Options().ContextTimeoutEnabled = true
	onConnect := quick.Options().OnConnect
	quick.Options().OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		if onConnect != nil {
			if err := onConnect(ctx, conn); err != nil {
				return err
			}
		}
		notYetSent(ctx)
		return nil
	}
	return &node{client: client, quick: quick}
}

func (made *connections) node(ctx context.Context, key string) (*node, error) {
	if made.cluster == nil {
		return made.nodes[""], nil
	}
	client, err := made.master(ctx, key)
	if err != nil {
		return nil, failed(err)
	}
	made.guard.Lock()
	defer made.guard.Unlock()
	address := client.Options().Addr
	found := made.nodes[address]
	if found == nil || found.client != client {
		if found != nil {
			found.close()
		}
		found = newNode(client)
		made.nodes[address] = found
	}
	return found, nil
}

// master is the node that serves a key. When the nodes are not known, the cluster is asked, which no context limits: an
// attempt that is late ends by itself.
func (made *connections) master(ctx context.Context, key string) (*redis.Client, error) {
	type outcome struct {
		client *redis.Client
		err    error
	}
	found := make(chan outcome, 1)
	go func() {
		client, err := made.cluster.MasterForKey(ctx, key)
		found <- outcome{client, err}
	}()
	select {
	case outcome := <-found:
		return outcome.client, outcome.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ask uses the pool.
func (made *connections) ask(ctx context.Context, key string, limit time.Duration, words ...any) (any, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	node, err := made.node(limited, key)
	var answer any
	if err == nil {
		notYetSent(ctx)
		answer, err = node.ask(limited, words)
	}
	made.reloadAfter(ctx, err)
	return answer, err
}

func (made *connections) askWaiting(ctx context.Context, key string, limit time.Duration, words ...any) (any, error) {
	until := after(time.Now(), limit)
	limited, cancel := context.WithTimeoutCause(ctx, min(limit, answerMax), errNoAnswer)
	defer cancel()
	node, err := made.node(limited, key)
	var answer any
	if err == nil {
		notYetSent(ctx)
		answer, err = node.askWaiting(ctx, key, until.left(), words)
	}
	made.reloadAfter(ctx, err)
	return answer, err
}

// reloadAfter: another node of the cluster may serve the key by now.
func (made *connections) reloadAfter(ctx context.Context, err error) {
	if made.cluster == nil || err == nil {
		return
	}
	var lost *connectionError
	if errors.As(err, &lost) || startsWith(err, "MOVED") || startsWith(err, "CLUSTERDOWN") {
		made.cluster.ReloadState(ctx)
	}
}

func (made *connections) connect(ctx context.Context, key string, limit time.Duration) (session, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	node, err := made.node(limited, key)
	if err != nil {
		made.reloadAfter(ctx, err)
		return nil, err
	}
	return newLine(node), nil
}

func (made *connections) close() {
	made.guard.Lock()
	defer made.guard.Unlock()
	for _, node := range made.nodes {
		node.close()
	}
}

// subscribe listens to channels until ctx is done, or with an error: `begun` is called when nothing can be missed
// from now on.
func (made *connections) subscribe(
	ctx context.Context, pattern string, begun func(), told func(channel, message string),
) error {
	messages := made.client.PSubscribe(ctx, pattern)
	stop := context.AfterFunc(ctx, func() { _ = messages.Close() })
	defer func() {
		if stop() {
			_ = messages.Close()
		}
	}()
	isAsked := false
	for {
		message, err := messages.ReceiveTimeout(ctx, silenceMax)
		var timeout net.Error
		switch message := message.(type) {
		case *redis.Subscription:
			begun()
		case *redis.Message:
			told(message.Channel, message.Payload)
		}
		if errors.As(err, &timeout) && timeout.Timeout() && !isAsked {
			isAsked = true
			err = messages.Ping(ctx)
		} else if err == nil {
			isAsked = false
		}
		if err != nil {
			return failed(err)
		}
	}
}

func (node *node) ask(ctx context.Context, words []any) (any, error) {
	command := redis.NewCmd(ctx, words...)
	if err := node.quick.Process(ctx, command); err != nil {
		if ctx.Err() != nil && !isFromServer(failed(err)) {
			err = context.Cause(ctx)
		}
		return answerOf(err)
	}
	return command.Val(), nil
}

func (node *node) askWaiting(ctx context.Context, key string, limit time.Duration, words []any) (any, error) {
	line := node.takeLine()
	answer, err := line.askWaiting(ctx, key, limit, words...)
	if err != nil && (passes(err) || !isFromServer(err)) {
		line.close()
		node.closeIdle()
	} else {
		node.giveBack(line)
	}
	return answer, err
}

func isFromServer(err error) bool {
	var reply *replyError
	return errors.As(err, &reply)
}

func (node *node) takeLine() *line {
	node.guard.Lock()
	defer node.guard.Unlock()
	for len(node.idle) > 0 {
		last := node.idle[len(node.idle)-1]
		node.idle = node.idle[:len(node.idle)-1]
		if last.expires.Stop() && !last.isClosed() {
			return last
		}
	}
	return newLine(node)
}

// giveBack keeps a line for the next wait.
func (node *node) giveBack(line *line) {
	node.guard.Lock()
	defer node.guard.Unlock()
	if node.isOld || line.isClosed() {
		line.close()
		return
	}
	line.expires = time.AfterFunc(idleMax, func() {
		node.remove(line)
		line.close()
	})
	node.idle = append(node.idle, line)
}

func (node *node) remove(line *line) {
	node.guard.Lock()
	defer node.guard.Unlock()
	for index, each := range node.idle {
		if each == line {
			node.idle = append(node.idle[:index], node.idle[index+1:]...)
			return
		}
	}
}

// closeIdle: when one connection has ended, the others are likely to have, too.
func (node *node) closeIdle() {
	node.guard.Lock()
	defer node.guard.Unlock()
	for _, line := range node.idle {
		line.expires.Stop()
		line.close()
	}
	node.idle = nil
}

func (node *node) close() {
	node.guard.Lock()
	node.isOld = true
	node.guard.Unlock()
	node.closeIdle()
}

// line is one connection, which is never replaced by another one.
type line struct {
	client  *redis.Client
	expires *time.Timer
	guard   sync.Mutex
	wire    *wire
	isOver  bool
	// It has logged in; what is called then.
	isOpen bool
	opened func()
}

func newLine(node *node) *line {
	made := &line{}
	of := node.client.Options()
	options := redis.Options{
		Network: of.Network, Addr: of.Addr, DB: of.DB, Protocol: of.Protocol, ClientName: of.ClientName,
		Username: of.Username, Password: of.Password, CredentialsProvider: of.CredentialsProvider,
		CredentialsProviderContext:   of.CredentialsProviderContext,
		StreamingCredentialsProvider: of.StreamingCredentialsProvider,
		DisableIdentity:              of.DisableIdentity, IdentitySuffix: of.IdentitySuffix,
		DialTimeout: of.DialTimeout, WriteTimeout: of.WriteTimeout,
		ReadBufferSize: of.ReadBufferSize, WriteBufferSize: of.WriteBufferSize,
		// It waits as long as its requests say, and is not closed for its age: the context of a request ends it.
		PoolSize: 1, ReadTimeout: -1, ConnMaxIdleTime: -1, ConnMaxLifetime: -1, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		// It has the TLS of the client, and its Sentinels.
		return made.dialOnce(func() (net.Conn, error) { return of.Dialer(ctx, network, address) })
	}
	options.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		if of.OnConnect != nil {
			if err := of.OnConnect(ctx, conn); err != nil {
				return err
			}
		}
		made.open()
		notYetSent(ctx)
		return nil
	}
	if options.WriteTimeout == 0 {
		options.WriteTimeout = -1
	}
	made.client = redis.NewClient(&options)
	return made
}

func (line *line) dialOnce(dial func() (net.Conn, error)) (net.Conn, error) {
	line.guard.Lock()
	mayDial := line.wire == nil && !line.isOver
	line.guard.Unlock()
	if !mayDial {
		return nil, net.ErrClosed
	}
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	line.guard.Lock()
	defer line.guard.Unlock()
	line.wire = &wire{Conn: conn}
	if line.isOver {
		_ = conn.Close()
	}
	return line.wire, nil
}

func (line *line) ask(ctx context.Context, key string, limit time.Duration, words ...any) (any, error) {
	return line.askWaiting(ctx, key, limit, words...)
}

// askWaiting is ended by closing the connection. To open it may take as long as an answer.
func (line *line) askWaiting(ctx context.Context, _ string, limit time.Duration, words ...any) (any, error) {
	until := after(time.Now(), limit)
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(line.first(limit), func() { cancel(errNoAnswer) })
	defer late.Stop()
	line.whenOpen(func() { late.Reset(until.left()) })
	stop := context.AfterFunc(limited, line.close)
	command := redis.NewCmd(limited, words...)
	err := line.client.Process(limited, command)
	if !stop() && err != nil && ctx.Err() == nil {
		err = errNoAnswer
	}
	if err != nil {
		return answerOf(err)
	}
	return command.Val(), nil
}

// first is the limit of a request as long as the connection may still have to be opened.
func (line *line) first(limit time.Duration) time.Duration {
	line.guard.Lock()
	defer line.guard.Unlock()
	if line.isOpen {
		return limit
	}
	return min(limit, answerMax)
}

// whenOpen calls the function once the connection has been opened.
func (line *line) whenOpen(call func()) {
	line.guard.Lock()
	defer line.guard.Unlock()
	line.opened = call
}

func (line *line) open() {
	line.guard.Lock()
	defer line.guard.Unlock()
	line.isOpen = true
	line.opened()
}

func (line *line) listen(long time.Duration) (bool, error) {
	line.guard.Lock()
	wire, isOver := line.wire, line.isOver
	line.guard.Unlock()
	if wire == nil || isOver {
		return false, failed(net.ErrClosed)
	}
	hasCome, err := wire.listen(long)
	if err != nil {
		line.close()
		return false, failed(err)
	}
	return hasCome, nil
}

func (line *line) wake() {
	line.guard.Lock()
	defer line.guard.Unlock()
	if line.wire != nil {
		line.wire.wake()
	}
}

func (line *line) close() {
	line.guard.Lock()
	wasOver := line.isOver
	line.isOver = true
	if line.wire != nil {
		_ = line.wire.Close()
	}
	line.guard.Unlock()
	if !wasOver {
		_ = line.client.Close()
	}
}

func (line *line) isClosed() bool {
	line.guard.Lock()
	defer line.guard.Unlock()
	return line.isOver
}

// wire is a connection that tells when something comes while no request is under way.
type wire struct {
	net.Conn
	guard   sync.Mutex
	listens bool
	isWoken bool
	head    [1]byte
	hasHead bool
}

func (wire *wire) Read(into []byte) (int, error) {
	if wire.hasHead && len(into) > 0 {
		wire.hasHead = false
		into[0] = wire.head[0]
		return 1, nil
	}
	return wire.Conn.Read(into)
}

// listen returns when something comes, which is left to be read; after so long; or after a call of wake. No request
// is under way.
func (wire *wire) listen(long time.Duration) (bool, error) {
	wire.guard.Lock()
	if wire.hasHead || wire.isWoken {
		wire.isWoken = false
		wire.guard.Unlock()
		return wire.hasHead, nil
	}
	wire.listens = true
	err := wire.SetReadDeadline(time.Now().Add(long))
	wire.guard.Unlock()
	count := 0
	if err == nil {
		count, err = wire.Conn.Read(wire.head[:])
	}
	wire.guard.Lock()
	defer wire.guard.Unlock()
	wire.listens, wire.isWoken, wire.hasHead = false, false, count == 1
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		err = wire.SetReadDeadline(time.Time{})
	}
	return wire.hasHead, err
}

// wake ends a call of listen, now or the next one.
func (wire *wire) wake() {
	wire.guard.Lock()
	defer wire.guard.Unlock()
	wire.isWoken = true
	if wire.listens {
		_ = wire.SetReadDeadline(time.Unix(1, 0))
	}
}

// answerOf tells a null from an error, and that of the server from one of the connection.
func answerOf(err error) (any, error) {
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return nil, failed(err)
}

func failed(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) {
		return &replyError{reply.Error()}
	}
	return &connectionError{err, errors.Is(err, redis.ErrClosed)}
}

var errNoAnswer = errors.New("the server does not answer")

const (
	// A line that nobody has used for so long is closed.
	idleMax = time.Minute
	// A subscription on which nothing comes for so long is asked whether it still works.
	silenceMax = 10 * time.Second
)
