package harness

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Block is a piece of code that a page of the documentation shows, or links to.
type Block struct {
	Name     string // the heading that it stands under, or the name of its file
	Language string
	Code     string
}

var (
	recipeFile = regexp.MustCompile(`\]\(\.\./(clients/recipes/[\w./-]+)\)`)
	languageOf = map[string]string{".go": "go", ".java": "java", ".mjs": "js", ".py": "python"}
)

// Blocks are the pieces of code of docs/RECIPES.md that are in one of the languages: those that it shows, and then the files that it links to.
// Each of them has a test: what the reader is given is what runs.
func Blocks(t testing.TB, languages ...string) (blocks []Block) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("docs/RECIPES.md")
	blocks = shown(page)
	for _, link := range recipeFile.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, Block{filepath.Base(link[1]), languageOf[filepath.Ext(link[1])], read(link[1])})
	}
	return slices.DeleteFunc(blocks, func(b Block) bool { return !slices.Contains(languages, b.Language) })
}

// shown are the pieces of code that stand in a page.
func shown(page string) (blocks []Block) {
	heading, block := "", (*Block)(nil)
	for line := range strings.Lines(page) {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && block == nil:
			block = &Block{Name: heading, Language: strings.TrimSpace(fence)}
		case isFence:
			blocks = append(blocks, *block)
			block = nil
		case block != nil:
			block.Code += line
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimSpace(line[3:])
		}
	}
	return blocks
}

// At is the code with other addresses than those that the page names: proxy for a lockproxy at localhost:6380, redis for a Redis at
// localhost:6379. Both are host:port.
func (b Block) At(t testing.TB, proxy, redis string) string {
	t.Helper()
	_, port, _ := strings.Cut(proxy, ":")
	code := strings.NewReplacer("localhost:6380", proxy, "port=6380", "port="+port, "localhost:6379", redis).Replace(b.Code)
	if code == b.Code {
		t.Fatalf("%s, in %s: it names no address", b.Name, b.Language)
	}
	return code
}
