package sentinel

// place is a master's address, by the configuration of that epoch. The Sentinels raise the epoch at every failover, and a
// majority of them agrees to that.
type place struct {
	addr  string
	epoch int64
}

// view is what one Sentinel said.
type view struct {
	place
	asked bool
	err   error // why it said nothing of use
}

// choose says which master the views agree on, given the one that is followed now (or none). ok is false when they do not tell
// enough.
//
//   - The newest config-epoch counts, and within it the most votes.
//   - For the first choice a majority must have answered, or all must have been asked.
//   - Another address of the same epoch needs the votes of a majority of all Sentinels, and an older epoch the answers of a majority.
func choose(views []view, now place) (to place, ok bool) {
	asked, answered, newest := 0, 0, int64(-1)
	for _, v := range views {
		if v.asked {
			asked++
		}
		if v.asked && v.err == nil {
			answered++
			newest = max(newest, v.epoch)
		}
	}
	majority := len(views)/2 + 1
	if answered == 0 || now.addr == "" && answered < majority && asked < len(views) {
		return place{}, false
	}
	votes := map[string]int{}
	best := ""
	for _, v := range views {
		if !v.asked || v.err != nil || v.epoch != newest {
			continue
		}
		votes[v.addr]++
		if best == "" || votes[v.addr] > votes[best] || votes[v.addr] == votes[best] && v.addr == now.addr {
			best = v.addr
		}
	}
	switch {
	case now.addr == "" || newest > now.epoch:
	case newest == now.epoch && best != now.addr && votes[best] < majority:
		return now, true
	case newest < now.epoch && answered < majority:
		return now, true
	}
	return place{best, newest}, true
}
