package config

import (
	"strings"
	"testing"
)

// A cluster's address names several nodes, which is nothing for net/url, and may hold a password.
func TestClusterUpstream(t *testing.T) {
	c, err := Parse([]string{"--upstream", "rediss-cluster://u:p@ss@a:1,b:2?insecure-skip-verify=true", "--cluster-retry", "1s", "--cluster-address-map", "a=b,c=d", "--present", "cluster", "--announce-address", "lb:7"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Upstream.URL.String(); got != "rediss-cluster://a:1,b:2" {
		t.Errorf("got %s", got)
	}
	if strings.Contains(c.String(), "p@ss") {
		t.Errorf("%s shows the password", c)
	}
	if len(c.Cluster.AddressMap) != 2 || c.Listen.Present != "cluster" || c.Listen.Announce != "lb:7" {
		t.Errorf("got %s", c)
	}
	for _, args := range [][]string{
		{"--upstream", "redis-cluster://"}, {"--upstream", "tcp-cluster://a"}, {"--cluster-retry", "1ms"}, {"--cluster-refresh", "0"}, {"--present", "x"}, {"--announce-address", "lb"},
		{"--quorum", "redis://a,redis://b,redis://c", "--upstream", "redis-cluster://d"}, {"--quorum", "redis://a,redis://b,redis-cluster://c", "--upstream", "redis://d"},
	} {
		if _, err := Parse(args); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(args[0], "--")) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
