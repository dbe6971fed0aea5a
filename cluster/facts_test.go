package cluster

import "testing"

// Redis 7.0 does not say that the replies of RANDOMKEY are merged in a special way, 7.2 and Valkey do. Of the other commands with
// such replies one node answers.
func TestFactsOfSpecialReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tips []string
		want Request
	}{
		"randomkey":         {[]string{"request_policy:all_shards", "response_policy:special", "nondeterministic_output"}, AllShards},
		"RANDOMKEY":         {[]string{"request_policy:all_shards", "nondeterministic_output"}, AllShards},
		"info":              {[]string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"}, OneNode},
		"latency|histogram": {[]string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"}, OneNode},
	} {
		if f := FactsOf(name, []string{"readonly"}, c.tips); f.Request != c.want || f.Response != NoPolicy {
			t.Errorf("%s: got %+v", name, *f)
		}
	}
}

// PING is answered by one node, whatever its tips say. It changes nothing, which its flags do not say.
func TestFactsOfPing(t *testing.T) {
	t.Parallel()
	tips := []string{"request_policy:all_shards", "response_policy:all_succeeded"}
	for _, flags := range [][]string{{"fast"}, {"fast", "stale"}} {
		if f := FactsOf("ping", flags, tips); f.Request != OneNode || f.Response != NoPolicy || !f.ReadOnly {
			t.Errorf("got %+v", *f)
		}
	}
}

// What a node says of itself changes nothing, so another may be asked in its place; not so what may change something.
func TestFactsOfWhatAnyNodeAnswers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"ROLE": true, "config|get": true, "config|help": true, "acl|whoami": true, "function|list": true,
		"config|set": false, "acl|log": false, "publish": false, "function|load": false, "client|kill": false,
	} {
		if f := FactsOf(name, []string{"noscript", "loading", "stale"}, nil); f.ReadOnly != want {
			t.Errorf("%s: got %+v", name, *f)
		}
	}
}
