package tlsfiles

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func open(t *testing.T, n Names) (*Files, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	f, err := Open(n, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	log.Reset() // of a warning: certificates of tests last for a day
	return f, &log
}

func name(f *Files, i int) string { return f.Now().Certificates[i].Leaf.Subject.CommonName }

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNewFilesAreTakenOn(t *testing.T) {
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("one")
	f, log := open(t, Names{Certs: []string{cert}, Keys: []string{key}, CA: a.File})
	before := f.Now()
	f.takeNew(false)
	f.takeNew(false)
	if f.Now() != before || log.Len() > 0 {
		t.Errorf("nothing has changed: %s", log)
	}
	a.IssueTo(cert, key, "two")
	if f.takeNew(false); name(f, 0) != "one" {
		t.Error("taken on at first sight, which may be of half a file")
	}
	if f.takeNew(false); name(f, 0) != "two" || strings.Count(log.String(), "reloaded") != 1 {
		t.Errorf("still %s: %s", name(f, 0), log)
	}
	a.IssueTo(cert, key, "three")
	if f.takeNew(true); name(f, 0) != "three" {
		t.Error("an operator's word was not taken")
	}
}

func TestBadFilesLeaveTheOld(t *testing.T) {
	a, other := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert, key := a.Issue("old")
	goodCert, goodKey, goodCA := read(t, cert), read(t, key), read(t, a.File)
	newCert, newKey := other.Issue("new")
	two := append(bytes.Clone(goodCA), read(t, other.File)...)
	for what, change := range map[string]func(){
		"half a pair":        func() { write(t, cert, read(t, newCert)) },
		"half a certificate": func() { write(t, cert, goodCert[:len(goodCert)/2]) },
		"empty key":          func() { write(t, key, nil) },
		"no key":             func() { os.Remove(key) },
		"half a CA":          func() { write(t, a.File, goodCA[:len(goodCA)/2]) },
		"one CA and a half":  func() { write(t, a.File, two[:len(two)-40]) },
		"no CA in it":        func() { write(t, a.File, []byte("# to be done\n")) },
		"broken CA":          func() { write(t, a.File, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")) },
	} {
		f, log := open(t, Names{Certs: []string{cert}, Keys: []string{key}, CA: a.File})
		before := f.Now()
		change()
		for range 5 {
			f.takeNew(false)
		}
		f.takeNew(true)
		if f.Now() != before || strings.Count(log.String(), "the old ones stay") != 1 {
			t.Errorf("%s: said %q", what, log)
		}
		write(t, cert, goodCert)
		write(t, key, goodKey)
		write(t, a.File, goodCA)
		f.takeNew(false)
		if f.takeNew(false); f.Now() != before {
			t.Errorf("%s: the old ones again are taken for new", what)
		}
		write(t, cert, read(t, newCert))
		write(t, key, read(t, newKey))
		f.takeNew(false)
		if f.takeNew(false); name(f, 0) != "new" {
			t.Errorf("%s: no others are taken on afterwards: %q", what, log)
		}
		write(t, cert, goodCert)
		write(t, key, goodKey)
	}
	for _, n := range []Names{
		{Certs: []string{cert}, Keys: []string{newKey}}, {CA: key}, {CA: cert + "x"}, {Certs: []string{"x"}, Keys: []string{key}},
	} {
		if _, err := Open(n, slog.Default()); err == nil {
			t.Errorf("%v: opened", n)
		}
	}
}

func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for _, bad := range []string{"", "\n", "one\ntwo\n", "a\x00b"} {
		write(t, file, []byte(bad))
		if _, err := Open(Names{Password: file}, slog.Default()); err == nil {
			t.Errorf("%q: opened", bad)
		}
	}
	write(t, file, []byte("one\r\n"))
	f, log := open(t, Names{Password: file})
	if got := f.Password(); got != "one" {
		t.Errorf("%q", got)
	}
	for _, step := range []struct{ content, password string }{{" two ", " two "}, {"", " two "}, {"three\n", "three"}} {
		write(t, file, []byte(step.content))
		f.takeNew(false)
		if f.takeNew(false); f.Password() != step.password {
			t.Errorf("%q after %q", f.Password(), step.content)
		}
	}
	if said := log.String(); strings.Count(said, "passwords reloaded") != 2 || strings.Contains(said, "three") {
		t.Error(said)
	}
}

// A password that must have some length is not exchanged for a shorter one.
func TestShortPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	names := Names{Password: file, Least: 4}
	write(t, file, []byte("abc\n"))
	if _, err := Open(names, slog.Default()); err == nil {
		t.Error("opened with 3 bytes")
	}
	write(t, file, []byte("abcd\n"))
	f, _ := open(t, names)
	write(t, file, []byte("x\n"))
	if _, err := f.Look(); err == nil || f.Password() != "abcd" {
		t.Errorf("%q, %v", f.Password(), err)
	}
}

// As Kubernetes mounts secrets: the file is a link into ..data, which is a link that is exchanged.
func TestExchangedLinks(t *testing.T) {
	a, dir := testredis.NewAuthority(t), t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(at(version), 0o700); err != nil {
			t.Fatal(err)
		}
		a.IssueTo(at(version, "tls.crt"), at(version, "tls.key"), version)
	}
	link := func(to, from string) {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", at("..data"))
	link("..data/tls.crt", at("tls.crt"))
	link("..data/tls.key", at("tls.key"))
	f, log := open(t, Names{Certs: []string{at("tls.crt")}, Keys: []string{at("tls.key")}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Watch(ctx)
	}()
	link("v2", at("..tmp"))
	if err := os.Rename(at("..tmp"), at("..data")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); name(f, 0) != "v2"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never taken on")
		}
	}
	a.IssueTo(at("v2", "tls.crt"), at("v2", "tls.key"), "v3")
	if _, err := f.Look(); err != nil || name(f, 0) != "v3" {
		t.Errorf("asked, and did not look: %v", err)
	}
	stop()
	<-done
	if strings.Contains(log.String(), "the old ones stay") {
		t.Error(log)
	}
}

// handshake tries c against s and returns the name of the certificate shown, or the first error.
func handshake(s, c *tls.Config) (string, error) {
	there, here := net.Pipe()
	defer there.Close()
	defer here.Close()
	server, client := tls.Server(there, s), tls.Client(here, c)
	served := make(chan error, 1)
	go func() {
		err := server.Handshake()
		served <- err
		there.Close()
	}()
	err := client.Handshake()
	if err != nil {
		here.Close()
		<-served
		return "", err
	}
	shown := client.ConnectionState().PeerCertificates[0].Subject.CommonName
	_, _ = client.Read(make([]byte, 1)) // in TLS 1.3 the server's verdict comes afterwards
	return shown, <-served
}

func TestHandshakes(t *testing.T) {
	a, other := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert1, key1 := a.Issue("one.test")
	cert2, key2 := a.Issue("two.test", "*.two.test")
	f, _ := open(t, Names{Certs: []string{cert1, cert2}, Keys: []string{key1, key2}, CA: a.File})
	mine := a.Client("client")
	for _, c := range []struct {
		what   string
		auth   tls.ClientAuthType
		change func(*tls.Config)
		want   string // "": refused
	}{
		{"first name", tls.NoClientCert, func(c *tls.Config) { c.ServerName = "one.test" }, "one.test"},
		{"second name", tls.NoClientCert, func(c *tls.Config) { c.ServerName = "two.test" }, "two.test"},
		{"a name below it", tls.NoClientCert, func(c *tls.Config) { c.ServerName = "x.two.test" }, "two.test"},
		{"another name", tls.NoClientCert, func(c *tls.Config) { c.ServerName, c.InsecureSkipVerify = "three.test", true }, "one.test"},
		{"no name", tls.NoClientCert, func(c *tls.Config) { c.InsecureSkipVerify = true }, "one.test"},
		{"TLS 1.2", tls.NoClientCert, func(c *tls.Config) { c.ServerName, c.MaxVersion = "one.test", tls.VersionTLS12 }, "one.test"},
		{"TLS 1.1", tls.NoClientCert, func(c *tls.Config) {
			c.ServerName, c.MinVersion, c.MaxVersion = "one.test", tls.VersionTLS10, tls.VersionTLS11
		}, ""},
		{"with one, required", tls.RequireAndVerifyClientCert, func(c *tls.Config) { c.ServerName = "one.test" }, "one.test"},
		{"without, required", tls.RequireAndVerifyClientCert, func(c *tls.Config) { c.ServerName, c.Certificates = "one.test", nil }, ""},
		{"without, optional", tls.VerifyClientCertIfGiven, func(c *tls.Config) { c.ServerName, c.Certificates = "one.test", nil }, "one.test"},
		{"a stranger's, optional", tls.VerifyClientCertIfGiven, func(c *tls.Config) {
			c.ServerName = "one.test"
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &other.Client("client").Certificates[0], nil
			}
		}, ""},
	} {
		conf := mine.Clone()
		c.change(conf)
		got, err := handshake(f.Server(c.auth), conf)
		if c.want == "" && err == nil || c.want != "" && (err != nil || got != c.want) {
			t.Errorf("%s: got %q, %v; want %q", c.what, got, err, c.want)
		}
	}
}

// The authority of clients is exchanged: those of the old one are refused, sessions to resume or not.
func TestClientAuthorityIsReloaded(t *testing.T) {
	a, b := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert, key := a.Issue("proxy.test")
	f, _ := open(t, Names{Certs: []string{cert}, Keys: []string{key}, CA: a.File})
	server := f.Server(tls.RequireAndVerifyClientCert)
	old, fresh := a.Client("client"), b.Client("client")
	fresh.RootCAs = a.Pool
	for _, c := range []*tls.Config{old, fresh} {
		c.ServerName, c.ClientSessionCache = "proxy.test", tls.NewLRUClientSessionCache(1)
	}
	if _, err := handshake(server, old); err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(server, fresh); err == nil {
		t.Error("a certificate of an authority not trusted yet")
	}
	write(t, a.File, read(t, b.File))
	f.takeNew(true)
	if _, err := handshake(server, old); err == nil {
		t.Error("a certificate of an authority not trusted any more")
	}
	if _, err := handshake(server, fresh); err != nil {
		t.Error(err)
	}
}

// A file of users is taken on as it is written, and never shown.
func TestUsersAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	for text, want := range map[string]map[string]string{
		"":                         nil,
		"# none\n\n":               nil,
		"a secret":                 {"a": "secret"},
		"a two words \r\nb  #\r\n": {"a": "two words ", "b": " #"},
		"secret":                   nil,
		" secret":                  nil,
		"a secret\na other":        nil,
		"a\tsecret x":              nil,
		"a secret\x00":             nil,
	} {
		write(t, path, []byte(text))
		f, err := Open(Names{Users: path}, slog.Default())
		switch {
		case want == nil && (err == nil || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: %v", text, err)
		case want != nil && (err != nil || !maps.Equal(f.Now().Users, want)):
			t.Errorf("%q: %v, %v", text, f, err)
		}
	}
}

// A file of users that a full disk has emptied leaves each certificate its user.
func TestEmptiedUsersLeaveTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	write(t, path, []byte("bob secret\n"))
	f, log := open(t, Names{Users: path})
	write(t, path, nil)
	if _, err := f.Look(); err == nil || !strings.Contains(err.Error(), "holds no user") {
		t.Errorf("%v", err)
	}
	if got := f.Now().Users; len(got) != 1 || strings.Contains(log.String(), "reloaded") {
		t.Errorf("%d users, said %s", len(got), log)
	}
}

// TestEndsAreWarnedOf: a certificate that has expired, or will soon, is named in the log.
func TestEndsAreWarnedOf(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for left, want := range map[time.Duration]string{-time.Hour: "has expired", time.Hour: "expires soon", 365 * 24 * time.Hour: ""} {
		var log bytes.Buffer
		f := &Files{log: slog.New(slog.NewTextHandler(&log, nil))}
		f.warnOfEnds(&Material{Ends: map[string]time.Time{"a.pem": now.Add(left)}}, now)
		if got := log.String(); !strings.Contains(got, want) || (want == "") != (got == "") || want != "" && !strings.Contains(got, "file=a.pem") {
			t.Errorf("%v before its end: %q, want %q", left, got, want)
		}
	}
}

// TestEnds: of a chain, and of authorities, the first end is told, as files are now, and why what they hold cannot be used.
func TestEnds(t *testing.T) {
	t.Parallel()
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("one")
	pem := func(ends ...time.Duration) (all []byte) {
		for _, d := range ends {
			all = append(all, a.Ending(time.Now().Add(d))...)
		}
		return all
	}
	const day = 24 * time.Hour
	write(t, cert, append(read(t, cert), pem(9*day, 8*day)...)) // its chain
	write(t, a.File, pem(-day, 40*day))
	f, _ := open(t, Names{Certs: []string{cert}, Keys: []string{key}, CA: a.File})
	in := func(name string) time.Duration { return time.Until(f.Now().Ends[name]).Round(time.Hour) }
	if in(cert) != 8*day || in(a.File) != -day || len(f.Now().Ends) != 2 {
		t.Errorf("%v", f.Now().Ends)
	}
	write(t, a.File, pem(50*day))
	if taken, err := f.Look(); err != nil || len(taken) != 3 || in(a.File) != 50*day {
		t.Errorf("%q, %v, %v", taken, err, f.Now().Ends)
	}
	since := f.Now().Since
	write(t, key, nil)
	_, err := f.Look()
	held := f.Held()
	if err == nil || len(held) != 2 || held[0].Name != cert || held[1].Name != a.File || held[1].Trouble != err.Error() {
		t.Fatalf("%+v, %v", held, err)
	}
	if held[0].Holds != "certificates" || !held[0].Since.Equal(since) || held[1].Ends.Round(time.Hour) != f.Now().Ends[a.File].Round(time.Hour) {
		t.Errorf("%+v", held)
	}
	password := filepath.Join(t.TempDir(), "password")
	write(t, password, []byte("secret"))
	f, _ = open(t, Names{Password: password})
	if held := f.Held(); len(held) != 1 || held[0].Holds != "passwords" || held[0].Ends != nil || held[0].Trouble != "" || strings.Contains(fmt.Sprintf("%+v", held), "secret") {
		t.Errorf("%+v", held)
	}
}
