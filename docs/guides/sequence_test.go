package guides_test

// A sequence shows messages between participants; time goes down.
type sequence struct {
	canvas

	y       int
	columns []*column
}

// A column is the line of a participant.
type column struct {
	x      int
	name   string
	from   int    // where the current part of the line begins
	class  string // of that part; "" if there is none
	hidden [][2]int
}

const (
	lineHigh  = 19 * px // of a text
	arrowHigh = 12 * px // of an arrow
)

func newSequence(title, description string, names ...string) *sequence {
	s := &sequence{canvas: canvas{title: title, description: description, width: diagramWidth, sizes: diagramSizes}}
	s.y = s.top("") + 4*px
	const edge, high = 62 * px, 28 * px
	for i, name := range names {
		x := edge + i*(diagramWidth-2*edge)/(len(names)-1)
		w := max(wide(name, diagramSizes.text*6/5)+16*px, 60*px)
		s.box("box", x-w/2, s.y, w, high)
		s.text(x, s.y+19*px, "strong mid", "%s", name)
		s.columns = append(s.columns, &column{x: x, name: name, from: s.y + high, class: "axis"})
	}
	s.y += high + 8*px
	return s
}

func (s *sequence) column(name string) *column {
	for _, c := range s.columns {
		if c.name == name {
			return c
		}
	}
	panic("no column " + name)
}

// draw ends the current part of a line, and begins one of another class.
func (s *sequence) draw(c *column, class string) {
	from := c.from
	for _, h := range append(c.hidden, [2]int{s.y, s.y}) {
		if c.class != "" && h[0] > from {
			path(&s.back, c.class, "M%d,%dV%d", c.x, from, h[0])
		}
		from = max(from, h[1])
	}
	c.from, c.class, c.hidden = s.y, class, nil
}

// hide keeps the lines that a text crosses from being drawn behind it.
func (s *sequence) hide(from, to int) {
	for _, c := range s.columns {
		if c.x > from-3*px && c.x < to+3*px {
			c.hidden = append(c.hidden, [2]int{s.y, s.y + lineHigh})
		}
	}
}

// say writes a line over the whole picture.
func (s *sequence) say(class, format string) {
	for _, line := range wrap(format, diagramSizes.note, diagramWidth-2*margin) {
		s.hide(margin, margin+wide(line, diagramSizes.note))
		s.text(margin, s.y+14*px, "note "+class, "%s", line)
		s.y += lineHigh
	}
	s.y += 2 * px
}

// send draws a message, with its text above it.
func (s *sequence) send(from, to, class, label string) {
	a, b := s.column(from), s.column(to)
	if label != "" {
		w := wide(label, diagramSizes.note)
		x := min(max((a.x+b.x-w)/2, margin), diagramWidth-margin-w)
		s.hide(x, x+w)
		s.text(x+w/2, s.y+14*px, "note mid", "%s", label)
		s.y += lineHigh
	}
	s.y += 4 * px
	toward := 4 * px
	if b.x < a.x {
		toward = -toward
	}
	s.arrow(class, a.x+toward, s.y, b.x-toward, s.y)
	s.y += arrowHigh
}

// lose marks the end of a connection or of a participant. Its line is then of the class, or is not drawn.
func (s *sequence) lose(name, class string) {
	c := s.column(name)
	s.y += 6 * px
	s.draw(c, class)
	s.cross(c.x, s.y)
	s.y += 8 * px
}

// restore marks the return of a participant.
func (s *sequence) restore(name string) { s.draw(s.column(name), "axis") }

func (s *sequence) svg() []byte {
	s.y += 4 * px
	for _, c := range s.columns {
		s.draw(c, "")
	}
	return s.file(s.y + 12*px)
}
