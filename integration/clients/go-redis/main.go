// Command go-redis runs go-redis through lockproxy: every step prints "ok <step>", and the first failure ends the program.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect(more redis.Options) *redis.Client {
	more.Addr, more.ReadTimeout = os.Getenv("LOCKPROXY_ADDR"), max(more.ReadTimeout, 500*time.Millisecond)
	return redis.NewClient(&more)
}

// inCluster says that lockproxy presents itself as a cluster.
var inCluster = os.Getenv("LOCKPROXY_MODE") == "cluster"

// shared is what an application shares: a client of one Redis, or of a cluster.
func shared() redis.UniversalClient {
	if !inCluster {
		return connect(redis.Options{ReadTimeout: 5 * time.Second})
	}
	addr := os.Getenv("LOCKPROXY_ADDR")
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ReadTimeout: 5 * time.Second})
	slots, err := r.ClusterSlots(ctx).Result()
	check(err)
	same(len(slots), 1)
	same(slots[0].Nodes[0].Addr, addr)
	return r
}

func ok(step string) { fmt.Println("ok", step) }

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// must is a reply that is no error and looks like want.
func must(cmd *redis.Cmd, want any) {
	got, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		got, err = nil, nil
	}
	check(err)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		log.Panicf("%v, want %v", cmd, want)
	}
}

// same wants two values to look the same.
func same(got, want any) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		log.Panicf("%v, want %v", got, want)
	}
}

func fails(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		log.Panicf("%v, want %s", err, text)
	}
}

var answers = bufio.NewReader(os.Stdin)

// lose asks whoever runs this program to delete the lock behind the proxy's back, and waits until the proxy has noticed.
func lose(key string) {
	fmt.Println("lose", key)
	_, err := answers.ReadString('\n')
	check(err)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "lost" {
		whileLost()
		return
	}
	parts := os.Getenv("PARTS")
	if parts == "" {
		parts = "data,locks"
	}
	r := shared()
	about, err := r.Do(ctx, "CLIENT", "INFO").Text() // HELLO 3 and CLIENT SETINFO were sent by go-redis itself
	check(err)
	if !strings.Contains(about, " resp=3") || strings.Contains(about, "lib-name") && !strings.Contains(about, " lib-name=go-redis") {
		log.Panic(about)
	}
	ok("handshake")
	if strings.Contains(parts, "data") {
		types(r)
		transactions(r)
		waiting(r)
		scripts(r)
	}
	if strings.Contains(parts, "locks") {
		locks(r)
		contention(r)
		lost()
	}
}
