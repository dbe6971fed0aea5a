package testredis

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// alarms begin what a report shows at once: a process that says one of them has a bug.
var alarms = [][]byte{[]byte("WARNING: DATA RACE"), []byte("panic: "), []byte("fatal error: "), []byte("=== REDIS BUG REPORT START")}

const alarmLength = 4 << 10 // bytes of a log that are shown from an alarm on

// Report keeps the log of a failed test's process, which is in a folder that ends with the test, and names the
// place where it is kept. Of a log with a race or a panic the beginning of that is shown, too.
func Report(t testing.TB, name, path string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Logf("%s: its log cannot be read: %v", name, err)
		return
	}
	folder := filepath.Join(os.TempDir(), "lockproxy-logs", strings.Map(fileName, t.Name()))
	kept := filepath.Join(folder, strings.Map(fileName, name)+".log")
	if err = os.MkdirAll(folder, 0o755); err == nil {
		err = os.WriteFile(kept, text, 0o644)
	}
	where := kept
	if err != nil {
		where = fmt.Sprintf("lost, %v", err)
	}
	for _, alarm := range alarms {
		if i := bytes.Index(text, alarm); i >= 0 {
			t.Logf("%s: its log is %s, with\n%s", name, where, text[i:min(len(text), i+alarmLength)])
			return
		}
	}
	t.Logf("%s: its log is %s", name, where)
}

// fileName has only letters that every shell and file system takes as they are.
func fileName(r rune) rune {
	if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
		return r
	}
	return '_'
}
