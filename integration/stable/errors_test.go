package stable

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands"
)

var (
	errorCode = regexp.MustCompile(`^[A-Z]{3,}$`)
	errorLine = regexp.MustCompile(`^-?([A-Z]{3,}) [a-z'%]`)
)

// product are the folders of what answers clients.
var product = []string{"cluster", "cmd", "commands", "internal", "proto", "upstream"}

// beside are folders in there that answer no client.
var beside = []string{"testredis", "simulation", "history", "arch", "program", "held", "embedded", "config", "runlock", "top"}

// literals are the strings in the product's code, and those that are the codes of the lock engine's errors.
func literals(t *testing.T) (texts, codes []string) {
	t.Helper()
	for _, folder := range product {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains(beside, entry.Name()):
				return fs.SkipDir
			case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if text, is := literal(n); is {
					texts = append(texts, text)
				}
				if code, is := literal(codeOf(n)); is {
					codes = append(codes, code)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts, codes
}

func literal(n ast.Node) (text string, is bool) {
	lit, is := n.(*ast.BasicLit)
	if !is || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// codeOf is where an error's code stands: in Error{Code: …} and about(key, code, text); nil: no error is made there.
func codeOf(n ast.Node) ast.Node {
	switch made := n.(type) {
	case *ast.KeyValueExpr:
		if key, is := made.Key.(*ast.Ident); is && key.Name == "Code" {
			return made.Value
		}
	case *ast.CallExpr:
		if by, is := made.Fun.(*ast.Ident); is && by.Name == "about" && len(made.Args) == 3 {
			return made.Args[1]
		}
	}
	return nil
}

// TestErrorCodes: the first words of all errors that lockproxy itself answers.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	noCode := map[string]bool{"YAML": true} // words with which a sentence may begin
	for _, row := range commands.Rows() {
		noCode[strings.ToUpper(row.Name)] = true
		if verb := commands.Lookup([]byte(row.Name)); verb != nil {
			for _, option := range verb.Options {
				noCode[option.Keyword] = true
			}
		}
	}
	texts, coded := literals(t)
	codes := map[string]bool{}
	for _, code := range coded {
		codes[code] = errorCode.MatchString(code)
	}
	for _, text := range texts {
		if found := errorLine.FindStringSubmatch(text); found != nil && !noCode[found[1]] {
			codes[found[1]] = true
		}
	}
	hold(t, "errors", slices.Sorted(maps.Keys(codes)))
}
