package session

import "testing"

// TestLogin is what logging in is: each state, what may happen in it, and what becomes of the client. What is not listed changes nothing.
func TestLogin(t *testing.T) {
	t.Parallel()
	const anything = unknown
	for _, c := range []struct {
		what  string
		state login
		on    event
		need  need
		then  login
		do    deed
	}{
		// Whoever sends no password is served where Redis asks for none. Redis is asked about each client, once.
		{"its first command, Redis asks for no password", nobody, commandCame, noPassword, nobody, goOn},
		{"before Redis has said anything", nobody, commandCame, unknown, nobody, goOn},
		{"Redis serves it", nobody, redisServes, noPassword, served, goOn},
		{"from then on it is in, also when a password is set", served, commandCame, aPassword, served, goOn},
		{"until it is lost with the connection", served, revoked, aPassword, served, end},

		// AUTH, and HELLO with AUTH.
		{"where Redis asks for a password, its limits are small", nobody, commandCame, aPassword, nobody, holdToLimits},
		{"a right password", nobody, passwordRight, aPassword, user, goOn},
		{"a user where Redis asks for none", nobody, passwordRight, noPassword, user, goOn},
		{"a user in place of nobody", served, passwordRight, noPassword, user, goOn},
		{"another user, or a newer password", user, passwordRight, aPassword, user, goOn},

		// A password that is renewed, a user that is deleted: Redis says so when it has closed a connection.
		{"its password or user is gone", user, revoked, aPassword, user, end},
		{"that of others concerns nobody else", nobody, revoked, aPassword, nobody, goOn},
		{"nor one that is still to be logged in", certified, revoked, aPassword, certified, goOn},

		// A certificate that names a user.
		{"it is logged in before its first command", certified, commandCame, aPassword, certified, logIn},
		{"whatever Redis asks others for", certified, commandCame, noPassword, certified, logIn},
		{"Redis takes it", certified, passwordRight, aPassword, user, goOn},
		{"Redis refuses it: it must not go on as somebody else", certified, refused, aPassword, certified, end},

		// Protected mode: clients from other machines are let in only where Redis asks them for a password.
		{"its first command waits", remote, commandCame, unknown, remote, awaitNeed},
		{"also if it is known by now, since it is asked anew", remote, commandCame, aPassword, remote, awaitNeed},
		{"Redis asks for a password: it stays", remote, waited, aPassword, nobody, goOn},
		{"Redis asks for none", remote, waited, noPassword, remote, deny},
		{"Redis does not say", remote, waited, unknown, remote, denyForNow},
		{"silent until it is known", remote, needChanged, noPassword, remote, deny},
		{"silent where it may stay", remote, needChanged, aPassword, remote, goOn},
		{"who is in stays", served, needChanged, noPassword, served, goOn},
		{"a certificate's user waits as well", remoteCertified, commandCame, unknown, remoteCertified, awaitNeed},
		{"and may stay", remoteCertified, waited, aPassword, certified, goOn},
		{"or not", remoteCertified, waited, noPassword, remoteCertified, deny},
		{"nor silent", remoteCertified, needChanged, noPassword, remoteCertified, deny},

		// The admin socket.
		{"there is nothing to log in for", operator, commandCame, anything, operator, goOn},
		{"whatever Redis refuses", operator, revoked, aPassword, operator, goOn},
	} {
		if then, do := c.state.on(c.on, c.need); then != c.then || do != c.do {
			t.Errorf("%s: state %d, deed %d; not %d, %d", c.what, then, do, c.then, c.do)
		}
	}
}

// TestHowAClientBegins: where it comes from, and what it shows. RESET has it begin again, from this machine as it were.
func TestHowAClientBegins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what                           string
		atSocket, fromElsewhere, named bool
		want                           login
		small, must                    bool // where Redis asks for a password
	}{
		{what: "from this machine", want: nobody, small: true, must: true},
		{what: "from another, in protected mode", fromElsewhere: true, want: remote, small: true, must: true},
		{what: "with a certificate that names a user", named: true, want: certified, must: true},
		{what: "both", fromElsewhere: true, named: true, want: remoteCertified, must: true},
		{what: "at the admin socket", atSocket: true, want: operator},
	} {
		l := came(c.atSocket, c.fromElsewhere, c.named)
		if l != c.want || l.small(aPassword) != c.small || l.mustLogIn(aPassword) != c.must {
			t.Errorf("%s: state %d, small limits %v, must log in %v", c.what, l, l.small(aPassword), l.mustLogIn(aPassword))
		}
		if l.small(noPassword) || l.mustLogIn(unknown) {
			t.Errorf("%s: held to limits where Redis asks for no password", c.what)
		}
	}
	for l := range user + 1 { // who is not in is asked about at Redis, or refused
		if in := l == operator || l == served || l == user; l.in() != in || l.mustLogIn(aPassword) == in || in && l.small(aPassword) {
			t.Errorf("state %d: in %v, small limits %v, must log in %v", l, l.in(), l.small(aPassword), l.mustLogIn(aPassword))
		}
	}
}
