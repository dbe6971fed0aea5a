package arch

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "rewrite docs/imports.md")

// house is the module, read once for all tests, none of which changes it.
var house = sync.OnceValues(func() ([]source, error) { return readModule(os.DirFS(filepath.Join("..", ".."))) })

func readHouse(t *testing.T) []source {
	t.Helper()
	files, err := house()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestHouse(t *testing.T) {
	for _, fault := range check(readHouse(t), table) {
		t.Error(fault)
	}
}

func TestImportsPageIsFresh(t *testing.T) {
	want := byFloor(table)
	path := filepath.Join("..", "..", "docs", "imports.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is stale: go test ./internal/arch -update", path)
	}
}

// Every rule, seen to fail on a small module that breaks it, and to pass on one
// that does not.
func TestRules(t *testing.T) {
	const ours = `"github.com/lockproxy/lockproxy/`
	rows := []row{
		{pkg: "high", floor: 2, may: []string{"low"}},
		{pkg: "low", floor: 1, libs: stdOnly},
		{pkg: "tests", floor: beside, tree: true},
	}
	for name, c := range map[string]struct {
		files map[string]string
		rows  []row
		want  string // a part of the one fault; "" is none
	}{
		"a good module": {files: map[string]string{
			"high/a.go":         "// Package high.\npackage high\nimport " + ours + "low\"\n",
			"high/a_test.go":    "// Package high again, in a test.\npackage high\nimport " + ours + "tests\"\nfunc f() { go func() {}() }\n",
			"low/b.go":          "// Package low.\npackage low\nimport \"net/http\"\n",
			"low/testdata/c.go": "not Go",
			".hidden/c.go":      "not Go",
			"tests/x/x_test.go": "// Package x has tests only.\npackage x\n",
		}},
		"upwards":          {files: map[string]string{"low/b.go": "// Package low.\npackage low\n\nimport " + ours + "high\"\n"}, want: "low/b.go:4: low may not import high"},
		"a library":        {files: map[string]string{"low/b.go": "// Package low.\npackage low\nimport \"example.org/x\"\n"}, want: "low/b.go:3: low may not import the library example.org/x"},
		"no row":           {files: map[string]string{"helpers/b.go": "// Package helpers.\npackage helpers\n"}, want: "helpers: the package has no row"},
		"no comment":       {files: map[string]string{"low/b.go": "package low\n"}, want: "low: 0 package comments"},
		"two comments":     {files: map[string]string{"low/b.go": "// Package low.\npackage low\n", "low/c.go": "// Package low.\npackage low\n"}, want: "low: 2 package comments"},
		"comment in tests": {files: map[string]string{"low/b.go": "package low\n", "low/b_test.go": "// Package low.\npackage low\n"}, want: "low: 0 package comments"},
		"no name":          {files: map[string]string{"low/b.go": "// Package low.\npackage low\nfunc f() {\n\tgo func() {}()\n}\n"}, want: "low/b.go:4: go func"},
		"sleep":            {files: map[string]string{"low/b.go": "// Package low.\npackage low\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"}, want: "low/b.go:4: time.Sleep"},
		"sleep beside":     {files: map[string]string{"tests/b.go": "// Package tests.\npackage tests\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"}},
		"table points up":  {rows: []row{{pkg: "low", floor: 1, may: []string{"high"}}, {pkg: "high", floor: 2}}, want: "not downwards"},
		"table points out": {rows: []row{{pkg: "low", floor: 1, may: []string{"gone"}}}, want: "gone, which has no row"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for path, text := range c.files {
				fsys[path] = &fstest.MapFile{Data: []byte(text)}
			}
			files, err := readModule(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if c.rows == nil {
				c.rows = rows
			}
			faults := check(files, c.rows)
			switch {
			case c.want == "" && len(faults) > 0:
				t.Errorf("faults in a good module: %q", faults)
			case c.want != "" && (len(faults) != 1 || !strings.Contains(faults[0], c.want)):
				t.Errorf("faults %q, want one with %q", faults, c.want)
			}
		})
	}
}
