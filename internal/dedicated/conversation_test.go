package dedicated

import (
	"strings"
	"testing"
)

// What the client gets of what comes from Redis; a point behind a frame says that it has answered a command, a question
// mark that nobody has asked for it.
func TestConversation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ why, proto2, proto3, want string }{
		{"replies", ">G >G $1 -ERR_x", "", "$1 . -ERR_x ."},
		{"of this proxy's own", ">o >G $1 $2", "", ". $2 ."},
		{"nobody has asked", "$1", "", "$1 ?"},
		{"a refusal is kept, a reply passed on", ">r >r -MOVED_1_a:1 $1", "", "kept . $1 ."},
		{"another error", ">i -ERR_x", "", "-ERR not here ."},
		{"a redirect of what is queued", "M+OK >q -MOVED_1_a:1 >q +QUEUED >x -EXECABORT_x", "",
			"+OK . -ERR the slot of this transaction has moved to another node: EXEC will abort it . +QUEUED . -EXECABORT_x ."},
		{"a redirect of EXEC", "M+OK >q +QUEUED >x -ASK_1_a:1", "",
			"+OK . +QUEUED . -EXECABORT Transaction discarded because of: its slot has moved to another node ."},
		{"a slot without a node", "M+OK >q -CLUSTERDOWN_x", "", "+OK . -CLUSTERDOWN_x ."},
		{"MONITOR", "O+OK +1700000000.123456_[0_a:1]_x >G +1.2", "", "+OK . +1700000000.123456_[0_a:1]_x +1.2 ."},

		{"messages to a subscriber", ">B (subscribe:a:1 [message:a:x (subscribe:b:2 >G $1", "",
			"(subscribe:a:1 [message:a:x (subscribe:b:2 . $1 ."},
		{"messages in RESP3", "", ">B (subscribe:a:1 [message:a:x >G (subscribe:b:2 [invalidate:b:x $1",
			"(subscribe:a:1 [message:a:x (subscribe:b:2 . [invalidate:b:x $1 ."},
		{"a reply that looks like a message", ">G [message:a:x", "", "[message:a:x ."},
		{"it ends without having been asked for", ">B (subscribe:a:1 (unsubscribe:a:0 (subscribe:b:1", "",
			"(subscribe:a:1 (unsubscribe:a:0 (subscribe:b:1 ."},
		{"UNSUBSCRIBE without names", ">B (subscribe:a:1 (subscribe:b:2 >b (unsubscribe:a:1 (unsubscribe:b:0", "",
			"(subscribe:a:1 (subscribe:b:2 . (unsubscribe:a:1 (unsubscribe:b:0 ."},
		{"refused", ">B -NOPERM_x", "", "-NOPERM_x ."},

		{"EXEC", "M+OK G+QUEUED E*1 $1 >G $2", "", "+OK . +QUEUED . *1 $1 . $2 ."},
		{"EXEC that runs nothing", "M+OK G+QUEUED E*-1", "", "+OK . +QUEUED . *-1 ."},
		{"a message in EXEC's reply", "M+OK B+QUEUED G+QUEUED E*2 (subscribe:a:1 (subscribe:b:2 [message:a:x :1 [message:a:y", "",
			"+OK . +QUEUED . +QUEUED . *2 (subscribe:a:1 (subscribe:b:2 [message:a:x :1 . [message:a:y"},
		{"a reply in EXEC's that looks like one", "M+OK B+QUEUED G+QUEUED E*2 (subscribe:a:1 (subscribe:b:2 [message:x:y", "",
			"+OK . +QUEUED . +QUEUED . *2 (subscribe:a:1 (subscribe:b:2 [message:x:y ."},
		{"a push in EXEC's reply", "", "M+OK G+QUEUED E*1 [invalidate:a:b $1", "+OK . +QUEUED . *1 [invalidate:a:b $1 ."},
		{"an EXEC behind it", "M+OK B+QUEUED >E >E *1 (subscribe:a:1 (subscribe:b:2 [message:a:x -ERR_without", "",
			"+OK . +QUEUED . *1 (subscribe:a:1 (subscribe:b:2 . [message:a:x -ERR_without ."},

		{"FENCED", ">F *1 $1", "", "$1 ."},
		{"FENCED with a look at the lock", ">F *2 *-1 $1", "", "$1 ."},
		{"FENCED, the lock has changed", ">F *-1", "", "kept ."},
		{"FENCED, refused", ">F -EXECABORT_x", "", "kept ."},
	} {
		proto, steps := 2, c.proto2
		if steps == "" {
			proto, steps = 3, c.proto3
		}
		talk := talkIn(proto)
		talk.run(steps)
		if got := strings.Join(talk.told, " "); got != c.want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.why, steps, got, c.want)
		}
		if len(talk.pending.all) > 0 {
			t.Errorf("%s: %d replies are pending", c.why, len(talk.pending.all))
		}
	}
}

// A frame is taken whole where its beginning does not tell what becomes of it.
func TestJudgedWhole(t *testing.T) {
	t.Parallel()
	for steps, want := range map[string]bool{">G $1": false, ">G -ERR": true, ">i $1": true, ">o $1": false, ">r $1": false, ">r -MOVED": true, ">B *3\r\n$9\r\nsubscribe": true} {
		c := talkIn(2)
		send, frame, _ := strings.Cut(steps, " ")
		c.send(send[1])
		if got := c.judge([]byte(frame + "\r\n")).whole; got != want {
			t.Errorf("%q: %v", steps, got)
		}
	}
}

// An array that answers a client in RESP2 without subscriptions is a reply, which takes no memory to find out.
func TestPlainArraysTakeNoMemory(t *testing.T) {
	c := talkIn(2)
	c.send('G')
	reply := []byte("*2\r\n$9\r\nsomething\r\n$1\r\nx\r\n")
	if n := testing.AllocsPerRun(100, func() {
		if c.classify(reply) != frameReply {
			t.Fatal("it is no reply")
		}
	}); n > 0 {
		t.Errorf("%v allocations for each reply", n)
	}
}
