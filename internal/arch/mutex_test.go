package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"testing"
	"testing/fstest"
)

// ownMutex are the structs whose mutex is touched by their own methods only, by package.
var ownMutex = map[string][]string{"internal/lock": {"lines", "watchdog"}}

// A part owns its fields and its mutex: whoever wants to know something of it asks one of its methods.
func TestPartsLockTheirOwnMutex(t *testing.T) {
	files := readHouse(t)
	for pkg, owners := range ownMutex {
		found, faults := mutexes(files, pkg, owners)
		for _, fault := range faults {
			t.Error(fault)
		}
		for _, owner := range owners {
			if found[owner] == 0 {
				t.Errorf("%s.%s: no method of it locks a mutex of it", pkg, owner)
			}
		}
	}
}

// mutexes counts, in a package's code, where the owners' methods touch their mutexes; anybody else who does is a fault.
func mutexes(files []source, pkg string, owners []string) (found map[string]int, faults []string) {
	found = map[string]int{}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	var code []source
	var trees []*ast.File
	for _, f := range files {
		if f.pkg == pkg && !f.test {
			code, trees = append(code, f), append(trees, f.ast)
		}
	}
	if len(code) == 0 {
		return found, []string{pkg + ": no such package"}
	}
	// Nothing is imported: the package's own types are enough, and what is unknown for that is no error here.
	known := types.Config{Importer: nothing{}, Error: func(error) {}}
	_, _ = known.Check(pkg, code[0].fset, trees, info)
	for _, f := range code {
		for _, decl := range f.ast.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "mu" {
					return true
				}
				switch owner := typeName(info.TypeOf(sel.X)); {
				case !slices.Contains(owners, owner):
				case receiver(decl) == owner:
					found[owner]++
				default:
					faults = append(faults, fmt.Sprintf("%s: the mutex of %s is for its methods", f.at(sel.Pos()), owner))
				}
				return true
			})
		}
	}
	return found, faults
}

// nothing imports nothing.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// typeName is the name of a struct, or of what a pointer points to; "": it has none.
func typeName(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// receiver is the type that a method is of; "": it is no method.
func receiver(decl ast.Decl) string {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok || fn.Recv == nil {
		return ""
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// The rule, on a small package in two files.
func TestMutexesAreFound(t *testing.T) {
	files, err := readModule(fstest.MapFS{
		"low/a.go": {Data: []byte("package low\nimport \"sync\"\ntype part struct { mu sync.Mutex }\ntype other struct { mu sync.Mutex; p *part }\n" +
			"func (p *part) ask() { p.mu.Lock(); defer p.mu.Unlock() }\nfunc (o *other) good() { o.mu.Lock(); o.p.ask() }\n")},
		"low/b.go": {Data: []byte("package low\nfunc (o *other) bad() { o.p.mu.Lock() }\nfunc alias(o *other) { p := o.p; p.mu.Lock() }\nvar late = func(p *part) { give(&p.mu) }\n" +
			"func give(any) {}\n")},
		"low/a_test.go": {Data: []byte("package low\nfunc test(p *part) { p.mu.Lock() }\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	found, faults := mutexes(files, "low", []string{"part"})
	if want := "low/b.go:2 low/b.go:3 low/b.go:4"; len(faults) != 3 || found["part"] != 2 {
		t.Errorf("%v, and faults %q, want those at %s", found, faults, want)
	}
	if _, faults := mutexes(files, "gone", nil); len(faults) != 1 {
		t.Error(faults)
	}
}
