package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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

// textsIn are the strings of the code, each concatenation as one, with … for what is known only when it is made.
func textsIn(files []source) string {
	var all strings.Builder
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			e, is := n.(ast.Expr)
			if !is {
				return true
			}
			switch e := e.(type) {
			case *ast.BinaryExpr:
				if e.Op == token.ADD {
					all.WriteString(messageOf(e) + "\n")
				}
			case *ast.BasicLit:
				if e.Kind == token.STRING {
					all.WriteString(messageOf(e) + "\n")
				}
			}
			return true
		})
	}
	return all.String()
}

// errorRow is a row of docs/ERRORS.md, with the errors that it is about.
var errorRow = regexp.MustCompile(`(?m)^\| (.+?) \| .*\|$`)

// quoted is what stands between backticks.
var quoted = regexp.MustCompile("`([^`]+)`")

// varies is what the code puts into the text of an error, as the page has it: numbers, a command, what there is too much of.
var varies = regexp.MustCompile(`…|\d+|\b(?:NOPERM|WAIT|BLPOP|clients|Client names|commands a second|waiting locks|near)\b`)

// TestDocumentedErrorsAreMade: what docs/ERRORS.md says of errors, some code says: each part of one between what varies.
func TestDocumentedErrorsAreMade(t *testing.T) {
	texts, n := textsIn(readHouse(t)), 0
	for _, row := range errorRow.FindAllStringSubmatch(readPage(t, "ERRORS.md"), -1) {
		told, _, _ := strings.Cut(row[1], " in answer to ")
		for _, e := range quoted.FindAllStringSubmatch(told, -1) {
			n++
			text := strings.TrimPrefix(e[1], "ERR ")
			for _, part := range varies.Split(text, -1) {
				if part = strings.Trim(part, " '"); part != "" && !strings.Contains(texts, part) {
					t.Errorf("no code says %q of %q", part, e[1])
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("%d errors were found", n)
	}
}
