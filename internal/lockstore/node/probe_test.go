package node

import (
	"slices"
	"strconv"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestProbeThatIsCutShort: Redis may refuse the rest of the probe after any of its steps, and the proxy be killed then. A key
// without a TTL is there after five steps at most: those that make such a key, before the PEXPIRE that follows them.
func TestProbeThatIsCutShort(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	const name = "{lockproxy}:probe"
	for _, votes := range []bool{false, true} {
		site := Site{UUID: "proxy", Votes: votes}
		var endless []string
		for _, kind := range lockstore.Kinds {
			if votes && kind == lockstore.Limit {
				continue
			}
			id := lockstore.ID{Key: name, Owner: "proxy:0", Kind: kind}
			steps := site.trial(id, "PUBLISH")
			for n := range len(steps) + 1 {
				s.Do(t, "FLUSHALL")
				for i, step := range steps[:n] {
					words := slices.Concat(step.Args[:1], step.Keys, step.Args[1:])
					if step.Script != nil {
						words = slices.Concat([]string{"EVAL", step.Script.Source, strconv.Itoa(len(step.Keys))}, step.Keys, step.Args)
					}
					reply := s.Do(t, args(words)...)
					if all, is := reply.([]any); is {
						reply = all[0]
					}
					if reply != step.code {
						t.Fatalf("%v, votes %v: step %d: %v, wants %d", kind, votes, i, reply, step.code)
					}
				}
				for _, key := range s.Do(t, "KEYS", "*").([]any) {
					if s.Do(t, "PTTL", key).(int64) == -1 {
						endless = append(endless, kind.String()+" "+strconv.Itoa(n)+" "+string(key.([]byte)))
					}
				}
			}
		}
		t.Log(endless)
		if len(endless) > 5 {
			t.Errorf("votes %v: after these steps a key has no TTL: %q", votes, endless)
		}
	}
}
