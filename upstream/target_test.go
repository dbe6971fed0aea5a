package upstream

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]Target{
		"redis://localhost":                          {Network: "tcp", Addr: "localhost:6379"},
		"redis://localhost/":                         {Network: "tcp", Addr: "localhost:6379"},
		"redis://10.0.0.1:7000/5":                    {Network: "tcp", Addr: "10.0.0.1:7000", DB: 5},
		"redis://[::1]:7000":                         {Network: "tcp", Addr: "[::1]:7000"},
		"redis://[::1]":                              {Network: "tcp", Addr: "[::1]:6379"},
		"redis://:p%40ss%2Fw%3A@h:1":                 {Network: "tcp", Addr: "h:1", Password: "p@ss/w:"},
		"redis://ann:a%20b@h:1/2":                    {Network: "tcp", Addr: "h:1", User: "ann", Password: "a b", DB: 2},
		"redis://ann@h:1":                            {Network: "tcp", Addr: "h:1", User: "ann"},
		"unix:///run/redis.sock":                     {Network: "unix", Addr: "/run/redis.sock"},
		"unix:///run/redis.sock?db=4":                {Network: "unix", Addr: "/run/redis.sock", DB: 4},
		"unix://ann:x@/run/redis.sock":               {Network: "unix", Addr: "/run/redis.sock", User: "ann", Password: "x"},
		"rediss://h":                                 {Network: "tcp", Addr: "h:6379", TLS: &tls.Config{ServerName: "h"}},
		"rediss://[::1]:5?insecure-skip-verify=true": {Network: "tcp", Addr: "[::1]:5", TLS: &tls.Config{ServerName: "::1", InsecureSkipVerify: true}},
	} {
		got, err := parseTarget(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		secure := got.TLS
		got.TLS, want.TLS = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", url, got, want)
		}
		if strings.HasPrefix(url, "rediss") != (secure != nil) {
			t.Errorf("%s: TLS is %v", url, secure)
		}
	}
	got, err := parseTarget("rediss://h?insecure-skip-verify=true")
	if err != nil || got.TLS.ServerName != "h" || !got.TLS.InsecureSkipVerify || got.TLS.MinVersion != tls.VersionTLS12 {
		t.Errorf("got %+v, %v", got.TLS, err)
	}
}

func TestParseTargetRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "localhost:6379", "http://h", "redis:h", "redis://", "redis://:6379", "redis://:geheim@:6379",
		"redis://h:0", "redis://h:99999", "redis://h:x", "redis://h/x", "redis://h/-1", "redis://h/1/2", "redis://h?db=1",
		"redis://h#x", "redis://u:geheim%zz@h", "redis://u:ge/heim@h", "redis://u:ge#heim@h", "redis://u:geheim@h:x1",
		"redis://u:geheim@h/one", "redis://u:geheim@h?insecure-skip-verify=true", "rediss://u:geheim@h?insecure-skip-verify=maybe",
		"unix://run/x", "unix:///", "unix://", "unix:///x?db=y", "unix:///x?y=1", "redis://u:geheim@[::1", "redis://h?a;b",
	} {
		_, err := parseTarget(url)
		if err == nil {
			t.Errorf("%s: no error", url)
		} else if text := err.Error(); strings.Contains(text, "heim") || strings.Contains(text, "%zz") || len(text) < 15 {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestTargetString(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://ann:geheim@h:1/2":               "redis://ann@h:1/2",
		"redis://:geheim@[::1]":                  "redis://[::1]:6379",
		"rediss://h/0":                           "rediss://h:6379",
		"unix://ann:geheim@/run/redis.sock?db=3": "unix://ann@/run/redis.sock?db=3",
		"unix:///run/redis.sock":                 "unix:///run/redis.sock",
	} {
		target, err := parseTarget(url)
		if err != nil || target.String() != want {
			t.Errorf("%s: got %s, %v, want %s", url, target, err, want)
		}
	}
}
