package arch

import (
	"encoding/csv"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	claimEnd  = regexp.MustCompile(`\(([^()]*)\)$`)
	testNamed = regexp.MustCompile(`^(Test\w+)(?: in ([\w/]+))?$`)
)

// claims are the bullets of a page, with the lines of each joined.
func claims(text string) (all []string) {
	open := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "- "):
			all, open = append(all, line), true
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|"):
			open = false
		case open:
			all[len(all)-1] += " " + strings.TrimSpace(line)
		}
	}
	return all
}

// testsIn names every test, with the packages that have one of that name.
func testsIn(files []source) map[string][]string {
	all := map[string][]string{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				all[fn.Name.Name] = append(all[fn.Name.Name], f.pkg)
			}
		}
	}
	return all
}

// unshown says what is wrong with a page of which each bullet is to end with the tests that show it: (TestA, TestB in
// internal/lock).
func unshown(text string, tests map[string][]string) (faults []string) {
	for _, claim := range claims(text) {
		end := claimEnd.FindStringSubmatch(claim)
		if end == nil {
			faults = append(faults, fmt.Sprintf("no test is named at the end of %q", claim))
			continue
		}
		for name := range strings.SplitSeq(strings.ReplaceAll(end[1], "`", ""), ", ") {
			named := testNamed.FindStringSubmatch(name)
			if named == nil {
				faults = append(faults, fmt.Sprintf("%q is no test, in %q", name, claim))
				continue
			}
			in := slices.DeleteFunc(slices.Clone(tests[named[1]]), func(pkg string) bool {
				return named[2] != "" && pkg != named[2] && !strings.HasPrefix(pkg, named[2]+"/")
			})
			switch len(in) {
			case 0:
				faults = append(faults, fmt.Sprintf("there is no %s, named in %q", name, claim))
			case 1:
			default:
				faults = append(faults, fmt.Sprintf("%s is in %v: say which, in %q", name, in, claim))
			}
		}
	}
	return faults
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// promise is the beginning of a bullet, by which docs/shown.csv knows it.
var promise = regexp.MustCompile(`(?m)^- \*\*(.+?)[.,]?\*\*`)

// TestPromisesAreShown: docs/shown.csv names tests for each promise of GUARANTEES.md, and for each thing that SECURITY.md
// says somebody may try. The promises are few enough to be read.
func TestPromisesAreShown(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "docs", "shown.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	tests, shown := testsIn(readHouse(t)), map[string][]string{}
	for _, row := range rows[1:] {
		shown[row[0]] = append(shown[row[0]], row[1])
		for _, fault := range unshown("- "+row[1]+" ("+row[2]+")\n", tests) {
			t.Error(fault)
		}
	}
	for _, name := range []string{"GUARANTEES", "SECURITY"} {
		page := readPage(t, name+".md")
		if len(page) > 12<<10 {
			t.Errorf("%s.md has %d bytes, more than anybody reads", name, len(page))
		}
		var promises []string
		for _, claim := range claims(page) {
			if words := promise.FindStringSubmatch(claim); words == nil {
				t.Errorf("%q does not begin with words by which shown.csv knows it", claim)
			} else {
				promises = append(promises, words[1])
			}
		}
		if len(promises) < 25 || !slices.Equal(promises, shown[name]) {
			t.Errorf("%s.md promises %q, and shown.csv has %q", name, promises, shown[name])
		}
	}
}

// The rule, seen to fail.
func TestUnshown(t *testing.T) {
	tests := map[string][]string{"TestOne": {"a"}, "TestTwo": {"a", "b/c"}}
	for text, want := range map[string]string{
		"# Title\n\nText.\n\n- It holds\n  in two lines. (TestOne, TestTwo in b)\n- It holds. (`TestOne in a`)\n": "",
		"- It holds.\n":                                             "no test",
		"- It holds. (TestOne) Or not.\n":                           "no test",
		"- It holds. (TestThree)\n":                                 "there is no TestThree",
		"- It holds. (TestOne in b)\n":                              "there is no TestOne in b",
		"- It holds. (TestTwo)\n":                                   "say which",
		"- It holds. (always)\n":                                    "is no test",
		"- It holds. (TestOne)\n- And so\ndoes this.\n":             "no test",
		"- It holds. (TestOne)\n\n1. x\n\n- (TestOne TestTwo in a)": "is no test",
	} {
		faults := unshown(text, tests)
		if want == "" && len(faults) > 0 || want != "" && (len(faults) != 1 || !strings.Contains(faults[0], want)) {
			t.Errorf("%q: %q, want %q", text, faults, want)
		}
	}
}
