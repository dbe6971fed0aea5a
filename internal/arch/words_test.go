package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// whoever is a sentence that begins with "Who" and is no question: its subject is to come first, and to be a noun.
var whoever = regexp.MustCompile("(?:^|[.:;!] |[*]{2} |[|] |- )Who [a-z][^.?|]*(?:[.|]|$)")

// TestSubjectsOfSentences: no sentence of the documentation begins with "Who" for "whoever".
func TestSubjectsOfSentences(t *testing.T) {
	house, pages := os.DirFS(filepath.Join("..", "..")), 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "clients/*/README.md", "integration/*/README.md"} {
		some, err := fs.Glob(house, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range some {
			pages++
			text, err := fs.ReadFile(house, page)
			if err != nil {
				t.Fatal(err)
			}
			for paragraph := range strings.SplitSeq(string(text), "\n\n") {
				for line := range strings.SplitSeq(strings.ReplaceAll(paragraph, "\n  ", " "), "\n") {
					if found := whoever.FindString(line); found != "" {
						t.Errorf("%s: %q", page, found)
					}
				}
			}
		}
	}
	if pages < 40 {
		t.Errorf("%d pages were read", pages)
	}
	for text, wrong := range map[string]bool{
		"Who asks, waits.": true, "- Who waits is told.": true, "A client waits. Who asks is told.": true,
		"Who waits?": false, "| who waits |": false, "Those who wait are told.": false,
	} {
		if whoever.MatchString(text) != wrong {
			t.Errorf("%q: %v", text, !wrong)
		}
	}
}
