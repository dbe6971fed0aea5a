package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// modes are the names by which code would ask which kind of upstream there is.
var modes = []string{"cluster", "quorum", "sharded"}

// TestModes: only constructors ask which kind of upstream there is.
func TestModes(t *testing.T) {
	for pkg, n := range modeQuestions(readHouse(t)) {
		t.Errorf("%s asks %d times which kind of upstream there is, outside constructors", pkg, n)
	}
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

// The count, on a small module.
func TestModeQuestionsAreCounted(t *testing.T) {
	files, err := readModule(fstest.MapFS{
		"scripts/a.go": {Data: []byte("package scripts\ntype s struct { cluster *int }\n" +
			"func (x s) asks() bool { return x.cluster != nil || nil == x.cluster }\nfunc newS(cluster *int) bool { return cluster == nil }\n")},
		"scripts/a_test.go": {Data: []byte("package scripts\nfunc f(quorum *int) bool { return quorum != nil }\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := modeQuestions(files); len(got) != 1 || got["scripts"] != 2 {
		t.Error(got)
	}
}
