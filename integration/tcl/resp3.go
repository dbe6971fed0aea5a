package main

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

//go:embed hello3.tcl
var hello3 string

// opened is where the suite's client has opened a connection.
var opened = regexp.MustCompile(`(?m)^(\s*)fconfigure (\$fd|\$::\w+::fd\(\$id\)) -translation binary$`)

// forceRESP3 changes the copy of the suite in dir so that each of its connections
// begins with HELLO 3.
func forceRESP3(dir string) error {
	for _, name := range []string{"redis.tcl", "valkey.tcl"} {
		file := filepath.Join(dir, "tests", "support", name)
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		// One at first, one at reconnecting.
		if len(opened.FindAll(text, -1)) != 2 {
			return errors.New(name + " of this suite opens connections in another way: RESP3 cannot be forced")
		}
		text = opened.ReplaceAll(text, []byte("$0\n${1}lockproxy_hello3 $2"))
		return os.WriteFile(file, append([]byte(hello3), text...), 0o644)
	}
	return errors.New("the suite has no client: RESP3 cannot be forced")
}
