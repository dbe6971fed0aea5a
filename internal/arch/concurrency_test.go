package arch

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	// methodName is a method as docs/CONCURRENCY.md names it: lock.(*holds).watchDeadlines.
	methodName = regexp.MustCompile("`(\\w+)\\.\\(\\*(\\w+)\\)\\.(\\w+)`")
	// mutexName is a mutex there, or a channel in place of one, with its package or without: sharded.masters.mu.
	mutexName = regexp.MustCompile("`(?:(\\w+)\\.)?(\\w+)\\.(mu|turn|busy|frames|loading|reading|writing)`")
)

// untrueOfGoroutines says which methods and mutexes the page names that the code does not have, and which functions code starts
// as goroutines that the page does not name. aside says which packages are not spoken of.
func untrueOfGoroutines(files []source, page string, aside func(pkg string) bool) (faults []string) {
	has, started := map[string]bool{}, map[string]string{}
	for _, f := range files {
		if f.test || aside(f.pkg) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				has[path.Base(f.pkg)+"."+receiver(n)+"."+n.Name.Name] = true
			case *ast.TypeSpec:
				if fields, ok := n.Type.(*ast.StructType); ok {
					for _, field := range fields.Fields.List {
						for _, name := range field.Names {
							has[path.Base(f.pkg)+"."+n.Name.Name+"."+name.Name] = true
							has["."+n.Name.Name+"."+name.Name] = true
						}
					}
				}
			case *ast.GoStmt:
				switch called := n.Call.Fun.(type) {
				case *ast.SelectorExpr:
					started[called.Sel.Name] = f.at(n.Pos())
				case *ast.Ident:
					started[called.Name] = f.at(n.Pos())
				}
			}
			return true
		})
	}
	for _, names := range [][][]string{methodName.FindAllStringSubmatch(page, -1), mutexName.FindAllStringSubmatch(page, -1)} {
		for _, name := range names {
			if !has[strings.Join(name[1:], ".")] {
				faults = append(faults, "the page names "+name[0]+", which is not there")
			}
		}
	}
	for name, at := range started {
		if !regexp.MustCompile(`\b` + name + "\\b`").MatchString(page) {
			faults = append(faults, at+": the page does not have the goroutine "+name)
		}
	}
	return faults
}

// TestConcurrencyPage: docs/CONCURRENCY.md names goroutines and mutexes that there are, and every goroutine that a go statement starts.
func TestConcurrencyPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "CONCURRENCY.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(mutexName.FindAllString(string(page), -1)); n < 20 {
		t.Errorf("the page names %d mutexes", n)
	}
	aside := func(pkg string) bool {
		if pkg == "internal/tasks" { // runs what others give it
			return true
		}
		r, known := rowOf(table, pkg)
		return !known || r.floor == beside || strings.HasPrefix(pkg, "internal/simulation") || pkg == "internal/testredis" ||
			pkg == "internal/history" || pkg == "internal/program"
	}
	for _, fault := range untrueOfGoroutines(readHouse(t), string(page), aside) {
		t.Error(fault)
	}

	files, err := readModule(fstest.MapFS{"low/a.go": {Data: []byte("package low\nimport \"sync\"\ntype part struct { mu sync.Mutex }\n" +
		"func (p *part) run() { go p.walk(); go fly() }\nfunc (p *part) walk() {}\nfunc fly() {}\n")}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{
		"`low.(*part).walk` and `fly`, under `part.mu` or `low.part.mu`": 0,
		"`low.(*part).walk`":                                    1,
		"`low.(*part).swim`, `walk`, `fly`, `part.busy`":        2,
		"`high.(*part).walk`, `fly`, `high.part.mu`, `part.mu`": 2,
	} {
		if faults := untrueOfGoroutines(files, text, func(string) bool { return false }); len(faults) != want {
			t.Errorf("%q: faults %q, want %d", text, faults, want)
		}
	}
}
