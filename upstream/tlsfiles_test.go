package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/internal/tlsfiles"
)

// startAskingTLS starts a Redis that asks its clients for certificates of an authority and returns its address.
func startAskingTLS(t *testing.T, a *testredis.Authority, ask string) (*testredis.Server, string) {
	t.Helper()
	cert, key := a.Issue("redis.test")
	port := testredis.FreePort(t)
	s := testredis.Start(t, fmt.Sprintf("--tls-port %d", port), "--tls-cert-file "+cert, "--tls-key-file "+key, "--tls-ca-cert-file "+a.File,
		"--tls-auth-clients "+ask)
	return s, fmt.Sprintf("rediss://127.0.0.1:%d", port)
}

func files(t *testing.T, n tlsfiles.Names) *tlsfiles.Files {
	t.Helper()
	f, err := tlsfiles.Open(n, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// worksOver tries both planes.
func worksOver(t *testing.T, target Target) error {
	t.Helper()
	n := newNode(t, target, NodeOptions{})
	p, err := n.Open(context.Background(), Identity{Proto: 3})
	if err == nil {
		expect(t, p, "+PONG\r\n", []string{"PING"})
		p.Release()
	}
	control := NewControl(target, ControlOptions{Logger: slog.New(slog.DiscardHandler), DialTimeout: dialTime})
	defer control.Close()
	client, cause := control.Client(0)
	if cause != nil {
		t.Fatal(cause)
	}
	if said := client.Do(context.Background(), client.B().Ping().Build()).Error(); (said == nil) != (err == nil) {
		t.Errorf("data: %v, control: %v", err, said)
	}
	return err
}

func TestUpstreamCertificates(t *testing.T) {
	t.Parallel()
	a, other := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert, key := a.Issue("lockproxy")
	otherCert, otherKey := other.Issue("lockproxy")
	mine := func(n tlsfiles.Names) tlsfiles.Names {
		n.Certs, n.Keys = []string{cert}, []string{key}
		return n
	}
	for ask, cases := range map[string][]struct {
		what, name string
		names      tlsfiles.Names
		works      bool
	}{
		"no": {
			{"its authority and name", "redis.test", tlsfiles.Names{CA: a.File}, true},
			{"and a certificate", "redis.test", mine(tlsfiles.Names{CA: a.File}), true},
			{"another name", "127.0.0.1", tlsfiles.Names{CA: a.File}, false},
			{"another authority", "redis.test", tlsfiles.Names{CA: other.File}, false},
		},
		"yes": {
			{"with a certificate", "redis.test", mine(tlsfiles.Names{CA: a.File}), true},
			{"without", "redis.test", tlsfiles.Names{CA: a.File}, false},
			{"a stranger's", "redis.test", tlsfiles.Names{CA: a.File, Certs: []string{otherCert}, Keys: []string{otherKey}}, false},
		},
	} {
		_, url := startAskingTLS(t, a, ask)
		for _, c := range cases {
			target, err := parseTarget(url)
			if err != nil {
				t.Fatal(err)
			}
			target.TLS.ServerName, target.Files = c.name, files(t, c.names)
			if err := worksOver(t, target); (err == nil) != c.works {
				t.Errorf("tls-auth-clients %s, %s: %v", ask, c.what, err)
			}
		}
	}
}

// Authority and certificates of both sides are exchanged: new connections use them, the old one goes on.
func TestUpstreamCertificatesReloaded(t *testing.T) {
	t.Parallel()
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("lockproxy")
	s, url := startAskingTLS(t, a, "yes")
	target, err := parseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	f := files(t, tlsfiles.Names{CA: a.File, Certs: []string{cert}, Keys: []string{key}})
	target.TLS.ServerName, target.Files = "redis.test", f
	n := newNode(t, target, NodeOptions{})
	p := open(t, n, Identity{Proto: 2})
	expect(t, p, "+PONG\r\n", []string{"PING"})

	b := testredis.NewAuthority(t)
	newCert, newKey := b.Issue("redis.test")
	s.Do(t, "CONFIG", "SET", "tls-cert-file", newCert, "tls-key-file", newKey, "tls-ca-cert-file", b.File)
	expect(t, p, "+PONG\r\n", []string{"PING"})
	if _, err := n.Private(context.Background(), Identity{Proto: 2}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("before the new authority is here: %v", err)
	}
	b.IssueTo(cert, key, "lockproxy")
	text, err := os.ReadFile(b.File)
	if err == nil {
		err = os.WriteFile(a.File, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Look(); err != nil {
		t.Fatal(err)
	}
	expect(t, private(t, n, Identity{Proto: 2}), "+PONG\r\n", []string{"PING"})
	expect(t, p, "+PONG\r\n", []string{"PING"})
}

// Redis is asked for the name wanted, in the hand-shake too, and spoken to in TLS 1.2 at least.
func TestUpstreamServerName(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	target, err := parseTarget("rediss://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	target.TLS.ServerName = "redis.test"
	n := newNode(t, target, NodeOptions{})
	go n.Open(context.Background(), Identity{Proto: 2})
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var name string
	var versions []uint16
	server := tls.Server(conn, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name, versions = hello.ServerName, hello.SupportedVersions
		return nil, errors.New("seen enough")
	}})
	if err := server.Handshake(); name != "redis.test" || len(versions) == 0 || slices.Min(versions) < tls.VersionTLS12 {
		t.Errorf("%v: name %q, versions %x", err, name, versions)
	}
}
