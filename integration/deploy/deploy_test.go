// Package deploy has tests that what is in deploy/ is what Kubernetes, Prometheus' operator and compose know, by their own types. Its
// dependencies are many: so it is a module of its own.
package deploy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// kinds are what the chart may make.
var kinds = map[string]func() any{
	"v1 Pod":                                  func() any { return new(core.Pod) },
	"v1 Secret":                               func() any { return new(core.Secret) },
	"v1 Service":                              func() any { return new(core.Service) },
	"v1 ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"apps/v1 Deployment":                      func() any { return new(apps.Deployment) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return new(monitoring.PodMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

// TestChart: all that the chart makes of the examples has the fields and types of its kind, and no others; each kind is among it.
func TestChart(t *testing.T) {
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Fatal("helm is not on this machine: make packaging builds it")
	}
	examples, err := filepath.Glob("../../deploy/helm/examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal(examples, err)
	}
	seen := map[string]bool{}
	for _, values := range examples {
		t.Run(filepath.Base(values), func(t *testing.T) {
			made, err := exec.Command(helm, "template", "locks", "../../deploy/helm/lockproxy", "--namespace", "here",
				"--kube-version", "1.30.0", "--values", values).Output()
			if err != nil {
				t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
			}
			for docs := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(made))); ; {
				text := make([]byte, len(made))
				n, err := docs.Read(text)
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				var is struct{ APIVersion, Kind string }
				if err := strict.Unmarshal(text[:n], &is); err != nil {
					t.Fatalf("%v\n%s", err, text[:n])
				}
				kind := is.APIVersion + " " + is.Kind
				if kinds[kind] == nil {
					t.Fatalf("what is %q?\n%s", kind, text[:n])
				}
				seen[kind] = true
				if err := strict.UnmarshalStrict(text[:n], kinds[kind]()); err != nil {
					t.Errorf("%s: %v\n%s", kind, err, text[:n])
				}
			}
		})
	}
	for kind := range kinds {
		if !seen[kind] {
			t.Errorf("no example has a %s", kind)
		}
	}
}

// TestCompose: compose understands its files, and asks for the password.
func TestCompose(t *testing.T) {
	for _, file := range []string{"compose.yaml", "compose-cluster.yaml"} {
		for _, env := range [][]string{{"REDIS_PASSWORD=secret"}, nil} {
			options, err := cli.NewProjectOptions([]string{filepath.Join("../../deploy/docker", file)}, cli.WithEnv(env), cli.WithName("locks"))
			if err != nil {
				t.Fatal(err)
			}
			project, err := options.LoadProject(context.Background())
			if (err == nil) != (env != nil) {
				t.Errorf("%s with %v: %v", file, env, err)
				continue
			}
			if err != nil {
				continue
			}
			for name, service := range project.Services {
				if service.Build != nil && (service.HealthCheck == nil || len(service.HealthCheck.Test) == 0) {
					t.Errorf("%s: %s does not say whether it is ready", file, name)
				}
				if service.Build != nil {
					if _, err := os.Stat(filepath.Join(service.Build.Context, service.Build.Dockerfile)); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}
