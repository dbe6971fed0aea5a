// Package deploy has the packages of lockproxy, and tests that what is in them fits the program.
package deploy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lockproxy/lockproxy/internal/config"
)

// helm are the functions of Helm's templates that the chart uses.
func helm(of *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := of.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"nindent": func(n int, s string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(s, "\n", pad)
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"required": func(what string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(what)
			}
			return v, nil
		},
		"default": func(def, v any) any {
			if v == nil || v == "" {
				return def
			}
			return v
		},
		"add": func(all ...int) (sum int) {
			for _, n := range all {
				sum += n
			}
			return sum
		},
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(end, s string) string { return strings.TrimSuffix(s, end) },
		"quote":      func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"upper":      strings.ToUpper,
		"hasPrefix":  func(begin, s string) bool { return strings.HasPrefix(s, begin) },
		"kindIs":     func(kind string, v any) bool { return v != nil && reflect.TypeOf(v).Kind().String() == kind },
		"floor":      math.Floor,
		"join": func(sep string, all []any) string {
			var texts []string
			for _, v := range all {
				texts = append(texts, fmt.Sprint(v))
			}
			return strings.Join(texts, sep)
		},
		"ternary": func(yes, no any, which bool) any {
			if which {
				return yes
			}
			return no
		},
		"lower": strings.ToLower,
		// Helm's is scrypt, which is slow; this stands for it.
		"derivePassword": func(counter int, kind, password, user, site string) string {
			return fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprintf("%d %s %q %q %q", counter, kind, password, user, site))))
		},
		"regexFind": func(re, s string) string { return regexp.MustCompile(re).FindString(s) },
		"list":      func(all ...any) []any { return all },
		"has":       func(v any, all []any) bool { return slices.Contains(all, v) },
		"fail":      func(what string) (string, error) { return "", errors.New(what) },
		"replace":   func(old, with, s string) string { return strings.ReplaceAll(s, old, with) },
	}
}

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

// rendered are the objects that the chart makes of its values with some others, by kind.
func rendered(t *testing.T, others object) (map[string]object, error) {
	t.Helper()
	_, values := read(t, "helm/lockproxy/values.yaml")
	for name, v := range others {
		values[name] = v
	}
	_, chart := read(t, "helm/lockproxy/Chart.yaml")
	data := object{"Values": values, "Release": object{"Name": "locks", "Namespace": "here", "Service": "Helm"},
		"Chart": object{"AppVersion": chart["appVersion"]}}
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(helm(all))
	files, err := filepath.Glob("helm/lockproxy/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, _ := read(t, path)
		if _, err := all.New(filepath.Base(path)).Parse(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	objects := map[string]object{}
	for _, path := range files {
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, filepath.Base(path), data); err != nil {
			return nil, err
		}
		if filepath.Ext(path) != ".yaml" {
			continue
		}
		var o object
		if err := yaml.Unmarshal(out.Bytes(), &o); err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %v\n%s", path, err, out.String())
		}
		if kind, ok := o["kind"].(string); ok {
			objects[kind] = o
		}
	}
	return objects, nil
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

// TestChart: what the chart makes is what lockproxy understands, it is probed where it answers, and it has the time that it takes to stop.
func TestChart(t *testing.T) {
	if _, err := rendered(t, nil); err == nil || !strings.Contains(err.Error(), "upstream or upstreamSecret is needed") {
		t.Errorf("without an upstream: %v", err)
	}
	objects, err := rendered(t, object{"upstream": "redis://:secret@redis:6379", "drainTimeoutSeconds": 100, "settings": object{"max-clients": "17"}})
	if err != nil {
		t.Fatal(err)
	}
	for kind, path := range map[string][]any{
		"Deployment": {"spec", "selector", "matchLabels"}, "Service": {"spec", "selector"}, "PodDisruptionBudget": {"spec", "selector", "matchLabels"},
	} {
		if got := fmt.Sprint(at(objects[kind], path...)); got != "map[app.kubernetes.io/instance:locks app.kubernetes.io/name:lockproxy]" {
			t.Errorf("%s selects %s", kind, got)
		}
	}
	pod := at(objects["Deployment"], "spec", "template", "spec")
	container := at(pod, "containers", 0)
	env := map[string]string{}
	for _, v := range at(container, "env").([]any) {
		name := at(v, "name").(string)
		if value, ok := at(v, "value").(string); ok {
			env[name] = value
		} else if name == "LOCKPROXY_UPSTREAM" && at(v, "valueFrom", "secretKeyRef", "name") == "locks" {
			env[name] = at(objects["Secret"], "stringData", "upstream").(string)
		}
	}
	c := settings(t, env)
	if c.Upstream.URL.String() == "" || c.Limits.MaxClients != 17 || c.Admin.Metrics != ":9180" || c.Drain.Timeout != 100*time.Second {
		t.Errorf("lockproxy would be started with %v", c)
	}
	if grace := at(pod, "terminationGracePeriodSeconds").(int); time.Duration(grace)*time.Second <= c.Drain.Delay+c.Drain.Timeout {
		t.Errorf("the pod is killed after %d s, and stops in %v and %v", grace, c.Drain.Delay, c.Drain.Timeout)
	}
	for probe, page := range map[string]string{"livenessProbe": "/livez", "readinessProbe": "/readyz"} {
		if at(container, probe, "httpGet", "path") != page || at(container, probe, "httpGet", "port") != "metrics" {
			t.Errorf("%s: %v", probe, at(container, probe))
		}
	}
	if at(objects["PodDisruptionBudget"], "spec", "minAvailable").(int) >= at(objects["Deployment"], "spec", "replicas").(int) {
		t.Error("no node could be emptied: the budget asks for all replicas")
	}
}

// TestChartValues: what YAML makes of a setting reaches lockproxy as the setting; other variables have a place of their own.
func TestChartValues(t *testing.T) {
	objects, err := rendered(t, object{"upstream": "redis://redis:6379",
		"settings": object{"max-clients": 1000000.0, "warm-channels": 7, "protected-mode": false, "reuse-port": true, "deny": []any{"flushall", "keys"}},
		"extraEnv": []any{object{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://c:4318"}}})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range at(objects["Deployment"], "spec", "template", "spec", "containers", 0, "env").([]any) {
		if value, ok := at(v, "value").(string); ok {
			env[at(v, "name").(string)] = value
		}
	}
	c := settings(t, env)
	if c.Limits.MaxClients != 1000000 || c.Locks.WarmChannels != 7 || c.Listen.ProtectedMode != "no" || c.Listen.ReusePort != "yes" || len(c.Commands.Deny) != 2 ||
		env["OTEL_EXPORTER_OTLP_ENDPOINT"] != "http://c:4318" {
		t.Errorf("%v: %v", env, c)
	}
	if _, err := rendered(t, object{"upstream": "redis://one:6379", "settings": object{"OTEL_X": "y"}}); err == nil || !strings.Contains(err.Error(), "extraEnv") {
		t.Errorf("a variable that is no setting: %v", err)
	}
}

// TestChartWithFiles: files of the operator's are mounted where a setting names them, and none are needed.
func TestChartWithFiles(t *testing.T) {
	var values object // that values.yaml has as an example
	text, _ := read(t, "helm/lockproxy/values.yaml")
	var example strings.Builder
	for line := range strings.Lines(string(text)) {
		for _, name := range []string{"settings", "extraVolumes", "extraVolumeMounts"} {
			if strings.HasPrefix(line, "# "+name+": ") {
				example.WriteString(line[2:])
			}
		}
	}
	if err := yaml.Unmarshal([]byte(example.String()), &values); err != nil || len(values) != 3 {
		t.Fatal(values, err)
	}
	for _, with := range []bool{true, false} {
		others := object{"upstream": "redis://redis:6379"}
		if with {
			maps.Copy(others, values)
		}
		objects, err := rendered(t, others)
		if err != nil {
			t.Fatal(err)
		}
		pod := at(objects["Deployment"], "spec", "template", "spec")
		container := at(pod, "containers", 0)
		volumes, mounts := at(pod, "volumes").([]any), at(container, "volumeMounts").([]any)
		if !with {
			if len(volumes)+len(mounts) != 0 {
				t.Errorf("without files: %v, %v", volumes, mounts)
			}
			continue
		}
		password := object{"name": "LOCKPROXY_UPSTREAM_PASSWORD_FILE", "value": at(mounts, 0, "mountPath").(string) + "/password"}
		if at(volumes, 0, "secret", "secretName") != "redis-password" || at(volumes, 0, "name") != at(mounts, 0, "name") ||
			!strings.Contains(fmt.Sprint(at(container, "env")), fmt.Sprint(password)) {
			t.Errorf("%v, %v, %v", volumes, mounts, at(container, "env"))
		}
	}
}

// TestChartWithASecret: a Secret that is there already is used, and none is made.
func TestChartWithASecret(t *testing.T) {
	objects, err := rendered(t, object{"upstreamSecret": "mine"})
	if err != nil {
		t.Fatal(err)
	}
	from := at(objects["Deployment"], "spec", "template", "spec", "containers", 0, "env", 0, "valueFrom", "secretKeyRef", "name")
	if objects["Secret"] != nil || from != "mine" {
		t.Errorf("the URL is taken from %v; a Secret is made: %v", from, objects["Secret"])
	}
}

// TestChartPorts: the Service has the ports that lockproxy listens at, and a NetworkPolicy lets those in that are named, and nobody else, to these.
func TestChartPorts(t *testing.T) {
	tls := object{"tls-listen": []any{":6390"}, "tls-cert": "/tls/tls.crt", "tls-key": "/tls/tls.key"}
	from := []any{object{"podSelector": object{"matchLabels": object{"uses": "locks"}}}}
	for _, c := range []struct {
		plain    int
		settings object
		want     string
	}{
		{6379, object{}, "[redis:6379]"},
		{6379, tls, "[redis:6379 redis-tls:6390]"},
		{0, tls, "[redis-tls:6390]"},
	} {
		objects, err := rendered(t, object{"upstream": "redis://one:6379", "settings": c.settings, "service": object{"type": "ClusterIP", "port": c.plain},
			"networkPolicy": object{"enabled": true, "clients": from, "metrics": []any{}}})
		if err != nil {
			t.Fatal(err)
		}
		container := at(objects["Deployment"], "spec", "template", "spec", "containers", 0)
		env, open := map[string]string{}, map[string]bool{}
		for _, v := range at(container, "env").([]any) {
			if value, ok := at(v, "value").(string); ok {
				env[at(v, "name").(string)] = value
			}
		}
		listens := settings(t, env, at(container, "args", 0).(string))
		served := slices.Concat(listens.Listen.Addresses, listens.TLS.Listen)
		var ports, reached []string
		for _, v := range at(container, "ports").([]any) {
			if name := at(v, "name").(string); name != "metrics" {
				open[name] = slices.Contains(served, fmt.Sprintf(":%d", at(v, "containerPort")))
			}
		}
		for _, v := range at(objects["Service"], "spec", "ports").([]any) {
			name := at(v, "name").(string)
			ports = append(ports, fmt.Sprintf("%s:%d", name, at(v, "port")))
			if !open[name] || at(v, "targetPort") != name {
				t.Errorf("nobody listens behind %v: %v, %v", v, open, served)
			}
		}
		for _, v := range at(objects["NetworkPolicy"], "spec", "ingress", 0, "ports").([]any) {
			reached = append(reached, at(v, "port").(string))
		}
		if got := fmt.Sprint(ports); got != c.want || len(open) != len(ports) || len(served) != len(ports) || len(reached) != len(ports) {
			t.Errorf("the Service has %v, want %s; lockproxy listens at %v, the policy is of %v", got, c.want, served, reached)
		}
		if got := at(objects["NetworkPolicy"], "spec", "ingress", 0, "from"); fmt.Sprint(got) != fmt.Sprint(from) {
			t.Errorf("the policy lets in %v", got)
		}
		if got := at(objects["NetworkPolicy"], "spec", "ingress", 1, "ports", 0, "port"); got != "metrics" {
			t.Errorf("metrics are scraped at %v", got)
		}
	}
	if _, err := rendered(t, object{"upstream": "redis://one:6379", "service": object{"type": "ClusterIP", "port": 0}}); err == nil || !strings.Contains(err.Error(), "clients have no port") {
		t.Errorf("no port at all: %v", err)
	}
}

// TestChartByHelm: Helm itself makes the same objects as the functions here, but for the hash of the URL.
func TestChartByHelm(t *testing.T) {
	program, err := exec.LookPath("helm")
	if err != nil {
		t.Skip("NOT CHECKED: helm is not on this machine")
	}
	for _, values := range []object{
		{},
		{"settings": object{"max-clients": 1000000, "protected-mode": false, "deny": []any{"flushall", "keys"}}},
		{"settings": object{"tls-listen": ":6390"}, "service": object{"type": "ClusterIP", "port": 0}, "networkPolicy": object{"enabled": true, "clients": []any{}, "metrics": []any{}}},
	} {
		values["upstream"] = "redis://:secret@redis:6379"
		want, err := rendered(t, values)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		made := exec.Command(program, "template", "locks", "helm/lockproxy", "--namespace", "here", "--values", "-")
		made.Stdin = bytes.NewReader(text)
		out, err := made.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
		}
		got := map[string]object{}
		for docs := yaml.NewDecoder(bytes.NewReader(out)); ; {
			var o object
			if err := docs.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got[fmt.Sprint(o["kind"])] = o
		}
		for _, all := range []map[string]object{want, got} {
			annotations := at(all["Deployment"], "spec", "template", "metadata", "annotations").(object)
			if hash := fmt.Sprint(annotations["checksum/upstream"]); len(hash) < 10 {
				t.Errorf("the hash is %q", hash)
			}
			delete(annotations, "checksum/upstream")
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Helm makes\n%v, want\n%v", got, want)
		}
	}
}

// TestChartHashIsSalted: who may see pods, and not secrets, cannot look a password up by its hash, nor see that two releases share one.
func TestChartHashIsSalted(t *testing.T) {
	text, _ := read(t, "helm/lockproxy/templates/deployment.yaml")
	if !regexp.MustCompile(`checksum/upstream: \{\{ derivePassword 1 "long" .* \.Release\.Namespace \.Release\.Name `).Match(text) || bytes.Contains(text, []byte("sha256sum")) {
		t.Errorf("the hash of the URL has no salt:\n%s", text)
	}
}

// TestChartAtAnUpgrade: a pod that is there already is replaced when the URL changes, which it reads at its start only.
func TestChartAtAnUpgrade(t *testing.T) {
	pods := map[string]bool{}
	for _, upstream := range []string{"redis://one:6379", "redis://two:6379", "redis://one:6379"} {
		objects, err := rendered(t, object{"upstream": upstream})
		if err != nil {
			t.Fatal(err)
		}
		pods[fmt.Sprint(at(objects["Deployment"], "spec", "template"))] = true
	}
	if len(pods) != 2 {
		t.Errorf("two URLs make %d kinds of pods", len(pods))
	}
}

// TestChartWithoutAnnotations: who wants none of the annotations may say so.
func TestChartWithoutAnnotations(t *testing.T) {
	for _, none := range []any{nil, object{}} {
		objects, err := rendered(t, object{"upstream": "redis://one:6379", "podAnnotations": none})
		if got, ok := at(objects["Deployment"], "spec", "template", "metadata", "annotations").(object); err != nil || !ok || len(got) != 1 {
			t.Errorf("%v: %v, %v", none, got, err)
		}
	}
}

// TestChartKeepsItsOwn: a setting that the chart has a value for cannot be set past it, as the time that a pod has to stop would not follow.
func TestChartKeepsItsOwn(t *testing.T) {
	for _, name := range []string{"drain-timeout", "DRAIN_DELAY", "listen"} {
		if _, err := rendered(t, object{"upstream": "redis://one:6379", "settings": object{name: "100s"}}); err == nil || !strings.Contains(err.Error(), "for "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
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
		if build := at(file, "services", service, "build"); build != nil {
			dockerfile, err := os.ReadFile(filepath.Join("docker", at(build, "context").(string), at(build, "dockerfile").(string)))
			if err != nil {
				t.Fatal(path, err)
			}
			base := string(dockerfile[bytes.LastIndex(dockerfile, []byte("\nFROM ")):])
			if !strings.HasPrefix(base, "\nFROM gcr.io/distroless/static:nonroot\n") || strings.Contains(base, "\nUSER ") {
				t.Errorf("the image is not distroless, or runs as root:\n%s", base)
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
