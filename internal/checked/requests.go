package checked

// requests finds the commands in what rueidis writes: arrays of bulk strings, in pieces of any size.
type requests struct {
	left  int64 // arguments of the present command that are still to come
	args  int64 // of the present command
	typ   byte  // of the line that is coming; 0: none
	line  text
	body  int64 // what is left of an argument, its CR LF included
	verb  text
	named bool // verb is whole
	first text // the first argument behind it
	level bool // first is whole
}

// take notes the commands that end in p. What rueidis writes is not judged.
func (r *requests) take(p []byte, asked *account) {
	for len(p) > 0 {
		if r.body > 0 {
			p = r.takeBody(p)
		} else {
			p = r.takeLine(p)
		}
		if r.args > 0 && r.left == 0 && r.body == 0 {
			asked.ask(&r.verb, &r.first, r.args-1)
			*r = requests{}
		}
	}
}

func (r *requests) takeBody(p []byte) (rest []byte) {
	n := min(r.body, int64(len(p)))
	text := p[:max(0, min(r.body-2, n))]
	switch {
	case !r.named:
		r.verb.add(text)
	case !r.level:
		r.first.add(text)
	}
	if r.body -= n; r.body == 0 {
		r.left--
		r.level = r.named
		r.named = true
	}
	return p[n:]
}

func (r *requests) takeLine(p []byte) (rest []byte) {
	for i, b := range p {
		switch {
		case r.typ == 0:
			r.typ, r.line = b, text{}
		case b != '\n':
			r.line.add(p[i : i+1])
		default:
			r.line.n-- // the CR
			r.endLine()
			return p[i+1:]
		}
	}
	return nil
}

func (r *requests) endLine() {
	n, _ := r.line.number()
	if r.typ == '*' {
		r.args, r.left = n, n
	} else {
		r.body = n + 2
	}
	r.typ = 0
}
