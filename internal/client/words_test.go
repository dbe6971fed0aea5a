package client

import (
	"bytes"
	"testing"
)

// What is kept of a command tells its words, as far as they go.
func TestWordsOfTheBeginning(t *testing.T) {
	for call, want := range map[string]string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n":         "GET k",
		"GET  k\r\n":                             "GET k",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\nab": "SET k ab...",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9":       "SET k ...",
		"*3\r\n$3\r\nSET\r\n$1\r\nk":             "SET k ...",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n":         "SET k ...",
		"*1000000\r\n$3\r\nDEL\r\n":              "DEL ...",
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n":          "GET ",
		"*":                                      "",
	} {
		if got := string(bytes.Join(wordsIn(call), []byte(" "))); got != want {
			t.Errorf("%q: %q, want %q", call, got, want)
		}
	}
}
