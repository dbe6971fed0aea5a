package checked

import "testing"

// A command that is answered before the next one is sent, as most are, takes no memory.
func TestOneCommandAtATimeTakesNoMemory(t *testing.T) {
	var a account
	a.noteAsked(frame("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"))
	head, reply := frame("*1\r\n$4\r\nPING\r\n"), frame("+OK\r\n")
	if n := testing.AllocsPerRun(100, func() {
		if a.noteAnswer(reply) != nil {
			t.Fatal("it is not taken")
		}
		a.noteAsked(head)
	}); n > 0 {
		t.Errorf("%v allocations for each command", n)
	}
}
