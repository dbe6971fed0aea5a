package scripts_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// voteFor are the ARGV of an acquire of a plain lock.
func voteFor(owner string, count any, lease int) []any {
	return []any{owner, count, lease, soon, "", "", "PUBLISH", "", 0}
}

// TestVoteIsAnAcquire: one node of a quorum does what acquire does, and says of a hold that it has already that it was there.
func TestVoteIsAnAcquire(t *testing.T) {
	s := testredis.Start(t)
	vote := func(owner string, count any, lease int) []int64 {
		t.Helper()
		return numbers(t, run(t, s, scripts.Vote, plain("k"), append([]any{0}, voteFor(owner, count, lease)...)...))
	}
	want(t, fmt.Sprint(vote("a", 1, 9000)), "[1 1 9000 0 0]")
	want(t, fmt.Sprint(vote("a", 1, 60000)), "[1 0 60000 0 0]") // the renewal of a connection
	want(t, fmt.Sprint(vote("b", 1, 9000)[:2]), "[0 0]")
	want(t, release(t, s, "a", 0, ""), "1")

	made := vote("job", "lengthen", 9000)
	if made[1] != 1 || made[4]%2 != 0 {
		t.Fatal(made)
	}
	joined := vote("job", "lengthen", 9000)
	if joined[1] != 0 || joined[4]%2 != 1 || joined[4] <= made[4] {
		t.Fatal(made, joined)
	}
	want(t, release(t, s, "job", 0, made[4]), "-1") // a vote that was not won, but joined
	want(t, run(t, s, scripts.Vote, plain("k"), append([]any{0, "job", "lengthen", 9000, late}, voteFor("", 0, 0)[4:]...)...), "[-2 0 0 0 0]")

	keys := slices.Concat(rwKeys, []string{"l", "c", "t"})
	s.Do(t, "DEL", "k")
	args := []any{0, "a", "write", 0, 1, 9000, soon, "", "{k}", "", 0, "PUBLISH", "a", "read", 1, 0, 9000, soon, "", "{l}", "", 0, "PUBLISH"}
	want(t, run(t, s, scripts.RWVote, keys, args...), "[1 1 9000 0 0 1 1 9000 0 0]")
}

// TestVotesForMany: a node is asked for many holds in one script, and one that is no lock keeps it from none of the others.
func TestVotesForMany(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "SET", "string", "x")
	s.Do(t, "HSET", "rw", "mode", "read")
	var keys []string
	args := []any{0}
	for _, lock := range []string{"a", "string", "rw", "b"} {
		keys = append(keys, lock, "redisson_lock_queue:{"+lock+"}", "redisson_lock_token:{"+lock+"}")
		args = append(args, voteFor("me", 1, 9000)...)
	}
	want(t, run(t, s, scripts.Vote, keys, args...), "[1 1 9000 0 0 -3 0 0 0 0 -3 0 0 0 0 1 1 9000 0 0]")
	want(t, run(t, s, scripts.Vote, plain("string"), append([]any{0}, voteFor("me", 1, 9000)...)...), wrongType)
}

// TestVoteAnswers: a vote proposes a token and keeps none; a refusal tells owners from one another.
func TestVoteAnswers(t *testing.T) {
	s := testredis.Start(t)
	fenced := func(owner string) []int64 {
		t.Helper()
		return numbers(t, run(t, s, scripts.Vote, plain("k"), append([]any{1}, voteFor(owner, "lengthen", 9000)...)...))
	}
	last := time.Now().Add(time.Hour).UnixMicro()
	s.Do(t, "SET", token, last)
	for i := range int64(2) {
		if out := fenced("me"); out[3] != last+1 || out[1] != 1-i {
			t.Error(out)
		}
	}
	want(t, fmt.Sprintf("%s", s.Do(t, "GET", token)), strconv.FormatInt(last, 10))
	mine, again := fenced("you"), fenced("they")
	s.Do(t, "DEL", "k")
	s.Do(t, "HSET", "k", "they", 1)
	theirs := fenced("you")
	if mine[0] != 0 || theirs[0] != 0 || mine[3] != again[3] || mine[3] == theirs[3] || mine[3] <= 0 || theirs[3] <= 0 {
		t.Error(mine, again, theirs)
	}
	s.Do(t, "DEL", "k")
	s.Do(t, "HSET", "k", "mode", "read", "a", 1, "b", 1)
	for _, reader := range []string{"a", "b"} {
		s.Do(t, "SET", holdsOf(reader)+":1", 1, "PX", 60000)
	}
	write := []any{"me", "write", "lengthen", 0, 9000, soon, "", "{k}", "", 0, "PUBLISH"}
	out := numbers(t, run(t, s, scripts.RWVote, rwKeys, append([]any{0}, write...)...))
	want(t, fmt.Sprint(out[0], out[3]), "0 0")
	s.Do(t, "SET", token, "9007199254740991")
	want(t, run(t, s, scripts.RWVote, rwKeys, append([]any{1}, write...)...), "ERR the fencing token of this lock is not an integer below 2^53")
}
