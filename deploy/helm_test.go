package deploy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	"go.yaml.in/yaml/v3"
)

const chartAt = "helm/lockproxy"

// helm are the functions of Helm's templates that the chart uses, so that it is tested where there is no Helm, too.
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
		"fromYaml": func(text string) (o object, err error) { return o, yaml.Unmarshal([]byte(text), &o) },
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
		"int":        func(v any) int { n, _ := v.(int); return n },
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trim":       strings.TrimSpace,
		"trimSuffix": func(end, s string) string { return strings.TrimSuffix(s, end) },
		"splitList":  func(sep, s string) []string { return strings.Split(s, sep) },
		"first":      func(all []string) string { return all[0] },
		"last":       func(all []string) string { return all[len(all)-1] },
		"quote":      func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"upper":      strings.ToUpper,
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
		// Helm's is scrypt, which is slow; this stands for it.
		"derivePassword": func(counter int, kind, password, user, site string) string {
			return fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprintf("%d %s %q %q %q", counter, kind, password, user, site))))
		},
		"regexFind": func(re, s string) string { return regexp.MustCompile(re).FindString(s) },
		"list":      func(all ...any) []any { return all },
		"dict":      func() object { return object{} },
		"merge": func(all ...object) object {
			for _, o := range all[1:] {
				maps.Copy(all[0], o)
			}
			return all[0]
		},
		"hasKey":  func(o object, name string) bool { _, has := o[name]; return has },
		"get":     func(o object, name string) any { return o[name] },
		"has":     func(v any, all []any) bool { return slices.Contains(all, v) },
		"fail":    func(what string) (string, error) { return "", errors.New(what) },
		"replace": func(old, with, s string) string { return strings.ReplaceAll(s, old, with) },
	}
}

// files are those of the chart, as a template reads them.
type files struct{}

func (files) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(chartAt, name))
	return string(text), err
}

// over lays some values over others, as Helm does: what is no object replaces, and nil removes.
func over(values, others object) {
	for name, v := range others {
		below, deep := v.(object)
		at, is := values[name].(object)
		switch {
		case v == nil:
			delete(values, name)
		case deep && is:
			over(at, below)
		default:
			values[name] = v
		}
	}
}

// rendered are the objects that the chart makes of its values with some others, by kind. Where there is a Helm, it makes the same.
func rendered(t *testing.T, others object) (map[string]object, error) {
	t.Helper()
	objects, fault := emulated(t, others)
	program, err := exec.LookPath("helm")
	if err != nil {
		return objects, fault
	}
	text, err := yaml.Marshal(others)
	if err != nil {
		t.Fatal(err)
	}
	made, said := byHelm(program, string(text))
	if (said == "") != (fault == nil) {
		t.Fatalf("%v: here %v, by Helm: %s", others, fault, said)
	}
	if fault != nil {
		return objects, errors.New(said)
	}
	byKind := documents(t, made)
	delete(annotations(byKind["Deployment"]), "checksum/upstream")
	mine := map[string]object{}
	for kind, o := range objects {
		mine[kind] = clone(o)
	}
	delete(annotations(mine["Deployment"]), "checksum/upstream")
	if got, want := fmt.Sprint(byKind), fmt.Sprint(mine); got != want {
		t.Errorf("%v: Helm makes\n%s, and the functions here\n%s", others, got, want)
	}
	return objects, nil
}

func clone(o object) object {
	text, _ := yaml.Marshal(o) // it came of such a text
	o = nil
	_ = yaml.Unmarshal(text, &o)
	return o
}

func annotations(deployment object) object {
	o, _ := at(deployment, "spec", "template", "metadata", "annotations").(object)
	return o
}

// byHelm is what Helm makes of the chart with a values file, or what it says.
func byHelm(program, values string) (made []byte, fault string) {
	run := exec.Command(program, "template", "locks", chartAt, "--namespace", "here", "--kube-version", "1.30.0", "--values", "-")
	run.Stdin = strings.NewReader(values)
	made, err := run.Output()
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		return nil, string(exit.Stderr)
	} else if err != nil {
		return nil, err.Error()
	}
	return made, ""
}

// documents are the objects in a YAML stream, by kind.
func documents(t *testing.T, text []byte) map[string]object {
	t.Helper()
	objects := map[string]object{}
	for docs := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		err := docs.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if kind, ok := o["kind"].(string); ok {
			objects[kind] = o
		}
	}
}

func emulated(t *testing.T, others object) (map[string]object, error) {
	t.Helper()
	_, values := read(t, chartAt+"/values.yaml")
	over(values, others)
	_, chart := read(t, chartAt+"/Chart.yaml")
	data := object{"Values": values, "Files": files{}, "Release": object{"Name": "locks", "Namespace": "here", "Service": "Helm"},
		"Chart": object{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]}}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(helm(all))
	var names []string
	if err := filepath.WalkDir(chartAt+"/templates", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, _ := read(t, path)
		names = append(names, path)
		_, err = all.New(path).Parse(string(text))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, name := range names {
		var one bytes.Buffer
		if err := all.ExecuteTemplate(&one, name, data); err != nil {
			return nil, err
		}
		if filepath.Ext(name) == ".yaml" {
			out.WriteString("---\n" + one.String())
		}
	}
	return documents(t, out.Bytes()), nil
}
