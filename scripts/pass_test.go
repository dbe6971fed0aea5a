package scripts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestPassIsAHandoff: pass and rw_pass do what the hand-offs would have done, or nothing, whatever they find.
func TestPassIsAHandoff(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	conn, heard := s.Dial(t), listener(t, s)
	later := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	const queue, channel, rw, holds = "redisson_lock_queue:{k}", "redisson_lock__channel:{k}", "redisson_rwlock:{k}", "{k}:me:rwlock_timeout"
	const lease, done, nothing, late = "7200000", "1", "0", "-2"
	for _, way := range []struct {
		name        string
		short, long func(notAfter string) []any
	}{
		{"connections", func(notAfter string) []any {
			return []any{Pass.Source, 2, "k", queue, "me", "next", lease, notAfter}
		}, func(notAfter string) []any {
			return []any{Handoff.Source, 4, "k", queue, "k", queue, 1, channel, "", "PUBLISH", "release", 2, 4, "acquire", 2, 5,
				"me", "PUBLISH", notAfter, "", lease, "next", notAfter, "N", "PUBLISH"}
		}},
		{"connections in the queue", func(notAfter string) []any {
			return []any{Pass.Source, 2, "k", queue, "me", "next", lease, notAfter}
		}, func(notAfter string) []any {
			return []any{Handoff.Source, 4, "k", queue, "k", queue, 1, channel, "", "PUBLISH", "release", 2, 4, "acquire", 2, 9,
				"me", "PUBLISH", notAfter, "", lease, "next", notAfter, "NE", "PUBLISH", "", "0", "300000", "7"}
		}},
		{"named owners", func(notAfter string) []any {
			return []any{Pass.Source, 4, "k", queue, "w", "v", "me", "next", lease, notAfter, "mine", "theirs"}
		}, func(notAfter string) []any {
			return []any{Handoff.Source, 6, "k", queue, "w", "k", queue, "v", 1, channel, "", "PUBLISH", "release", 3, 5, "acquire", 3, 7,
				"me", "PUBLISH", notAfter, "AW", "mine", lease, "next", notAfter, "OW", "PUBLISH", "theirs", "0"}
		}},
		{"a named owner again", func(notAfter string) []any {
			return []any{Pass.Source, 4, "k", queue, "w", "w", "me", "me", lease, notAfter, "mine", "theirs"}
		}, func(notAfter string) []any {
			return []any{Handoff.Source, 6, "k", queue, "w", "k", queue, "w", 1, channel, "", "PUBLISH", "release", 3, 5, "acquire", 3, 7,
				"me", "PUBLISH", notAfter, "AW", "mine", lease, "me", notAfter, "OW", "PUBLISH", "theirs", "0"}
		}},
		{"a reader to a writer", func(notAfter string) []any {
			return []any{RWPass.Source, 3, "k", holds, rw, "me", "me:write", "next:write", lease, notAfter, "read"}
		}, func(notAfter string) []any {
			return []any{RWHandoff.Source, 4, "k", holds, rw, "k", 1, rw, "", "PUBLISH", "read_release", 3, 7, "write_acquire", 1, 8,
				"me", "PUBLISH", notAfter, "", "", "me:write", "{k}", lease, "next:write", notAfter, "NM", "", "0", "next", "{k}"}
		}},
		{"a writer to a writer", func(notAfter string) []any {
			return []any{RWPass.Source, 2, "k", rw, "me:write", "me", "next:write", lease, notAfter, "write"}
		}, func(notAfter string) []any {
			return []any{RWHandoff.Source, 3, "k", rw, "k", 1, rw, "", "PUBLISH", "write_release", 2, 7, "write_acquire", 1, 8,
				"me:write", "PUBLISH", notAfter, "", "", "me", "{k}", lease, "next:write", notAfter, "NM", "", "0", "next", "{k}"}
		}},
	} {
		seen := map[string]int{}
		for name, state := range lockStates {
			for _, notAfter := range []string{later, "1"} {
				outcome := func(command []any) (reply, left string) {
					prepare(t, conn, state)
					if command != nil {
						out, err := conn.Do("EVAL", command...)
						line, _, _ := strings.Cut(fmt.Sprint(err), " script:")
						reply = strings.TrimSuffix(fmt.Sprint(out, line), "<nil>")
					}
					return reply, clocks.ReplaceAllString(strings.Join(heard(conn), ","), "long") + " " + everything(t, conn)
				}
				_, before := outcome(nil)
				short, left := outcome(way.short(notAfter))
				whole, after := outcome(way.long(notAfter))
				seen[short]++
				switch {
				case short == done && (whole != "[1 0 0 1 1 7200000 0 1]" || left != after):
					t.Errorf("%s, %s: leaves %s, the hand-off %s, %s", way.name, name, left, whole, after)
				case short == done:
				case left != before:
					t.Errorf("%s, %s: %s changed %s to %s", way.name, name, short, before, left)
				case short == late && !strings.HasPrefix(whole, "[-2 "):
					t.Errorf("%s, %s: too late, and the hand-off: %s", way.name, name, whole)
				case !slices.Contains([]string{nothing, late}, short) && name != "a string":
					t.Errorf("%s, %s: %s", way.name, name, short)
				}
			}
		}
		if again := way.name == "a named owner again"; seen[nothing] == 0 || !again && (seen[done] == 0 || seen[late] == 0) || again && seen[done] > 0 {
			t.Errorf("%s: %v", way.name, seen)
		}
	}
}
