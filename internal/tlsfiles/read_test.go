package tlsfiles

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever stands in the place of a file, there is an answer at once, and no more than a file is read.
func TestFileThatIsNone(t *testing.T) {
	dir := t.TempDir()
	pipe, huge, whole, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "huge"), filepath.Join(dir, "whole"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, whole, make([]byte, Most))
	write(t, huge, make([]byte, Most+1))
	if err := os.Symlink(whole, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "is not a regular file", "/dev/zero": "is not a regular file", dir: "is not a regular file",
		huge: "is longer than 1 MiB", filepath.Join(dir, "none"): "no such file", whole: "", link: "",
	} {
		answer := make(chan error, 1)
		go func() {
			b, err := Read(path)
			if err == nil && len(b) != Most {
				t.Errorf("%s: %d bytes", path, len(b))
			}
			answer <- err
		}()
		select {
		case err := <-answer:
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: no answer", path)
		}
	}
}

// A pipe that takes the place of a password file is refused, as often as it is asked for.
func TestPipeInPlaceOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	write(t, path, []byte("secret\n"))
	f, err := Open(Names{Password: path}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		answer := make(chan error, 1)
		go func() {
			_, err := f.Look()
			answer <- err
		}()
		select {
		case err := <-answer:
			if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
				t.Errorf("%v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no answer")
		}
	}
	if f.Password() != "secret" {
		t.Errorf("%q", f.Password())
	}
}
