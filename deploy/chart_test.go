package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lockproxy/lockproxy/internal/config"
)

var update = flag.Bool("update", false, "copy the alerts into the chart")

// container leads to what a Deployment has of its container.
func container(path ...any) []any {
	return append([]any{"spec", "template", "spec", "containers", 0}, path...)
}

// started are the settings that lockproxy reads in a container; the URL of Redis is that of the chart's own Secret, if there is one.
func started(t *testing.T, objects map[string]object, deployment object) config.Config {
	t.Helper()
	env := map[string]string{"LOCKPROXY_UPSTREAM": "redis://redis:6379"}
	if url, ours := at(objects["Secret"], "stringData", "upstream").(string); ours {
		env["LOCKPROXY_UPSTREAM"] = url
	}
	for _, v := range at(deployment, container("env")...).([]any) {
		if value, ok := at(v, "value").(string); ok {
			env[at(v, "name").(string)] = value
		}
	}
	return settings(t, env, texts(at(deployment, container("args")...).([]any))...)
}

func texts(all []any) (words []string) {
	for _, v := range all {
		words = append(words, v.(string))
	}
	return words
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
	c := started(t, objects, objects["Deployment"])
	if url := at(pod, "containers", 0, "env", 0, "valueFrom", "secretKeyRef"); at(url, "name") != at(objects["Secret"], "metadata", "name") ||
		at(objects["Secret"], "stringData", at(url, "key")) != "redis://:secret@redis:6379" {
		t.Errorf("the URL comes from %v, and %v is made", url, objects["Secret"])
	}
	if c.Limits.MaxClients != 17 || c.Admin.Metrics != ":9180" || c.Drain.Timeout != 100*time.Second {
		t.Errorf("lockproxy would be started with %v", c)
	}
	if grace := at(pod, "terminationGracePeriodSeconds").(int); time.Duration(grace)*time.Second <= c.Drain.Delay+c.Drain.Timeout {
		t.Errorf("the pod is killed after %d s, and stops in %v and %v", grace, c.Drain.Delay, c.Drain.Timeout)
	}
	for probe, page := range map[string]string{"livenessProbe": "/livez", "readinessProbe": "/readyz"} {
		if asks := at(pod, "containers", 0, probe, "httpGet"); at(asks, "path") != page || at(asks, "port") != "metrics" {
			t.Errorf("%s: %v", probe, asks)
		}
	}
	if at(objects["PodDisruptionBudget"], "spec", "minAvailable").(int) >= at(objects["Deployment"], "spec", "replicas").(int) {
		t.Error("no node could be emptied: the budget asks for all replicas")
	}
}

// TestChartValues: what YAML makes of a setting reaches lockproxy as the setting; other variables have a place of their own.
func TestChartValues(t *testing.T) {
	objects, err := rendered(t, object{"upstream": "redis://redis:6379",
		"settings": object{"max-clients": 1000000.0, "max-locks-per-user": 7, "protected-mode": false, "reuse-port": true, "proxy-protocol": false,
			"deny": []any{"flushall", "keys"}},
		"extraEnv": []any{object{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://c:4318"}}})
	if err != nil {
		t.Fatal(err)
	}
	c := started(t, objects, objects["Deployment"])
	if c.Limits.MaxClients != 1000000 || c.Limits.LocksPerUser != 7 || c.Listen.ProtectedMode != "no" || c.Listen.ReusePort != "yes" ||
		c.Listen.ProxyProtocol != "off" || len(c.Commands.Deny) != 2 || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "http://c:4318" {
		t.Errorf("lockproxy would be started with %v", c)
	}
}

// TestChartExamples: lockproxy understands what the chart makes of the examples, which try each value there is, and so does what helm test runs.
func TestChartExamples(t *testing.T) {
	_, tried := read(t, chartAt+"/values.yaml")
	all, err := filepath.Glob("helm/examples/*.yaml")
	if err != nil || len(all) < 4 {
		t.Fatal(all, err)
	}
	for _, path := range all {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, values := read(t, path)
			for name := range values {
				delete(tried, name)
			}
			objects, err := rendered(t, values)
			if err != nil {
				t.Fatal(err)
			}
			test := object{"spec": object{"template": objects["Pod"]}}
			of := at(test, container("args")...).([]any)
			asks, err := config.Parse(texts(of[1:]))
			if err != nil {
				t.Fatal(err)
			}
			started(t, objects, objects["Deployment"])
			port := fmt.Sprint(":", at(objects["Service"], "spec", "ports", 0, "port"))
			if listens := slices.Concat(asks.Listen.Addresses, asks.TLS.Listen); of[0] != "health" || asks.Admin.Metrics != "" ||
				len(listens) != 1 || listens[0] != fmt.Sprint(at(objects["Service"], "metadata", "name"), ".here", port) {
				t.Errorf("helm test asks %v: %v", listens, of)
			}
			mounted(t, objects["Deployment"])
		})
	}
	if len(tried) > 0 {
		t.Errorf("no example has %v", slices.Sorted(maps.Keys(tried)))
	}
}

// mounted checks that a file of a Secret is where the setting of its name says, that the admin socket has a place, and that what is mounted
// is there.
func mounted(t *testing.T, deployment object) {
	t.Helper()
	volumes := map[string]any{}
	if all, some := at(deployment, "spec", "template", "spec", "volumes").([]any); some {
		for _, v := range all {
			volumes[at(v, "name").(string)] = v
		}
	}
	files := map[string]bool{}
	if all, some := at(deployment, container("volumeMounts")...).([]any); some {
		for _, m := range all {
			volume := volumes[at(m, "name").(string)]
			if at(volume, "emptyDir") != nil {
				files[fmt.Sprint(at(m, "mountPath"), "/admin.sock")] = true
			}
			if volume == nil {
				t.Errorf("there is no volume for %v", m)
			}
			sources, _ := at(volume, "projected", "sources").([]any)
			for _, source := range sources {
				files[fmt.Sprint(at(m, "mountPath"), "/", at(source, "secret", "items", 0, "path"))] = true
			}
		}
	}
	for _, v := range at(deployment, container("env")...).([]any) {
		if path, _ := at(v, "value").(string); strings.HasPrefix(path, "/run/") && !files[path] {
			t.Errorf("nothing is at %v, but at %v", v, files)
		}
	}
}

// TestChartRules: Prometheus' operator gets the alerts of deploy/prometheus, less those that are not wanted.
func TestChartRules(t *testing.T) {
	const copied = chartAt + "/files/lockproxy.yml"
	original, _ := read(t, "prometheus/lockproxy.yml")
	if *update {
		if err := os.WriteFile(copied, original, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, _ := read(t, copied); !bytes.Equal(text, original) {
		t.Errorf("%s is stale: go test ./deploy -update", copied)
	}
	var wanted object
	if err := yaml.Unmarshal(original, &wanted); err != nil {
		t.Fatal(err)
	}
	for _, without := range []string{"", "LockproxyHeldLong"} {
		left := []any{}
		if without != "" {
			left = []any{without}
		}
		objects, err := rendered(t, object{"upstreamSecret": "redis", "podMonitor": object{"enabled": true},
			"prometheusRule": object{"enabled": true, "labels": object{"release": "prometheus"}, "without": left}})
		if err != nil {
			t.Fatal(err)
		}
		rules, want := at(objects["PrometheusRule"], "spec", "groups", 0, "rules").([]any), at(wanted, "groups", 0, "rules").([]any)
		want = slices.DeleteFunc(slices.Clone(want), func(r any) bool { return at(r, "alert") == without })
		if len(want) < 12 || !reflect.DeepEqual(rules, want) || at(objects["PrometheusRule"], "metadata", "labels", "release") != "prometheus" {
			t.Errorf("without %q the alerts are\n%v, want\n%v", without, rules, want)
		}
		// LockproxyDown knows a proxy by its job, which is the pod's label that jobLabel names.
		job := at(objects["Deployment"], "spec", "template", "metadata", "labels", at(objects["PodMonitor"], "spec", "jobLabel"))
		if expr := at(rules[0], "expr").(string); job != "lockproxy" || !strings.Contains(expr, `job=~".*lockproxy.*"`) {
			t.Errorf("the job is %v, and %s", job, expr)
		}
	}
}

// TestChartSpread: pods of this release keep away from each other, unless somebody says otherwise.
func TestChartSpread(t *testing.T) {
	objects, err := rendered(t, object{"upstreamSecret": "redis"})
	if err != nil {
		t.Fatal(err)
	}
	all := at(objects["Deployment"], "spec", "template", "spec", "topologySpreadConstraints").([]any)
	for i, key := range []string{"topology.kubernetes.io/zone", "kubernetes.io/hostname"} {
		if at(all[i], "topologyKey") != key || !covers(at(objects["Deployment"], "spec", "template", "metadata", "labels"), at(all[i], "labelSelector", "matchLabels")) {
			t.Errorf("%v", all[i])
		}
	}
	mine := object{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": object{"matchLabels": object{"a": "b"}}}
	objects, err = rendered(t, object{"upstreamSecret": "redis", "topologySpreadConstraints": []any{mine}, "replicas": 1})
	if got := at(objects["Deployment"], "spec", "template", "spec", "topologySpreadConstraints"); err != nil || !reflect.DeepEqual(got, []any{mine}) {
		t.Errorf("%v, %v", got, err)
	}
	if objects["PodDisruptionBudget"] != nil {
		t.Error("the one pod may not go, so that its node cannot be emptied")
	}
}

// TestChartWithASecret: a Secret that is there already is used, and none is made.
func TestChartWithASecret(t *testing.T) {
	for secret, want := range map[string]string{"mine": "map[key:upstream name:mine]", "mine/url": "map[key:url name:mine]"} {
		objects, err := rendered(t, object{"upstreamSecret": secret})
		if err != nil {
			t.Fatal(err)
		}
		from := at(objects["Deployment"], "spec", "template", "spec", "containers", 0, "env", 0, "valueFrom", "secretKeyRef")
		if objects["Secret"] != nil || fmt.Sprint(from) != want {
			t.Errorf("the URL is taken from %v; a Secret is made: %v", from, objects["Secret"])
		}
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
		t.Run(c.want, func(t *testing.T) {
			objects, err := rendered(t, object{"upstream": "redis://one:6379", "settings": c.settings, "service": object{"port": c.plain},
				"networkPolicy": object{"enabled": true, "clients": from}})
			if err != nil {
				t.Fatal(err)
			}
			listens := started(t, objects, objects["Deployment"])
			served := slices.Concat(listens.Listen.Addresses, listens.TLS.Listen)
			open := map[string]bool{}
			var ports, reached []string
			for _, v := range at(objects["Deployment"], container("ports")...).([]any) {
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
			tester := object{"podSelector": object{"matchLabels": at(objects["Pod"], "metadata", "labels")}}
			got := at(objects["NetworkPolicy"], "spec", "ingress", 0, "from").([]any)
			if len(got) != 2 || fmt.Sprint(got[:1]) != fmt.Sprint(from) || !covers(at(tester, "podSelector", "matchLabels"), at(got[1], "podSelector", "matchLabels")) {
				t.Errorf("the policy lets in %v, and the test is %v", got, tester)
			}
			if covers(at(objects["Pod"], "metadata", "labels"), at(objects["Service"], "spec", "selector")) {
				t.Error("the pod of helm test gets clients")
			}
			if got := at(objects["NetworkPolicy"], "spec", "ingress", 1); fmt.Sprint(got) != "map[ports:[map[port:metrics]]]" {
				t.Errorf("metrics are scraped at %v", got)
			}
		})
	}
	if _, err := rendered(t, object{"upstream": "redis://one:6379", "service": object{"port": 0}}); err == nil || !strings.Contains(err.Error(), "clients have no port") {
		t.Errorf("no port at all: %v", err)
	}
	for _, values := range []object{
		{"settings": object{"tls-listen": ":9180"}}, {"settings": object{"tls-listen": ":6380"}, "service": object{"port": 7000}},
		{"settings": object{"tls-listen": ":6390"}, "service": object{"port": 6390}}, {"admin": object{"enabled": true, "port": 9180}},
		{"admin": object{"enabled": true, "port": 6390}, "settings": object{"tls-listen": ":6390"}},
	} {
		values["upstream"] = "redis://one:6379"
		if _, err := rendered(t, values); err == nil || !strings.Contains(err.Error(), "two ports are the same") {
			t.Errorf("%v: %v", values, err)
		}
	}
}

// covers says whether an object with these labels is selected.
func covers(labels, selector any) bool {
	for name, v := range selector.(object) {
		if at(labels, name) != v {
			return false
		}
	}
	return true
}

// TestChartPage: the page for operators is open to other pods once it asks for a token, which the pods' Secret has, and to nobody before.
func TestChartPage(t *testing.T) {
	for _, c := range []struct {
		files  object
		listen string
	}{
		{object{}, "127.0.0.1:9181"},
		{object{"admin-token-file": "admin/token"}, ":9181"},
	} {
		t.Run(c.listen, func(t *testing.T) {
			objects, err := rendered(t, object{"upstreamSecret": "redis", "admin": object{"enabled": true}, "secretFiles": c.files,
				"networkPolicy": object{"enabled": true}})
			if err != nil {
				t.Fatal(err)
			}
			open := len(c.files) > 0
			with := started(t, objects, objects["Deployment"])
			ports, rules := fmt.Sprint(at(objects["Deployment"], container("ports")...)), fmt.Sprint(at(objects["NetworkPolicy"], "spec", "ingress"))
			if with.Admin.Page != c.listen || (with.Admin.TokenFile != "") != open ||
				strings.Contains(ports, "name:admin") != open || strings.Contains(rules, "port:admin") != open {
				t.Errorf("the page is at %s, ports %s, let in are %s", with.Admin.Page, ports, rules)
			}
		})
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
	for _, none := range []any{nil, object{"prometheus.io/scrape": nil, "prometheus.io/port": nil}} {
		objects, err := rendered(t, object{"upstream": "redis://one:6379", "podAnnotations": none})
		if got, ok := at(objects["Deployment"], "spec", "template", "metadata", "annotations").(object); err != nil || !ok || len(got) != 1 {
			t.Errorf("%v: %v, %v", none, got, err)
		}
	}
}

// TestChartKeepsItsOwn: a setting that the chart has a value for cannot be set past it, as the time that a pod has to stop would not follow.
func TestChartKeepsItsOwn(t *testing.T) {
	for _, c := range []struct {
		values object
		want   string
	}{
		{object{"settings": object{"drain-timeout": "100s"}}, "a value of its own for drain-timeout"},
		{object{"settings": object{"listen": ":7000"}}, "a value of its own for listen"},
		{object{"settings": object{"admin-listen": ":9181"}}, "a value of its own for admin-listen"},
		{object{"settings": object{"tls-key": "/tls.key"}, "secretFiles": object{"tls-key": "tls/tls.key"}}, "settings and secretFiles both have tls-key"},
	} {
		c.values["upstream"] = "redis://one:6379"
		if _, err := rendered(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.values, err)
		}
	}
}

// TestChartByHelm: Helm likes the chart, and says what is wrong in values as people write them.
func TestChartByHelm(t *testing.T) {
	program, err := exec.LookPath("helm")
	if err != nil {
		t.Skip("NOT CHECKED: helm is not on this machine (make packaging builds it), so nobody has checked values by values.schema.json")
	}
	lint := exec.Command(program, "lint", "--strict", chartAt, "--set", "upstreamSecret=redis")
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for values, want := range map[string]string{
		"replica: 3":                                  "'replica' not allowed",
		"replicas: three":                             "at '/replicas': got string, want integer",
		"settings: {max-client: 3}":                   "at '/settings': additional properties 'max-client' not allowed",
		"settings: {max-clients: many}":               "at '/settings/max-clients'",
		"settings: {max-clients: 1.5}":                "at '/settings/max-clients'",
		"settings: {max-clients: yes}":                "at '/settings/max-clients': got boolean, want integer or string",
		"settings: {idle-timeout: 30}":                "at '/settings/idle-timeout': maximum: got 30, want 0",
		"settings: {idle-timeout: 30 s}":              "at '/settings/idle-timeout'",
		"settings: {max-bulk: 10MiB}":                 "at '/settings/max-bulk'",
		"settings: {protected-mode: maybe}":           "at '/settings/protected-mode': value must be one of 'yes', true, 'no', false",
		"settings: {deny: {keys: yes}}":               "at '/settings/deny': got object, want string or array",
		"settings: {OTEL_SERVICE_NAME: locks}":        "'OTEL_SERVICE_NAME' not allowed",
		"settings: [max-clients]":                     "at '/settings': got array, want object",
		"secretFiles: {tls-cert: tls}":                "at '/secretFiles/tls-cert'",
		"secretFiles: {max-clients: a/b}":             "'max-clients' not allowed",
		"service: {port: 70000}":                      "at '/service/port'",
		"service: {ports: 6379}":                      "'ports' not allowed",
		"service: {type: LoadBalanced}":               "at '/service/type'",
		"podMonitor: {enabled: \"true\"}":             "at '/podMonitor/enabled': got string, want boolean",
		"prometheusRule: {without: [LockproxyDowns]}": "at '/prometheusRule/without/0'",
		"podLabels: {cost-center: 17}":                "at '/podLabels/cost-center': got number",
		"extraEnv: {A: b}":                            "at '/extraEnv': got object, want array",
		"extraEnv: [{name: A, value: 7}]":             "at '/extraEnv/0/value': got number, want string",
		"tolerations: {key: a}":                       "at '/tolerations': got object, want array",
		"imagePullSecrets: [registry]":                "at '/imagePullSecrets/0': got string, want object",
		"drainDelaySeconds: 5s":                       "at '/drainDelaySeconds': got string, want integer",
		"memory: {goLimit: 96mb}":                     "at '/memory/goLimit'",
		"upstream: redis:6379":                        "at '/upstream'",
		"podDisruptionBudget: {minAvailable: most}":   "at '/podDisruptionBudget/minAvailable'",
		"image: lockproxy:1":                          "at '/image': got string, want object",
		"nodeSelector: [linux]":                       "at '/nodeSelector': got array, want object",
	} {
		if _, said := byHelm(program, "upstreamSecret: redis\n"+values+"\n"); !strings.Contains(said, want) {
			t.Errorf("%s: Helm says %q, want %q", values, said, want)
		}
	}
	for _, values := range []string{"settings:", "secretFiles:", "settings: {max-clients: \"17\", allow: monitor, tls-client-auth: no}",
		"settings: {allow: [monitor, debug], quorum: [\"redis://a\", \"redis://b\", \"redis://c\"]}", "podAnnotations:", "global: {a: b}", "replicas: 0"} {
		if _, said := byHelm(program, "upstreamSecret: redis\n"+values+"\n"); said != "" {
			t.Errorf("%s: Helm says %q", values, said)
		}
	}
}
