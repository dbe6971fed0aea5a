package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// codesIn are the codes of the lock engine's errors: the first field of each &Error{…} there.
func codesIn(files []source) map[string]bool {
	codes := map[string]bool{}
	for _, f := range files {
		if f.test || f.pkg != "internal/lock" && !strings.HasPrefix(f.pkg, "internal/lockstore") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			text, is := codeOf(n).(*ast.BasicLit)
			if is && text.Kind == token.STRING {
				if code, err := strconv.Unquote(text.Value); err == nil {
					codes[code] = true
				}
			}
			return true
		})
	}
	return codes
}

// codeOf is the code of an error that is made there, as Error{Code: …} or by about(key, code, text); nil: none is.
func codeOf(n ast.Node) ast.Expr {
	switch made := n.(type) {
	case *ast.CompositeLit:
		if !isError(made.Type) || len(made.Elts) == 0 {
			return nil
		}
		if named, ok := made.Elts[0].(*ast.KeyValueExpr); ok {
			return named.Value
		}
		return made.Elts[0]
	case *ast.CallExpr:
		if by, ok := made.Fun.(*ast.Ident); ok && by.Name == "about" && len(made.Args) == 3 {
			return made.Args[1]
		}
	}
	return nil
}

// isError says whether a type is the lock engine's Error.
func isError(t ast.Expr) bool {
	if from, ok := t.(*ast.SelectorExpr); ok {
		t = from.Sel
	}
	name, ok := t.(*ast.Ident)
	return ok && name.Name == "Error"
}

// TestErrorCodesAreDocumented: docs/ERRORS.md has a row for each code of ours.
func TestErrorCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "ERRORS.md"))
	if err != nil {
		t.Fatal(err)
	}
	codes := codesIn(readHouse(t))
	if len(codes) < 8 {
		t.Errorf("%d codes were found: %v", len(codes), codes)
	}
	for code := range codes {
		if !strings.Contains(string(page), "| `"+code+"` |") && !strings.Contains(string(page), "| `"+code+" ") {
			t.Errorf("docs/ERRORS.md has no row for %s", code)
		}
	}
}
