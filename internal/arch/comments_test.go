package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

// A comment on a declaration that begins with a name begins with the declared one: others are names of things that are no
// more, or of what stood there before.
func TestCommentsBeginWithTheName(t *testing.T) {
	for _, fault := range misnamed(readHouse(t)) {
		t.Error(fault)
	}
}

// lowerCase are words that begin sentences so, and are no names of Go's.
var lowerCase = []string{"lockproxy", "systemd", "rueidis", "redcon", "BullMQ"}

func misnamed(files []source) (faults []string) {
	for _, f := range files {
		for _, decl := range f.ast.Decls {
			for _, d := range documented(decl) {
				first, _, _ := strings.Cut(strings.TrimLeft(d.doc.Text(), "[("), " ")
				first = strings.TrimRight(strings.TrimSpace(first), ",:;.]()")
				first = strings.TrimSuffix(first, "'s")
				if looksDeclared(first) && !slices.Contains(d.names, first) && !slices.Contains(lowerCase, first) {
					faults = append(faults, fmt.Sprintf("%s: the comment of %s begins with %s", f.at(d.doc.Pos()), strings.Join(d.names, ", "), first))
				}
			}
		}
	}
	return faults
}

// looksDeclared says that a word is no English one: it begins in lower case, although a sentence begins with it, or has a
// capital within.
func looksDeclared(word string) bool {
	capitals := strings.IndexFunc(strings.TrimLeftFunc(word, unicode.IsUpper), unicode.IsUpper)
	for i, r := range word {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' || i == 0 && !unicode.IsLetter(r) {
			return false
		}
	}
	return word != "" && (unicode.IsLower(rune(word[0])) || capitals > 0)
}

// doc is a comment, and the names of what it is about.
type doc struct {
	doc   *ast.CommentGroup
	names []string
}

func documented(decl ast.Decl) (all []doc) {
	add := func(of *ast.CommentGroup, names ...string) {
		if of != nil {
			all = append(all, doc{of, names})
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		add(d.Doc, d.Name.Name)
	case *ast.GenDecl:
		var every []string
		for _, spec := range d.Specs {
			var names []string
			var of *ast.CommentGroup
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names, of = []string{s.Name.Name}, s.Doc
			case *ast.ValueSpec:
				of = s.Doc
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
			every = append(every, names...)
			add(of, names...)
		}
		add(d.Doc, every...)
	}
	return all
}

func TestMisnamed(t *testing.T) {
	for doc, want := range map[string]int{
		"Does it.": 0, "f does it.": 0, "f, g: they do it.": 0, "[f] does it.": 0, "f's way.": 0, "g does it.": 1, "doIt does it.": 1, "DoIt does it.": 1, "TTL is one.": 0,
		"lockproxy does it.": 0,
	} {
		files, err := readModule(fstest.MapFS{"a/a.go": {Data: []byte("package a\n\n// " + doc + "\nfunc f() {}\n")}})
		if err != nil {
			t.Fatal(err)
		}
		if got := misnamed(files); len(got) != want {
			t.Errorf("%q: %q", doc, got)
		}
	}
}
