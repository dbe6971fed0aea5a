package testredis

import (
	"os"
	"path/filepath"
	"testing"
)

// Disk is a file system with little room, which ends with the test.
type Disk struct{ Dir string }

// NewDisk makes one of so many bytes. The error says why there can be none here: it wants Linux and root.
func NewDisk(t testing.TB, bytes int) (*Disk, error) {
	t.Helper()
	d := &Disk{t.TempDir()}
	if err := mount(d.Dir, bytes); err != nil {
		return nil, err
	}
	t.Cleanup(func() { unmount(d.Dir) })
	return d, nil
}

// Fill takes all room that is left. The function it returns gives it back.
func (d *Disk) Fill() (free func(), err error) {
	ballast := filepath.Join(d.Dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for full := error(nil); full == nil; {
		_, full = f.Write(make([]byte, 4<<10))
	}
	return func() { _ = os.Remove(ballast) }, nil
}
