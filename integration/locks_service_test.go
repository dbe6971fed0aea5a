package integration

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// servicePermissions is what the README says that the service account needs.
func servicePermissions(t *testing.T) []any {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("The service account needs `([^`]+)`").FindSubmatch(readme)
	if found == nil {
		t.Fatal("the README does not say what the service account needs")
	}
	rules := []any{"ACL", "SETUSER", "service", "on", ">secret", "~app:*", "~redisson_*", "~lockproxy_*", "~{*", "resetchannels", "&redisson_*"}
	for _, rule := range strings.Fields(string(found[1])) {
		rules = append(rules, rule)
	}
	return rules
}

// With what the README gives the service account, and no more, every verb works, waiting and handing on included.
func TestServiceAccount(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, servicePermissions(t)...)
	url := "redis://service:secret@" + s.Addr()
	proxies := []string{harness.StartProxy(t, url).Addr(), harness.StartProxy(t, url).Addr()}
	a := harness.Dial(t, proxies[0])
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"LOCK", "app:1"}, "+OK"},
		{[]string{"LOCK", "app:1", "OWNER", "x", "FENCE"}, "$-1"},
		{[]string{"RENEW", "app:1", "PX", "9000"}, ":1"},
		{[]string{"UNLOCK", "app:1"}, ":1"},
		{[]string{"LOCK", "app:1", "OWNER", "x", "FENCE", "ONCE"}, ":"},
		{[]string{"RENEW", "app:1", "OWNER", "x"}, ":1"},
		{[]string{"UNLOCK", "app:1", "OWNER", "x"}, ":1"},
		{[]string{"UNLOCK", "app:1", "OWNER", "x"}, ":1"},
		{[]string{"LOCK", "app:1", "REPLICAS", "1", "BLOCK", "1"}, "-NOREPLICAS"},
		{[]string{"FAIRLOCK", "app:1", "BLOCK", "10"}, "+OK"},
		{[]string{"FENCED", "app:1", "SET", "data", "x"}, "+OK"},
		{[]string{"UNLOCK", "app:1", "FORCE"}, ":1"},
		{[]string{"MULTILOCK", "2", "app:2", "app:3", "PX", "5000"}, "+OK"},
		{[]string{"MULTIUNLOCK", "2", "app:2", "app:3"}, ":2"},
		{[]string{"WLOCK", "app:4"}, "+OK"},
		{[]string{"RLOCK", "app:4"}, "+OK"},
		{[]string{"UNLOCK", "app:4", "WRITE"}, ":1"},
		{[]string{"RENEW", "app:4", "READ"}, ":1"},
		{[]string{"UNLOCK", "app:4"}, ":1"},
		{[]string{"LOCKINFO", "app:1"}, "*"},
		{[]string{"LOCKLIST"}, "*"},
	} {
		if got := a.Do(step.args...); !strings.HasPrefix(got, step.want) {
			t.Errorf("%q: %q, want %s", step.args, got, step.want)
		}
	}
	// Enough in a row that somebody else's turn comes.
	for _, verb := range []string{"LOCK", "FAIRLOCK", "WLOCK", "RLOCK"} {
		var group sync.WaitGroup
		for i := range 8 {
			w := harness.Dial(t, proxies[i%2])
			group.Go(func() {
				for range 50 {
					for _, step := range [][]string{{verb, "app:5", "BLOCK", "20000"}, {"UNLOCK", "app:5"}} {
						if got := w.Do(step...); strings.HasPrefix(got, "-") || got == "$-1\r\n" {
							t.Errorf("%q: %q", step, got)
							return
						}
					}
				}
			})
		}
		group.Wait()
	}
	if log := s.Do(t, "ACL", "LOG"); len(log.([]any)) != 0 {
		t.Errorf("Redis refused: %q", log)
	}
}
