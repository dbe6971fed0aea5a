package client

import (
	"bytes"
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// wordsIn returns the words of a command of which call is the beginning; "..." stands for what is missing.
func wordsIn(call string) (words [][]byte) {
	if !strings.HasPrefix(call, "*") {
		return bytes.Fields([]byte(call))
	}
	command, rest, _ := resp.Next([]byte(call))
	for range command.N {
		word, behind, ok := resp.Next(rest)
		switch {
		case !ok:
			return append(words, []byte("..."))
		case len(word.Text) < word.N:
			return append(words, append(word.Text, "..."...))
		}
		words, rest = append(words, word.Text), behind
	}
	return words
}
