package lockstore

import "testing"

func TestExpiry(t *testing.T) {
	if ExpiryAt(0) != nil || ExpiryAt(3) != nil || ExpiryAt(4).On(0) != 4 || (*Expiry)(nil).On(0) != 0 {
		t.Error("an odd expiry says that somebody has joined the hold, an even one that nobody has")
	}
	var e Expiry
	if !e.Add(1, 4) || !e.Add(2, 5) || e.On(0) != 0 || e.On(1) != 4 || e.On(2) != 0 {
		t.Error("what the votes have made", e.On(0), e.On(1), e.On(2))
	}
	e.Set(1, 8)
	if !e.Add(1, 4) || e.On(1) != 8 {
		t.Error("a vote that is told late undoes a lease that was set since", e.On(1))
	}
	if e.Set(1, 9); e.On(1) != 0 {
		t.Error("somebody has joined it", e.On(1))
	}
	e.End()
	if e.Add(0, 4) || e.On(0) != 0 {
		t.Error("a vote that comes after the hold was given back is kept")
	}
}
