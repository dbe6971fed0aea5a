package tlsfiles

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Most is how many bytes a file may have.
const Most = 1 << 20

var (
	errNotRegular = errors.New("is not a regular file")
	errLong       = errors.New("is longer than 1 MiB")
)

// Read returns what a regular file holds. Anything else is an error: a pipe might never answer, and a device might never end.
func Read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without O_NONBLOCK, to open a pipe takes until somebody writes to it
	if err != nil {
		return nil, err
	}
	defer f.Close()
	about, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !about.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: errNotRegular}
	}
	b, err := io.ReadAll(io.LimitReader(f, Most+1)) // it may grow meanwhile
	if err == nil && len(b) > Most {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errLong}
	}
	return b, err
}
