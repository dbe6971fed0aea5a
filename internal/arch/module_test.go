package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/lockproxy/lockproxy"

// source is one Go file, of any operating system.
type source struct {
	pkg       string // its folder
	path      string
	lines     int
	tokens    int // without comments and the semicolons that the scanner puts in itself
	test      bool
	generated bool
	fset      *token.FileSet
	ast       *ast.File
}

// readModule parses every Go file below fsys. It reads them itself rather than
// asking `go list`: go test sees which files a test opened, and so does not
// answer from its cache after one has changed.
func readModule(fsys fs.FS) ([]source, error) {
	var files []source
	fset := token.NewFileSet() // one of all, as go/types wants it
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || p == "clients") { // clients has modules of its own
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(fset, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, source{
			pkg: path.Dir(p), path: p, lines: bytes.Count(text, []byte("\n")), tokens: countTokens(text), fset: fset, ast: tree,
			test: strings.HasSuffix(name, "_test.go"), generated: ast.IsGenerated(tree),
		})
		return nil
	})
	return files, err
}

// countTokens is how many words and signs of Go there are in a file.
func countTokens(text []byte) (n int) {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", -1, len(text)), text, nil, 0)
	for {
		switch _, kind, written := s.Scan(); {
		case kind == token.EOF:
			return n
		case kind != token.SEMICOLON || written == ";":
			n++
		}
	}
}

// packages lists the folders with Go files in them, sorted.
func packages(files []source) []string {
	var names []string
	for _, f := range files {
		names = append(names, f.pkg)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// at is file:line of a place in f.
func (f source) at(pos token.Pos) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(pos).Line)
}

// imported is the path of an import spec.
func imported(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic(err) // the parser has accepted it
	}
	return p
}
