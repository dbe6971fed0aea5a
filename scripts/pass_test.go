package scripts

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestPassIsAHandoff: pass does what handoff would have done, or nothing.
func TestPassIsAHandoff(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	conn := s.Dial(t)
	later := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	const queue = "redisson_lock_queue:{k}"
	const done, nothing, late = "1", "0", "-2"
	seen := map[string]int{}
	for name, state := range lockStates {
		for _, notAfter := range []string{later, "1"} {
			outcome := func(command ...any) (reply, left string) {
				s.Do(t, "FLUSHALL")
				for _, c := range state {
					s.Do(t, c...)
				}
				heard := listener(t, s)
				if len(command) > 0 {
					out, err := conn.Do("EVAL", command...)
					line, _, _ := strings.Cut(fmt.Sprint(err), " script:")
					reply = strings.TrimSuffix(fmt.Sprint(out, line), "<nil>")
				}
				return reply, strings.Join(heard(), ",") + " " + everything(t, s)
			}
			_, before := outcome()
			whole, after := outcome(Handoff.Source, 4, "k", queue, "k", queue, 1, "redisson_lock__channel:{k}", "", "PUBLISH", "release", 2, 4, "acquire", 2, 5,
				"me", "PUBLISH", notAfter, "", "7200000", "next", notAfter, "N", "PUBLISH")
			short, left := outcome(Pass.Source, 2, "k", queue, "me", "next", "7200000", notAfter)
			seen[short]++
			switch {
			case short == done && (whole != "[1 0 0 1 1 7200000 0 1]" || left != after):
				t.Errorf("%s: leaves %s, handoff %s, %s", name, left, whole, after)
			case short == done:
			case left != before:
				t.Errorf("%s: %s changed %s to %s", name, short, before, left)
			case short == late && !strings.HasPrefix(whole, "[-2 "):
				t.Errorf("%s: too late, and handoff: %s", name, whole)
			case short != nothing && short != late && name != "a string":
				t.Errorf("%s: %s", name, short)
			}
		}
	}
	if seen[done] == 0 || seen[nothing] == 0 || seen[late] == 0 {
		t.Error(seen)
	}
}
