package guides_test

import (
	"fmt"
	"strings"
	"time"
)

// A picture shows events over time, in panels one below the other.
type picture struct {
	canvas

	span  time.Duration // of the axis
	left  int           // where the axis begins
	first int           // where the panels begin
	y     int           // where the next panel begins
}

const (
	width   = 620 * px
	right   = width - 20*px
	rowHigh = 19 * px
)

func newPicture(title, subtitle string, span time.Duration) *picture {
	p := &picture{
		canvas: canvas{title: title, description: subtitle, width: width, sizes: fontSizes{title: 160, text: 140, note: 130}},
		span:   span, left: 112 * px,
	}
	p.first = p.top(subtitle) + 8*px
	p.y = p.first
	return p
}

func (p *picture) x(at time.Duration) int {
	return p.left + int((int64(at)*int64(right-p.left)+int64(p.span)/2)/int64(p.span))
}

// heading names the rows that follow.
func (p *picture) heading(format string, args ...any) {
	p.text(p.left, p.y+13*px, "strong", format, args...)
	p.y += 24 * px
}

// level draws a number over time, from 0 to most.
func (p *picture) level(what string, steps steps, most int64, high int) {
	high *= px
	base, unit := p.y+high, high/int(most)
	top := base - unit*int(most)
	var line strings.Builder
	for i, s := range steps {
		x, y := p.x(s.at), base-unit*int(s.n)
		if i == 0 {
			fmt.Fprintf(&line, "M%d,%d", x, y)
			continue
		}
		fmt.Fprintf(&line, "H%dV%d", x, y)
	}
	fmt.Fprintf(&line, "H%d", right)
	path(&p.front, "area", "%sV%dH%dZ", line.String(), base, p.x(steps[0].at))
	path(&p.front, "most", "M%d,%dH%d", p.left, top, right)
	path(&p.front, "edge", "%s", line.String())
	path(&p.front, "axis", "M%d,%dV%dH%d", p.left, top-4*px, base, right)
	p.text(p.left-8*px, top+4*px, "tick end", "%d", most)
	p.text(p.left-8*px, base+4*px, "tick end", "0")
	p.text(p.left-24*px, (top+base)/2+5*px, "end", "%s", what)
	p.y += high + 6*px
}

// dots and crosses draw a row of marks: admitted and rejected calls.
func (p *picture) dots(label string, times []time.Duration) {
	p.row(label)
	for _, at := range times {
		p.dot(at, "yes")
	}
	p.y += rowHigh
}

func (p *picture) crosses(label string, times []time.Duration) {
	p.row(label)
	var d strings.Builder
	for _, at := range times {
		d.WriteString(p.crossAt(at))
	}
	if d.Len() > 0 {
		path(&p.front, "no", "%s", d.String())
	}
	p.y += rowHigh
}

func (p *picture) row(label string) { p.text(p.left-24*px, p.middle()+5*px, "end", "%s", label) }

func (p *picture) middle() int { return p.y + rowHigh/2 }

func (p *picture) dot(at time.Duration, class string) {
	fmt.Fprintf(&p.front, "<circle class=\"%s\" cx=\"%d\" cy=\"%d\" r=\"28\"/>\n", class, p.x(at), p.middle())
}

func (p *picture) crossAt(at time.Duration) string {
	return fmt.Sprintf("M%d,%dl50,50m0-50l-50,50", p.x(at)-25, p.middle()-25)
}

// name names all rows so far together.
func (p *picture) name(what string) { p.text(p.left-24*px, (p.first+p.y)/2+5*px, "end", "%s", what) }

// bar draws a period, in a row of its own.
func (p *picture) bar(from, to time.Duration) {
	fmt.Fprintf(&p.front, "<rect class=\"area\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
		p.x(from), p.y+3*px, p.x(to)-p.x(from), rowHigh-6*px)
	path(&p.front, "edge", "M%d,%dH%dV%dH%dZ", p.x(from), p.y+3*px, p.x(to), p.y+rowHigh-3*px, p.x(from))
}

// legend explains the marks where their rows have no names.
func (p *picture) legend() {
	at := p.span - p.span*3/8
	y := p.y
	p.y = p.first - 26*px
	p.dot(at, "yes")
	p.note(at, "admitted")
	path(&p.front, "no", "%s", p.crossAt(at+p.span/5))
	p.note(at+p.span/5, "rejected")
	p.y = y
}

// note writes a text to the right of a time, in the current row.
func (p *picture) note(at time.Duration, format string, args ...any) {
	p.text(p.x(at)+8*px, p.middle()+5*px, "note", format, args...)
}

// shade marks a time in all that was drawn since y.
func (p *picture) shade(class string, y int, from, to time.Duration, format string, args ...any) {
	fmt.Fprintf(&p.back, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
		class, p.x(from), y, p.x(to)-p.x(from), p.y-y)
	p.text((p.x(from)+p.x(to))/2, y+14*px, "tick mid", format, args...)
}

// at marks a moment in all that was drawn since y.
func (p *picture) at(y int, at time.Duration, format string, args ...any) {
	path(&p.front, "mark", "M%d,%dV%d", p.x(at), y, p.y)
	p.text(p.x(at)+6*px, y+13*px, "note", format, args...)
}

func (p *picture) gap() { p.y += 12 * px }

// line draws a dashed line at a height, with a name.
func (p *picture) line(y int, name string) {
	path(&p.front, "most", "M%d,%dH%d", p.left, y, right)
	p.text(p.left-8*px, y+4*px, "tick end", "%s", name)
}

// svg adds the axis in seconds, and returns the file.
func (p *picture) svg(every time.Duration) []byte { return p.svgIn(every, time.Second, "seconds") }

// svgIn adds an axis in other units.
func (p *picture) svgIn(every, unit time.Duration, name string) []byte {
	for at := time.Duration(0); at <= p.span; at += every {
		path(&p.back, "grid", "M%d,%dV%d", p.x(at), p.first-6*px, p.y)
		p.text(p.x(at), p.y+17*px, "tick mid", "%d", at/unit)
	}
	p.text((p.left+right)/2, p.y+35*px, "tick mid", "%s", name)
	return p.file(p.y + 45*px)
}
