package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite docs/CONFIGURATION.md and testdata")

func TestDefaults(t *testing.T) {
	got, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Listen:  Listen{Addresses: []string{"127.0.0.1:6380"}, ReusePort: "no", Attached: "no", ProxyProtocol: "off", ProtectedMode: "yes", Present: "standalone"},
		Cluster: Cluster{Refresh: 5 * time.Second, Retry: 5 * time.Second, PubSub: "sharded"},
		Quorum:  Quorum{MaxLease: time.Minute, NodeTimeout: 200 * time.Millisecond},
		Locks:   Locks{WatchdogTimeout: 30 * time.Second, ImplicitReentry: "auto", WaitPoll: 3 * time.Second},
		Limits: Limits{MaxClients: 10000, MaxBulk: 512 << 20, MaxQueryMemory: 1 << 30,
			MaxReplyMemory: 1 << 30, PubSubOutput: OutputLimit{32 << 20, 8 << 20, time.Minute}},
		Log:   Log{Level: slog.LevelInfo, Format: "text"},
		Drain: Drain{Timeout: 20 * time.Second},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// write makes a YAML file and returns its path.
func write(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lockproxy.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagWinsOverEnvironmentWinsOverFile(t *testing.T) {
	t.Setenv("LOCKPROXY_MAX_LOCKS_PER_USER", "2")
	t.Setenv("LOCKPROXY_MAX_CLIENTS", "2")
	t.Setenv("LOCKPROXY_VERSION", "1.2.3")
	t.Setenv("LOCKPROXY_CONFIG", write(t, "max-locks-per-user: 3\nmax-clients: 3\nmax-upstream-connections: 3\n"))
	c, err := Parse([]string{"--max-locks-per-user", "1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Limits.LocksPerUser != 1 || c.Limits.MaxClients != 2 || c.Limits.MaxUpstream != 3 {
		t.Errorf("max-locks-per-user %d, max-clients %d, max-upstream-connections %d; want 1 2 3", c.Limits.LocksPerUser, c.Limits.MaxClients, c.Limits.MaxUpstream)
	}
	if c.Version {
		t.Error("LOCKPROXY_VERSION in the environment asked for the version")
	}
	if c, _ := Parse([]string{"-version"}); !c.Version {
		t.Error("-version did not")
	}
}

func TestLists(t *testing.T) {
	want := []string{"127.0.0.1:1", "unix:///run/l.sock", "[::1]:3"}
	for name, args := range map[string][]string{
		"repeated": {"--listen", want[0], "--listen", want[1], "--listen=" + want[2]},
		"commas":   {"--listen", strings.Join(want, ", ")},
		"yaml":     {"--config", write(t, "listen:\n- 127.0.0.1:1\n- unix:///run/l.sock\n- '[::1]:3'\n")},
	} {
		c, err := Parse(args)
		if err != nil || !reflect.DeepEqual(c.Listen.Addresses, want) {
			t.Errorf("%s: %q, %v", name, c.Listen.Addresses, err)
		}
	}
	for name, text := range map[string]string{"no items": "listen: []\n", "an empty value": "listen: ''\n"} {
		c, err := Parse([]string{"--config", write(t, "tls-listen: ['127.0.0.1:4']\ntls-cert: c\ntls-key: k\n"+text)})
		if err != nil || len(c.Listen.Addresses) != 0 {
			t.Errorf("%s: %q, %v", name, c.Listen.Addresses, err)
		}
	}
	c, err := Parse([]string{"--deny", "KEYS,flushall"})
	if err != nil || !reflect.DeepEqual(c.Commands.Deny, []string{"keys", "flushall"}) {
		t.Errorf("deny %q, %v", c.Commands.Deny, err)
	}
}

func TestSizesAreRedis(t *testing.T) {
	for text, want := range map[string]int{
		"7": 7, "7b": 7, "1k": 1000, "1kb": 1024, "2M": 2_000_000, "2Mb": 2 << 20, "1g": 1_000_000_000, "1GB": 1 << 30,
	} {
		c, err := Parse([]string{"--max-bulk", text})
		if err != nil || c.Limits.MaxBulk != want {
			t.Errorf("%s is %d (%v), want %d", text, c.Limits.MaxBulk, err, want)
		}
	}
	for _, text := range []string{"", "mb", "1.5gb", "-1", "1bb", "1tb", "9999999999gb", "1Ⱥ", "1Ⱥkb", "İb"} {
		if _, err := Parse([]string{"--max-bulk", text}); err == nil {
			t.Errorf("%q was taken for a size", text)
		}
	}
}

func TestAllFaultsAreNamed(t *testing.T) {
	_, err := Parse([]string{
		"--upstream", "http://example.org", "--listen", "6380,unix://x,127.0.0.1:1,127.0.0.1:1", "--lock-watchdog-timeout", "30",
		"--drain-timeout", "-1s", "--wait-poll", "1ms", "--implicit-reentry", "maybe", "--max-clients", "0",
		"--max-locks-per-user", "many", "--deny", "config set", "--metrics-listen", "9121",
		"--log-level", "loud", "--log-format", "xml",
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"upstream:", `listen: "6380"`, `listen: "unix://x"`, `listen: "127.0.0.1:1" is named twice`,
		`lock-watchdog-timeout: "30"`, "drain-timeout: -1s", "wait-poll: 1ms", `implicit-reentry: "maybe"`,
		"max-clients: 0", `max-locks-per-user: "many"`, `deny: "config set"`, `metrics-listen: "9121"`,
		`log-level: "loud"`, `log-format: "xml"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestFileFaultsAreNamedWithTheirLines(t *testing.T) {
	_, err := Parse([]string{"--config", write(t,
		"listn: x\nlog-level: info\nlog-level: warn\nconfig: other\nmax-clients: [1, 2]\nmax-bulk:\ndeny: {a: b}\nversion: true\n")})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`line 1: unknown setting "listn"`, "line 3: log-level is set twice", `line 4: unknown setting "config"`,
		"line 5: max-clients needs a plain value", "line 6: max-bulk needs", "line 7: deny needs", `line 8: unknown setting "version"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	for _, yaml := range []string{"- a\n", "a: [\n", "plain"} {
		if _, err := Parse([]string{"--config", write(t, yaml)}); err == nil {
			t.Errorf("no error for %q", yaml)
		}
	}
	if _, err := Parse([]string{"--config", write(t, "# nothing\n")}); err != nil {
		t.Errorf("a file without settings: %v", err)
	}
	if _, err := Parse([]string{"--config", filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestPasswordIsNeverPrinted(t *testing.T) {
	const upstream = "redis://app:hunter2@db.example:6379/3"
	c, err := Parse([]string{"--upstream", upstream})
	if err != nil || c.Upstream.URL.Target().Password != "hunter2" {
		t.Fatalf("%s, %v", c.Upstream.URL, err)
	}
	if c.Upstream.URL.String() != "redis://db.example:6379/3" {
		t.Errorf("upstream is printed as %s", c.Upstream.URL.String())
	}
	const sentinels = "redis+sentinel://app:hunter2@s1:1,s2:2/main/3?sentinel-user=w&sentinel-password=hunter2"
	s, err := Parse([]string{"--upstream", sentinels})
	if err != nil || s.Upstream.URL.Target().Sentinels.Password != "hunter2" || s.Upstream.URL.String() != "redis+sentinel://s1:1,s2:2/main/3" {
		t.Errorf("%s, %s, %v", s.Upstream.URL, s.Upstream.URL.String(), err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("start", "config", c)
	printed := []string{fmt.Sprint(c), fmt.Sprintf("%+v %#v %s %q", c, c, c, c), fmt.Sprintf("%+v %#v", &c, &c), log.String(), fmt.Sprintf("%+v %#v %s", s, s, s)}
	for _, args := range [][]string{
		{"--upstream", "http://app:hunter2@db"}, {"--upstream", "redis://app:hunter2"}, {"--upstream", "redis://app:hunter2#@db:1"},
		{"--upstream", "redis://app:%zzhunter2@db:1"}, {"---upstream=" + upstream}, {upstream}, {"--upstrem=" + upstream},
		{"--upstrem=" + sentinels}, {"redis+sentinel://s1/main?sentinel-password=hunter2"}, {"--upstream", "redis+sentinel://app:hunter2@s1,s2?sentinel-password=hunter2"},
		{"--upstream", "redis+sentinel://s1:1,/main?sentinel-password=hunter2"}, {"--upstream", "redis+sentinel://app:hunter2@/main"},
		{"--config", write(t, "upstream: {"+sentinels+"\n")},
		{"--listen", "x", "--upstream", upstream}, {"--config", write(t, "upstream: {"+upstream+"\n")},
		{"--config", write(t, upstream+"\n")}, {"--config", write(t, "upstream: ["+upstream+"]\n")},
	} {
		_, err := Parse(args)
		if err == nil {
			t.Errorf("no error for %q", args)
			continue
		}
		printed = append(printed, err.Error())
	}
	for _, p := range printed {
		if strings.Contains(p, "hunter2") {
			t.Errorf("the password is in: %s", p)
		}
	}
}

func TestHelp(t *testing.T) {
	if _, err := Parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	if _, err := Parse([]string{"--max-clients", "0", "--help-all"}); !errors.Is(err, ErrHelpAll) {
		t.Errorf("--help-all: %v", err)
	}
	var short, all strings.Builder
	Usage(&short)
	lines := strings.Split(strings.TrimSuffix(short.String(), "\n"), "\n")
	if len(lines) < 24 || len(lines) > 40 {
		t.Errorf("--help has %d lines, no screenful", len(lines))
	}
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("--help is wider than 80 columns: %s", line)
		}
	}
	UsageAll(&all)
	for _, s := range settings {
		if !strings.Contains(all.String(), "\n  --"+s.name) {
			t.Errorf("--%s is not in --help-all", s.name)
		}
	}
}

// golden compares a text with a file of this repository; -update writes it.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != text {
		t.Errorf("%s is stale: go test ./internal/config -update", path)
	}
}

func TestHelpIsFresh(t *testing.T) {
	var help strings.Builder
	Usage(&help)
	golden(t, filepath.Join("testdata", "help.txt"), help.String())
}

func TestConfigurationPageIsFresh(t *testing.T) {
	golden(t, filepath.Join("..", "..", "docs", "CONFIGURATION.md"), markdown())
}

func TestTLSFaultsAreNamed(t *testing.T) {
	for fault, args := range map[string]string{
		"":                                      "--tls-listen :1 --tls-cert c --tls-key k --tls-client-ca a --proxy-protocol required --proxy-protocol-from 10.0.0.0/8,::1 --upstream rediss://r --upstream-tls-ca a --upstream-tls-cert c --upstream-tls-key k --upstream-tls-server-name n --tls-auth-user-passwords f",
		"listen: no address":                    "--listen=",
		"tls-listen: needs tls-cert":            "--tls-listen :1",
		`tls-listen: "unix:///x" is not`:        "--tls-listen unix:///x --tls-cert c --tls-key k",
		`tls-listen: "127.0.0.1:6380" is named`: "--tls-listen 127.0.0.1:6380 --tls-cert c --tls-key k",
		"tls-key: there must be as many":        "--tls-listen :1 --tls-cert c,d --tls-key k",
		"tls-cert: does nothing without":        "--tls-cert c --tls-key k",
		"tls-client-ca: does nothing without ":  "--tls-client-ca a",
		"tls-client-auth: needs tls-client-ca":  "--tls-listen :1 --tls-cert c --tls-key k --tls-client-auth optional",
		"tls-client-ca: does nothing":           "--tls-listen :1 --tls-cert c --tls-key k --tls-client-ca a --tls-client-auth no",
		`tls-client-auth: "maybe"`:              "--tls-client-auth maybe",
		"proxy-protocol-from: does nothing":     "--proxy-protocol-from ::1",
		`proxy-protocol-from: "localhost"`:      "--proxy-protocol required --proxy-protocol-from localhost",
		"upstream-tls-cert: needs upstream-tls": "--upstream rediss://r --upstream-tls-cert c",
		"upstream-tls-ca: does nothing without": "--upstream redis://r --upstream-tls-ca a",
		"tls-auth-user-passwords: needs tls-cl": "--tls-listen :1 --tls-cert c --tls-key k --tls-auth-user-passwords f",
		`protected-mode: "maybe"`:               "--protected-mode maybe",
	} {
		_, err := Parse(strings.Fields(args))
		if fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%s: got %v, want %q", args, err, fault)
		}
	}
	c, err := Parse(strings.Fields("--listen= --tls-listen :1 --tls-cert a,b --tls-key c --tls-key d --proxy-protocol required --proxy-protocol-from 10.1.2.3/8"))
	if err != nil || len(c.Listen.Addresses) != 0 || !reflect.DeepEqual(c.TLS.Keys, []string{"c", "d"}) || fmt.Sprint(c.Listen.ProxyFrom) != "[10.0.0.0/8]" {
		t.Errorf("%v, %v", c, err)
	}
}

// What a file holds is all taken or refused: nothing in it is passed over.
func TestFileThatHoldsMore(t *testing.T) {
	for text, want := range map[string]string{
		"deny: get\n---\ndeny: set\n":   "line 2: a second document",
		"deny: get\n---\n":              "line 2: a second document",
		"deny: get\n---\n\tnonsense: [": "config file: ",
		"---\n---\ndeny: set\n":         "line 2: a second document",
		"\xff\xfe":                      "it holds no text",
		"\xfe\xff\n":                    "config file: ",
		"":                              "",
		"# deny: get\n":                 "",
		"---\ndeny: get\n...\n":         "",
	} {
		_, err := Parse([]string{"--config", write(t, text)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// What is no regular file is refused at once: a pipe might never answer.
func TestFileThatIsNone(t *testing.T) {
	pipe, link := filepath.Join(t.TempDir(), "pipe"), filepath.Join(t.TempDir(), "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(write(t, "max-clients: 3\n"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "is not a regular file", t.TempDir(): "is not a regular file", link: "", write(t, "# "+strings.Repeat("x", 1<<20)): "is longer than 1 MiB",
	} {
		answer := make(chan error, 1)
		go func() {
			_, err := Parse([]string{"--config", path})
			answer <- err
		}()
		select {
		case err := <-answer:
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: no answer", path)
		}
	}
}

// TestUnknownVariables: a slip in the name of a variable is a fault; what others set of their own accord is none.
func TestUnknownVariables(t *testing.T) {
	for _, v := range []string{"LOCKPROXY_SERVICE_HOST=10.0.0.1", "LOCKPROXY_PORT=tcp://10.0.0.1:6380", "LOCKPROXY_PORT_6380_TCP_ADDR=10.0.0.1",
		"LOCKPROXY_METRICS_SERVICE_PORT_HTTP=9180", "LOCKPROXY_VERSION=1.2.3", "LOCKPROXY_ADDRESS=a:6380", "LOCKPROXY_DENY=flushall"} {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	if _, err := Parse(nil); err != nil {
		t.Error(err)
	}
	t.Setenv("LOCKPROXY_DENNY", "flushall")
	t.Setenv("LOCKPROXY_MAX-CLIENTS", "1")
	_, err := Parse([]string{"--log-level", "loud"})
	for _, want := range []string{"LOCKPROXY_DENNY", "LOCKPROXY_MAX-CLIENTS", "log-level"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named: %v", want, err)
		}
	}
}

// TestFaultsOfTheFileAndOfValues are told together.
func TestFaultsOfTheFileAndOfValues(t *testing.T) {
	_, err := Parse([]string{"--config", write(t, "max-clients: -1\nlog-level: loud\nxx: 1\n")})
	for _, want := range []string{"max-clients: -1 is below 1", "log-level:", `line 3: unknown setting "xx"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named: %v", want, err)
		}
	}
}
