package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// check holds the files to the table and to the house's habits.
func check(files []source, rows []row) (faults []string) {
	faults = checkTable(rows)
	for _, pkg := range packages(files) {
		if _, known := rowOf(rows, pkg); !known {
			faults = append(faults, fmt.Sprintf("%s: the package has no row in internal/arch's table", pkg))
		}
		faults = append(faults, checkComment(files, pkg)...)
	}
	for _, f := range files {
		if f.test {
			continue
		}
		r, known := rowOf(rows, f.pkg)
		if known {
			faults = append(faults, checkImports(f, r)...)
		}
		faults = append(faults, checkBody(f, r.floor == beside)...)
	}
	return faults
}

// checkComment wants one package comment a package, in its code if it has any.
func checkComment(files []source, pkg string) []string {
	var in [2][]string // files with a comment: code, tests
	var code bool
	for _, f := range files {
		if f.pkg != pkg {
			continue
		}
		kind := 0
		if f.test {
			kind = 1
		} else {
			code = true
		}
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" {
			in[kind] = append(in[kind], f.path)
		}
	}
	carriers := in[0]
	if !code {
		carriers = in[1]
	}
	if len(carriers) == 1 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d package comments, want one: %v", pkg, len(carriers), carriers)}
}

func checkImports(f source, r row) (faults []string) {
	for _, spec := range f.ast.Imports {
		what := imported(spec)
		to, ours := strings.CutPrefix(what, module+"/")
		host, _, _ := strings.Cut(what, "/")
		switch {
		case ours && (slices.Contains(r.may, to) || r.tree && strings.HasPrefix(to, r.pkg+"/")):
		case ours:
			faults = append(faults, fmt.Sprintf("%s: %s may not import %s", f.at(spec.Pos()), f.pkg, to))
		case r.libs != nil && strings.Contains(host, ".") && !slices.Contains(r.libs, what):
			faults = append(faults, fmt.Sprintf("%s: %s may not import the library %s", f.at(spec.Pos()), f.pkg, what))
		}
	}
	return faults
}

// checkBody finds goroutines without a name, which stack dumps show as func1,
// and sleeping, which nobody can interrupt.
func checkBody(f source, maySleep bool) (faults []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if _, literal := n.Call.Fun.(*ast.FuncLit); literal {
				faults = append(faults, fmt.Sprintf("%s: go func(…): give the goroutine a name", f.at(n.Pos())))
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Sleep" && !maySleep {
				faults = append(faults, fmt.Sprintf("%s: time.Sleep: wait on a timer and on the end as well", f.at(n.Pos())))
			}
		}
		return true
	})
	return faults
}
