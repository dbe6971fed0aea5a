package testredis

import (
	"os"
	"path/filepath"
	"testing"
)

// A disk is full, and has room again.
func TestDisk(t *testing.T) {
	d, err := NewDisk(t, 1<<20)
	if err != nil {
		t.Skip(err)
	}
	write := func() error { return os.WriteFile(filepath.Join(d.Dir, "file"), []byte("text"), 0o600) }
	free, err := d.Fill()
	if err != nil {
		t.Fatal(err)
	}
	if write() == nil {
		t.Error("there was room")
	}
	free()
	if err := write(); err != nil {
		t.Error(err)
	}
}
