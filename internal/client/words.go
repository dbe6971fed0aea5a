package client

import (
	"bytes"
	"strconv"
	"strings"
)

// wordsIn returns the words of a command of which call is the beginning; "..." stands for what is missing.
func wordsIn(call string) (words [][]byte) {
	if !strings.HasPrefix(call, "*") {
		return bytes.Fields([]byte(call))
	}
	head, rest, _ := strings.Cut(call, "\r\n")
	for n, _ := strconv.Atoi(head[1:]); n > 0; n-- {
		head, word, whole := strings.Cut(rest, "\r\n")
		if !whole {
			return append(words, []byte("..."))
		}
		size, _ := strconv.Atoi(strings.TrimPrefix(head, "$"))
		if size < 0 || size > len(word) {
			return append(words, []byte(word+"..."))
		}
		words, rest = append(words, []byte(word[:size])), strings.TrimPrefix(word[size:], "\r\n")
	}
	return words
}
