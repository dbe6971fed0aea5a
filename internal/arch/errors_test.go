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
			made, ok := n.(*ast.CompositeLit)
			if !ok || len(made.Elts) == 0 {
				return true
			}
			first := made.Elts[0]
			if named, ok := first.(*ast.KeyValueExpr); ok {
				first = named.Value
			}
			text, isText := first.(*ast.BasicLit)
			if isText && isError(made.Type) && text.Kind == token.STRING {
				if code, err := strconv.Unquote(text.Value); err == nil {
					codes[code] = true
				}
			}
			return true
		})
	}
	return codes
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
