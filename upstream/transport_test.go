package upstream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// certificate writes a self-made certificate for localhost and returns the
// files' names and the pool that trusts it.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	if err := errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}

// startTLS starts a Redis that also speaks TLS and returns its TLS target, with
// the given host, trusting its certificate.
func startTLS(t *testing.T, host string) (*testredis.Server, Target) {
	t.Helper()
	cert, key, pool := certificate(t)
	port := testredis.FreePort(t)
	s := testredis.Start(t, fmt.Sprintf("--tls-port %d", port), "--tls-cert-file "+cert, "--tls-key-file "+key, "--tls-ca-cert-file "+cert, "--tls-auth-clients no")
	target, err := parseTarget(fmt.Sprintf("rediss://%s:%d", host, port))
	if err != nil {
		t.Fatal(err)
	}
	target.TLS.RootCAs = pool
	return s, target
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s, target := startTLS(t, "localhost")
	n := newNode(t, target, NodeOptions{})
	p := open(t, n, Identity{Proto: 3})
	value := string(bytes.Repeat([]byte("x"), 1<<20))
	expect(t, p, "$1\r\na\r\n+OK\r\n$1048576\r\n"+value+"\r\n", []string{"ECHO", "a"}, []string{"SET", "k", value}, []string{"GET", "k"})
	expect(t, private(t, n, Identity{Proto: 2}), "$1048576\r\n"+value+"\r\n", []string{"GET", "k"})
	if err := n.Authenticate(context.Background(), "", "default", "any"); err != nil {
		t.Error(err)
	}

	clients := load(t, p)
	killer := s.Dial(t)
	for range 10 {
		time.Sleep(10 * time.Millisecond)
		if _, err := killer.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
			t.Error(err)
		}
	}
	check(t, s, clients.endAfterSome(t))
}

func TestTLSCertificateIsChecked(t *testing.T) {
	t.Parallel()
	_, target := startTLS(t, "127.0.0.1") // the certificate is localhost's
	var unsent *NotSentError
	_, err := newNode(t, target, NodeOptions{}).Open(context.Background(), Identity{Proto: 2})
	if !errors.As(err, &unsent) || !strings.Contains(err.Error(), "certificate") {
		t.Fatalf("got %v", err)
	}
	target.TLS = &tls.Config{InsecureSkipVerify: true}
	expect(t, open(t, newNode(t, target, NodeOptions{}), Identity{Proto: 2}), "+PONG\r\n", []string{"PING"})
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "redis.sock")
	s := testredis.Start(t, "--unixsocket "+path)
	target, err := parseTarget("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, target, NodeOptions{})
	p := open(t, n, Identity{Proto: 2, DB: 4})
	value := string(bytes.Repeat([]byte("x"), 1<<20))
	expect(t, p, "+OK\r\n$1048576\r\n"+value+"\r\n", []string{"SET", "k", value}, []string{"GET", "k"})
	s.Restart()
	var c client
	eventually(t, "it works again", func() bool {
		got, err := c.do(p, []string{"GET", "k"})
		return err == nil && got == "$-1\r\n"
	})
}
