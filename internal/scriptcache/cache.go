// Package scriptcache is what the proxy knows of its clients' scripts: which of them are quick, and so may share a connection, the
// bodies of those that Redis may have lost, and the connections that scripts run on.
package scriptcache

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

// Key stands for a script, or function, in the set of those known to be quick; 0 is none.
type Key uint64

// Cache is what the proxy knows of the scripts that have passed through it, all clients' together, as Redis' own cache of
// them is.
type Cache struct {
	seed  maphash.Seed
	quick *lru.Cache[Key, struct{}]

	// loading is held, for reading, while a script is loaded again, and by a SCRIPT FLUSH before it is sent: so the flush removes all that was
	// loaded before it, and nothing is loaded again behind it by mistake.
	loading sync.RWMutex

	mu       sync.Mutex // guards all below; a leaf
	bodies   *simplelru.LRU[string, *script]
	bytes    int
	flushing int    // SCRIPT FLUSHes under way
	flushed  uint64 // changes at the last flush
	nodes    map[string]*sync.Mutex

	changes atomic.Uint64 // goes up, under mu, with every flush and every script loaded again
}

// script is what is kept by its SHA1.
type script struct {
	text string
	key  Key // of the EVAL that brought it, 0: SCRIPT LOAD
	// again is changes when it was last loaded again by the proxy, by node. Guarded by mu.
	again map[string]uint64
}

// New returns an empty Cache.
func New() *Cache {
	c := &Cache{seed: maphash.MakeSeed(), nodes: map[string]*sync.Mutex{}}
	c.quick, _ = lru.New[Key, struct{}](keptQuick) // fails for sizes below 1 only
	c.bodies, _ = simplelru.NewLRU(keptScripts, c.evicted)
	return c
}

// evicted is called for every body that is dropped; mu is held. Its EVAL counts as new when it comes again.
func (c *Cache) evicted(_ string, b *script) {
	c.bytes -= len(b.text)
	c.quick.Remove(b.key)
}

// Key returns what stands for the script or function that a command names by text.
func (c *Cache) Key(kind commandtable.ScriptKind, text []byte) Key {
	return Key(maphash.Bytes(c.seed, text)<<2 | uint64(kind))
}

// IsQuick says that a script is known to be quick. It does not count as use, so a read lock is enough; scripts are forgotten in the order in which they came.
func (c *Cache) IsQuick(k Key) bool { return c.quick.Contains(k) }

// AddQuick notes that a script is quick.
func (c *Cache) AddQuick(k Key) { c.quick.ContainsOrAdd(k, struct{}{}) }

// ForgetQuick forgets all of keys.
func (c *Cache) ForgetQuick(keys []Key) {
	for _, k := range keys {
		if k != 0 {
			c.quick.Remove(k)
		}
	}
}

// Version goes up with every change, for those who send something and want to know later what came between.
func (c *Cache) Version() uint64 { return c.changes.Load() }

// Remember keeps a body Redis has taken, unless scripts have been flushed since seen.
func (c *Cache) Remember(body []byte, key Key, seen uint64) {
	if len(body) > longestBody {
		return
	}
	sum := sha1.Sum(body)
	sha := hex.EncodeToString(sum[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushed > seen {
		return
	}
	if old, known := c.bodies.Get(sha); known {
		if key != 0 {
			old.key = key
		}
		return
	}
	c.bodies.Add(sha, &script{text: string(body), key: key})
	for c.bytes += len(body); c.bytes > keptBytes; {
		c.bodies.RemoveOldest()
	}
}

// find returns the text of the script of that SHA1, if it may be loaded again, and the Version when a node was last made to load it. A script
// whose text has NOSCRIPT in it never is: the error may come from the script itself.
func (c *Cache) find(sha, where string) (text string, again uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushing > 0 {
		return "", 0, false
	}
	known, ok := c.bodies.Get(sha)
	if !ok || strings.Contains(known.text, "NOSCRIPT") {
		return "", 0, false
	}
	return known.text, known.again[where], true
}

// node is held while a node loads scripts again, so that two clients do not have it load the same one.
func (c *Cache) node(where string) *sync.Mutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[where] == nil {
		c.nodes[where] = &sync.Mutex{}
	}
	return c.nodes[where]
}

// loaded notes that a script has been loaded again.
func (c *Cache) loaded(sha, where string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b, ok := c.bodies.Peek(sha); ok {
		if b.again == nil {
			b.again = make(map[string]uint64)
		}
		b.again[where] = c.changes.Add(1)
	}
}

// FlushBegins is to be called before a SCRIPT FLUSH is sent, and FlushEnds after its reply has been looked at. Nothing
// is loaded again between the two.
func (c *Cache) FlushBegins() {
	c.loading.Lock()
	defer c.loading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushing++
}

// FlushEnds ends what FlushBegins began.
func (c *Cache) FlushEnds() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushing--
}

// Clear forgets all scripts: Redis has, or may have.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushed = c.changes.Add(1)
	c.bodies.Purge()
	c.quick.Purge()
}
