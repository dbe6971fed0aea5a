package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// Whoever hears of locks by SUBSCRIBE is counted where releases are told by SPUBLISH alone, and the log says it once.
func TestSubscribersWhomSPUBLISHDoesNotReach(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	control := upstream.NewControl(upstream.Target{Network: "tcp", Addr: server.Addr()}, upstream.ControlOptions{})
	t.Cleanup(control.Close)
	n := &Node{Control: control}
	unheard := func(way PubSub) int64 {
		t.Helper()
		_, unheard, err := n.publishesWith(way)
		if err != nil {
			t.Fatal(err)
		}
		return unheard
	}
	redisson := server.Dial(t)
	for _, hears := range []string{"news", "redisson_lock__channel:{k}", "redisson_lock__channel:{k}:owner:1"} {
		if _, err := redisson.Do("SUBSCRIBE", hears); err != nil {
			t.Fatal(err)
		}
	}
	for way, want := range map[PubSub]int64{PubSubSharded: 2, PubSubBoth: 0, PubSubClassic: 0} {
		if got := unheard(way); got != want {
			t.Errorf("%s: %d channels, want %d", way, got, want)
		}
	}
	var log bytes.Buffer
	s := Site{Node: n, PubSub: PubSubSharded, Log: slog.New(slog.NewTextHandler(&log, nil))}
	one := &standing{found: found{verb: "SPUBLISH", unheard: 2}}
	for range 2 {
		s.logChange(&standing{found: found{verb: "SPUBLISH"}}, one)
		s.logChange(one, one)
	}
	if n := strings.Count(log.String(), "set cluster-pubsub to both"); n != 2 { // it was nobody in between
		t.Errorf("told %d times: %s", n, &log)
	}
	server.Do(t, "ACL", "SETUSER", "default", "-pubsub|channels")
	if got := unheard(PubSubSharded); got != 0 {
		t.Errorf("an account that may not ask: %d", got)
	}
}
