package locks

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// shellBlocks are the lines of a page's blocks marked sh, by block, without comments.
func shellBlocks(text string) (blocks [][]string) {
	for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		var lines []string
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " # ")
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		blocks = append(blocks, lines)
	}
	return blocks
}

// reader is somebody who does what a page says: in a folder of their own, with a Redis and free ports in place of those
// that the page names.
type reader struct {
	t       *testing.T
	root    string // of the project
	dir     string // where they are
	page    string
	ports   *strings.Replacer
	port    int // what 6380 stands for
	tlsPort int // 6390
	redis   *testredis.Server
	env     []string
}

func newReader(t *testing.T, page string) *reader {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, root: root, dir: t.TempDir(), page: string(text), redis: testredis.Start(t)}
	r.port, r.tlsPort = testredis.FreePort(t), testredis.FreePort(t)
	r.ports = strings.NewReplacer("6379", strconv.Itoa(r.redis.Port()), "6380", strconv.Itoa(r.port),
		"6390", strconv.Itoa(r.tlsPort), "9180", strconv.Itoa(testredis.FreePort(t)))
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))
	r.env = append(os.Environ(), "PATH="+filepath.Dir(harness.Binary(t))+":"+os.Getenv("PATH"),
		"LOCKPROXY_LISTEN="+addr, "LOCKPROXY_ADDRESS="+addr)
	return r
}

// command is a line as they type it, with more behind it.
func (r *reader) command(dir, line, more string) *exec.Cmd {
	cmd := exec.Command("bash", "-ec", r.ports.Replace(line)+more)
	cmd.Dir, cmd.Env = dir, r.env
	return cmd
}

// runs wants a line to end well, and returns what it prints.
func (r *reader) runs(dir, line, more string) string {
	r.t.Helper()
	out, err := r.command(dir, line, more).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s%s: %v\n%s", line, more, err, out)
	}
	return string(out)
}

// serves wants a line to start a proxy that answers at a port, and to go on until stop is called.
func (r *reader) serves(dir, line string, port int) (stop func()) {
	r.t.Helper()
	cmd := r.command(dir, "exec "+line, "")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run does not hand signals on
	log := filepath.Join(r.t.TempDir(), "log")
	child := testredis.Launch(r.t, cmd, log)
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // fails only when all have ended
	r.t.Cleanup(end)
	harness.Eventually(r.t, line+" serves", func() bool {
		select {
		case <-child.Exited():
			said, _ := os.ReadFile(log)
			r.t.Fatalf("%s ended:\n%s", line, said)
		default:
		}
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return func() {
		end()
		<-child.Exited()
	}
}

// block is what stands below a fence of that kind, from a line that begins so.
func (r *reader) block(kind, begins string) string {
	r.t.Helper()
	_, text, found := strings.Cut(r.page, "\n```"+kind+"\n"+begins)
	text, _, ended := strings.Cut(text, "```\n")
	if !found || !ended {
		r.t.Fatalf("there is no block of %s that begins with %q", kind, begins)
	}
	return begins + text
}

// done runs every line of a page in turn by the function that is given for it, and wants one for each, and none besides.
func (r *reader) done(how map[string]func(line string)) {
	r.t.Helper()
	met := 0
	for _, lines := range shellBlocks(r.page) {
		for _, line := range lines {
			run := how[line]
			if run == nil {
				r.t.Errorf("nobody has run %q", line)
				continue
			}
			met++
			run(line)
		}
	}
	if met != len(how) {
		r.t.Errorf("%d of %d lines are in the page", met, len(how))
	}
}

// planned wants make to know what to do for a line. What it does is what runs this test, or a test of package deploy;
// the long form builds the packages.
func (r *reader) planned(line string) {
	r.t.Helper()
	out := r.runs(r.root, strings.Replace(line, "make ", "make -n ", 1), "")
	if !strings.Contains(out, "go test ") && !strings.Contains(out, "deploy/dist") {
		r.t.Errorf("%s does\n%s", line, out)
	}
	if harness.Long() && strings.Contains(out, "deploy/dist") {
		r.runs(r.root, "VERSION=1.2.3 ARCHS="+runtime.GOARCH+" deploy/dist "+filepath.Join(r.t.TempDir(), "dist"), "")
	}
}

// TestCommandsOfTheReadme: every command of the README does what it says. docker build needs images from elsewhere and is
// not run; package deploy holds its Dockerfile to the program.
func TestCommandsOfTheReadme(t *testing.T) {
	t.Parallel()
	r := newReader(t, "README.md")
	stop := func() {}
	r.done(map[string]func(string){
		"git clone https://github.com/lockproxy/lockproxy && cd lockproxy": func(line string) {
			if _, err := os.Stat(filepath.Join(r.root, ".git")); err != nil {
				t.Log("NOT RUN: this is no clone, so git has nothing to clone")
				return
			}
			config := filepath.Join(t.TempDir(), "gitconfig")
			text := "[safe]\n\tdirectory = *\n[url \"" + r.root + "\"]\n\tinsteadOf = https://github.com/lockproxy/lockproxy\n"
			if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			r.env = append(r.env, "GIT_CONFIG_GLOBAL="+config)
			if out := r.runs(r.dir, line, " && cat go.mod"); !strings.Contains(out, "module github.com/lockproxy/lockproxy\n") {
				t.Errorf("cloned is\n%s", out)
			}
		},
		"go run ./cmd/lockproxy": func(line string) { stop = r.serves(r.root, line, r.port) },
		"make test":              r.planned,
		"docker build -f deploy/docker/Dockerfile -t lockproxy .": func(line string) {
			if _, err := os.Stat(filepath.Join(r.root, strings.Fields(line)[3])); err != nil {
				t.Error(err)
			}
		},
		"make dist VERSION=1.2.3": r.planned,
		"go install ./cmd/lockproxy": func(line string) {
			bin := t.TempDir()
			r.env = append(r.env, "GOBIN="+bin)
			if !harness.Long() { // to link lockproxy once more takes seconds
				if out := r.runs(r.root, strings.Replace(line, "go install ", "go install -n ", 1), " 2>&1"); !strings.Contains(out, " "+bin+"/lockproxy\n") {
					t.Errorf("%s does\n%s", line, out)
				}
				return
			}
			r.runs(r.root, line, "")
			r.runs(bin, "./lockproxy --version", "")
		},
		"lockproxy run --lock deploy --wait 10m -- ./deploy.sh": func(line string) {
			script := "#!/bin/sh\nredis-cli -p " + strconv.Itoa(r.port) + " LOCK deploy\n"
			if err := os.WriteFile(filepath.Join(r.dir, "deploy.sh"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			if out := r.runs(r.dir, line, ""); strings.TrimSpace(out) != "" {
				t.Errorf("while the command runs another client's LOCK says %q", out)
			}
		},
	})
	stop()
}

// TestTwoTerminals: the README's scene in two terminals is what redis-cli prints.
func TestTwoTerminals(t *testing.T) {
	t.Parallel()
	r := newReader(t, "README.md")
	p := harness.StartProxy(t, "")
	p.AwaitProbe(1)
	terminals := map[string]*cli{"first": startCli(t, p), "second": startCli(t, p)}
	said := regexp.MustCompile(`(?m)^(first|second): +(.*?)(?: {3,}(.+))?$`)
	lines := said.FindAllStringSubmatch(r.block("text", "first:"), -1)
	if len(lines) != 5 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		c, typed, printed := terminals[line[1]], line[2], line[3]
		if printed == "" { // only what is printed then
			typed, printed = "", typed
		}
		if typed != "" {
			c.typed(typed)
		}
		if printed == "waits …" {
			continue
		}
		if got := c.next(); got != printed {
			t.Errorf("%q: %s prints %q", line[0], line[1], got)
		}
	}
}

// TestCommandsOfOperations: every command of OPERATIONS does what it says, in the page's order and with the settings and
// the account that the page gives. helm needs a cluster: of its line the chart and its values are looked at, kubectl is run
// without one.
func TestCommandsOfOperations(t *testing.T) {
	t.Parallel()
	r := newReader(t, "docs/OPERATIONS.md")
	for _, tool := range []string{"redis-cli", "openssl", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT RUN: there is no %s", tool)
		}
	}
	here := func(line string) { r.runs(r.dir, line, "") }
	says := func(want string) func(string) {
		return func(line string) {
			if out := r.runs(r.dir, line, ""); strings.TrimSpace(out) != want {
				t.Errorf("%s prints %q, want %q", line, out, want)
			}
		}
	}
	stop := func() {}
	serve := func(line string, port int) {
		stop()
		stop = r.serves(r.dir, line, port)
	}

	acl := exec.Command("redis-cli", "-p", strconv.Itoa(r.redis.Port()))
	acl.Stdin = strings.NewReader(r.block("text", "ACL SETUSER"))
	if out, err := acl.CombinedOutput(); err != nil || string(bytes.TrimSpace(out)) != "OK" {
		t.Fatalf("the account: %v, %s", err, out)
	}
	settings := r.ports.Replace(r.block("yaml", "upstream:"))
	if err := os.WriteFile(filepath.Join(r.dir, "lockproxy.yaml"), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	const (
		certificate = `openssl req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.crt -days 365 -subj "/CN=lockproxy" -addext "subjectAltName = DNS:lockproxy.internal, DNS:localhost, IP:127.0.0.1"`
		withTLS     = "lockproxy --upstream redis://127.0.0.1:6379 --listen= --tls-listen :6390 " +
			"--tls-cert tls.crt --tls-key tls.key"
		bounded = "GOMEMLIMIT=96MiB lockproxy --upstream redis://127.0.0.1:6379 " +
			"--max-query-memory 16mb --max-reply-memory 16mb"
		secret = "kubectl create secret generic redis-url --from-literal=upstream=redis://lockproxy:secret@redis:6379"
		chart  = "helm install locks deploy/helm/lockproxy --set image.repository=registry.internal/lockproxy " +
			"--set upstreamSecret=redis-url"
	)
	r.done(map[string]func(string){
		"(umask 077; echo secret >redis-password)":                   here,
		"lockproxy --check-config --config lockproxy.yaml":           here,
		"lockproxy --config lockproxy.yaml":                          func(line string) { serve(line, r.port) },
		"curl http://127.0.0.1:9180/readyz":                          r.becomesReady,
		"redis-cli -p 6380 LOCK app:1":                               says("OK"),
		certificate:                                                  here,
		withTLS:                                                      func(line string) { serve(line, r.tlsPort) },
		"redis-cli -p 6390 -h localhost --tls --cacert tls.crt PING": says("PONG"),
		bounded: func(line string) { serve("env "+line, r.port) },
		secret:  r.withoutCluster,
		chart:   r.chartHas,
		"lockproxy top --address redis://ops:password@lockproxy.internal:6380": func(line string) {
			r.redis.Do(t, "ACL", "SETUSER", "ops", "on", ">password", "allcommands", "allkeys", "allchannels")
			serve("lockproxy --upstream redis://127.0.0.1:6379 --operators ops", r.port)
			line = strings.Replace(line, "lockproxy.internal", "127.0.0.1", 1)
			if out := r.runs(r.dir, line, " --once"); !strings.Contains(out, "locks") {
				t.Errorf("%s prints\n%s", line, out)
			}
		},
	})
	stop()
}

// becomesReady wants a probe to say ok within moments of the start.
func (r *reader) becomesReady(line string) {
	r.t.Helper()
	harness.Eventually(r.t, line+" says ok", func() bool {
		out, err := r.command(r.dir, line, " -sf").Output()
		return err == nil && strings.HasPrefix(string(out), "ok\n")
	})
}

// withoutCluster has kubectl say what it would make.
func (r *reader) withoutCluster(line string) {
	r.t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil {
		r.t.Log("NOT RUN: there is no kubectl")
		return
	}
	if out := r.runs(r.dir, line, " --dry-run=client -o name"); strings.TrimSpace(out) != "secret/redis-url" {
		r.t.Errorf("%s makes %s", line, out)
	}
}

// chartHas wants the chart that helm is to install, and the values that it is to set.
func (r *reader) chartHas(line string) {
	r.t.Helper()
	words := strings.Fields(line)
	values, err := os.ReadFile(filepath.Join(r.root, words[3], "values.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, word := range words {
		if name, _, set := strings.Cut(word, "="); set {
			last := name[strings.LastIndex(name, ".")+1:]
			if !bytes.Contains(values, []byte(last+":")) {
				r.t.Errorf("the chart has no value %s", name)
			}
		}
	}
}
