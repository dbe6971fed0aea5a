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
		if f.test || f.pkg != "internal/lock" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			made, ok := n.(*ast.CompositeLit)
			if !ok || len(made.Elts) == 0 {
				return true
			}
			name, ok := made.Type.(*ast.Ident)
			text, isText := made.Elts[0].(*ast.BasicLit)
			if ok && isText && name.Name == "Error" && text.Kind == token.STRING {
				if code, err := strconv.Unquote(text.Value); err == nil {
					codes[code] = true
				}
			}
			return true
		})
	}
	return codes
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
