package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	maxFiles  = 25 // of a package, tests aside
	maxFields = 15 // of a struct
)

// stillTooBig are the packages and structs that are larger than a new one may be, with their size: it may only shrink. An entry
// goes when its size is allowed, and is lowered when it is lower.
var stillTooBig = map[string]int{}

// modes are the names by which code would ask which kind of upstream there is.
var modes = []string{"cluster", "quorum", "sharded"}

// A package and a struct stay small enough to be read at one sitting, and only constructors ask which kind of upstream there is.
func TestSizes(t *testing.T) {
	files := readHouse(t)
	for _, fault := range held(sizes(files), stillTooBig) {
		t.Error(fault)
	}
	for pkg, n := range modeQuestions(files) {
		t.Errorf("%s asks %d times which kind of upstream there is, outside constructors", pkg, n)
	}
}

// held compares sizes above what is allowed with those that are excused, by name.
func held(found, excused map[string]int) (faults []string) {
	names := map[string]bool{}
	for name := range found {
		names[name] = true
	}
	for name := range excused {
		names[name] = true
	}
	for name := range names {
		switch have, may := found[name], excused[name]; {
		case have > may:
			faults = append(faults, fmt.Sprintf("%s: %d, at most %d", name, have, may))
		case have < may:
			faults = append(faults, fmt.Sprintf("%s: %d, and internal/arch still excuses %d: lower that", name, have, may))
		}
	}
	slices.Sort(faults)
	return faults
}

// sizes are the packages and structs of the product that are larger than is allowed.
func sizes(files []source) map[string]int {
	found := map[string]int{}
	for _, f := range product(files) {
		found[f.pkg]++
		for _, decl := range f.ast.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				if s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType); ok {
					if n := fields(s); n > maxFields {
						found[f.pkg+"."+spec.(*ast.TypeSpec).Name.Name] = n
					}
				}
			}
		}
	}
	for _, pkg := range packages(files) {
		if found[pkg] <= maxFiles {
			delete(found, pkg)
		}
	}
	return found
}

// fields counts each name, and what is embedded.
func fields(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

// modeQuestions counts the comparisons with nil of something that is named after a mode, by package.
func modeQuestions(files []source) map[string]int {
	found := map[string]int{}
	for _, f := range product(files) {
		for _, decl := range f.ast.Decls {
			body, ok := decl.(*ast.FuncDecl)
			if !ok || strings.HasPrefix(body.Name.Name, "New") || strings.HasPrefix(body.Name.Name, "new") || f.ast.Name.Name == "main" {
				continue
			}
			ast.Inspect(body, func(n ast.Node) bool {
				if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) && (isNil(b.Y) && asksMode(b.X) || isNil(b.X) && asksMode(b.Y)) {
					found[f.pkg]++
				}
				return true
			})
		}
	}
	return found
}

func isNil(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "nil"
}

// asksMode says that e is a field or variable that is named after a mode.
func asksMode(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	return slices.Contains(modes, strings.ToLower(name))
}

// forTests are the packages of which only tests and measurements are made.
var forTests = []string{"integration", "bench", "deploy", "internal/testredis", "internal/program", "internal/history", "internal/simulation", "internal/arch"}

// product are the files that lockproxy is built from.
func product(files []source) []source {
	return slices.DeleteFunc(slices.Clone(files), func(f source) bool {
		return f.test || f.generated || slices.ContainsFunc(forTests, func(pkg string) bool { return f.pkg == pkg || strings.HasPrefix(f.pkg, pkg+"/") })
	})
}

// The counts, on a small module.
func TestSizesAreCounted(t *testing.T) {
	var many strings.Builder
	for i := range maxFields + 1 {
		fmt.Fprintf(&many, "f%d, ", i)
	}
	module := fstest.MapFS{
		"scripts/a.go": {Data: []byte("package scripts\ntype small struct { a, b int }\ntype big struct { " + strings.TrimSuffix(many.String(), ", ") + " int }\n" +
			"type s struct { cluster *int }\nfunc (x s) asks() bool { return x.cluster != nil || nil == x.cluster }\nfunc newS(cluster *int) bool { return cluster == nil }\n")},
		"scripts/a_test.go": {Data: []byte("package scripts\nfunc f(quorum *int) bool { return quorum != nil }\n")},
	}
	files, err := readModule(module)
	if err != nil {
		t.Fatal(err)
	}
	if got := sizes(files); len(got) != 1 || got["scripts.big"] != maxFields+1 {
		t.Error(got)
	}
	if got := modeQuestions(files); len(got) != 1 || got["scripts"] != 2 {
		t.Error(got)
	}
	faults := held(map[string]int{"new": 30, "grown": 41, "same": 20}, map[string]int{"grown": 40, "same": 20, "shrunk": 9})
	if len(faults) != 3 || !strings.HasPrefix(faults[0], "grown: 41") || !strings.HasPrefix(faults[1], "new: 30") || !strings.HasPrefix(faults[2], "shrunk: 0") {
		t.Errorf("%q", faults)
	}
}
