package page

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

const (
	// otherTime is for an answer of another proxy, waitTime is for how long those who look wait for it.
	otherTime, waitTime = time.Second, 500 * time.Millisecond
	mostAsked           = 64       // proxies
	mostAnswer          = 16 << 20 // bytes
	mostRead            = 4        // answers at once: before it is read whole, nobody knows whose one is
	// mostEntries is how many holders and waiters a proxy tells of.
	mostEntries = 20000
	// othersMost is after how long others are asked again, however much they tell.
	othersMost = 8 * time.Second
	// quickCost is what reading an answer may cost that those who look wait for: else they see what was told before.
	quickCost  = 10 * time.Millisecond
	othersPath = "/locks.json?here=1"
)

// others are what other proxies have told. They are asked while somebody looks.
type others struct {
	http http.Client
	mu   sync.Mutex        // guards all below
	by   map[string]*other // by their ids
	over bool              // nobody is to be asked any more

	reading chan struct{} // has a place for each answer that is read
}

// other is one of them. The mutex of others guards it.
type other struct {
	proxies.State
	entries []lock.Entry  // as they were at that time
	at      time.Time     // zero: it has told nothing yet
	cost    time.Duration // of reading an answer
	asked   time.Time     // when it was asked last
	asking  chan struct{} // closed when the answer is there; nil: it is not asked
}

var (
	errRedirect = errors.New("it leads elsewhere")
	errProof    = errors.New("its answer does not show that it has the token")
)

// begin readies others for a page with that entry.
func (o *others) begin(e Entry) {
	o.by, o.reading = map[string]*other{}, make(chan struct{}, mostRead)
	o.http = http.Client{
		Transport: &http.Transport{TLSClientConfig: e.asking(), TLSHandshakeTimeout: otherTime, MaxIdleConnsPerHost: 1,
			IdleConnTimeout: othersMost + rest, DialContext: (&net.Dialer{Timeout: otherTime}).DialContext, MaxResponseHeaderBytes: 32 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}
}

// signedBy says that a chain is of the authorities, if there are any: the address may be somebody else's.
func (e Entry) signedBy(chain []*x509.Certificate) error {
	if e.Authorities == nil {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: e.Authorities(), Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// end has nobody asked any more.
func (o *others) end() {
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	o.http.CloseIdleConnections()
}

// ask asks the other proxies for whom it is time, and waits a moment for those that answered the last
// time, and did not tell much.
func (p *Page) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	for _, asking := range p.askAll() {
		select {
		case <-asking:
		case <-ctx.Done():
			return
		}
	}
}

// askAll begins to ask those for whom it is time, and returns what is closed when those have answered that are expected
// to.
func (p *Page) askAll() (expected []chan struct{}) {
	known, _ := p.Proxies.All()
	now, o := time.Now(), &p.others
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return nil
	}
	o.know(known[:min(len(known), mostAsked)], now)
	cost := time.Duration(0)
	for _, one := range o.by {
		cost += one.cost
	}
	due := max(rest/2, min(75*cost, othersMost)) // a hundredth of a processor, and about as much for the garbage
	for _, one := range o.by {
		if one.asking != nil || one.State.State == "gone" {
			continue
		}
		if now.Sub(one.asked) < due {
			continue
		}
		one.asked = now
		if why := p.unaskable(one.Proxy); why != "" {
			one.become("down", why, now)
			continue
		}
		one.asking = make(chan struct{})
		if one.Trouble == "" && one.cost < quickCost {
			expected = append(expected, one.asking)
		}
		p.parts.Go(func() { p.askOne(one.Proxy) })
	}
	return expected
}

// know notes which proxies there are, and forgets the others. The mutex is held.
func (o *others) know(known []proxies.Proxy, now time.Time) {
	still := map[string]bool{}
	for _, k := range known {
		still[k.ID] = true
		one := o.by[k.ID]
		if one == nil {
			one = &other{State: proxies.State{Proxy: k, State: "down", Since: now}}
			o.by[k.ID] = one
		}
		if one.Page != k.Page || one.Secure != k.Secure { // nobody has answered there
			one.become("down", "its page is elsewhere now", now)
		}
		if one.Proxy = k; k.Gone {
			one.become("gone", "it is connected to Redis no more", k.Until)
		} else if one.State.State == "gone" {
			one.become("up", "", now)
		}
		if one.State.State != "up" && now.Sub(one.at) > proxies.TTL {
			one.entries = nil
		}
	}
	for id, one := range o.by {
		if !still[id] && one.asking == nil {
			delete(o.by, id)
		}
	}
}

// become notes how it is. The mutex is held.
func (o *other) become(state, trouble string, since time.Time) {
	if state != o.State.State {
		o.State.State, o.Since = state, since
	}
	o.Trouble = trouble
}

// unaskable is why the page of a proxy cannot be asked; "": it can. What is on loopback is for its own machine, and
// without a token or certificates only that is believed.
func (p *Page) unaskable(other proxies.Proxy) string {
	host, _, err := net.SplitHostPort(other.Page)
	switch {
	case other.Page == "":
		return "it has no page: see admin-listen"
	case err != nil || host == "":
		return "the address of its page is none"
	case proxies.Loopback(other.Page) && other.Host != p.Proxies.Self().Host:
		return "its page is for its own machine only: see admin-listen"
	case p.guard.open() && !proxies.Loopback(other.Page):
		return "this page is for its own machine only: see admin-listen"
	case p.guard.Certificates && !other.Secure:
		return "its page has no certificate"
	}
	return ""
}

// askOne asks one proxy, and notes what it tells.
func (p *Page) askOne(whom proxies.Proxy) {
	ctx, cancel := context.WithTimeout(context.Background(), otherTime)
	defer cancel()
	body, err := p.get(ctx, whom)
	began := time.Now()
	var told locksJSON
	if err == nil {
		if err = json.Unmarshal(body, &told); err == nil && told.Proxy != whom.ID {
			err = errors.New("another proxy answers there")
		}
	}
	entries, holds := told.entries()
	o := &p.others
	o.mu.Lock()
	defer o.mu.Unlock()
	one, now := o.by[whom.ID], time.Now()
	close(one.asking)
	one.asking = nil
	if err != nil {
		one.become("down", err.Error(), now)
		return
	}
	one.become("up", "", now)
	one.entries, one.at, one.cost = entries, began, settled(one.cost, now.Sub(began))
	one.Holds, one.Waits = holds, len(entries)-holds
}

// get asks the page of a proxy, with what shows that this one may ask, and looks whether the answer is that one's.
func (p *Page) get(ctx context.Context, whom proxies.Proxy) (body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, either(whom.Secure, "https://", "http://")+whom.Page+othersPath, nil)
	if err != nil || r.URL.Host != whom.Page { // then all of it is a host and a port
		return nil, errors.New("the address of its page is none")
	}
	token, asked := "", ""
	if p.guard.Token != nil {
		stamp := newStamp(time.Now())
		token = p.guard.Token()
		asked = target(token, whom.ID, whom.Page, r.Method, othersPath, stamp)
		r.Header.Set("Authorization", scheme+stamp+" "+asked)
	}
	w, err := p.others.http.Do(r)
	if ctx.Err() != nil {
		return nil, errors.New("its page does not answer in time")
	}
	if err != nil {
		return nil, errors.Unwrap(err) // *url.Error, which has the address again
	}
	defer w.Body.Close()
	select {
	case p.others.reading <- struct{}{}:
		defer func() { <-p.others.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var all bytes.Buffer
	switch _, err = io.Copy(&all, io.LimitReader(w.Body, mostAnswer+1)); {
	case err != nil:
	case w.StatusCode == http.StatusUnauthorized:
		err = errors.New("it has another token, or its clock differs by more than " + signedFor.String())
	case w.StatusCode != http.StatusOK:
		err = fmt.Errorf("its page answers %d", w.StatusCode)
	case all.Len() > mostAnswer:
		err = errors.New("its answer is too long")
	case token != "" && !hmac.Equal([]byte(w.Header.Get(answerHeader)), []byte(signAnswer(token, asked, shown(w.TLS), all.String()))):
		p.others.http.CloseIdleConnections() // this one's certificate may have changed since
		err = errProof
	}
	return all.Bytes(), err
}

// told adds what other proxies hold and wait for to what this one does, as it is now. The list is sorted by name then.
func (o *others) told(list []lock.Entry) []lock.Entry {
	o.mu.Lock()
	own, now := len(list), time.Now()
	for _, one := range o.by {
		for _, e := range one.entries {
			age := now.Sub(one.at)
			e.Held, e.Left = e.Held+age, max(0, e.Left-age)
			list = append(list, e)
		}
	}
	o.mu.Unlock()
	if len(list) > own {
		slices.SortStableFunc(list, func(a, b lock.Entry) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), last(a.Waiting, b.Waiting), cmp.Compare(b.Held, a.Held))
		})
	}
	return list
}

// last compares two so that those of which something is so come last.
func last(a, b bool) int { return cmp.Compare(either(a, 1, 0), either(b, 1, 0)) }

// states are how they are, by their ids.
func (o *others) states() map[string]*proxies.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]*proxies.State, len(o.by))
	for id, one := range o.by {
		now := one.State
		all[id] = &now
	}
	return all
}

// states are how this proxy and the others are: this one, then those that there are, then those that have gone.
func (p *Page) states() (all []proxies.State) {
	for _, one := range p.others.states() {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b proxies.State) int {
		return cmp.Or(last(a.Gone, b.Gone), cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.ID, b.ID))
	})
	_, trouble := p.Proxies.All()
	now := p.Stats()
	return append([]proxies.State{proxies.Here(p.Proxies.Self(), trouble, int(now.Held), int(now.Waiting))}, all...)
}

// AllProxies are this proxy and the others, which are asked if it is time.
func (p *Page) AllProxies(ctx context.Context) []proxies.State {
	p.ask(ctx)
	return p.states()
}

// OfOthers is what other proxies hold and wait for.
func (p *Page) OfOthers(ctx context.Context) []lock.Entry {
	p.ask(ctx)
	return p.others.told(nil)
}
