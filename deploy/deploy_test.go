// Package deploy has the packages of lockproxy, and tests that what is in them fits the program.
package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lockproxy/lockproxy/internal/config"
)

// object is what YAML describes.
type object map[string]any

// at is what is found along a path of keys, of which a number is an index.
func at(v any, path ...any) any {
	for _, step := range path {
		switch here := v.(type) {
		case object:
			v = here[step.(string)]
		case []any:
			v = here[step.(int)]
		default:
			return nil
		}
	}
	return v
}

func read(t *testing.T, path string) (text []byte, o object) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".yaml") && !strings.Contains(path, "templates") {
		err = yaml.Unmarshal(text, &o)
	}
	if err != nil {
		t.Fatal(path, err)
	}
	return text, o
}

// settings reads the environment of a container as lockproxy does.
func settings(t *testing.T, env map[string]string, args ...string) config.Config {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	c, err := config.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDebianWithoutSettings: the package is installed also where somebody has removed /etc/lockproxy.yaml, which dpkg leaves so.
func TestDebianWithoutSettings(t *testing.T) {
	tools := t.TempDir()
	for _, tool := range []string{"getent", "systemctl", "systemd-sysusers"} {
		if err := os.WriteFile(filepath.Join(tools, tool), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tools, "chgrp"), []byte("#!/bin/sh\ntest -e \"$2\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	if out, err := exec.Command("/bin/sh", "debian/postinst", "configure", "1.0").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestCompose: the files start lockproxy with settings that it understands, and give it the time that it takes to stop.
func TestCompose(t *testing.T) {
	const after = 10 * time.Second // a drain: locks are released, the last figures sent
	for path, service := range map[string]string{"docker/compose.yaml": "lockproxy-1", "docker/compose-cluster.yaml": "lockproxy"} {
		_, file := read(t, path)
		env := map[string]string{}
		for name, value := range at(file, "services", service, "environment").(object) {
			env[name] = strings.ReplaceAll(value.(string), "${REDIS_PASSWORD}", "secret")
		}
		c := settings(t, env)
		grace, err := time.ParseDuration(at(file, "services", service, "stop_grace_period").(string))
		if err != nil || grace < c.Drain.Delay+c.Drain.Timeout+after || c.Upstream.URL.String() == "" {
			t.Errorf("%s: %s has %v to stop (%v), needs %v, %v and %v, before %v", path, service, grace, err, c.Drain.Delay, c.Drain.Timeout, after, c.Upstream.URL)
		}
		if asks := fmt.Sprint(at(file, "services", service, "healthcheck", "test")); asks != "[CMD /lockproxy health]" {
			t.Errorf("%s: %s asks whether it is ready by %s", path, service, asks)
		}
		if build := at(file, "services", service, "build"); build != nil {
			dockerfile, err := os.ReadFile(filepath.Join("docker", at(build, "context").(string), at(build, "dockerfile").(string)))
			if err != nil {
				t.Fatal(path, err)
			}
			base := string(dockerfile[bytes.LastIndex(dockerfile, []byte("\nFROM ")):])
			if !strings.HasPrefix(base, "\nFROM scratch\n") || !strings.Contains(base, "\nUSER 65532:65532\n") {
				t.Errorf("the image has more than deploy/docker/root made, or runs as root:\n%s", base)
			}
			if !strings.Contains(base, "\nENTRYPOINT [\"/lockproxy\"]\n") || !strings.Contains(base, ` CMD ["/lockproxy", "health", "--live"]`+"\n") {
				t.Errorf("the image does not ask whether it is alive:\n%s", base)
			}
			if !regexp.MustCompile(`\nRUN CGO_ENABLED=0 go build .* ./cmd/lockproxy\n`).Match(dockerfile) {
				t.Errorf("the program in the image is not static:\n%s", dockerfile)
			}
		}
	}
}

// TestRelease: goreleaser publishes what deploy/dist has built of cmd/lockproxy, and what that packs is there.
func TestRelease(t *testing.T) {
	_, release := read(t, "../.goreleaser.yaml")
	if hook, ok := at(release, "before", "hooks", 0).(string); !ok || !strings.HasPrefix(hook, "make dist ") {
		t.Errorf("the packages are built by %q", hook)
	}
	if at(release, "builds", 0, "skip") != true || at(release, "release", "extra_files", 0, "glob") != "dist/*" {
		t.Errorf("published is %v", release)
	}
	dist, _ := read(t, "dist")
	packs := regexp.MustCompile(`(?m)^\tcp -r (.*) "\$tree/"$`).FindSubmatch(dist)
	if packs == nil || !bytes.Contains(dist, []byte(`-o "$tree/lockproxy" ./cmd/lockproxy`)) {
		t.Fatalf("not found is what it packs:\n%s", dist)
	}
	for _, path := range append(strings.Fields(string(packs[1])), "cmd/lockproxy/main.go") {
		if _, err := os.Stat(filepath.Join("..", path)); err != nil {
			t.Error(err)
		}
	}
}

// TestDebianSettings: what the package installs in /etc is good as it is.
func TestDebianSettings(t *testing.T) {
	c, err := config.Parse([]string{"--config", "debian/lockproxy.yaml"})
	if err != nil || c.Upstream.URL.String() != "redis://127.0.0.1:6379" {
		t.Errorf("%v, %v", c, err)
	}
	unit, _ := read(t, "systemd/lockproxy.service")
	if !strings.Contains(string(unit), "--config /etc/lockproxy.yaml\n") {
		t.Errorf("the unit reads other settings:\n%s", unit)
	}
	if bytes.Contains(unit, []byte("--listen")) || bytes.Contains(unit, []byte("LOCKPROXY_")) || bytes.Contains(unit, []byte("Requires=")) {
		t.Errorf("the unit overrides the addresses in the settings:\n%s", unit)
	}
	text, _ := read(t, "debian/lockproxy.yaml")
	rotated, _ := read(t, "debian/logrotate")
	if !bytes.Contains(text, []byte("\n# admin-socket: /run/lockproxy/")) || !bytes.Contains(unit, []byte("\nRuntimeDirectory=lockproxy\n")) ||
		!bytes.Contains(text, []byte("\n# event-log: /var/log/lockproxy/events.jsonl\n")) || !bytes.Contains(unit, []byte("\nLogsDirectory=lockproxy\n")) ||
		!bytes.Contains(rotated, []byte("\n/var/log/lockproxy/*.jsonl {\n")) {
		t.Errorf("there is no place for the files that the settings propose:\n%s%s%s", text, unit, rotated)
	}
	socket, _ := read(t, "systemd/lockproxy.socket")
	opens := regexp.MustCompile(`(?m)^ListenStream=(.*)$`).FindAllSubmatch(socket, -1)
	if len(opens) != 1 || string(opens[0][1]) != "127.0.0.1:6380" || !bytes.Contains(socket, []byte("\nFileDescriptorName=clients\n")) ||
		!slices.Equal(c.Listen.Addresses, []string{"systemd:clients"}) {
		t.Errorf("the settings have %v, and systemd opens\n%s", c.Listen.Addresses, socket)
	}
}

// TestDrainedIsStartedAgain: a process that LOCKPROXY DRAIN has ended, without an error, is started again by the units and by compose.
// A Deployment of Kubernetes always does that.
func TestDrainedIsStartedAgain(t *testing.T) {
	for _, path := range []string{"systemd/lockproxy.service", "systemd/lockproxy@.service"} {
		if unit, _ := read(t, path); !bytes.Contains(unit, []byte("\nRestart=always\n")) {
			t.Errorf("%s does not start it:\n%s", path, unit)
		}
	}
	for path, services := range map[string][]string{"docker/compose.yaml": {"lockproxy-1", "lockproxy-2"}, "docker/compose-cluster.yaml": {"lockproxy"}} {
		_, file := read(t, path)
		for _, service := range services {
			if again := at(file, "services", service, "restart"); again != "always" && again != "unless-stopped" {
				t.Errorf("%s: %s is started again %v", path, service, again)
			}
		}
	}
}

// TestUnitsAreAlike: the unit whose instances take turns has the other's rights and limits, shares its addresses, and has no sockets.
func TestUnitsAreAlike(t *testing.T) {
	service := func(path string) (command, rest string) {
		unit, _ := read(t, path)
		_, section, _ := strings.Cut(string(unit), "[Service]\n")
		section, _, found := strings.Cut(section, "[Install]\n")
		before, after, has := strings.Cut(section, "ExecStart=")
		command, after, ended := strings.Cut(after, "\n")
		if !found || !has || !ended {
			t.Fatalf("%s: %s", path, unit)
		}
		return command, before + after
	}
	one, rights := service("systemd/lockproxy.service")
	turns, same := service("systemd/lockproxy@.service")
	if same != rights {
		t.Errorf("rights and limits differ:\n%s\n%s", same, rights)
	}
	if want := strings.Replace(one, " --config", " --reuse-port yes --config", 1); turns != want || want == one {
		t.Errorf("it runs %s, want %s", turns, want)
	}
}
