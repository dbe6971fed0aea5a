package dropin

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A certificate's common name is its client's user, whose password the proxy has: without AUTH, and again after RESET.
func TestCertificateIsUser(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	for _, user := range [][]any{
		{"alice", "on", ">wonder land", "~a:*", "&*", "+@all"}, {"bob", "on", ">builder", "~*", "&*", "+@all"}, {"eve", "off", ">apple", "~*", "&*", "+@all"},
	} {
		redis.Do(t, append([]any{"ACL", "SETUSER"}, user...)...)
	}
	redis.Do(t, "ACL", "SETUSER", "service", "on", ">service", "~*", "&*", "+@all")
	redis.Do(t, "CONFIG", "SET", "requirepass", "secret")
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("127.0.0.1")
	passwords := filepath.Join(t.TempDir(), "users")
	write := func(lines string) {
		t.Helper()
		if err := os.WriteFile(passwords, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# of the teams\nalice wonder land\n\neve apple\n")
	upstream := "redis://service:service@" + redis.Addr()
	p, addr := startTLS(t, upstream, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File, "--tls-client-auth", "optional",
		"--tls-auth-user-passwords", passwords)
	as := func(name string) *harness.Wire {
		conf := &tls.Config{RootCAs: a.Pool}
		if name != "" {
			conf = a.Client(name)
		}
		conf.ServerName = "127.0.0.1"
		return dialTLS(t, addr, conf)
	}

	w := as("alice")
	many := []string{"MSET"} // more words than one may send who has not authenticated
	for range 20 {
		many = append(many, "a:k", "v")
	}
	harness.Expect(t, w, "+OK\r\n", many...)
	harness.Expect(t, w, "$5\r\nalice\r\n", "ACL", "WHOAMI")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "a:lock")
	if got := w.Do("LOCK", "b:lock"); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("another's lock: %q", got)
	}
	if got := w.Do("CLIENT", "INFO"); !strings.Contains(got, " user=alice ") {
		t.Errorf("CLIENT INFO: %q", got)
	}
	harness.Expect(t, w, "+OK\r\n", "AUTH", "bob", "builder")
	harness.Expect(t, w, "$3\r\nbob\r\n", "ACL", "WHOAMI")
	if got := w.Do("HELLO", "2", "AUTH", "bob", "wrong"); !strings.HasPrefix(got, "-WRONGPASS") {
		t.Errorf("HELLO with a wrong password: %q", got)
	}
	harness.Expect(t, w, "$3\r\nbob\r\n", "ACL", "WHOAMI")
	replies, err := w.TryPipeline([][]string{{"RESET"}, {"ACL", "WHOAMI"}, {"MULTI"}, {"ACL", "WHOAMI"}, {"EXEC"}})
	if got := strings.Join(replies, ""); err != nil || got != "+RESET\r\n$5\r\nalice\r\n+OK\r\n+QUEUED\r\n*1\r\n$5\r\nalice\r\n" {
		t.Errorf("after RESET: %q, %v", got, err)
	}
	harness.Expect(t, w, "$1\r\nv\r\n", "GET", "a:k")

	for what, w := range map[string]*harness.Wire{"a name that is not in the file": as("bob"), "no certificate": as(""), "no TLS": harness.Dial(t, p.Addr())} {
		if got := w.Do("GET", "a:k"); !strings.HasPrefix(got, "-NOAUTH") {
			t.Errorf("%s: %q", what, got)
		}
		harness.Expect(t, w, "+OK\r\n", "AUTH", "bob", "builder")
		harness.Expect(t, w, "$3\r\nbob\r\n", "ACL", "WHOAMI")
	}

	refused := as("eve")
	if got := refused.Do("PING"); !strings.HasPrefix(got, "-WRONGPASS") || !refused.Closed() {
		t.Errorf("a user who is off: %q", got)
	}

	// The file is changed: for better, and then for worse.
	write("bob builder\n")
	p.Signal(syscall.SIGHUP)
	harness.Eventually(t, "bob's certificate is taken", func() bool { return as("bob").Do("ACL", "WHOAMI") == "$3\r\nbob\r\n" })
	harness.Expect(t, w, "$5\r\nalice\r\n", "ACL", "WHOAMI")
	write("bob\n")
	p.Signal(syscall.SIGHUP)
	harness.Eventually(t, "a bad file is told of", func() bool { return strings.Contains(p.Log(), "line 1 is not a user") })
	harness.Expect(t, as("bob"), "$3\r\nbob\r\n", "ACL", "WHOAMI")
	if log := p.Log(); strings.Contains(log, "builder") || strings.Contains(log, "wonder") {
		t.Errorf("a password is in the log: %s", log)
	}

	// The password is changed in Redis alone: who comes with the certificate is refused until the file has it.
	bob := harness.Dial(t, redis.Addr())
	harness.Expect(t, bob, "+OK\r\n", "AUTH", "secret")
	harness.Expect(t, bob, "+OK\r\n", "ACL", "SETUSER", "bob", "resetpass", ">other")
	if got := as("bob").Do("PING"); !strings.HasPrefix(got, "-WRONGPASS") {
		t.Errorf("an old password in the file: %q", got)
	}
	write("bob other\n")
	p.Signal(syscall.SIGHUP)
	harness.Eventually(t, "the new password is taken", func() bool { return as("bob").Do("ACL", "WHOAMI") == "$3\r\nbob\r\n" })
}
