package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Block is a piece of code that a page of the documentation shows.
type Block struct {
	Heading  string // that it stands under
	Language string
	Code     string
}

// Blocks are the pieces of code of docs/RECIPES.md that are in one of the languages. Each of them has a test: what the page says is what
// runs.
func Blocks(t testing.TB, languages ...string) (blocks []Block) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "RECIPES.md"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := " " + strings.Join(languages, " ") + " "
	heading, block := "", (*Block)(nil)
	for line := range strings.Lines(string(text)) {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && block == nil:
			block = &Block{Heading: heading, Language: strings.TrimSpace(fence)}
		case isFence:
			if strings.Contains(wanted, " "+block.Language+" ") {
				blocks = append(blocks, *block)
			}
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
		t.Fatalf("%s, in %s: it names no address", b.Heading, b.Language)
	}
	return code
}
