// Package tlsfiles reads the files that settings name. It keeps the certificates, keys and authorities of some PEM files, or the passwords
// of another, and takes new ones on when the files change, without a restart.
package tlsfiles

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/inforce"
)

// every is how often the files are looked at. They are compared by what is in them: modification times and watches
// both miss some of the ways in which files are replaced, such as Kubernetes' exchange of a symlink two folders up.
const every = time.Second

// Names says which files there are; all of them are optional.
type Names struct {
	Certs, Keys []string // pairs: the key of Certs[i] is in Keys[i]; a certificate's chain follows it in its file
	CA          string   // a bundle of authorities
	Password    string   // one line; a file of its own kind, not with the others
	Least       int      // bytes that the password must have
	Users       string   // a user and its password on each line; a file of its own kind, too
}

// Files holds what was last found good. Any goroutine may use it.
type Files struct {
	names Names
	log   *slog.Logger
	// Told is called with what has become of files that have changed: they are taken on, or why not; nil: nobody asks.
	Told func(what string)
	now  atomic.Pointer[Material]
	// trouble is why what the files hold by now cannot be used; nil: it is what Now returns
	trouble atomic.Pointer[error]

	mu      sync.Mutex // one look at a time; guards all below
	used    digest     // of what now holds
	seen    digest     // found by the last look
	refused digest     // found bad, and said so: see trouble
}

type digest [sha256.Size]byte

// Open reads the files for the first time. Its error names the file at fault.
func Open(n Names, log *slog.Logger) (*Files, error) {
	f := &Files{names: n, log: log}
	contents, sum, err := n.read()
	if err != nil {
		return nil, err
	}
	m, err := n.parse(contents)
	if err != nil {
		return nil, err
	}
	f.used, f.seen = sum, sum
	f.now.Store(m)
	f.warnOfEnds(m, time.Now())
	return f, nil
}

// Now is what the files held when they were last good.
func (f *Files) Now() *Material { return f.now.Load() }

// Password is what that file held when it was last good.
func (f *Files) Password() string { return f.Now().Password }

// Watch looks at the files from time to time, until ctx ends.
func (f *Files) Watch(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = f.takeNew(false) // the log says it
		case <-ctx.Done():
			return
		}
	}
}

// Look takes on what is new at once. taken names the files if there was something; the error says why the old stays.
func (f *Files) Look() (taken []string, err error) {
	if news, err := f.takeNew(true); !news {
		return nil, err
	}
	return f.names.all(), nil
}

// takeNew takes on what is new. A file may be half written, or one of a pair only: unless atOnce, what is new must be
// found the same twice, and whatever does not fit together leaves the old in place.
func (f *Files) takeNew(atOnce bool) (taken bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	contents, sum, err := f.names.read()
	settled := sum == f.seen
	f.seen = sum
	switch {
	case sum == f.used:
		f.refused = digest{}
		f.trouble.Store(nil)
		return false, nil
	case sum == f.refused:
		return false, *f.trouble.Load()
	case !settled && !atOnce:
		return false, nil
	}
	var m *Material
	if err == nil {
		m, err = f.names.parse(contents)
	}
	if err != nil {
		f.log.Warn(f.names.what()+" have changed but cannot be used, the old ones stay", "error", err)
		err = fmt.Errorf("%s have changed but cannot be used: %w", f.names.what(), err)
		f.refused = sum
		f.trouble.Store(&err)
		f.callTold(err.Error())
		return false, err
	}
	f.used, f.refused = sum, digest{}
	f.trouble.Store(nil)
	f.now.Store(m)
	f.warnOfEnds(m, time.Now())
	f.log.Info(f.names.what()+" reloaded", "files", f.names.all())
	f.callTold(strings.Join(f.names.all(), ", "))
	return true, nil
}

func (f *Files) callTold(what string) {
	if f.Told != nil {
		f.Told(what)
	}
}

// soon is how long before the end of a certificate it is warned of.
const soon = 7 * 24 * time.Hour

// warnOfEnds warns of certificates that have expired or will soon: they are served, and clients that check them stay away.
func (f *Files) warnOfEnds(m *Material, now time.Time) {
	for file, end := range m.Ends {
		if now.After(end) {
			f.log.Warn("a certificate has expired", "file", file, "end", end)
		} else if now.Add(soon).After(end) {
			f.log.Warn("a certificate expires soon", "file", file, "end", end)
		}
	}
}

// Held are what is shown of the files, but for keys.
func (f *Files) Held() (all []inforce.File) {
	m := f.Now()
	for _, name := range f.names.all() {
		if slices.Contains(f.names.Keys, name) {
			continue
		}
		one := inforce.File{Name: name, Holds: f.names.what(), Since: m.Since}
		if end, has := m.Ends[name]; has {
			one.Ends = &end
		}
		if err := f.trouble.Load(); err != nil {
			one.Trouble = (*err).Error()
		}
		all = append(all, one)
	}
	return all
}

// read returns the contents of all files, certificates first, then keys, then the CA. An error has a digest as well.
func (n Names) read() (contents [][]byte, sum digest, err error) {
	hash := sha256.New()
	for _, name := range n.all() {
		b, err := Read(name)
		if err != nil {
			return nil, sha256.Sum256([]byte("error: " + err.Error())), err
		}
		fmt.Fprintf(hash, "%d:", len(b))
		hash.Write(b)
		contents = append(contents, b)
	}
	hash.Sum(sum[:0])
	return contents, sum, nil
}

func (n Names) all() []string {
	all := append(append([]string(nil), n.Certs...), n.Keys...)
	for _, name := range []string{n.CA, n.Password, n.Users} {
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}

func (n Names) what() string {
	if n.Password+n.Users != "" {
		return "passwords"
	}
	return "certificates"
}
