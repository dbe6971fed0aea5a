package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// health runs lockproxy health, and returns its exit code and the line that it prints.
func health(t *testing.T, env []string, args ...string) (code int, line string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"health"}, args...)...)
	cmd.Env = append(append(os.Environ(), beLockproxy+"=1"), env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	line = string(out)
	if strings.Count(line, "\n") != 1 {
		t.Errorf("%q is not one line", line)
	}
	return cmd.ProcessState.ExitCode(), line
}

// isHealthy says what lockproxy health has to answer.
func isHealthy(t *testing.T, want int, says string, args ...string) {
	t.Helper()
	if code, line := health(t, nil, args...); code != want || !strings.Contains(line, says) {
		t.Errorf("health %q: %d %q, not %d %q", args, code, line, want, says)
	}
}

// It takes the settings of the process, by flag, variable or file, and says what /readyz and /livez say.
func TestHealth(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	metrics := freeAddr(t)
	_, port, _ := net.SplitHostPort(metrics)
	file := filepath.Join(t.TempDir(), "lockproxy.yaml")
	if err := os.WriteFile(file, []byte("metrics-listen: \":"+port+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	isHealthy(t, 1, "refused", "--metrics-listen", metrics)
	isHealthy(t, 2, "max-client", "--max-client", "1")
	p := start(t, "--upstream", server.URL(), "--listen", freeAddr(t), "--metrics-listen", metrics, "--drain-delay", "1m")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	isHealthy(t, 0, "ok", "--config", file)
	isHealthy(t, 0, "ok", "--live", "--metrics-listen", metrics)
	if code, line := health(t, []string{"LOCKPROXY_METRICS_LISTEN=" + metrics, "HTTP_PROXY=http://127.0.0.1:1"}); code != 0 {
		t.Errorf("%d %q", code, line)
	}
	server.Stop() // it hangs
	awaitPage(t, "http://"+metrics+"/readyz", 503, "upstream: ")
	isHealthy(t, 1, "upstream: ", "--metrics-listen", metrics)
	isHealthy(t, 0, "ok", "--live", "--metrics-listen", metrics)
	server.Cont()
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	p.cmd.Process.Signal(syscall.SIGTERM)
	awaitPage(t, "http://"+metrics+"/readyz", 503, "draining")
	isHealthy(t, 1, "draining", "--metrics-listen", metrics)
}

// Without metrics-listen it asks by PING, however the listener is reached.
func TestHealthByPing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "secret")
	addr, socket := freeAddr(t), filepath.Join(t.TempDir(), "s")
	start(t, "--upstream", "redis://:secret@"+server.Addr(), "--listen", addr, "--listen", "unix://"+socket,
		"--proxy-protocol", "required", "--max-clients", "1").awaitLog("msg=serving")
	await(t, "it has asked Redis", func() bool { code, _ := health(t, nil, "--listen", "unix://"+socket); return code == 0 })
	isHealthy(t, 0, "NOAUTH", "--listen", addr, "--proxy-protocol", "required")
	isHealthy(t, 1, "systemd", "--listen", "systemd:clients")
	balanced, flags := freeAddr(t), []string{"--proxy-protocol", "required", "--proxy-protocol-from", "10.0.0.0/8"}
	start(t, append(flags, "--upstream", server.URL(), "--listen", balanced)...).awaitLog("msg=serving")
	isHealthy(t, 0, "it is there", append(flags, "--live", "--listen", balanced)...)
	isHealthy(t, 1, "proxy-protocol-from", append(flags, "--listen", balanced)...) // only metrics-listen can say

	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	began := time.Now()
	isHealthy(t, 1, "timeout", "--listen", silent.Addr().String())
	isHealthy(t, 1, "deadline", "--metrics-listen", silent.Addr().String())
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
	held, err := net.Dial("unix", socket) // a proxy that is full is well
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	await(t, "the proxy is full", func() bool {
		_, line := health(t, nil, "--listen", "unix://"+socket)
		return strings.Contains(line, "max number")
	})
	isHealthy(t, 0, "max number of clients", "--listen", "unix://"+socket)
}

// A listener with TLS is asked whatever name it has, and one that wants a certificate is there as well.
func TestHealthByTLS(t *testing.T) {
	t.Parallel()
	authority := testredis.NewAuthority(t)
	cert, key := authority.Issue("elsewhere.example")
	any, certified := freeAddr(t), freeAddr(t)
	start(t, "--listen=", "--tls-listen", any, "--tls-cert", cert, "--tls-key", key).awaitLog("msg=serving")
	start(t, "--listen=", "--tls-listen", certified, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.File).awaitLog("msg=serving")
	isHealthy(t, 0, "PONG", "--listen=", "--tls-listen", any, "--tls-cert", cert, "--tls-key", key)
	isHealthy(t, 0, "certificate", "--listen=", "--tls-listen", certified, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.File)
}
