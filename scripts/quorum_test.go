package scripts_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

const votes = "lockproxy_votes:{k}:me"

// attempts of the owner "me" at the plain lock k on one node of a quorum.
func vote(t *testing.T, s *testredis.Server, attempt string, lease int) string {
	t.Helper()
	return run(t, s, scripts.Vote[scripts.Acquire], append([]string{votes, token}, plain("k", watch)...), attempt, "", lease, "me", soon, "OW", "PUBLISH", "r-"+attempt, 0)
}

func retract(t *testing.T, s *testredis.Server, attempt string) string {
	t.Helper()
	return run(t, s, scripts.Retract[scripts.Release], append([]string{votes, watch}, plain("k", watch)...), attempt, "r-"+attempt, "me", "PUBLISH", soon, "AWQ", "r-"+attempt)
}

func drop(t *testing.T, s *testredis.Server, since, known string) string {
	t.Helper()
	return run(t, s, scripts.Drop[scripts.Release], append([]string{votes}, plain("k", watch)...), since, known, "me", "PUBLISH", soon, "AW", "")
}

// TestVotesWithoutRenewal: on a node of a quorum a new hold that is not renewed has an empty registration, or none if its proxy knew of a
// hold that is renewed.
func TestVotesWithoutRenewal(t *testing.T) {
	s := testredis.Start(t)
	for _, known := range []string{"", "r-a"} {
		unrenewed := func(registration any) {
			t.Helper()
			run(t, s, scripts.Vote[scripts.Acquire], append([]string{votes, token}, plain("k", watch)...), "b", "", 9000, "me", soon, "OD", "PUBLISH", known, 0)
			want(t, fmt.Sprintf("%s", s.Do(t, "GET", watch)), fmt.Sprintf("%s", registration))
		}
		unrenewed(map[string]any{"": "", "r-a": nil}[known])
		s.Do(t, "DEL", "k")
		s.Do(t, "SET", watch, "r-c", "PX", 9000)
		unrenewed("")
		s.Do(t, "DEL", "k", watch)
		vote(t, s, "a", 9000)
		unrenewed(map[string]string{"": "r-a+", "r-a": "r-a"}[known])
		s.Do(t, "DEL", "k", watch)
	}
}

// TestVotes is what one node of a quorum does for attempts of one owner.
func TestVotes(t *testing.T) {
	s := testredis.Start(t)
	const fresh, joined, over, others, nothing = "[1 1 9000 0 1]", "[1 1 9000 0 0]", "[1 0]", "[0 1]", "[-1 0]"

	// One that fails takes back its own; done twice it does nothing.
	want(t, vote(t, s, "a", 9000), fresh)
	want(t, retract(t, s, "a"), over)
	want(t, contents(t, s), "")
	want(t, retract(t, s, "a"), nothing)

	// What another one counts on stays, in either order, and so does who renews it.
	for _, first := range []string{"a", "b"} {
		want(t, vote(t, s, "a", 9000), fresh)
		want(t, vote(t, s, "b", 9000), joined)
		second := map[string]string{"a": "b", "b": "a"}[first]
		want(t, retract(t, s, first), others)
		want(t, fmt.Sprintf("%s", s.Do(t, "HGETALL", "k")), "[me 1]")
		// Without the one that is registered the hold stays registered, so that an UNLOCK elsewhere is seen to have ended it.
		want(t, fmt.Sprintf("%s", s.Do(t, "GET", watch)), map[string]string{"a": "r-b+", "b": "+"}[first])
		if left := s.Do(t, "PTTL", watch).(int64); left <= 0 {
			t.Error(left)
		}
		want(t, retract(t, s, second), over)
		s.Do(t, "DEL", watch)
	}

	// A renewal and RENEW count as the attempt that the lock was had by.
	want(t, vote(t, s, "a", 9000), fresh)
	want(t, run(t, s, scripts.StandRenew[scripts.Renew], []string{votes, "k"}, 1, "b", 9000, soon, "-", "me"), "[1]")
	want(t, retract(t, s, "a"), others)
	want(t, run(t, s, scripts.StandExtend[scripts.Extend], []string{votes, "k"}, "c", 9000, "me", soon, "", "", ""), "[1 1 9000]")
	want(t, run(t, s, scripts.StandRenew[scripts.Renew], []string{votes, "k"}, 1, "", 0, soon, "-", "me"), "[1]") // a look is none
	want(t, retract(t, s, "b"), others)
	want(t, retract(t, s, "c"), over)

	// More than can be told apart, or without a note: nobody takes them back.
	for i := range 20 {
		vote(t, s, strconv.Itoa(i), 9000)
	}
	if n := s.Do(t, "HLEN", votes).(int64); n != 1 {
		t.Error(n, "attempts noted")
	}
	want(t, retract(t, s, "19"), others)
	want(t, fmt.Sprintf("%s", s.Do(t, "GET", watch)), "+")
	s.Do(t, "DEL", votes)
	want(t, vote(t, s, "a", 9000), joined)
	want(t, retract(t, s, "a"), others)
	s.Do(t, "SET", votes, "no hash")
	want(t, vote(t, s, "a", 9000), joined)
	want(t, retract(t, s, "a"), others)
	want(t, drop(t, s, "", ""), "[1 0 0]") // attempts that are no longer told apart

	// A note that has outlived its hold says nothing of the next one; nor does a hold that ended take another owner's with it.
	want(t, vote(t, s, "a", 9000), fresh)
	s.Do(t, "DEL", "k")
	want(t, vote(t, s, "b", 9000), fresh)
	want(t, retract(t, s, "a"), others)
	s.Do(t, "DEL", "k")
	s.Do(t, "HSET", "k", "you", 1)
	want(t, retract(t, s, "b"), nothing)
	want(t, fmt.Sprintf("%s", s.Do(t, "HGETALL", "k")), "[you 1]")
	s.Do(t, "FLUSHALL")

	// An UNLOCK that comes late leaves what counts since it was asked for, and drops what it knows.
	clock, err := redis.Int64s(s.Do(t, "TIME"), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := strconv.FormatInt(clock[0]*1e6+clock[1], 10)
	want(t, vote(t, s, "a", 9000), fresh)
	want(t, drop(t, s, now, ""), nothing)
	want(t, drop(t, s, now, "b"), nothing)
	want(t, drop(t, s, now, "a"), "[1 0 148399243917989]") // the beginning of sha1("a")
	want(t, vote(t, s, "b", 9000), fresh)
	want(t, drop(t, s, strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10), "a"), "[1 0 257110153553865]")

	// An UNLOCK that asks once more drops only what it has seen before.
	const a, b = "148399243917989", "257110153553865"
	want(t, vote(t, s, "a", 9000), fresh)
	want(t, vote(t, s, "b", 9000), joined)
	want(t, drop(t, s, "="+a+"=", ""), nothing)
	want(t, drop(t, s, "=1"+a+"="+b+"1=", ""), nothing)
	want(t, drop(t, s, "="+a+"="+b+"=", "")[:4], "[1 0")
	want(t, drop(t, s, "="+a+"=", ""), nothing)
	s.Do(t, "DEL", watch)
	want(t, contents(t, s), "")
	if left := s.Do(t, "PTTL", votes).(int64); left != -2 {
		t.Error(left)
	}
}

// A vote proposes a token and keeps none; a refusal tells owners from one another.
func TestVoteAnswers(t *testing.T) {
	s := testredis.Start(t)
	fenced := func(owner string) []int64 {
		t.Helper()
		out, err := redis.Int64s(s.Dial(t).Do("EVAL", scripts.Vote[scripts.Acquire].Source, 4, "v:"+owner, token, "k", "redisson_lock_queue:{k}",
			"a", "F", 9000, owner, soon, "O", "PUBLISH", "", 0))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	last := time.Now().Add(time.Hour).UnixMicro()
	s.Do(t, "SET", token, last)
	if out := fenced("me"); out[3] != last+1 || out[4] != 1 {
		t.Error(out)
	}
	if out := fenced("me"); out[3] != last+1 || out[4] != 0 {
		t.Error(out)
	}
	if kept := fmt.Sprintf("%s", s.Do(t, "GET", token)); kept != strconv.FormatInt(last, 10) {
		t.Error(kept)
	}
	mine := fenced("you")
	s.Do(t, "DEL", "k")
	s.Do(t, "HSET", "k", "they", 1)
	if theirs := fenced("you"); mine[0] != 0 || theirs[0] != 0 || mine[3] == theirs[3] || mine[3] <= 0 || theirs[3] <= 0 {
		t.Error(mine, theirs)
	}
	s.Do(t, "DEL", "k")
	s.Do(t, "HSET", "k", "mode", "read", "a", 1, "b", 1)
	s.Do(t, "SET", token, "9007199254740991")
	want(t, run(t, s, scripts.Vote[scripts.WriteAcquire], []string{"v", token, "k"}, "a", "F", 9000, "me:write", soon, "O", "", 0, "me", "{k}"),
		"ERR the fencing token of this lock is not an integer below 2^53")
	if out, err := redis.Int64s(s.Dial(t).Do("EVAL", scripts.Vote[scripts.WriteAcquire].Source, 3, "v", token, "k",
		"a", "", 9000, "me:write", soon, "O", "", 0, "me", "{k}")); err != nil || out[0] != 0 || out[3] != 0 {
		t.Error(out, err)
	}
}
