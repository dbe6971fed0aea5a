package session

// login is how far a client has come with logging in: a state machine without I/O. What happens to the client is an
// event, which has it be in another state, and its session do something. TestLogin lists all there is. Who the client
// is by then, its user and password, is its identity.
type login uint8

const (
	remote          login = iota // it came from another machine: protected mode has yet to let it stay
	remoteCertified              // the same, with a certificate that names a user
	nobody                       // it has sent no right password, and Redis has not been heard to serve it without
	certified                    // its certificate names a user, as whom it is logged in before its next command
	operator                     // it came by the admin socket, which is open to it: Redis is never asked about it
	served                       // Redis serves it without a password: it stays in when one is set, as at Redis
	user                         // Redis has taken its password: it stays in when that is another one, as at Redis
)

// need is whether Redis asks for a password, as it said last.
type need uint8

const (
	unknown need = iota // it has not said
	noPassword
	aPassword
)

// event is what happens to a client.
type event uint8

const (
	commandCame   event = iota // its next command has come, whatever it is
	waited                     // it has waited until the need is known, or for as long as one may
	needChanged                // Redis has said another thing than before
	redisServes                // Redis serves it without a password
	passwordRight              // Redis has taken its password, or that of its certificate's user
	refused                    // Redis has refused the password of its certificate's user
	revoked                    // Redis has closed what it shares with others of its identity, and does not take that any more
)

// deed is what a session has to do.
type deed uint8

const (
	goOn         deed = iota
	awaitNeed         // wait until the need is known: see waited
	logIn             // ask Redis about its certificate's user: see passwordRight, refused
	holdToLimits      // end it if its command breaks the limits of those who must log in
	deny              // end it: protected mode
	denyForNow        // end it: protected mode, and the need is not known
	end               // end it, with what it holds left to run out
)

// came is how a client begins. It begins again, as one that has come from here, with RESET, and when the user whom its
// certificate names is in the settings no more.
func came(atSocket, fromElsewhere, named bool) login {
	switch {
	case atSocket:
		return operator
	case fromElsewhere && named:
		return remoteCertified
	case fromElsewhere:
		return remote
	case named:
		return certified
	}
	return nobody
}

// in says that its commands run. Before that Redis is asked whether it serves the client, unless that must log in.
func (l login) in() bool { return l >= operator }

// mustLogIn says that Redis would refuse its commands.
func (l login) mustLogIn(n need) bool { return n == aPassword && !l.in() }

// small says that it is held to Redis' limits for those who must log in, which are very small.
func (l login) small(n need) bool { return n == aPassword && (l == nobody || l == remote) }

// on is what an event makes of a client, while that is the need.
func (l login) on(e event, n need) (login, deed) {
	switch e {
	case commandCame:
		return l, l.first(n)
	case waited:
		return l.stays(n)
	case needChanged:
		if l < nobody && n == noPassword {
			return l, deny
		}
	case redisServes:
		return served, goOn
	case passwordRight:
		return user, goOn
	case refused:
		return l, end
	case revoked:
		if l >= served {
			return l, end
		}
	}
	return l, goOn
}

// first is what comes before a command.
func (l login) first(n need) deed {
	switch {
	case l == certified:
		return logIn
	case l.in(), l == nobody && n != aPassword:
		return goOn
	case l == nobody:
		return holdToLimits
	}
	return awaitNeed
}

// stays decides about a client from another machine: it is let in where Redis asks it for a password.
func (l login) stays(n need) (login, deed) {
	switch {
	case n == unknown:
		return l, denyForNow
	case n == noPassword:
		return l, deny
	}
	return came(false, false, l == remoteCertified), goOn
}
