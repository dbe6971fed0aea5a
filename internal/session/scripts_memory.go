package session

import (
	"crypto/sha1"
	"encoding/hex"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

const (
	keptScripts = 4096      // bodies remembered
	keptBytes   = 16 << 20  // of them all
	longestBody = 256 << 10 // a longer one is not
	keptQuick   = 16384     // scripts known to be quick
)

// noScriptReply is how Redis begins to say that it does not have a script; a script may say so too.
const noScriptReply = "-NOSCRIPT "

// scriptMemory is what the proxy knows of the scripts that have passed through it, all clients' together, as Redis'
// own cache of them is.
type scriptMemory struct {
	seed  maphash.Seed
	quick *lru.Cache[scriptKey, struct{}]

	// loading is held while a script is loaded again, and by a SCRIPT FLUSH that is about to be sent: what was loaded
	// before it is gone with it, and nothing comes back behind it.
	loading sync.Mutex

	mu       sync.Mutex // guards all below; a leaf
	bodies   *simplelru.LRU[string, *scriptBody]
	bytes    int
	flushing int    // SCRIPT FLUSHes under way
	flushed  uint64 // changes at the last flush

	changes atomic.Uint64 // goes up, under mu, with every flush and every script loaded again
}

// scriptBody is a script by its SHA1.
type scriptBody struct {
	text string
	key  scriptKey // of the EVAL that brought it, 0: SCRIPT LOAD
	// again is changes when it was last loaded again by the proxy, by node. Guarded by loading.
	again map[string]uint64
}

func newScriptMemory() *scriptMemory {
	m := &scriptMemory{seed: maphash.MakeSeed()}
	m.quick, _ = lru.New[scriptKey, struct{}](keptQuick) // fails for sizes below 1 only
	m.bodies, _ = simplelru.NewLRU(keptScripts, m.evicted)
	return m
}

// evicted is told of every body that goes; mu is held. Its EVAL is looked at anew when it comes by again.
func (m *scriptMemory) evicted(_ string, b *scriptBody) {
	m.bytes -= len(b.text)
	m.quick.Remove(b.key)
}

// key stands for the script or function that a command names by text.
func (m *scriptMemory) key(kind commandtable.ScriptKind, text []byte) scriptKey {
	return scriptKey(maphash.Bytes(m.seed, text)<<2 | uint64(kind))
}

// isQuick does not count as use, so that it only takes a read lock: scripts are forgotten in the order they came.
func (m *scriptMemory) isQuick(k scriptKey) bool { return m.quick.Contains(k) }

func (m *scriptMemory) addQuick(k scriptKey) { m.quick.ContainsOrAdd(k, struct{}{}) }

// forgetQuick forgets all of keys.
func (m *scriptMemory) forgetQuick(keys []scriptKey) {
	for _, k := range keys {
		if k != 0 {
			m.quick.Remove(k)
		}
	}
}

// look says how often things have changed, for those who send something and want to know later what came between.
func (m *scriptMemory) look() uint64 { return m.changes.Load() }

// remember keeps a body Redis has taken, unless scripts have been flushed since seen.
func (m *scriptMemory) remember(body []byte, key scriptKey, seen uint64) {
	if len(body) > longestBody {
		return
	}
	sum := sha1.Sum(body)
	sha := hex.EncodeToString(sum[:])
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flushed > seen {
		return
	}
	if old, known := m.bodies.Get(sha); known {
		if key != 0 {
			old.key = key
		}
		return
	}
	m.bodies.Add(sha, &scriptBody{text: string(body), key: key})
	for m.bytes += len(body); m.bytes > keptBytes; {
		m.bodies.RemoveOldest()
	}
}

// body is the script of that SHA1, if it may be loaded again. One that speaks of NOSCRIPT itself never is: its reply
// may be its own words.
func (m *scriptMemory) body(sha string) (b scriptBody, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flushing > 0 {
		return b, false
	}
	known, ok := m.bodies.Get(sha)
	if !ok || strings.Contains(known.text, "NOSCRIPT") {
		return b, false
	}
	return *known, true
}

// loaded notes that a script has been loaded again.
func (m *scriptMemory) loaded(sha, where string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.bodies.Peek(sha); ok {
		if b.again == nil {
			b.again = make(map[string]uint64)
		}
		b.again[where] = m.changes.Add(1)
	}
}

// flushBegins is to be called before a SCRIPT FLUSH is sent, and flushEnds after its reply has been looked at. Nothing
// is loaded again between them.
func (m *scriptMemory) flushBegins() {
	m.loading.Lock()
	defer m.loading.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushing++
}

func (m *scriptMemory) flushEnds() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushing--
}

// clear forgets all: Redis has, or may have.
func (m *scriptMemory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushed = m.changes.Add(1)
	m.bodies.Purge()
	m.quick.Purge()
}
