package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	// linked is where a Markdown link leads.
	linked = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// named is a path of ours in prose, in a table or in a command; * stands for any name.
	named = regexp.MustCompile(`(?:^|[^\w./~-])((?:bench|cluster|cmd|commands|docs|integration|internal|proto|scripts|upstream)/[\w./*-]*[\w*])`)
	// words is a row of the glossary: a word, its meaning, and a file in which it is found.
	words = regexp.MustCompile("(?m)^\\| ([^|]+) \\| [^|]+ \\| `([^`|]+)` \\|$")
	// direct is a module that go.mod requires for our own sake, or a tool.
	direct   = regexp.MustCompile(`(?m)^(?:\t(\S+) v\S+|tool (\S+))$`)
	unlinked = regexp.MustCompile("[^a-z0-9 _-]")
	// inCode is a page that a comment, a message, a chart or a rule names (docs/adr/0006 is enough), with its heading
	// if one is named.
	inCode = regexp.MustCompile(`\b(docs/adr/\d{4}|(?:docs|integration|internal)/[\w./-]+\.md)(#[\w-]+)?`)
	// code is how the names of files end in which pages are named.
	code = regexp.MustCompile(`(?:\.(?:go|lua|ya?ml|json|tpl|sh|py|m?js|java|conf|service|socket)|Makefile|Dockerfile)$`)
)

// isPage says which files are documentation for people. Redis' own suite has units with names like our folders'.
func isPage(name string) bool {
	inDocs := strings.HasPrefix(name, "docs/") && name != "docs/SUITES.md"
	return inDocs || path.Base(name) == "README.md" || name == "CONTRIBUTING.md" || name == "CHANGELOG.md"
}

// anchors are what links to headings of a page may name, as they are made on GitHub.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if heading, yes := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); yes && line[0] == '#' {
			heading = unlinked.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all[strings.ReplaceAll(heading, " ", "-")] = true
		}
	}
	return all
}

// headingNotThere says that a page has no heading of that name; "": it has.
func headingNotThere(house fs.FS, page, anchor string) string {
	if target, err := fs.ReadFile(house, page); err != nil || !anchors(string(target))[anchor] {
		return "a heading that is not there"
	}
	return ""
}

// brokenLinks says which links of a page lead to no file, or to no heading of it.
func brokenLinks(house fs.FS, page, text string) (faults []string) {
	for _, link := range linked.FindAllStringSubmatch(text, -1) {
		to, anchor, _ := strings.Cut(link[1], "#")
		if strings.Contains(to, "://") {
			continue
		}
		if to = path.Join(path.Dir(page), to); link[1][0] == '#' {
			to = page
		}
		there, err := fs.Stat(house, to)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s links to %s, which is not there", page, link[1]))
		} else if anchor != "" && !there.IsDir() {
			if fault := headingNotThere(house, to, anchor); fault != "" {
				faults = append(faults, fmt.Sprintf("%s links to %s, %s", page, link[1], fault))
			}
		}
	}
	return faults
}

// brokenInCode says which pages, or headings of them, a file names that are not there.
func brokenInCode(house fs.FS, file, text string) (faults []string) {
	for _, named := range inCode.FindAllStringSubmatch(text, -1) {
		if all, err := fs.Glob(house, named[1]+"*"); err != nil || len(all) == 0 {
			faults = append(faults, fmt.Sprintf("%s names %s, which is not there", file, named[1]))
		} else if named[2] != "" {
			if fault := headingNotThere(house, named[1], named[2][1:]); fault != "" {
				faults = append(faults, fmt.Sprintf("%s names %s%s, %s", file, named[1], named[2], fault))
			}
		}
	}
	return faults
}

// leadsNowhere says what is wrong with the links and paths of a page.
func leadsNowhere(house fs.FS, page, text string) (faults []string) {
	faults = brokenLinks(house, page, text)
	for _, name := range named.FindAllStringSubmatch(linked.ReplaceAllString(text, ""), -1) {
		all, err := fs.Glob(house, name[1])
		if len(all) == 0 && err == nil && path.Ext(name[1]) == "" { // docs/adr/0006 is enough
			all, err = fs.Glob(house, name[1]+"-*.md")
		}
		if len(all) == 0 || err != nil {
			faults = append(faults, fmt.Sprintf("%s names %s, which is not there", page, name[1]))
		}
	}
	return faults
}

// spelt is a text without what words may be joined by.
func spelt(text string) string {
	return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(text))
}

// unused says which words of the glossary are not in the files that it names for them.
func unused(house fs.FS, text string) (faults []string, n int) {
	for _, row := range words.FindAllStringSubmatch(text, -1) {
		n++
		if file, err := fs.ReadFile(house, row[2]); err != nil || !strings.Contains(spelt(string(file)), spelt(row[1])) {
			faults = append(faults, fmt.Sprintf("%q is not in %s", row[1], row[2]))
		}
	}
	return faults, n
}

// TestPathsInPages: what README, CONTRIBUTING and docs link to or name is there.
func TestPathsInPages(t *testing.T) {
	root := filepath.Join("..", "..")
	house, pages := os.DirFS(root), 0
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "integration/*/README.md", "internal/simulation/README.md"} {
		some, err := fs.Glob(house, pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
	for _, page := range all {
		if !isPage(page) {
			continue
		}
		pages++
		text, err := fs.ReadFile(house, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range leadsNowhere(house, page, string(text)) {
			t.Error(fault)
		}
	}
	if pages < 15 {
		t.Errorf("%d pages were found", pages)
	}
}

// TestLinks: every link in the project's Markdown leads to a file and a heading that are there, and so does every page
// that code, the chart, the alerts and other files name.
func TestLinks(t *testing.T) {
	house, pages, files := os.DirFS(filepath.Join("..", "..")), 0, 0
	err := fs.WalkDir(house, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(name); len(base) > 1 && base[0] == '.' && base != ".ci" ||
				slices.Contains([]string{"node_modules", "testdata", "dist", "bin", "soak", "flakes", "target"}, base) {
				return fs.SkipDir
			}
			return nil
		}
		isMarkdown := path.Ext(name) == ".md"
		isCode := code.MatchString(name) || path.Dir(name) == ".ci"
		if !isMarkdown && !isCode || name == "internal/arch/paths_test.go" {
			return nil
		}
		text, err := fs.ReadFile(house, name)
		if err != nil {
			return err
		}
		broken := brokenInCode
		if isMarkdown {
			broken, pages = brokenLinks, pages+1
		} else {
			files++
		}
		for _, fault := range broken(house, name, string(text)) {
			t.Error(fault)
		}
		return nil
	})
	if err != nil || pages < 40 || files < 300 {
		t.Errorf("%d pages and %d other files were read, %v", pages, files, err)
	}
}

// TestReadme: the first page is one that people read to its end.
func TestReadme(t *testing.T) {
	const longest = 150
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n < 50 || n > longest {
		t.Errorf("README.md has %d lines, at most %d", n, longest)
	}
}

// unexplained are the modules that go.mod requires directly, or has tools of, without a comment in the line above that says
// why, and how many there are in all.
func unexplained(goMod string) (modules []string, n int) {
	lines := strings.Split(goMod, "\n")
	for i, line := range lines {
		if found := direct.FindStringSubmatch(line); found != nil {
			if n++; i == 0 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "// ") {
				modules = append(modules, found[1]+found[2])
			}
		}
	}
	return modules, n
}

// TestDependencies: each has a sentence that says why it is there.
func TestDependencies(t *testing.T) {
	goMod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	modules, n := unexplained(string(goMod))
	if len(modules) > 0 {
		t.Errorf("go.mod does not say why these are there: %q", modules)
	}
	if n < 20 {
		t.Errorf("go.mod requires %d modules", n)
	}
	modules, n = unexplained("// so\ntool a.org/t/cmd/x\nrequire (\n\t// so\n\ta.org/b v1\n\ta.org/b/c v1\n\ta.org/d v1 // indirect\n\ta.org/e v1\n)\n")
	if n != 4 || !slices.Equal(modules, []string{"a.org/b/c", "a.org/e"}) {
		t.Errorf("of %d modules %q are not explained", n, modules)
	}
}

// TestGlossary: its words are those of the code.
func TestGlossary(t *testing.T) {
	house := os.DirFS(filepath.Join("..", ".."))
	text, err := fs.ReadFile(house, "docs/GLOSSARY.md")
	if err != nil {
		t.Fatal(err)
	}
	faults, n := unused(house, string(text))
	for _, fault := range faults {
		t.Error(fault)
	}
	if n < 8 || n > 15 {
		t.Errorf("%d words were found: a newcomer can learn fifteen", n)
	}
}

// Both rules, seen to fail.
func TestLeadsNowhere(t *testing.T) {
	house := fstest.MapFS{
		"docs/A.md":           {Data: []byte("# A\n\n## Where do I change …?\n")},
		"docs/adr/0001-so.md": {}, "internal/lock/line.go": {Data: []byte("// a waiter's hand-off\n")},
	}
	for text, want := range map[string]string{
		"[a](A.md), [b](#a), `internal/lock/line.go` docs/adr/0001 internal/lock/l*.go internal/lock. [c](https://x.org/#y)": "",
		"[a](A.md#where-do-i-change-)":  "",
		"[a](B.md)":                     "links to B.md",
		"[a](A.md#b)":                   "a heading that is not there",
		"see internal/lock/lines.go.":   "names internal/lock/lines.go",
		"see docs/adr/0002":             "names docs/adr/0002",
		"/tmp/internal/x unit/internal": "",
	} {
		faults := leadsNowhere(house, "docs/A.md", "# A\n"+text)
		if want == "" && len(faults) > 0 || want != "" && (len(faults) != 1 || !strings.Contains(faults[0], want)) {
			t.Errorf("%q: %q, want %q", text, faults, want)
		}
	}
	for text, want := range map[string]string{
		"// docs/A.md says so, docs/A.md#where-do-i-change- too": "",
		"// docs/B.md":     "names docs/B.md",
		"see docs/A.md#b.": "a heading that is not there",
	} {
		faults := brokenInCode(house, "a.go", text)
		if want == "" && len(faults) > 0 || want != "" && (len(faults) != 1 || !strings.Contains(faults[0], want)) {
			t.Errorf("%q: %q, want %q", text, faults, want)
		}
	}
	faults, n := unused(house, "| hand-off | so | `internal/lock/line.go` |\n| leases | so | `internal/lock/line.go` |\n")
	if n != 2 || len(faults) != 1 || !strings.Contains(faults[0], "leases") {
		t.Errorf("%d words, %q", n, faults)
	}
}
