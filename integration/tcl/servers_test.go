package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The cluster behind lockproxy serves all slots, each at one of its nodes.
func TestCluster(t *testing.T) {
	testredis.NeedsProcesses(t)
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	b := &environment{s: settings{nodes: 3}, suite: &suite{server: program}}
	servers, upstream, err := b.startServers(t.Context(), t.TempDir(), false)
	t.Cleanup(func() { stopAll(servers) })
	if err != nil {
		t.Fatal(err)
	}
	addrs := strings.Split(strings.TrimPrefix(upstream, "redis-cluster://"), ",")
	if len(addrs) != 3 {
		t.Fatalf("upstream %s", upstream)
	}
	here := 0
	for _, addr := range addrs {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			switch _, err := ask(t.Context(), addr, "SET", key, "v"); {
			case err == nil:
				here++
			case !strings.Contains(err.Error(), "MOVED"):
				t.Error(err)
			}
		}
	}
	if here != 5 {
		t.Errorf("of 5 keys %d were taken by their node", here)
	}
}
