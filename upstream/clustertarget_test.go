package upstream

import (
	"slices"
	"strings"
	"testing"
)

func TestParseClusterTarget(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis-cluster://a:1,b,[::1]:3":                "redis-cluster://a:1,b:6379,[::1]:3",
		"redis-cluster://u%40:p%2C@a:1,b:2":            "redis-cluster://u%40@a:1,b:2",
		"rediss-cluster://:secret@a,b:2/":              "rediss-cluster://a:6379,b:2",
		"redis-cluster://a/0":                          "redis-cluster://a:6379",
		"rediss-cluster://a?insecure-skip-verify=true": "rediss-cluster://a:6379",
	} {
		ct, err := parseClusterTarget(raw)
		if err != nil || ct.String() != want {
			t.Errorf("%s: got %v, %v", raw, ct, err)
		}
	}
	ct, err := parseClusterTarget("rediss-cluster://u%40:p%2C@a:1,b:2?insecure-skip-verify=true")
	if err != nil {
		t.Fatal(err)
	}
	if ct.Node.User != "u@" || ct.Node.Password != "p," || !slices.Equal(ct.Seeds, []string{"a:1", "b:2"}) {
		t.Errorf("got %+v", ct)
	}
	node := ct.At("10.0.0.1:7000", "")
	if node.TLS.ServerName != "10.0.0.1" || !node.TLS.InsecureSkipVerify || node.Addr != "10.0.0.1:7000" || node.User != "u@" {
		t.Errorf("got %+v", node)
	}
	if node := ct.At("10.0.0.1:7000", "n1.example"); node.TLS.ServerName != "n1.example" {
		t.Errorf("got %+v", node.TLS)
	}
}

func TestParseClusterTargetRefuses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://a:1":                                 "not of the form",
		"redis-cluster://":                            "the host is missing",
		"redis-cluster://a,":                          "the host is missing",
		"redis-cluster://a:0":                         "the port must be",
		"redis-cluster://a/1":                         "no databases",
		"redis-cluster://a?x=1":                       "unknown parameter",
		"redis-cluster://u:sec%ret@a":                 "not of the form redis-cluster",
		"redis-cluster://a?insecure-skip-verify=true": "unknown parameter",
	} {
		_, err := parseClusterTarget(raw)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sec%ret") {
			t.Errorf("%s: got %v", raw, err)
		}
	}
}
