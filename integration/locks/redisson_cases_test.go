package locks

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Redisson's own tests of its locks, on our verbs. A connection stands for its thread, a proxy for its client instance (JVM).

// redissonClass is one of Redisson's test classes. Every method of it is in exactly one of the four maps.
type redissonClass struct {
	name     string
	methods  string   // all of them, as of 4.7.0
	settings []string // of the proxies
	steps    map[string][]rwStep
	funcs    map[string]func(t *testing.T)
	// elsewhere has a test of ours that is the same: its name, or of another class here "Class.method".
	elsewhere map[string]string
	not       map[string]string // why it says nothing about us
}

const (
	cluster = "there is no cluster upstream yet"
	quorum  = "there are no locks on several independent nodes yet"
	inJava  = "about classes within the Java client, of which nothing shows on the wire"
)

// ours begins the names of rows that are not Redisson's.
const ours = "not Redisson's"

// atATime is how many cases are played side by side, whatever -parallel says: they mostly wait.
const atATime = 12

// play runs the steps and funcs of a class.
func (c redissonClass) play(t *testing.T) {
	t.Parallel()
	all := maps.Clone(c.funcs)
	if all == nil {
		all = map[string]func(*testing.T){}
	}
	for name, steps := range c.steps {
		all[name] = func(t *testing.T) { playSteps(t, steps, c.settings...) }
	}
	sideBySide(t, all)
}

func sideBySide(t *testing.T, tests map[string]func(*testing.T)) {
	var group errgroup.Group
	group.SetLimit(atATime)
	for name, f := range tests {
		group.Go(func() error { t.Run(name, f); return nil })
	}
	_ = group.Wait() // a failure is its subtest's
}

// has says where a method is.
func (c redissonClass) has(method string) (places []string) {
	if _, ok := c.steps[method]; ok {
		places = append(places, "steps")
	}
	if _, ok := c.funcs[method]; ok {
		places = append(places, "funcs")
	}
	if _, ok := c.elsewhere[method]; ok {
		places = append(places, "elsewhere")
	}
	if _, ok := c.not[method]; ok {
		places = append(places, "not")
	}
	return places
}

func (c redissonClass) rows() (names []string) {
	for name := range c.steps {
		names = append(names, name)
	}
	for name := range c.funcs {
		names = append(names, name)
	}
	for name := range c.elsewhere {
		names = append(names, name)
	}
	for name := range c.not {
		names = append(names, name)
	}
	return names
}

// TestRedissonCasesAreWhole: every method of every class is here once, nothing else is, and what is said to be elsewhere is.
func TestRedissonCasesAreWhole(t *testing.T) {
	tests, byName := testsOfThisTree(t), map[string]redissonClass{}
	for _, c := range redissonClasses {
		byName[c.name] = c
	}
	counts := map[string]int{}
	for _, c := range redissonClasses {
		methods := strings.Fields(c.methods)
		for _, method := range methods {
			places := c.has(method)
			if len(places) != 1 {
				t.Errorf("%s.%s is in %q, want one place", c.name, method, places)
				continue
			}
			counts[places[0]]++
		}
		for _, row := range c.rows() {
			if !strings.HasPrefix(row, ours) && !slices.Contains(methods, row) {
				t.Errorf("%s has no method %s", c.name, row)
			}
		}
		for method, where := range c.elsewhere {
			class, other, isMethod := strings.Cut(where, ".")
			if isMethod && len(byName[class].has(other)) != 1 || !isMethod && !tests[where] {
				t.Errorf("%s.%s: there is no %s", c.name, method, where)
			}
		}
		for method, why := range c.not {
			if len(why) < 10 {
				t.Errorf("%s.%s does not apply, and why? %q", c.name, method, why)
			}
		}
	}
	for what, where := range notCoveredByRedisson {
		for _, name := range where {
			if class, method, isMethod := strings.Cut(name, "."); isMethod && len(byName[class].has(method)) != 1 || !isMethod && !tests[name] {
				t.Errorf("%s: there is no %s", what, name)
			}
		}
	}
	t.Logf("%d classes: %d methods as steps, %d as functions, %d elsewhere, %d do not apply", len(redissonClasses), counts["steps"],
		counts["funcs"], counts["elsewhere"], counts["not"])
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)

// testsOfThisTree are the names of all test functions here, of the scripts and of the locks.
func testsOfThisTree(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, dir := range []string{".", "../faults", "../redisson", "../../scripts", "../../internal/lock"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
				names[m[1]] = true
			}
		}
	}
	return names
}

// redissonClasses are all that is about locks of a kind that is here. Redisson's semaphores, latches, FasterMultiLock (values of
// a Java codec) are none.
var redissonClasses = []redissonClass{
	redissonLockTest, redissonReadWriteLock, redissonFencedLockTest, redissonSpinLockTest, redissonRenewalTest, redissonNonReentrantTest,
	redissonOtherTests, redissonRedLockTest, redissonFairLockTest, redissonMultiLockTest,
}

func TestRedissonLock(t *testing.T)         { redissonLockTest.play(t) }
func TestRedissonFencedLock(t *testing.T)   { redissonFencedLockTest.play(t) }
func TestRedissonSpinLock(t *testing.T)     { redissonSpinLockTest.play(t) }
func TestRedissonRenewal(t *testing.T)      { redissonRenewalTest.play(t) }
func TestRedissonNonReentrant(t *testing.T) { redissonNonReentrantTest.play(t) }
func TestRedissonOther(t *testing.T)        { redissonOtherTests.play(t) }

// notCoveredByRedisson is what its own tests leave out, and where it is tested here. Messages by PUBLISH where SPUBLISH is
// listened for are a cluster's matter.
var notCoveredByRedisson = map[string][]string{
	"a dead head of the queue of a free lock": {"TestDeadHeadOfAFreeLock", "TestBrokenFairQueue"},
	"a waiter that waits beyond its score":    {"RedissonFairLockTest.testLockAcquiredTimeoutDrift_Descrete"},
	"clocks that are wrong":                   {"TestFairClocks"},
	"a lock without TTL":                      {"TestLockWithoutTTL"},
	"a read release that shortens a write":    {"RedissonReadWriteLockTest.not Redisson's: partial release", "TestRWLeases"},
	"a downgrade wakes other readers":         {"TestTwentyReadersBehindAWriter"},
	"W, R, r and the watchdog":                {"RedissonReadWriteLockTest.not Redisson's: W, R, r"},
	"a poisoned key among those renewed":      {"TestPoisonedKeyAmongThoseRenewed"},
	"a lost reply, and the lock taken twice":  {"TestLostReplies", "TestOwnerHasOneHold"},
	"one name, two kinds":                     {"TestOtherKinds", "TestRWWrongKinds"},
	"failover between the grant and its WAIT": {"TestMasterDiesBeforeItsReplicaHasTheLock", "TestReplicas", "TestReplicaStopped"},
}
