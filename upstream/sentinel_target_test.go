package upstream

import (
	"strings"
	"testing"
)

func TestParseSentinels(t *testing.T) {
	t.Parallel()
	got, err := parseTarget("redis+sentinel://ann:p%40s@h1,h2:1,[::1]:2/main/3?sentinel-user=w&sentinel-password=s%26t")
	if err != nil {
		t.Fatal(err)
	}
	s := *got.Sentinels
	if got.User != "ann" || got.Password != "p@s" || got.DB != 3 || got.TLS != nil || got.Network != "tcp" ||
		s.Master != "main" || s.User != "w" || s.Password != "s&t" || len(s.Addrs) != 3 || s.Addrs[0] != "h1:26379" || s.Addrs[1] != "h2:1" || s.Addrs[2] != "[::1]:2" {
		t.Errorf("got %+v %+v", got, s)
	}
	if text := got.String(); text != "redis+sentinel://ann@h1:26379,h2:1,[::1]:2/main/3" {
		t.Errorf("printed as %s", text)
	}
	got, err = parseTarget("rediss+sentinel://h1/main?insecure-skip-verify=true")
	if err != nil || got.TLS == nil || !got.TLS.InsecureSkipVerify || got.TLS.ServerName != "" || got.String() != "rediss+sentinel://h1:26379/main" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseSentinelsRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis+sentinel://", "redis+sentinel:///main", "redis+sentinel://h1", "redis+sentinel://h1/", "redis+sentinel://h1,/main",
		"redis+sentinel://h1:0/main", "redis+sentinel://h1:x/main", "redis+sentinel://u:geheim@h1/main/x", "redis+sentinel://h1/main/-1",
		"redis+sentinel://h1/a%20b", "redis+sentinel://u:ge%zzheim@h1/main", "redis+sentinel://u:geheim@h1,u:geheim@h2/main",
		"redis+sentinel://u:geheim@h1/main?x=1", "redis+sentinel://h1/main?insecure-skip-verify=true", "redis+sentinel://h1/main#geheim",
		"rediss+sentinel://u:geheim@h1/main?insecure-skip-verify=maybe",
		"redis+sentinel://h1/main?sentinel-password=ge%zzheim", "unix+sentinel:///geheim/main",
	} {
		_, err := parseTarget(url)
		if err == nil {
			t.Errorf("%s: no error", url)
		} else if text := err.Error(); strings.Contains(text, "heim") || strings.Contains(text, "%zz") || len(text) < 15 {
			t.Errorf("%s: %v", url, err)
		}
	}
}
