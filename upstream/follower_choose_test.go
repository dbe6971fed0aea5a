package upstream

import (
	"errors"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	silent, dead := view{}, view{asked: true, err: errors.New("refused")}
	says := func(addr string, epoch int64) view { return view{place: place{addr, epoch}, asked: true} }
	for name, c := range map[string]struct {
		views []view
		now   place
		want  place // addr "": not enough is known
	}{
		"nobody asked yet":                      {views: []view{silent, silent, silent}},
		"one of three, at first":                {views: []view{says("a", 1), silent, silent}},
		"a majority, at first":                  {views: []view{says("a", 1), silent, says("a", 1)}, want: place{"a", 1}},
		"one alive, at first":                   {views: []view{dead, says("a", 1), dead}, want: place{"a", 1}},
		"all dead, at first":                    {views: []view{dead, dead, dead}},
		"the newest counts, at first":           {views: []view{says("a", 1), says("b", 2), says("a", 1)}, want: place{"b", 2}},
		"most votes, at first":                  {views: []view{says("a", 0), says("b", 0), says("b", 0)}, want: place{"b", 0}},
		"all dead later":                        {views: []view{dead, dead, dead}, now: place{"a", 1}},
		"one says newer":                        {views: []view{says("a", 1), says("b", 2), dead}, now: place{"a", 1}, want: place{"b", 2}},
		"one alone with an old view":            {views: []view{says("a", 1), dead, dead}, now: place{"b", 2}, want: place{"b", 2}},
		"one with an old view among others":     {views: []view{says("a", 1), says("b", 2), says("b", 2)}, now: place{"b", 2}, want: place{"b", 2}},
		"one differs within the epoch":          {views: []view{says("b", 1), dead, dead}, now: place{"a", 1}, want: place{"a", 1}},
		"half of them differ within the epoch":  {views: []view{says("b", 1), says("a", 1)}, now: place{"a", 1}, want: place{"a", 1}},
		"a majority differs within the epoch":   {views: []view{says("b", 1), says("b", 1), says("a", 1)}, now: place{"a", 1}, want: place{"b", 1}},
		"a majority was set up anew":            {views: []view{says("c", 0), says("c", 0), dead}, now: place{"a", 7}, want: place{"c", 0}},
		"the same master in a newer epoch":      {views: []view{says("a", 3), dead, dead}, now: place{"a", 1}, want: place{"a", 3}},
		"a tie within a newer epoch: none left": {views: []view{says("b", 2), says("a", 2), dead}, now: place{"a", 1}, want: place{"a", 2}},
	} {
		to, ok := choose(c.views, c.now)
		if ok != (c.want.addr != "") || to != c.want {
			t.Errorf("%s: got %v, %v; want %v", name, to, ok, c.want)
		}
	}
}

func TestParseSentinels(t *testing.T) {
	t.Parallel()
	got, err := ParseTarget("redis+sentinel://ann:p%40s@h1,h2:1,[::1]:2/main/3?sentinel-user=w&sentinel-password=s%26t")
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
	got, err = ParseTarget("rediss+sentinel://h1/main?insecure-skip-verify=true")
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
		"rediss+sentinel://u:geheim@h1/main?insecure-skip-verify=maybe", "redis+sentinel://h1/main?sentinel-user=geheim",
		"redis+sentinel://h1/main?sentinel-password=ge%zzheim", "unix+sentinel:///geheim/main",
	} {
		_, err := ParseTarget(url)
		if err == nil {
			t.Errorf("%s: no error", url)
		} else if text := err.Error(); strings.Contains(text, "heim") || strings.Contains(text, "%zz") || len(text) < 15 {
			t.Errorf("%s: %v", url, err)
		}
	}
}
